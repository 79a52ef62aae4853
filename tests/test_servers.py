"""Every kind of server, operation, era and way of asking, and what is left behind afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import wide
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from runs import classic, deliveries, until, wait_for_round

import m3nb.runtime.calls as calls
import m3nb.runtime.execution as execution_module
from m3nb import ElicitationResponse, InProcessServer, ModelValidationError, SecretReference, StdioServer
from m3nb.harness import AgentOutcome, AgentTask
from m3nb.runtime.asking import required_urls
from m3nb.runtime.coordinator import Operation

OPERATIONS = {
    "tool": "wide:{}",
    "prompt": "prompt wide:{}",
    "resource": "resource wide:wide://{}",
}


@pytest.fixture(scope="module")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    log = tmp_path_factory.mktemp("wide") / "log"
    with wide.over_http(log) as (url, _):
        yield url, log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


def wide_children() -> list[psutil.Process]:
    """The server processes that executions started."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.cmdline()[-1:] == [str(wide.SCRIPT)]:
                found.append(child)
    return found


@pytest.mark.parametrize("protocol", ["legacy", "auto", "2026-07-28"])
@pytest.mark.parametrize("transport", ["stdio", "http", "in process"])
def test_tools_prompts_and_resources_ask_and_go_on(kit, store, log, http_server, transport, protocol) -> None:
    if transport == "http":
        url, log = http_server
        log.unlink(missing_ok=True)
        server: Any = wide.http(url, protocol=protocol)
    else:
        server = (wide.stdio if transport == "stdio" else wide.in_process)(log, protocol=protocol)
    lines = [call.format(name) for call in OPERATIONS.values() for name in ("one", "two")]
    handle = wide.submit(kit, server, *lines, elicitation_round_limit=20)
    result, asked = wide.see_through(handle)
    assert result.error is None
    operations = [(kind, "wide://" * (kind == "resource") + name) for kind in OPERATIONS for name in ("one", "two")]
    expected = [operation for operation in operations for _ in range(2 if operation[1].endswith("two") else 1)]
    assert [(round_.operation_kind, round_.operation_name) for round_ in asked] == expected
    old = protocol == "legacy"
    assert {tuple(r.requests) for r in asked} == ({("elicitation",)} if old else {("city",), ("a", "b"), ("c",)})
    # The operation stays the same across its rounds, and is another one for each call.
    assert len({round_.logical_operation_id for round_ in asked}) == 6
    assert [record.status for record in store.managed_input_store.list_rounds(handle.execution_id)] == ["resolved"] * 9
    assert {record.delivery_attempts for record in store.managed_input_store.list_rounds(handle.execution_id)} == {1}
    arrived = deliveries(log)
    assert len(arrived) == 9
    assert [line["kind"] for line in arrived] == [kind for kind, _ in expected]
    assert [sorted(line["answers"]) for line in arrived] == [sorted(round_.requests) for round_ in asked]
    assert until(lambda: not wide_children())


def test_what_is_no_question_gets_an_answer_of_its_own_in_the_same_retry(kit, log) -> None:
    result, asked = wide.see_through(wide.submit(kit, wide.in_process(log), "wide:mixed", "wide:idle"))
    assert result.error is None
    assert [list(round_.requests) for round_ in asked] == [["q"]]
    mixed, *idle = deliveries(log)
    assert list(mixed["answers"]) == ["q", "roots", "sample"]
    assert mixed["answers"]["roots"] == {"roots": []}
    assert mixed["answers"]["sample"]["model"] == "m3nb/unsupported"
    assert [line["answers"] for line in idle] == [None, None]
    assert [line["state"] for line in idle] == ["1", "2"]


