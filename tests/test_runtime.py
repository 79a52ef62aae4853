"""One lane, all of it real: kit, worker, gateway, harness, a server over stdio, a store in a file."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from runs import ADDRESS, HERE, accept, classic, deliveries, shipping, until, wait_for_round

from m3nb import (
    ElicitationResponse,
    ExecutionHandle,
    ExecutionOutcome,
    ExecutionStatus,
    KitClosed,
    ManagedInputConflict,
    ManagedInputStateError,
    ManagedInputValidationError,
    MCPTestKit,
    SQLiteExecutionStore,
    StdioServer,
)
from m3nb.runtime.recovery import Recovery


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "deliveries.jsonl"


def submit(kit: MCPTestKit, server: StdioServer, tool: str, prompt: str | None = None, **options) -> ExecutionHandle:
    agent = kit.agents([{"harness": "scripted"}])[0]
    options = {"human_input": "managed", **options}
    selector = f"{server.name}:{tool}"
    return agent.submit(prompt or "Do it.", server=server, tools=[selector], **options)


def statuses(store: SQLiteExecutionStore, handle: ExecutionHandle) -> list[tuple[str, str | None]]:
    rounds = store.managed_input_store.list_rounds(handle.execution_id)
    return [(record.status, record.failure_code) for record in rounds]


@pytest.mark.parametrize(
    ("make", "tool", "key"), [(classic, "book", "elicitation"), (shipping, "book_shipment", "shipping_address")]
)
def test_both_wire_forms_pause_take_the_answer_once_and_go_on(kit, store, log, make, tool, key) -> None:
    handle = submit(kit, make(log), tool)
    pending = wait_for_round(handle)
    assert handle.snapshot().lifecycle is ExecutionStatus.WAITING_FOR_INPUT
    assert (pending.operation_kind, pending.operation_name) == ("tool", tool)
    assert list(pending.requests) == [key]
    assert pending.requests[key].requested_schema["required"] == ["street", "city"]

    handle.respond_elicitation(pending.round_id, {key: accept()}, idempotency_key="k")
    handle.respond_elicitation(pending.round_id, {key: accept()}, idempotency_key="k")
    result = handle.result(timeout=20)

    assert result.error is None
    assert result.outcome is ExecutionOutcome.COMPLETED
    assert "Pune" in (result.final_text or "")
    assert deliveries(log) == [{"action": "accept", "content": ADDRESS}]
    assert statuses(store, handle) == [("resolved", None)]
    assert handle.pending_elicitation() is None
    kinds = [event.kind for event in result.trace_view]
    assert kinds.index("tool.call") < kinds.index("elicitation.request") < kinds.index("elicitation.response")
    assert kinds.index("elicitation.response") < kinds.index("tool.result") < kinds.index("finished")


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize(
    ("make", "tool", "key"), [(classic, "book", "elicitation"), (shipping, "book_shipment", "shipping_address")]
)
def test_decline_and_cancel_reach_the_server_as_such(kit, store, log, make, tool, key, action) -> None:
    handle = submit(kit, make(log), tool)
    pending = wait_for_round(handle)
    handle.respond_elicitation(pending.round_id, {key: ElicitationResponse(action=action)}, idempotency_key="k")
    result = handle.result(timeout=20)
    assert result.outcome is ExecutionOutcome.COMPLETED
    assert [delivery["action"] for delivery in deliveries(log)] == [action]
    assert statuses(store, handle) == [("resolved", None)]


def test_two_questions_of_one_call_are_two_rounds(kit, store, log) -> None:
    handle = submit(kit, classic(log), "twice")
    first = wait_for_round(handle)
    handle.respond_elicitation(first.round_id, {"elicitation": accept({"name": "Ada"})}, idempotency_key="1")
    second = wait_for_round(handle, after=first.round_id)
    assert second.logical_operation_id == first.logical_operation_id
    handle.respond_elicitation(second.round_id, {"elicitation": accept({"colour": "red"})}, idempotency_key="2")
    assert handle.result(timeout=20).final_text == "accept accept red"
    assert statuses(store, handle) == [("resolved", None)] * 2
    assert len(deliveries(log)) == 2


def test_a_refused_answer_leaves_the_round_pending_and_names_the_field(kit, log) -> None:
    handle = submit(kit, classic(log), "book")
    pending = wait_for_round(handle)
    with pytest.raises(ManagedInputValidationError) as refused:
        handle.respond_elicitation(pending.round_id, {"elicitation": accept({"street": "x"})}, idempotency_key="k")
    assert {(e["pointer"], e["keyword"]) for e in refused.value.details["errors"]} == {
        ("/street", "minLength"),
        ("/city", "required"),
    }
    assert handle.pending_elicitation() == pending
    for round_id, key in (("", "k"), (pending.round_id, ""), ("round-of-nobody", "k")):
        with pytest.raises(ManagedInputValidationError):
            handle.respond_elicitation(round_id, {"elicitation": accept()}, idempotency_key=key)
    handle.respond_elicitation(pending.round_id, {"elicitation": accept()}, idempotency_key="k")
    with pytest.raises(ManagedInputConflict):
        handle.respond_elicitation(
            pending.round_id, {"elicitation": accept({**ADDRESS, "gift": True})}, idempotency_key="k"
        )
    assert handle.result(timeout=20).error is None


NESTED = {
    "type": "object",
    "properties": {
        "who": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "big": {"type": "integer"},
        "nothing": {"type": "null"},
    },
}


def test_what_was_answered_arrives_exactly(kit, log) -> None:
    """The SDK's own types hold neither nested objects nor lists of numbers."""
    content = {"who": {"name": "Ada"}, "numbers": [1, 2], "big": 12345678901234567890, "nothing": None}
    import json

    call = f"classic:ask {json.dumps({'message': 'All of it', 'schema': NESTED})}"
    handle = submit(kit, classic(log), "ask", prompt=call)
    pending = wait_for_round(handle)
    assert pending.requests["elicitation"].requested_schema == NESTED
    handle.respond_elicitation(pending.round_id, {"elicitation": accept(content)}, idempotency_key="k")
    assert handle.result(timeout=20).error is None
    assert deliveries(log) == [{"action": "accept", "content": content}]


