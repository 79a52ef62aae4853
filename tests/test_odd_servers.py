"""Servers that behave badly: each execution ends, with a typed error that says what happened, and harms no other."""

from __future__ import annotations

import sys
import time

import psutil
import pytest
from runs import HERE, accept, until

from m3nb import ExecutionHandle, ExecutionResult, MCPTestKit, StdioServer

SERVER = HERE / "servers" / "odd_server.py"


def run(kit: MCPTestKit, mode: str) -> tuple[ExecutionHandle, ExecutionResult]:
    """Run one call, answering whatever is asked with an empty form."""
    server = StdioServer(name="odd", command=sys.executable, args=(str(SERVER), mode))
    agent = kit.agents([{"harness": "scripted"}])[0]
    handle = agent.submit("Go.", server=server, tools=["odd:go"], human_input="managed")

    def answered() -> ExecutionResult | None:
        pending = handle.pending_elicitation()
        if pending is not None and mode != "asks and goes on":
            answers = {key: accept({}) for key in pending.requests}
            handle.respond_elicitation(pending.round_id, answers, idempotency_key=pending.round_id)
        return handle.finished_result()

    return handle, until(answered, seconds=40)


@pytest.mark.parametrize(
    ("mode", "rounds"),
    [
        ("prints", 0),
        ("asks outside a call", 0),
        ("many tools", 0),
        ("asks two at once", 2),
        ("asks at length", 1),
        ("asks deeply", 1),
        ("answers twice", 0),
        ("floods", 0),
        ("does not end", 0),
    ],
)
def test_oddities_that_do_no_harm(kit, store, mode, rounds) -> None:
    handle, result = run(kit, mode)
    assert result.error is None
    assert result.final_text == "fine"
    stored = store.managed_input_store.list_rounds(handle.execution_id)
    assert [record.status for record in stored] == ["resolved"] * rounds


@pytest.mark.parametrize(
    ("mode", "code", "part"),
    [
        ("dies at initialize", "server_lost", "could not be started"),
        ("dies at tools/list", "server_lost", "could not list its tools"),
        ("cannot list", "server_lost", "no list today"),
        ("lists in a circle", "server_lost", "circle"),
        ("asks too deeply", "invalid_schema", "nested too deeply"),
        ("asks and goes on", "server_lost", "without waiting"),
        ("asks without a schema", "invalid_schema", "the protocol says requestedSchema"),
        ("asks with a list", "invalid_schema", "must be an object"),
        ("asks in another mode", "invalid_schema", "hologram"),
        ("answers null", "server_lost", "cannot be read"),
        ("refuses", "agent_exited", "stock is empty"),
    ],
)
def test_oddities_that_end_the_execution(kit, store, mode, code, part) -> None:
    handle, result = run(kit, mode)
    assert result.outcome.value == "failed"
    assert result.error.code == code
    assert part in result.error.message
    stored = store.managed_input_store.list_rounds(handle.execution_id)
    assert {record.status for record in stored} <= {"failed"}


def test_a_server_that_refuses_after_the_answer_has_had_it(kit, store) -> None:
    handle, result = run(kit, "asks, then refuses")
    assert "stock is empty" in result.error.message
    assert [record.status for record in store.managed_input_store.list_rounds(handle.execution_id)] == ["resolved"]


def test_the_next_execution_does_not_suffer(kit) -> None:
    """A gateway that was torn down in a hurry once left its socket's number deaf for the next one."""
    started = time.monotonic()
    for _ in range(10):
        run(kit, "asks and goes on")
        assert run(kit, "prints")[1].final_text == "fine"
    assert time.monotonic() - started < 60
    until(lambda: not [c for c in psutil.Process().children() if "odd_server" in " ".join(c.cmdline())])