class TestURLsThatMustBeVisitedFirst:
    """Error -32042 (MCP 2025-11-25)."""

    def test_consent_then_the_same_call_again(self, kit, store, log) -> None:
        handle = wide.submit(kit, wide.stdio(log, protocol="legacy"), "wide:visit_two")
        result, asked = wide.see_through(handle)
        assert result.final_text == "visited"
        assert [sorted(round_.requests) for round_ in asked] == [["visit_two-0", "visit_two-1"]]
        request = asked[0].requests["visit_two-1"]
        assert (request.mode, request.url, request.message) == (
            "url",
            "https://example.com/visit_two-1",
            "Open visit_two-1.",
        )
        assert [line["missing"] for line in deliveries(log)] == [["visit_two-0", "visit_two-1"], []]
        done = [event.payload for event in result.trace if event.kind == "elicitation.complete"]
        assert [event["request_key"] for event in done] == ["visit_two-0", "visit_two-1"]
        assert {event["round_id"] for event in done} == {asked[0].round_id}

    def test_one_declined_and_nothing_is_called_again(self, kit, store, log) -> None:
        def answer(pending: Any) -> dict[str, ElicitationResponse]:
            return {**wide.yes(pending), "visit_two-1": ElicitationResponse(action="decline")}

        handle = wide.submit(kit, wide.in_process(log, protocol="legacy"), "wide:visit_two")
        result, asked = wide.see_through(handle, answer)
        assert "Not yet. The person did not agree: Open visit_two-1. (decline)" in result.error.message
        assert len(asked) == len(deliveries(log)) == 1
        assert [r.status for r in store.managed_input_store.list_rounds(handle.execution_id)] == ["resolved"]

    def test_a_server_that_never_says_it_is_done_is_called_again_all_the_same(self, kit, log, monkeypatch) -> None:
        monkeypatch.setattr(calls, "COMPLETION_SECONDS", 0.5)
        result, asked = wide.see_through(wide.submit(kit, wide.in_process(log, protocol="legacy"), "wide:visit_silent"))
        assert result.final_text == "visited"
        assert len(asked) == 1

    def test_a_url_during_a_call_is_answered_at_once_and_completed_later(self, kit, log) -> None:
        result, asked = wide.see_through(wide.submit(kit, wide.in_process(log, protocol="legacy"), "wide:url"))
        assert result.final_text == "accept"
        assert deliveries(log) == [{"kind": "tool", "name": "url", "answers": {"elicitation": {"action": "accept"}}}]
        done = [event.payload for event in result.trace if event.kind == "elicitation.complete"]
        assert [event["elicitation_id"] for event in done] == ["pay-1"]
        assert asked[0].requests["elicitation"].elicitation_id == "pay-1"

    def test_two_addresses_of_one_id_are_two_questions(self) -> None:
        urls = [{"mode": "url", "message": "?", "url": f"https://{n}.example/", "elicitationId": "x"} for n in "ab"]
        urls.append({"mode": "url", "message": "?", "url": "https://c.example/"})
        error = MCPError(-32042, "Not yet.", {"elicitations": urls})
        questions = required_urls(Operation("wide", "tool", "t", {}), error)
        assert [(key, request.url) for key, request in questions.items()] == [
            ("x", "https://a.example/"),
            ("x (2)", "https://b.example/"),
            ("url-3", "https://c.example/"),
        ]

    def test_a_completion_beside_its_request_is_not_lost(self, kit) -> None:
        result, asked = wide.see_through(wide.submit(kit, wide.stdio(protocol="legacy"), "wide:url_early"))
        assert result.final_text == "accept"
        done = [event.payload for event in result.trace if event.kind == "elicitation.complete"]
        assert [(event["elicitation_id"], event["round_id"]) for event in done] == [("pay-2", asked[0].round_id)]


