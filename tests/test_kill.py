"""kill -9 at any moment of prepare, commit and deliver, with a real server: nothing half-written, nothing twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from runs import accept, classic, deliveries, wait_for_round

from m3nb import ManagedInputConflict, ManagedInputStateError, MCPTestKit, SQLiteExecutionStore, SQLiteManagedInputStore

TRIALS = int(os.environ.get("M3NB_KILLS", "200"))
SEED = int(os.environ.get("M3NB_SEED", str(random.SystemRandom().randrange(2**32))))
WINDOW = 0.03
"""Seconds from the question to its end on a quick machine, and as much again: kills fall anywhere in it."""

LAWFUL = {"pending", "response_validated", "delivery_started", "delivered", "resolved"}


def answer_once(path: Path, log: Path, ready: int) -> None:
    """What a notebook does: submit, wait for the question, prepare the answer, commit it, acknowledge it."""
    store = SQLiteExecutionStore(path)
    kit = MCPTestKit(store=store, env={})
    agent = kit.agents([{"harness": "scripted"}])[0]
    handle = agent.submit("Go.", server=classic(log), tools=["classic:book"], human_input="managed")
    pending = wait_for_round(handle)
    os.write(ready, f"{handle.execution_id} {pending.round_id}\n".encode())
    responses = {"elicitation": accept()}
    entry = store.outbox.prepare(handle.execution_id, pending.round_id, responses)
    handle.respond_elicitation(pending.round_id, entry.responses, idempotency_key=entry.idempotency_key)
    store.outbox.acknowledge(entry.idempotency_key)
    handle.result(timeout=30)
    time.sleep(30)


def load_everything() -> None:
    """What a run loads, loaded once here, so that each forked run starts at once."""
    import httpx2  # noqa: F401
    import mcp.client.streamable_http  # noqa: F401

    from m3nb import FormElicitationRequest
    from m3nb.harness import scripted  # noqa: F401
    from m3nb.runtime import gateway, upstream  # noqa: F401
    from m3nb.validity import check_schema

    check_schema(FormElicitationRequest(request_key="k", message="", requested_schema={"type": "object"}))


def killed_run(path: Path, log: Path, delay: float) -> tuple[str, str]:
    """Run `answer_once` in a forked process and kill it ``delay`` seconds after the question came."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            answer_once(path, log, writing)
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as ready:
        line = ready.readline().split()
        time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(line) == 2, "the run ended before the question came"
    return line[0], line[1]


@pytest.mark.timeout(600)
def test_kill_at_any_moment(tmp_path: Path) -> None:
    load_everything()
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    seen: dict[str, int] = {}
    for trial in range(TRIALS):
        folder = tmp_path / str(trial)
        folder.mkdir()
        log = folder / "deliveries.jsonl"
        execution_id, round_id = killed_run(folder / "runs.sqlite", log, chance.uniform(0, WINDOW))
        status = check(folder / "runs.sqlite", log, execution_id, round_id)
        seen[status] = seen.get(status, 0) + 1
    print(seen)
    assert len(seen) >= 2, f"the kills all fell on the same state {seen}: the window is wrong"


def check(path: Path, log: Path, execution_id: str, round_id: str) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        prepared = {key for (key,) in connection.execute("SELECT idempotency_key FROM outbox")}
    store = SQLiteExecutionStore(path)
    record = store.managed_input_store.get_round(execution_id, round_id)
    entries = {entry.idempotency_key: entry for entry in store.outbox.unacknowledged(execution_id)}
    arrived = deliveries(log)

    assert record.status in LAWFUL
    assert len(arrived) <= 1
    if record.status == "pending":
        assert record.responses is None
    else:
        # What was committed is whole, and its key is known: a retry can reuse it.
        assert record.responses == {"elicitation": accept()}
        assert record.response_idempotency_key in prepared
        assert all(key == record.response_idempotency_key for key in entries)
    for entry in entries.values():
        assert entry.responses == {"elicitation": accept()}
    if arrived:
        assert record.status in ("delivery_started", "delivered", "resolved")
    if record.status in ("delivered", "resolved"):
        assert len(arrived) == 1
    nothing_more_is_delivered(path, log, record, len(arrived))
    store.close()
    return record.status


def nothing_more_is_delivered(path: Path, log: Path, record, arrived: int) -> None:
    """After recovery the round is over for good: a late answer is refused and never reaches the server."""
    if record.status == "resolved":
        return
    later = SQLiteManagedInputStore(path, clock=lambda: datetime.now(UTC) + timedelta(seconds=60))
    failed = later.fail_recovery(
        record.execution_id, record.round_id, expected_lease_token=record.lease_token, message="worker lost"
    )
    assert failed.failure_code == "recovery_unavailable"
    with pytest.raises((ManagedInputStateError, ManagedInputConflict)):
        later.submit_responses(
            record.execution_id,
            record.round_id,
            {"elicitation": accept()},
            owner_id=record.owner_id,
            lease_token=record.lease_token,
            response_idempotency_key="late",
        )
    assert len(deliveries(log)) == arrived
