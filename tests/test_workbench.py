"""The workbench, its runs and their widget, in this process: a stand-in page, a real store, real servers."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ADDRESS, LocalPage, accept, deliveries, eventually, submit

from m3nb import (
    ElicitationResponse,
    ExecutionOutcome,
    ModelValidationError,
    NoFrontEnd,
    OperationTimeout,
    Run,
    SQLiteExecutionStore,
    StdioServer,
    Workbench,
)

ROOT = Path(__file__).parent.parent
CLASSIC = ROOT / "tests" / "servers" / "classic_server.py"
SHIPPING = ROOT / "notebooks" / "shipping_server.py"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "shipping.log"


@pytest.fixture
def wb(tmp_path: Path) -> Iterator[Workbench]:
    with Workbench(tmp_path / "executions.sqlite") as workbench:
        yield workbench


def start(wb: Workbench, log: Path, prompt: str = "classic:book", script: Path = CLASSIC) -> Run:
    name = "classic" if script == CLASSIC else "shipping"
    server = StdioServer(name=name, command=sys.executable, args=(str(script),), environment={"SHIPPING_LOG": str(log)})
    return wb.submit(prompt, server=server)


def record_of(wb: Workbench, run: Run, round_id: str):  # type: ignore[no-untyped-def]
    return wb.store.managed_input_store.get_round(run.execution_id, round_id)


def test_a_wrong_answer_then_the_right_one(wb: Workbench, log: Path) -> None:
    run = start(wb, log, 'shipping:book_shipment {"weight_kg": 2}', SHIPPING)
    page = LocalPage(run)
    round_ = page.wait_for_round()
    assert page.view["state"] == "waiting"
    assert (page.view["server"], page.view["operation"]) == ("shipping asks", "book_shipment waits")
    assert [field["label"] for field in round_["requests"][0]["fields"]][:2] == ["Street", "City"]

    (invalid,) = page.send(accept(page.view, {"street": {"text": "1"}, "deliver_on": {"text": "soon"}}))
    assert invalid["kind"] == "invalid"
    assert {error["pointer"] for error in invalid["errors"]} == {"/street", "/city", "/deliver_on"}
    assert all(error["message"] for error in invalid["errors"])
    assert record_of(wb, run, round_["round_id"]).status == "pending"
    assert wb.store.outbox.unacknowledged() == ()

    accepted, summary = page.send(accept(page.view, ADDRESS | {"speed": {"choice": 1}, "gift": {"bool": True}}))
    assert accepted["kind"] == "accepted"
    items = {item["label"]: item["text"] for item in summary["rounds"][0]["items"]}
    assert items == {
        "Street": "1 Main Street",
        "City": "Pune",
        "Speed": "Express, next day",
        "Wrap it as a gift": "Yes",
    }
    result = run.result(timeout=30)
    assert result.outcome is ExecutionOutcome.COMPLETED
    assert "to Pune, express" in result.final_text
    assert [answer["content"]["street"] for answer in deliveries(log)] == ["1 Main Street"]
    assert wb.store.outbox.unacknowledged() == ()
    frame = wb.rounds()
    assert len(frame) == 1
    assert frame["status"].tolist() == ["resolved"]
    assert eventually(lambda: page.view["state"] == "finished")
    assert "1 Main Street" not in json.dumps(page.widget.get_state(), default=str)


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_the_other_two_answers(wb: Workbench, log: Path, action: str) -> None:
    run = start(wb, log)
    page = LocalPage(run)
    page.wait_for_round()
    accepted, summary = page.send(submit(page.view, action))
    assert accepted["kind"] == "accepted"
    assert summary["rounds"][0]["action"] == action
    assert run.result(timeout=30).final_text is not None
    assert deliveries(log) == [{"action": action, "content": {}}]


def test_two_rounds_one_after_the_other(wb: Workbench, log: Path) -> None:
    run = start(wb, log, "classic:twice")
    page = LocalPage(run)
    first = page.wait_for_round()
    page.send(accept(page.view, {"name": {"text": "Ada"}}))
    second = page.wait_for_round(other_than=first["round_id"])
    assert (first["index"], second["index"]) == (1, 2)
    page.send(accept(page.view, {"colour": {"choice": 1}}))
    assert run.result(timeout=30).outcome is ExecutionOutcome.COMPLETED
    assert [answer["content"] for answer in deliveries(log)] == [{"name": "Ada"}, {"colour": "green"}]


def test_a_repeated_message_is_handled_once(wb: Workbench, log: Path) -> None:
    run = start(wb, log)
    page = LocalPage(run)
    page.wait_for_round()
    message = accept(page.view, ADDRESS)
    replies = page.send(message, times=6)
    assert {reply["kind"] for reply in replies} == {"summary", "accepted"}
    assert sum(reply["kind"] == "ack" for reply in page.received) == 6
    (again,) = page.send(message)  # another message with the same answer: a second click
    assert again["kind"] == "refused"
    assert "already answered" in again["message"]
    run.result(timeout=30)
    assert len(deliveries(log)) == 1


def test_submits_from_many_threads_commit_once(wb: Workbench, log: Path) -> None:
    run = start(wb, log)
    page = LocalPage(run)
    page.wait_for_round()
    message = accept(page.view, ADDRESS)
    threads = [
        threading.Thread(target=page.widget._handle_custom_msg, args=({"id": f"thread-{i}", **message}, []))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = [reply["kind"] for reply in page.received]
    assert kinds.count("accepted") == 1
    assert kinds.count("refused") == 7
    run.result(timeout=30)
    assert len(deliveries(log)) == 1


def test_answered_elsewhere(wb: Workbench, log: Path, tmp_path: Path) -> None:
    run = start(wb, log)
    page = LocalPage(run)
    page.wait_for_round()
    message = accept(page.view, ADDRESS)
    other = SQLiteExecutionStore(tmp_path / "executions.sqlite")
    (record,) = other.unresolved_rounds()
    other.managed_input_store.submit_responses(
        run.execution_id,
        record.round_id,
        {key: ElicitationResponse(action="decline") for key in record.pending.requests},
        owner_id=record.owner_id,
        lease_token=record.lease_token,
        response_idempotency_key="other",
    )
    other.close()
    (refused,) = page.send(message)
    assert refused["kind"] == "refused"
    assert "answered elsewhere" in refused["message"]
    assert wb.store.outbox.unacknowledged() == ()
    assert run.result(timeout=30).final_text == "not booked (decline)"


def test_a_busy_database_loses_nothing(tmp_path: Path, log: Path) -> None:
    with Workbench(tmp_path / "executions.sqlite") as wb:
        run = start(wb, log)
        page = LocalPage(run)
        page.wait_for_round()
        message = accept(page.view, ADDRESS)
        blocker = sqlite3.connect(tmp_path / "executions.sqlite", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        try:
            (refused,) = page.send(message)
        finally:
            blocker.execute("ROLLBACK")
            blocker.close()
        assert refused["kind"] == "refused"
        assert "busy" in refused["message"]
        assert page.send(message)[0]["kind"] == "accepted"
        run.result(timeout=30)
        assert len(deliveries(log)) == 1


def test_ready_finishes_an_answer_left_in_the_outbox(wb: Workbench, log: Path) -> None:
    run = start(wb, log)
    page = LocalPage(run)
    round_ = page.wait_for_round()
    key = round_["requests"][0]["key"]
    response = ElicitationResponse(action="accept", content={"street": "1 Main Street", "city": "Pune"})
    entry = wb.store.outbox.prepare(run.execution_id, round_["round_id"], {key: response})
    page.send({"kind": "ready"})
    result = run.result(timeout=30)
    assert result.final_text == "booked to Pune"
    assert record_of(wb, run, round_["round_id"]).response_idempotency_key == entry.idempotency_key
    assert wb.store.outbox.unacknowledged() == ()
    assert len(deliveries(log)) == 1


def test_a_stale_answer_in_the_outbox_is_dropped(wb: Workbench, log: Path) -> None:
    run = start(wb, log)
    page = LocalPage(run)
    round_ = page.wait_for_round()
    key = round_["requests"][0]["key"]
    wb.store.outbox.prepare(run.execution_id, round_["round_id"], {key: ElicitationResponse(action="decline")})
    run.cancel()
    run.result(timeout=30)
    page.send({"kind": "ready"})
    assert wb.store.outbox.unacknowledged() == ()
    assert deliveries(log) == []


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "submit", "round_id": "another", "responses": {}},
        {"kind": "submit"},
        {"kind": "submit", "round_id": "THE ROUND", "responses": None},
        {"kind": "submit", "round_id": "THE ROUND", "responses": {"THE KEY": {"action": "maybe"}}},
        {"kind": "submit", "round_id": "THE ROUND", "responses": {"THE KEY": "accept"}},
        {"kind": "submit", "round_id": "THE ROUND", "responses": {"other": {"action": "accept", "values": {}}}},
    ],
)
def test_a_malformed_message_gets_words(wb: Workbench, log: Path, message: dict[str, object]) -> None:
    run = start(wb, log)
    page = LocalPage(run)
    round_ = page.wait_for_round()
    text = json.dumps(message).replace("THE ROUND", round_["round_id"]).replace("THE KEY", round_["requests"][0]["key"])
    (refused,) = page.send(json.loads(text))
    assert refused["kind"] == "refused"
    assert refused["message"]
    assert "Traceback" not in refused["message"]
    assert run.pending_elicitation() is not None
    for junk in (None, "text", {}, {"id": 3, "kind": "ready"}, {"id": "x", "kind": "unheard of"}):
        page.widget._handle_custom_msg(junk, [])
    assert run.pending_elicitation() is not None


def test_cancel_from_the_page(wb: Workbench, log: Path) -> None:
    run = start(wb, log)
    page = LocalPage(run)
    page.wait_for_round()
    page.send({"kind": "cancel_run"})
    assert run.result(timeout=30).outcome is ExecutionOutcome.CANCELLED
    assert eventually(lambda: page.view["state"] == "finished")
    assert page.view["round"] is None
    assert deliveries(log) == []


def test_a_failed_run_says_why(wb: Workbench, log: Path) -> None:
    run = start(wb, log, "classic:crash")
    page = LocalPage(run)
    result = run.result(timeout=30)
    assert result.outcome is ExecutionOutcome.FAILED
    assert eventually(lambda: page.view["state"] == "finished")
    assert page.view["error"] == result.error.message
    assert result.error.message in repr(run)


def test_secrets_are_hidden_in_the_summary(wb: Workbench, log: Path) -> None:
    schema = {"type": "object", "properties": {"apiKey": {"type": "string"}, "tags": {"type": "array"}}}
    run = start(wb, log, "classic:ask " + json.dumps({"message": "Key?", "schema": schema}))
    page = LocalPage(run)
    page.wait_for_round()
    _, summary = page.send(accept(page.view, {"apiKey": {"text": "sk-very-secret"}, "tags": {"json": '["a", 1]'}}))
    items = {item["label"]: item["text"] for item in summary["rounds"][0]["items"]}
    assert "sk-very-secret" not in json.dumps(summary)
    assert items["tags"] == '["a", 1]'
    run.result(timeout=30)
    assert deliveries(log) == [{"action": "accept", "content": {"apiKey": "sk-very-secret", "tags": ["a", 1]}}]


def test_handle_comes_back_with_the_same_run(wb: Workbench, log: Path) -> None:
    run = start(wb, log)
    eventually(run.pending_elicitation)
    assert wb.handle(run.execution_id) is run
    page = LocalPage(wb.handle(run.execution_id))
    page.wait_for_round()
    page.send(accept(page.view, ADDRESS))
    assert run.result(timeout=30).outcome is ExecutionOutcome.COMPLETED


def test_a_finished_run_is_shown_from_the_store(tmp_path: Path, log: Path) -> None:
    with Workbench(tmp_path / "executions.sqlite") as wb:
        run = start(wb, log)
        page = LocalPage(run)
        page.wait_for_round()
        page.send(accept(page.view, ADDRESS))
        run.result(timeout=30)
        execution_id = run.execution_id
    with Workbench(tmp_path / "executions.sqlite") as wb:
        page = LocalPage(wb.handle(execution_id))
        assert page.view["state"] == "finished"
        (summary,) = page.send({"kind": "ready"})
        assert {"label": "City", "text": "Pune"} in summary["rounds"][0]["items"]


def test_text_where_no_widget_is(wb: Workbench, log: Path) -> None:
    run = start(wb, log)
    pending = eventually(run.pending_elicitation)
    eventually(lambda: pending.round_id in repr(run))
    bundle = run._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    for text in (bundle["text/plain"], bundle["text/html"]):
        assert "Waiting for your answer" in text
        assert pending.round_id in text
        assert run.execution_id in text


def test_waiting_where_no_page_is(wb: Workbench, log: Path) -> None:
    run = start(wb, log)
    pending = eventually(run.pending_elicitation)
    began = time.monotonic()
    with pytest.raises(NoFrontEnd, match="await run") as raised:
        run.result()
    assert time.monotonic() - began < 4.5
    assert raised.value.details == {"round_id": pending.round_id, "execution_id": run.execution_id}

    async def wait() -> None:
        await run

    began = time.monotonic()
    with pytest.raises(NoFrontEnd, match=pending.round_id):
        asyncio.run(wait())
    assert time.monotonic() - began < 5.5
    assert run.pending_elicitation() == pending
    page = LocalPage(run)
    page.send(accept(page.view, ADDRESS))
    assert run.result(timeout=30).outcome is ExecutionOutcome.COMPLETED


def test_an_expired_wait_leaves_the_run(wb: Workbench, log: Path) -> None:
    run = start(wb, log, 'classic:slow {"seconds": 2}')
    with pytest.raises(OperationTimeout, match="goes on"):
        run.result(timeout=0.3)
    assert run.result(timeout=30).outcome is ExecutionOutcome.COMPLETED


def test_cancelling_the_wait_leaves_the_run(wb: Workbench, log: Path) -> None:
    run = start(wb, log, 'classic:slow {"seconds": 1}')

    async def impatient() -> str:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run._wait(), 0.3)
        return (await run).final_text or ""

    assert asyncio.run(impatient()) == "slept"


def test_closing_the_workbench_ends_a_wait(tmp_path: Path, log: Path) -> None:
    wb = Workbench(tmp_path / "executions.sqlite")
    run = start(wb, log)
    page = LocalPage(run)
    page.wait_for_round()

    async def wait() -> object:
        asyncio.get_running_loop().call_later(0.3, lambda: threading.Thread(target=wb.close).start())
        return (await run).outcome

    assert asyncio.run(wait()) is ExecutionOutcome.INTERRUPTED
    assert eventually(lambda: page.view["state"] == "finished")
    page.send({"kind": "ready"})  # a page that is loaded again after that gets no traceback
    wb.close()


def test_a_store_whose_file_was_deleted_leaves_nobody_waiting(wb: Workbench, log: Path, tmp_path: Path) -> None:
    run, other = start(wb, log), start(wb, log)
    page = LocalPage(run)
    page.wait_for_round()
    for file in tmp_path.glob("executions.sqlite*"):
        file.unlink()
    for each in (run, other):
        with pytest.raises(ModelValidationError, match=f"no execution '{each.execution_id}'"):
            asyncio.run(asyncio.wait_for(each._wait(), 20))
    assert (page.view["state"], page.view["round"]) == ("finished", None)
    assert run.execution_id in page.view["error"]
    again = start(wb, log, "classic:plain")
    assert again.result(timeout=30).outcome is ExecutionOutcome.COMPLETED


def test_result_on_another_thread_just_waits(wb: Workbench, log: Path) -> None:
    run = start(wb, log)
    page = LocalPage(run)
    page.wait_for_round()
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(run.result(timeout=30)))
    thread.start()
    time.sleep(0.2)
    page.send(accept(page.view, ADDRESS))
    thread.join(timeout=30)
    assert len(results) == 1


def watchers() -> int:
    return sum(thread.name == "m3nb-watcher" for thread in threading.enumerate())


def test_one_watcher_for_all_runs_and_none_afterwards(wb: Workbench, log: Path) -> None:
    before = watchers()
    runs = [start(wb, log) for _ in range(3)]
    pages = [LocalPage(run) for run in runs]
    for page in pages:
        page.wait_for_round()
    assert watchers() == before + 1
    for page in pages:
        page.send(accept(page.view, ADDRESS))
    for run in runs:
        run.result(timeout=30)
    eventually(lambda: watchers() == before)


def finished_and_closed(wb: Workbench, log: Path) -> list[weakref.ref[object]]:
    run = start(wb, log, "classic:plain")
    page = LocalPage(run)
    run.result(timeout=30)
    eventually(lambda: page.view["state"] == "finished")
    page.widget.close()
    return [weakref.ref(run), weakref.ref(page.widget), weakref.ref(run._desk)]


def test_a_closed_widget_leaves_nothing_behind(wb: Workbench, log: Path) -> None:
    left = [reference for _ in range(5) for reference in finished_and_closed(wb, log)]
    eventually(lambda: gc.collect() >= 0 and [reference() for reference in left] == [None] * len(left))