class TestAStateThatExpired:
    """The person took longer than the server keeps its state (agents.md 10.6)."""

    @pytest.mark.parametrize("make", [wide.stdio, wide.in_process])
    def test_the_same_question_is_answered_with_the_same_answer(self, kit, store, log, make) -> None:
        seconds: Any = {"state_seconds": 1.0 if make is wide.in_process else "1"}
        handle = wide.submit(kit, make(log, **seconds), "wide:one")
        pending = wait_for_round(handle)
        time.sleep(1.2)
        handle.respond_elicitation(pending.round_id, wide.yes(pending), idempotency_key="k")
        result = handle.result(timeout=20)
        assert json.loads(result.final_text) == {"city": {"action": "accept", "content": {"city": "Pune"}}}
        assert len(deliveries(log)) == 1
        assert [r.status for r in store.managed_input_store.list_rounds(handle.execution_id)] == ["resolved"]

    def test_earlier_rounds_of_the_call_are_not_asked_again(self, kit, store, log) -> None:
        def answer(pending: Any) -> dict[str, ElicitationResponse]:
            if "c" in pending.requests:
                time.sleep(1.2)
            return wide.yes(pending)

        result, asked = wide.see_through(wide.submit(kit, wide.in_process(log, state_seconds=1.0), "wide:two"), answer)
        assert result.error is None
        assert [list(round_.requests) for round_ in asked] == [["a", "b"], ["c"]]
        # The first round's answers twice: the server had forgotten that it asked.
        assert [sorted(line["answers"]) for line in deliveries(log)] == [["a", "b"], ["a", "b"], ["c"]]

    def test_another_question_is_a_new_round(self, kit, store, tmp_path) -> None:
        server = StdioServer(
            name="forgetful", command=sys.executable, args=(str(wide.HERE / "servers" / "forgetful_server.py"),)
        )
        handle = wide.submit(kit, server, "forgetful:go")
        result, asked = wide.see_through(handle)
        assert result.error is None
        assert [round_.requests["q"].message for round_ in asked] == ["First?", "Second?"]
        assert [r.status for r in store.managed_input_store.list_rounds(handle.execution_id)] == ["resolved"] * 2


class TestHTTPServersThatFail:
    def run(self, kit: Any, server: Any) -> Any:
        return wide.submit(kit, server, "wide:one").result(timeout=30)

    def test_nobody_listens(self, kit) -> None:
        error = self.run(kit, wide.http(f"http://127.0.0.1:{wide.free_port()}/mcp")).error
        assert error.code == "server_lost"
        assert "could not be reached" in error.message
        assert "connection" in error.message

    def test_a_refused_key_is_named_by_its_status_and_never_shown(self, kit, monkeypatch) -> None:
        monkeypatch.setenv("WIDE_KEY", "Bearer sesame-open-123")
        with wide.over_http() as (url, _), door(url) as guarded:
            headers = {"Authorization": SecretReference(name="WIDE_KEY")}
            assert wide.see_through(wide.submit(kit, wide.http(guarded, headers=headers), "wide:one"))[0].error is None
            monkeypatch.setenv("WIDE_KEY", "Bearer wrong-key-00000")
            error = self.run(kit, wide.http(guarded, headers=headers)).error
        assert error.code == "server_lost"
        assert "401" in error.message
        assert "wrong-key" not in str(error)

    def test_it_dies_while_a_person_thinks(self, kit, store, log) -> None:
        with wide.over_http(log) as (url, process):
            handle = wide.submit(kit, wide.http(url), "wide:one")
            pending = wait_for_round(handle)
            process.kill()
            process.wait()
            handle.respond_elicitation(pending.round_id, wide.yes(pending), idempotency_key="k")
            error = handle.result(timeout=30).error
        assert error.code == "server_lost"
        record = store.managed_input_store.get_round(handle.execution_id, pending.round_id)
        assert (record.status, record.failure_code) == ("failed", "server_lost")
        assert deliveries(log) == []

    @pytest.mark.parametrize("protocol", ["legacy", "auto"])
    def test_it_dies_during_a_call(self, kit, protocol) -> None:
        with wide.over_http() as (url, process):
            handle = wide.submit(kit, wide.http(url, protocol=protocol), 'wide:slow {"seconds": 60}')
            until(lambda: any(event.kind == "tool.call" for event in handle.events()))
            time.sleep(0.3)
            process.kill()
            error = handle.result(timeout=30).error
        assert error.code == "server_lost"

    @pytest.mark.parametrize(
        ("fields", "part"),
        [
            ({"url": "ftp://127.0.0.1/"}, "http://"),
            ({"url": "http://"}, "http://"),
            ({"url": "http://[::1"}, "is no URL"),
            ({"url": "http://me:secret@127.0.0.1/"}, "holds credentials"),
            ({"url": "http://example.com/mcp", "loopback_only": True}, "loopback_only"),
            ({"url": "http://127.0.0.1/", "headers": {"X": "two\nlines"}}, "can't be sent"),
            ({"url": "http://127.0.0.1/", "headers": {"X": "Bearer "}}, "can't be sent"),
            ({"url": "http://127.0.0.1/", "headers": {"X y": "z"}}, "can't be sent"),
            ({"url": "http://127.0.0.1/", "headers": {"X": SecretReference(name="NOT_SET_ANYWHERE")}}, "not set"),
        ],
    )
    def test_a_url_that_cannot_be_used_is_refused_at_submission(self, kit, store, fields, part) -> None:
        with pytest.raises(ModelValidationError, match=part) as caught:
            wide.submit(kit, wide.http(**fields), "wide:one")
        assert "secret" not in caught.value.message.replace("SecretReference", "")
        assert store.list_executions() == ()