def test_nobody_is_asked_when_human_input_fails(kit, store, log) -> None:
    handle = submit(kit, classic(log), "book", human_input="fail")
    result = handle.result(timeout=20)
    assert result.outcome is ExecutionOutcome.FAILED
    assert result.error is not None
    assert result.error.code == "human_input_required"
    assert "Where should it go?" in result.error.message
    assert handle.pending_elicitation() is None
    assert statuses(store, handle) == []
    assert deliveries(log) == []


def test_an_answer_that_does_not_come_in_time_ends_the_execution(kit, store, log) -> None:
    handle = submit(kit, classic(log), "book", answer_within=timedelta(seconds=0.5))
    pending = wait_for_round(handle)
    assert pending.deadline is not None
    assert pending.deadline - pending.created_at == timedelta(seconds=0.5)
    result = handle.result(timeout=20)
    assert (result.outcome, result.error.code) == (ExecutionOutcome.TIMED_OUT, "timeout")
    assert statuses(store, handle) == [("failed", "timeout")]
    with pytest.raises(ManagedInputStateError):
        handle.respond_elicitation(pending.round_id, {"elicitation": accept()}, idempotency_key="late")
    # Nobody decided: the server may learn that before it is ended, and nothing else.
    assert [line["action"] for line in deliveries(log)] in ([], ["cancel"])


def test_the_time_a_person_takes_does_not_count(kit, log) -> None:
    handle = submit(kit, classic(log), "book", timeout=2)
    pending = wait_for_round(handle)
    time.sleep(2.5)
    handle.respond_elicitation(pending.round_id, {"elicitation": accept()}, idempotency_key="k")
    assert handle.result(timeout=20).outcome is ExecutionOutcome.COMPLETED


def test_an_execution_that_works_too_long_times_out(kit) -> None:
    result = submit(kit, classic(), "slow", prompt='classic:slow {"seconds": 30}', timeout=1).result(timeout=20)
    assert (result.outcome, result.error.code) == (ExecutionOutcome.TIMED_OUT, "timeout")


def test_cancel_ends_the_round_and_the_execution(kit, store, log) -> None:
    handle = submit(kit, classic(log), "book")
    pending = wait_for_round(handle)
    handle.cancel()
    result = handle.result(timeout=20)
    assert (result.outcome, result.error.code) == (ExecutionOutcome.CANCELLED, "cancelled")
    assert statuses(store, handle) == [("failed", "cancelled")]
    handle.cancel()
    with pytest.raises(ManagedInputStateError):
        handle.respond_elicitation(pending.round_id, {"elicitation": accept()}, idempotency_key="late")
    assert deliveries(log) == []


