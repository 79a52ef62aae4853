"""Executions, events and workers, in a file and in memory; unresolved rounds and purging."""

from __future__ import annotations

import copy
import json
import pickle
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from storing import HELD, accept, bring, create, form, question, submit, transitions

from m3nb.errors import ModelValidationError, UnsupportedFeature
from m3nb.storage import (
    ExecutionStore,
    InMemoryExecutionStore,
    SQLiteExecutionStore,
    SQLiteManagedInputStore,
    read_rows,
)

WORKER: dict[str, Any] = {"worker_id": "w1", "kind": "embedded", "pid": 7, "version": "1", "prefix": "/usr"}


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[SQLiteExecutionStore]:
    store = SQLiteExecutionStore(tmp_path / "store.sqlite")
    yield store
    store.close()


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, file_store: SQLiteExecutionStore) -> ExecutionStore:
    return file_store if request.param == "file" else InMemoryExecutionStore()


def add(store: ExecutionStore, execution_id: str = "e1", worker_id: str = "w1", **fields: Any) -> None:
    store.create_execution(execution_id, **{"spec": {"message": "hi"}, "managed": True, **fields}, worker_id=worker_id)


def test_a_new_execution(store: ExecutionStore) -> None:
    assert isinstance(store, ExecutionStore)
    before = store.now()
    record = store.create_execution(
        "e1", spec={"message": "hällo", "n": 1.0}, worker_id="w1", managed=False, labels={"server": "shipping"}
    )
    assert record == store.get_execution("e1")
    assert json.dumps(record.spec) == json.dumps({"message": "hällo", "n": 1.0})
    assert (record.labels, record.worker_id, record.managed) == ({"server": "shipping"}, "w1", False)
    assert (record.lifecycle, record.outcome, record.sequence, record.tool_call_count) == ("queued", None, -1, 0)
    assert before <= record.created_at <= store.now()
    assert record.created_at.utcoffset() == timedelta(0)
    unset = (record.result, record.error, record.cancel_requested_at, record.started_at, record.finished_at)
    assert unset == (None,) * 5
    for copied in (copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert copied == record
    with pytest.raises(ModelValidationError, match="'e1'"):
        add(store)


def test_a_life(store: ExecutionStore) -> None:
    add(store)
    assert store.claim_execution("e1", worker_id="w2") is False
    assert store.claim_execution("e1", worker_id="w1") is True
    assert store.claim_execution("e1", worker_id="w1") is False
    assert store.get_execution("e1").started_at is not None
    assert store.set_lifecycle("e1", "running_turn") is True
    assert store.set_lifecycle("e1", "running_turn") is True  # again: no second event
    assert store.append_event("e1", "tool.call", {"tool": "book"}) == 2
    assert store.append_event("e1", "tool.result", {}) == 3
    assert store.request_cancel("e1") is True
    first = store.get_execution("e1").cancel_requested_at
    assert store.request_cancel("e1") is True
    assert store.get_execution("e1").cancel_requested_at == first is not None
    error = {"code": "cancelled", "message": "m"}
    assert store.finish_execution("e1", outcome="cancelled", result={"final_text": "x"}, error=error) is True
    assert store.finish_execution("e1", outcome="completed", result={}, error=None) is False
    assert store.set_lifecycle("e1", "closing") is False
    assert store.request_cancel("e1") is False
    record = store.get_execution("e1")
    assert (record.lifecycle, record.outcome, record.result) == ("finished", "cancelled", {"final_text": "x"})
    assert (record.error, record.sequence, record.tool_call_count) == (error, 4, 1)
    assert record.created_at <= record.started_at <= record.finished_at
    events = store.events("e1")
    assert [event.sequence for event in events] == [0, 1, 2, 3, 4]
    assert [event.kind for event in events] == ["lifecycle", "lifecycle", "tool.call", "tool.result", "finished"]
    assert events[0].payload == {"lifecycle": "starting"}
    assert events[-1].payload == {"outcome": "cancelled", "error_code": "cancelled"}
    assert {event.execution_id for event in events} == {"e1"}


def test_events_in_pieces(store: ExecutionStore) -> None:
    add(store)
    add(store, "e2")
    for number in range(10):
        assert store.append_event("e1", "message", {"number": number}) == number
    assert store.append_event("e2", "message", {}) == 0
    assert [event.payload["number"] for event in store.events("e1", after_sequence=3, limit=4)] == [4, 5, 6, 7]
    assert store.events("e1", after_sequence=9) == store.events("e1", limit=0) == store.events("nobody") == ()
    with pytest.raises(ModelValidationError, match="'nobody'"):
        store.append_event("nobody", "message", {})


def test_lists(store: ExecutionStore) -> None:
    for number in range(4):
        add(store, f"e{number}", f"w{number % 2}")
    store.finish_execution("e0", outcome="completed", result={}, error=None)

    def ids(**filters: Any) -> list[str]:
        return [record.execution_id for record in store.list_executions(**filters)]

    assert ids() == ["e0", "e1", "e2", "e3"]
    assert ids(unfinished=True) == ["e1", "e2", "e3"]
    assert ids(worker_id="w0") == ["e0", "e2"]
    assert ids(unfinished=True, worker_id="w0") == ["e2"]
    assert ids(worker_id="nobody") == []


def test_nothing_happens_to_an_unknown_execution(store: ExecutionStore) -> None:
    assert store.get_execution("e1") is None
    assert store.claim_execution("e1", worker_id="w1") is False
    assert store.set_lifecycle("e1", "closing") is False
    assert store.request_cancel("e1") is False
    assert store.finish_execution("e1", outcome="failed", result={}, error=None) is False


@pytest.mark.parametrize("bad", ["", None, 5, "\ud800"], ids=ascii)
def test_malformed_arguments(store: ExecutionStore, bad: Any) -> None:
    add(store)
    for call in (
        lambda: store.get_execution(bad),
        lambda: add(store, bad),
        lambda: add(store, "e2", bad),
        lambda: add(store, "e2", spec=bad),
        lambda: add(store, "e2", spec={"x": float("nan")}),
        lambda: add(store, "e2", labels={"x": b""}),
        lambda: store.claim_execution(bad, worker_id="w1"),
        lambda: store.set_lifecycle("e1", bad),
        lambda: store.set_lifecycle("e1", "finished"),
        lambda: store.set_lifecycle("e1", "sleeping"),
        lambda: store.finish_execution("e1", outcome=bad, result={}, error=None),
        lambda: store.finish_execution("e1", outcome="done", result={}, error=None),
        lambda: store.finish_execution("e1", outcome="failed", result=None, error=None),
        lambda: store.append_event("e1", bad, {}),
        lambda: store.append_event("e1", "message", {"x": "\ud800"}),
        lambda: store.events("e1", after_sequence="0"),
        lambda: store.events("e1", limit=-1),
        lambda: store.register_worker(**{**WORKER, "worker_id": bad}, lease_seconds=1),
        lambda: store.register_worker(**{**WORKER, "kind": "other"}, lease_seconds=1),
        lambda: store.register_worker(**{**WORKER, "pid": "x"}, lease_seconds=1),
        lambda: store.register_worker(**WORKER, port=0, lease_seconds=1),
        lambda: store.register_worker(**WORKER, lease_seconds=0),
        lambda: store.renew_worker("w1", lease_seconds=float("nan")),
        lambda: store.renew_worker(bad, lease_seconds=1),
        lambda: store.get_worker(bad),
    ):
        with pytest.raises(ModelValidationError):
            call()
    assert [record.execution_id for record in store.list_executions()] == ["e1"]
    assert store.events("e1") == store.list_workers() == ()


def test_workers(store: ExecutionStore) -> None:
    assert store.renew_worker("w1", lease_seconds=5) is False
    record = store.register_worker(**WORKER, port=5000, token="very-secret", lease_seconds=30)
    assert record == store.get_worker("w1")
    assert (record.kind, record.pid, record.port, record.token) == ("embedded", 7, 5000, "very-secret")
    assert "very-secret" not in repr(record)
    assert timedelta(seconds=29) < record.lease_expires - store.now() <= timedelta(seconds=30)
    store.register_worker(**{**WORKER, "worker_id": "w2", "kind": "detached"}, lease_seconds=30)
    assert store.renew_worker("w1", lease_seconds=90) is True
    assert store.get_worker("w1").lease_expires > record.lease_expires
    again = store.register_worker(**{**WORKER, "pid": 8}, lease_seconds=1)
    assert (again.pid, again.port, again.token) == (8, None, None)
    assert [worker.worker_id for worker in store.list_workers()] == ["w1", "w2"]
    store.remove_worker("w1")
    store.remove_worker("w1")
    assert store.get_worker("w1") is None


def test_data_version_changes_with_every_commit(store: ExecutionStore) -> None:
    seen = [store.data_version()]
    assert store.data_version() == seen[-1]
    for change in (
        lambda: add(store),
        lambda: store.append_event("e1", "message", {}),
        lambda: store.set_lifecycle("e1", "idle"),
        lambda: store.register_worker(**WORKER, lease_seconds=1),
        lambda: store.request_cancel("e1"),
    ):
        change()
        seen.append(store.data_version())
        store.list_executions()
        assert store.data_version() == seen[-1]
    assert len(set(seen)) == len(seen)


def test_data_version_sees_others_and_is_cheap(file_store: SQLiteExecutionStore) -> None:
    other = SQLiteManagedInputStore(file_store.path)
    ids = create(other)
    version = file_store.data_version()
    other.renew(*ids, lease_seconds=9, **HELD)
    assert file_store.data_version() != version
    started = time.perf_counter()
    for _ in range(1000):
        file_store.data_version()
    assert time.perf_counter() - started < 1  # some ten microseconds each; a query would be more


def test_all_leases_of_a_worker_are_renewed_at_once(file_store: SQLiteExecutionStore) -> None:
    store = file_store.managed_input_store
    file_store.register_worker(**WORKER, lease_seconds=1)
    for execution_id, worker_id in (("mine", "w1"), ("over", "w1"), ("theirs", "w2")):
        add(file_store, execution_id, worker_id)
    file_store.finish_execution("over", outcome="completed", result={}, error=None)
    statuses = ("pending", "response_validated", "delivery_started", "delivered", "resolved", "failed")
    for index, status in enumerate(statuses):
        pending = question("mine", status)
        create(store, pending, round_index=index)
        if status == "failed":
            store.fail("mine", status, code="c", message="m", **HELD)
        elif index:
            submit(store, ("mine", status))
            for method in ("start_delivery", "mark_delivered", "resolve")[: index - 1]:
                getattr(store, method)("mine", status, **HELD)
    create(store, question("mine", "expired"), round_index=9, lease_seconds=0.001)
    for execution_id in ("over", "theirs", "nobody's"):
        create(store, question(execution_id))
    time.sleep(0.01)
    ids = [
        (record.execution_id, record.round_id)
        for e in ("mine", "over", "theirs", "nobody's")
        for record in store.list_rounds(e)
    ]
    before = {key: store.get_round(*key) for key in ids}
    assert file_store.renew_worker("w1", lease_seconds=1000) is True
    worker = file_store.get_worker("w1")
    # The next step builds on the renewed row, not on what the store remembers of it.
    assert store.start_delivery("mine", "response_validated", **HELD).lease.expires_at == worker.lease_expires
    renewed = {key for key in ids if store.get_round(*key) != before[key]}
    assert renewed == {("mine", status) for status in statuses[:4]}
    for key in renewed:
        record = store.get_round(*key)
        assert record.lease.expires_at == worker.lease_expires
        assert record.lease_token == before[key].lease_token


def test_unresolved_rounds(file_store: SQLiteExecutionStore) -> None:
    store = file_store.managed_input_store
    bring(store, "resolved", question("e1"))
    bring(store, "failed", question("e2"))
    create(store, question("e3"), lease_seconds=0.001)
    bring(store, "delivered", question("e4"))
    time.sleep(0.01)
    assert [record.execution_id for record in file_store.unresolved_rounds()] == ["e3", "e4"]
    assert [record.execution_id for record in file_store.unresolved_rounds(expired_only=True)] == ["e3"]
    assert file_store.unresolved_rounds()[1] == store.get_round("e4", "r1")


def test_in_memory_has_no_managed_input() -> None:
    store = InMemoryExecutionStore()
    for name in ("managed_input_store", "resolve_managed_input_store", "outbox", "unresolved_rounds"):
        assert not hasattr(store, name)
    other = InMemoryExecutionStore()
    add(store)
    assert other.list_executions() == ()
    store.close()
    store.close()
    assert store.get_execution("e1") is not None


@pytest.mark.parametrize(
    "option",
    [
        {"blob_root": "x"},
        {"config": {}},
        {"capture_config": {}},
        {"payload_blob_threshold": 1},
        {"execution_queue": "q"},
    ],
    ids=str,
)
def test_options_that_are_not_served(tmp_path: Path, option: dict[str, Any]) -> None:
    SQLiteExecutionStore(tmp_path / "store.sqlite", payload_blob_threshold=65536)
    with pytest.raises(UnsupportedFeature, match=next(iter(option))):
        SQLiteExecutionStore(tmp_path / "store.sqlite", **option)


def test_purge_removes_what_was_said_and_keeps_what_happened(file_store: SQLiteExecutionStore) -> None:
    store, path = file_store.managed_input_store, file_store.path
    secret = "17 Very Private Lane"
    for execution_id in ("done", "running"):
        add(file_store, execution_id)
        file_store.append_event(execution_id, "tool.call", {"at": secret})
        ids = create(
            store, question(execution_id, "r1", form(), request_state=secret), operation_parameters={"at": secret}
        )
        answer = accept(street=secret)
        entry = file_store.outbox.prepare(*ids, answer)
        submit(store, ids, answer, entry.idempotency_key)
        for method in ("start_delivery", "mark_delivered", "resolve"):
            getattr(store, method)(*ids, **HELD)
    submit(store, create(store, question("done", "r2"), round_index=1), {"address": accept(street=secret)["address"]})
    file_store.finish_execution("done", outcome="completed", result={"final_text": secret}, error=None)
    history = transitions(path)
    assert file_store.purge(before=file_store.get_execution("done").finished_at) == 0
    assert file_store.purge(before=datetime.now(UTC)) == 1
    assert file_store.purge(before=datetime.now(UTC)) == 0
    assert store.renew("done", "r2", lease_seconds=60, **HELD).responses["address"].content is None
    for round_id, status in (("r1", "resolved"), ("r2", "response_validated")):
        record = store.get_round("done", round_id)
        assert record.status == status
        assert record.responses["address"].action == "accept"
        assert record.responses["address"].content is None
        assert (record.operation_parameters, record.request_state) == ({}, None)
        assert store.redacted_responses("done", round_id)["address"] == {
            "action": "accept",
            "content": None,
            "meta": None,
        }
    execution = file_store.get_execution("done")
    assert (execution.result, execution.outcome, execution.tool_call_count) == (None, "completed", 1)
    assert execution.purged_at is not None
    assert [(event.kind, event.payload) for event in file_store.events("done")] == [("tool.call", {}), ("finished", {})]
    assert [entry.execution_id for entry in file_store.outbox.unacknowledged()] == ["running"]
    assert transitions(path) == history
    # A repeat of what was answered is still recognised.
    first = read_rows(path, "rounds")[0]
    assert first["execution_id"] == "done"
    key = store.get_round("done", "r1").response_idempotency_key
    assert submit(store, ("done", "r1"), accept(street=secret), key).status == "resolved"
    assert store.get_round("running", "r1").responses["address"].content == {"street": secret}
    file_store.finish_execution("running", outcome="completed", result={}, error=None)
    assert file_store.purge(before=datetime.now(UTC) + timedelta(days=1)) == 1
    file_store.close()
    assert secret.encode() not in path.read_bytes()