@pytest.mark.parametrize(
    ("factory", "part"), [(lambda: 1 / 0, "factory raised ZeroDivisionError"), (lambda: 5, "returned a int")]
)
def test_a_factory_that_makes_no_server_says_so(kit, factory, part) -> None:
    result = wide.submit(kit, InProcessServer(name="wide", factory=factory), "wide:one").result(timeout=20)
    assert result.error.code == "server_lost"
    assert part in result.error.message


@pytest.mark.parametrize("where", ["factory", "tool"])
def test_an_in_process_server_that_exits_ends_its_own_execution_only(kit, where) -> None:
    other = wide.submit(kit, wide.in_process(), "wide:one")
    pending = wait_for_round(other)

    def make() -> Any:
        if where == "factory":
            sys.exit(3)
        server = MCPServer("leaver")

        @server.tool()
        async def leave() -> str:
            sys.exit(3)

        return server

    leaver = wide.submit(kit, InProcessServer(name="wide", factory=make), "wide:leave")
    result = leaver.result(timeout=30)
    assert (result.outcome.value, result.error.code) == ("failed", "server_lost")
    assert "SystemExit: 3" in result.error.message
    other.respond_elicitation(pending.round_id, wide.yes(pending), idempotency_key="k")
    assert other.result(timeout=30).outcome.value == "completed"


def test_an_in_process_server_that_blocks_holds_up_nobody_else(kit) -> None:
    free = threading.Event()
    begun = threading.Event()

    def make() -> MCPServer:
        server = MCPServer("blocker")

        @server.tool()
        async def block() -> str:
            begun.set()
            free.wait(60)
            return "done"

        return server

    blocked = wide.submit(kit, InProcessServer(name="wide", factory=make), "wide:block")
    try:
        assert begun.wait(30)
        result, _ = wide.see_through(wide.submit(kit, wide.in_process(), "wide:one"))
        assert result.outcome.value == "completed"
        blocked.cancel()
        assert blocked.result(timeout=30).outcome.value == "cancelled"
        assert not free.is_set()
    finally:
        free.set()


def test_an_answer_that_an_http_server_refuses_is_not_called_delivered(kit, store) -> None:
    with wide.over_http() as (url, _), door(url, "refuses-answers") as guarded:
        headers = {"Authorization": "Bearer sesame-open-123"}
        handle = wide.submit(kit, wide.http(guarded, headers=headers, protocol="legacy"), "wide:one")
        pending = wait_for_round(handle)
        handle.respond_elicitation(pending.round_id, wide.yes(pending), idempotency_key="k")
        result = handle.result(timeout=30)
    assert result.error.code == "server_lost"
    assert "did not take the answer" in result.error.message
    [record] = store.managed_input_store.list_rounds(handle.execution_id)
    assert record.status == "failed"