def test_a_worker_whose_loop_ends_leaves_nobody_waiting(kit, store, log, monkeypatch) -> None:
    handle = submit(kit, classic(log), "book")
    wait_for_round(handle)
    monkeypatch.setattr(Recovery, "scan", lambda _: sys.exit(3))
    result = handle.result(timeout=20)
    assert (result.outcome, result.error.code) == (ExecutionOutcome.INTERRUPTED, "worker_stopped")
    assert statuses(store, handle) == [("failed", "worker_stopped")]
    assert store.list_executions(unfinished=True) == ()
    with pytest.raises(KitClosed, match="SystemExit: 3"):
        submit(kit, classic(log), "book")


def test_one_that_waits_blocks_no_other(kit) -> None:
    waiting = submit(kit, classic(), "book")
    wait_for_round(waiting)
    assert submit(kit, classic(), "plain").result(timeout=20).final_text == "plain {}"
    assert waiting.snapshot().lifecycle is ExecutionStatus.WAITING_FOR_INPUT


def test_a_schema_no_answer_can_be_checked_against_fails_its_round(kit, store) -> None:
    call = 'classic:ask {"message": "?", "schema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}}'
    handle = submit(kit, classic(), "ask", prompt=call)
    result = handle.result(timeout=20)
    assert (result.outcome, result.error.code) == (ExecutionOutcome.FAILED, "invalid_schema")
    assert "#/$defs/none" in result.error.message
    assert statuses(store, handle) == [("failed", "invalid_schema")]


def test_a_server_that_dies_with_the_answer_ends_the_execution(kit, store, log) -> None:
    handle = submit(kit, classic(log), "crash", prompt='classic:crash {"after_question": true}')
    pending = wait_for_round(handle)
    handle.respond_elicitation(pending.round_id, {"elicitation": accept({})}, idempotency_key="k")
    result = handle.result(timeout=20)
    assert (result.outcome, result.error.code) == (ExecutionOutcome.FAILED, "server_lost")
    assert statuses(store, handle) == [("failed", "server_lost")]
    assert len(deliveries(log)) == 1


def test_a_server_that_dies_while_a_person_thinks_ends_the_round(kit, store, tmp_path) -> None:
    import psutil

    handle = submit(kit, classic(), "book")
    pending = wait_for_round(handle)
    servers = [child for child in psutil.Process().children() if "classic_server" in " ".join(child.cmdline())]
    assert len(servers) == 1
    servers[0].kill()
    result = handle.result(timeout=20)
    assert result.error.code == "server_lost"
    assert statuses(store, handle) == [("failed", "server_lost")]
    with pytest.raises(ManagedInputStateError):
        handle.respond_elicitation(pending.round_id, {"elicitation": accept()}, idempotency_key="late")


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("-c", "import sys; sys.exit('no database configured')"), "no database configured"),
        (("-c", "print('hello, I am no MCP server'); import time; time.sleep(0.5)"), "could not be started"),
    ],
)
def test_a_server_that_does_not_start_says_why(kit, args, part) -> None:
    result = submit(kit, classic(args=args), "book").result(timeout=30)
    assert (result.outcome, result.error.code) == (ExecutionOutcome.FAILED, "server_lost")
    assert part in result.error.message


def test_a_tool_that_does_not_exist_is_named(kit) -> None:
    result = submit(kit, classic(), "bok").result(timeout=20)
    assert result.outcome is ExecutionOutcome.FAILED
    assert "'bok'" in result.error.message
    assert "book" in result.error.message


def test_only_selected_tools_can_be_called(kit) -> None:
    result = submit(kit, classic(), "plain", prompt='classic:plain {"n": 1}\nclassic:slow {"seconds": 0}').result(30)
    calls = [event.payload.get("tool") for event in result.trace if event.kind == "tool.call"]
    assert calls == ["plain"]
    assert result.outcome is ExecutionOutcome.FAILED
    assert "no tool 'slow' for this agent: it has plain" in result.error.message


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        ('plain {"n": 1}', "write classic:plain"),
        ('clasic:plain {"n": 1}', "no server of this run: it has classic"),
        ("classic:plain\nclasic:plain", "no server of this run: it has classic"),
        ("resource clasic:file:///x", "no server of this run: it has classic"),
        ("classic:plain {broken", "on the same line"),
        ('classic:plain {\n "n": 1}', "on the same line"),
        ("some prose only", "nothing to call"),
        ("classic:plain {broken}", "no JSON object"),
        ('classic:plain {"a": "\\ud800"}', "can't be sent"),
        ('prompt classic:plain {"n": 1}', "must be text"),
    ],
)
def test_a_script_that_means_a_call_but_is_none_says_so(kit, prompt, part) -> None:
    options = {"tools": None} if "nothing" in part else {}
    agent = kit.agents([{"harness": "scripted"}])[0]
    result = agent.run(prompt, server=classic(), **{"tools": ["classic:plain"], **options})
    assert result.outcome is ExecutionOutcome.FAILED
    assert part in str(result)


