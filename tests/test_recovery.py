"""Executions whose worker is not in the store any more: ended like those of a worker that is there and dead."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from runs import classic, until
from storing import create, question

import m3nb.runtime.recovery as recovery
from m3nb import MCPTestKit, SQLiteExecutionStore


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "GRACE_SECONDS", 0.0)


def leave_behind(store: SQLiteExecutionStore, execution_id: str) -> None:
    """An execution of a worker that has gone with its row."""
    store.create_execution(execution_id, spec={}, worker_id="gone", managed=True)
    assert store.claim_execution(execution_id, worker_id="gone")


def test_an_execution_without_a_worker_is_ended(store: SQLiteExecutionStore) -> None:
    leave_behind(store, "e1")
    store.create_execution("e2", spec={}, worker_id="gone", managed=False)
    assert [record.execution_id for record in store.orphans()] == ["e1", "e2"]
    with MCPTestKit(store=store, env={}) as kit:
        for execution_id in ("e1", "e2"):
            result = kit.handle(execution_id).result(timeout=20)
            assert (result.outcome.value, result.error.code) == ("failed", "worker_stopped")
            assert "submit again" in result.error.message
    assert store.orphans() == ()


def test_a_round_of_it_has_its_lease_first(store: SQLiteExecutionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may hold the round: nothing happens, and no line is written, as long as its lease lives."""
    leave_behind(store, "e1")
    leave_behind(store, "other")
    ids = create(store.managed_input_store, question("e1"), lease_seconds=60)
    monkeypatch.setattr("m3nb.runtime.worker.SCAN_SECONDS", 0.05)
    with MCPTestKit(store=store, env={}) as kit:
        kit.handle("other").result(timeout=20)  # looked at after "e1"
        assert store.get_execution("e1").outcome is None
        with closing(sqlite3.connect(store.path)) as connection:
            assert connection.execute("SELECT method FROM round_events").fetchall() == [("create_round",)]
        rounds = store.managed_input_store
        rounds.renew(*ids, owner_id="owner", lease_token="token", lease_seconds=0.01)
        result = kit.handle("e1").result(timeout=20)
        assert (result.outcome.value, result.error.code) == ("failed", "managed_input_recovery_unavailable")
        record = rounds.get_round(*ids)
        assert (record.status, record.failure_code) == ("failed", "recovery_unavailable")


def test_a_worker_that_was_taken_for_dead_says_that_it_lives(store: SQLiteExecutionStore) -> None:
    with MCPTestKit(store=store, env={}) as kit:
        agent = kit.agents([{"harness": "scripted"}])[0]
        first = agent.submit("Go.", server=classic(), tools=["classic:plain"])
        assert first.result(timeout=30).outcome.value == "completed"
        (worker,) = store.list_workers()
        store.remove_worker(worker.worker_id)  # what another process does after a long suspension
        second = agent.submit("Go.", server=classic(), tools=["classic:slow"])
        with MCPTestKit(store=store, env={}):
            until(lambda: second.snapshot().lifecycle.value != "queued")
            time.sleep(0.1)
            assert second.result(timeout=30).outcome.value == "completed"
        assert [w.worker_id for w in store.list_workers()] == [worker.worker_id]