def test_a_server_that_dies_while_its_question_waits_is_noticed_at_once(kit, store, log) -> None:
    handle = wide.submit(kit, wide.stdio(log), "wide:one")
    pending = wait_for_round(handle)
    wide_children()[0].kill()
    assert handle.result(timeout=10).error.code == "server_lost"
    record = store.managed_input_store.get_round(handle.execution_id, pending.round_id)
    assert (record.status, record.failure_code) == ("failed", "server_lost")
    assert deliveries(log) == []


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
def test_an_agent_that_gives_up_its_call_takes_its_question_back(kit, store, log, monkeypatch, protocol) -> None:
    """And the next call of the same agent asks as if nothing had been."""

    class Impatient:
        async def run(self, task: AgentTask) -> AgentOutcome:
            async with AsyncExitStack() as stack:
                http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {task.endpoints[0].token}"}, timeout=60)
                transport = streamable_http_client(task.endpoints[0].url, http_client=http)
                client = await stack.enter_async_context(Client(transport, mode="legacy"))
                first = asyncio.create_task(client.call_tool("one", {}))
                while not store.unresolved_rounds():
                    await asyncio.sleep(0.02)
                first.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await first
                while store.unresolved_rounds():
                    await asyncio.sleep(0.02)
                result = await client.call_tool("one", {})
            return AgentOutcome(final_text=result.content[0].text)

    monkeypatch.setattr(execution_module, "find", lambda _kind: Impatient())
    handle = wide.submit(kit, wide.in_process(log, protocol=protocol), "wide:one")
    first = wait_for_round(handle)
    second = wait_for_round(handle, after=first.round_id)
    handle.respond_elicitation(second.round_id, wide.yes(second), idempotency_key="k")
    result = handle.result(timeout=30)
    assert "Pune" in result.final_text
    rounds = store.managed_input_store.list_rounds(result.snapshot.execution_id.root)
    assert [(r.status, r.failure_code) for r in rounds] == [("failed", "cancelled"), ("resolved", None)]
    assert len(deliveries(log)) == 1
    assert result.error.code == "cancelled"  # an execution with a failed round has not completed


def test_several_servers_in_one_execution_queue_their_questions(kit, store, tmp_path) -> None:
    agent = kit.agents([{"harness": "scripted"}])[0]
    handle = agent.submit(
        "wide:one\nclassic:book\nprompt wide:one",
        servers=[wide.in_process(), classic(tmp_path / "log")],
        human_input="managed",
    )

    def answer(pending: Any) -> dict[str, ElicitationResponse]:
        address = {"street": "1 Main Street", "city": "Pune"}
        return {key: ElicitationResponse(action="accept", content=address) for key in pending.requests}

    result, asked = wide.see_through(handle, answer)
    assert result.error is None
    assert [round_.server for round_ in asked] == ["wide", "classic", "wide"]


def test_nothing_is_left_of_an_execution(kit, log) -> None:
    """No process of the group and no port, whatever way it ended."""
    before = set(listening())
    for server in (wide.stdio(log), wide.stdio(log, protocol="legacy")):
        wide.see_through(wide.submit(kit, server, "wide:one"))
        cancelled = wide.submit(kit, server, "wide:one")
        wait_for_round(cancelled)
        assert set(listening()) - before
        cancelled.cancel()
        cancelled.result(timeout=20)
        failed = wide.submit(kit, server, "wide:one", answer_within=0.2)
        assert failed.result(timeout=20).outcome.value == "timed_out"
    cancelled_answer = {"elicitation": {"action": "cancel"}}
    # One for each that was answered. Of the others a classic server learns at most that nobody decided in time.
    assert len([line for line in deliveries(log) if line["answers"] != cancelled_answer]) == 2
    assert until(lambda: not wide_children())
    assert until(lambda: set(listening()) <= before or None, seconds=5)


def listening() -> list[int]:
    return [c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]


@contextlib.contextmanager
def door(url: str, *words: str) -> Iterator[str]:
    """A server that lets only the right key through to the one behind it."""
    port = wide.free_port()
    script = str(wide.HERE / "servers" / "key_door.py")
    process = subprocess.Popen([sys.executable, script, str(port), url, "Bearer sesame-open-123", *words])
    try:
        until(lambda: _accepts(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