def test_a_secret_of_the_environment_is_masked_and_not_stored(kit, store, log, monkeypatch) -> None:
    from m3nb import SecretReference

    monkeypatch.setenv("MY_TOKEN", "s3cret-value-of-mine")
    server = classic(log, environment={"API_TOKEN": SecretReference(name="MY_TOKEN"), "PLAIN": "literal-value-x"})
    handle = submit(kit, server, "ask", prompt='classic:ask {"message": "?", "schema": {"type": "object"}}')
    pending = wait_for_round(handle)
    answer = accept({"note": "it is s3cret-value-of-mine", "city": "Pune"})
    handle.respond_elicitation(pending.round_id, {"elicitation": answer}, idempotency_key="k")
    result = handle.result(timeout=20)
    assert result.error is None
    assert "[REDACTED]" in result.final_text
    assert "s3cret" not in repr(result) + repr(result.trace)
    redacted = store.managed_input_store.redacted_responses(handle.execution_id, pending.round_id)
    assert redacted["elicitation"]["content"]["city"] == "Pune"
    assert "s3cret" not in str(redacted)
    spec = store.get_execution(handle.execution_id).spec
    assert "literal-value-x" not in str(spec)
    assert "PLAIN" in str(spec)
    assert "literal-value-x" not in repr(handle.spec)


def test_another_process_can_answer_through_the_store(kit, store, log) -> None:
    handle = submit(kit, classic(log), "book")
    wait_for_round(handle)
    script = (
        "import sys\n"
        "from m3nb import ElicitationResponse, MCPTestKit, SQLiteExecutionStore\n"
        "store = SQLiteExecutionStore(sys.argv[1])\n"
        "with MCPTestKit(store=store, env={}) as kit:\n"
        "    handle = kit.handle(sys.argv[2])\n"
        "    answer = ElicitationResponse(action='accept', content={'street': 'Elsewhere 2', 'city': 'Goa'})\n"
        "    pending = handle.pending_elicitation()\n"
        "    handle.respond_elicitation(pending.round_id, {'elicitation': answer}, idempotency_key='other')\n"
        "    print(handle.result(timeout=20).final_text)\n"
        "store.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(store.path), handle.execution_id], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "booked to Goa", done.stderr
    assert handle.result(timeout=20).final_text == "booked to Goa"
    assert len(deliveries(log)) == 1


def test_a_server_that_wants_the_same_call_for_ever_is_stopped(kit) -> None:
    server = classic(args=(str(HERE / "servers" / "both_eras_server.py"),))
    result = submit(kit, server, "circles").result(timeout=60)
    assert result.error.code == "server_lost"
    assert "again and asks nothing" in result.error.message


def test_a_database_that_is_busy_for_long_only_delays(kit, store, log) -> None:
    handle = submit(kit, classic(log), "book")
    pending = wait_for_round(handle)
    handle.respond_elicitation(pending.round_id, {"elicitation": accept()}, idempotency_key="k")
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None, timeout=5)) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(6)
        other.execute("COMMIT")
    result = handle.result(timeout=30)
    assert result.error is None
    assert statuses(store, handle) == [("resolved", None)]
    assert len(deliveries(log)) == 1


def test_events_come_in_order_and_can_be_listened_to(kit) -> None:
    seen: list[int] = []
    handle = submit(kit, classic(), "plain")
    handle.on_event(lambda event: seen.append(event.sequence))
    followed = [event.sequence for event in handle.events(follow=True)]
    assert followed == sorted(followed)
    assert followed == [event.sequence for event in handle.result(timeout=20).trace]
    until(lambda: seen == followed)


@pytest.mark.parametrize(("tool", "wrong", "right"), [("older", "auto", "legacy"), ("newer", "legacy", "auto")])
def test_a_server_of_another_era_is_told_which_option_helps(kit, tool, wrong, right) -> None:
    server = HERE / "servers" / "both_eras_server.py"
    failed = submit(kit, classic(args=(str(server),), protocol=wrong), tool).result(timeout=30)
    assert failed.outcome is ExecutionOutcome.FAILED
    assert f'protocol="{right}"' in failed.error.message
    handle = submit(kit, classic(args=(str(server),), protocol=right), tool)
    pending = wait_for_round(handle)
    answers = {key: ElicitationResponse(action="decline") for key in pending.requests}
    handle.respond_elicitation(pending.round_id, answers, idempotency_key="k")
    assert handle.result(timeout=30).final_text == "decline"
