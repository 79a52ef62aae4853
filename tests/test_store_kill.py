"""kill -9 at any moment: nothing is half written, nothing that was said to be stored is lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from storing import HELD, STATUSES, accept, create, form, question, transitions

from m3nb.storage import ManagedInputRecord, SQLiteExecutionStore, SQLiteManagedInputStore
from m3nb.validity import check_content

KILLS = int(os.environ.get("M3NB_KILLS", "150"))
STEPS = ("create", "prepare", "submit", "acknowledge", "start_delivery", "mark_delivered", "resolve")
STATUS_AFTER = ("pending", "pending", *STATUSES[1:2], *STATUSES[1:5])
MOST_STEPS = 2 * len(STEPS)
STEP_SECONDS = 0.002
"""About as long as a step takes: the kill comes at any moment of it."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks and kills")


def work(path: Path, execution_id: str, alone: bool, says: int) -> None:
    """Round after round, from the question to the end, saying each step when it is stored, until the kill."""
    executions = SQLiteExecutionStore(path)
    rounds = SQLiteManagedInputStore(path) if alone else executions.managed_input_store
    for index in range(10_000):
        ids = (execution_id, f"r{index}")

        def said(text: str) -> None:
            os.write(says, f"{text}\n".encode())

        create(rounds, question(*ids), round_index=index, round_limit=10_000, lease_seconds=600)
        said("create")
        answer = accept(street=f"street {index}", tags=["x" * 500] * (index % 20))
        entry = executions.outbox.prepare(*ids, answer)
        said(f"prepare {entry.idempotency_key}")
        rounds.submit_responses(*ids, answer, response_idempotency_key=entry.idempotency_key, **HELD)
        said("submit")
        executions.outbox.acknowledge(entry.idempotency_key)
        said("acknowledge")
        for step in STEPS[4:]:
            getattr(rounds, step)(*ids, **HELD)
            said(step)


def nursery(pipe: Any) -> None:
    """A small process that has loaded everything: its forks start at once."""
    check_content(form(), {"street": "x"})
    while True:
        try:
            path, execution_id, alone, steps, more_seconds = pipe.recv()
        except EOFError:
            return
        hears, says = os.pipe()
        child = os.fork()
        if not child:
            os.close(hears)
            try:
                work(path, execution_id, alone, says)
            finally:
                os._exit(1)
        os.close(says)
        said = b""
        while said.count(b"\n") < steps and (more := os.read(hears, 1)):
            said += more
        time.sleep(more_seconds)
        os.kill(child, signal.SIGKILL)
        with os.fdopen(hears, "rb") as text:
            said += text.read()
        _, status = os.waitpid(child, 0)
        pipe.send((os.waitstatus_to_exitcode(status), said.decode().splitlines()))


@pytest.fixture(scope="module")
def victims() -> Iterator[Any]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=nursery, args=(there,), daemon=True)
    process.start()
    there.close()
    yield here
    here.close()
    process.join(10)


def check_round(path: Path, record: ManagedInputRecord, least: int, most: int) -> None:
    """A round is where it was said to be, or one step further, and its history says how it came there."""
    assert ManagedInputRecord.model_validate(record.model_dump()) == record
    possible = {STATUS_AFTER[step] for step in range(least, most + 1)}
    assert record.status in possible
    moves = [
        (row["from_status"], row["to_status"])
        for row in transitions(path)
        if (row["execution_id"], row["round_id"]) == (record.execution_id, record.round_id)
    ]
    reached = STATUSES.index(record.status)
    assert moves == list(zip((None, *STATUSES), STATUSES[: reached + 1], strict=False))


def test_kill_at_any_moment(tmp_path: Path, victims: Any) -> None:
    chance = random.Random(20260501)
    path, steps_seen = tmp_path / "store.sqlite", set()
    for kill in range(KILLS):
        if kill % 50 == 0:  # a new file: also its first moments are interrupted
            path = tmp_path / f"store-{kill}.sqlite"
        execution_id = f"e{kill}"
        bystander = SQLiteExecutionStore(path) if chance.random() < 0.5 else None
        if bystander is not None:
            bystander.unresolved_rounds()
        moment = (chance.randint(0, MOST_STEPS), chance.uniform(0, STEP_SECONDS))
        victims.send((path, execution_id, chance.random() < 0.5, *moment))
        exit_code, said = victims.recv()
        assert exit_code == -signal.SIGKILL, said
        if path.exists():
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        store = bystander or SQLiteExecutionStore(path)
        rounds = store.managed_input_store
        finished, left = divmod(len(said), len(STEPS))
        steps_seen.add(left)
        records = rounds.list_rounds(execution_id)
        assert finished <= len(records) <= finished + 1
        for index, record in enumerate(records):
            last = len(STEPS) - 1
            check_round(path, record, *((last, last) if index < finished else (max(0, left - 1), min(left, last))))
        waiting = store.outbox.unacknowledged(execution_id)
        keys = [line.split()[1] for line in said if line.startswith("prepare")]
        if 2 <= left <= 3:  # stored, and its commit not known to have ended
            assert keys[-1] in [entry.idempotency_key for entry in waiting] or left == 3
        assert len(waiting) <= 1
        for entry in waiting:
            # The retry of the next process, with the same answer and the same key.
            record = rounds.submit_responses(
                entry.execution_id,
                entry.round_id,
                entry.responses,
                response_idempotency_key=entry.idempotency_key,
                **HELD,
            )
            assert record.responses == entry.responses
            assert record.status == "response_validated"
            store.outbox.acknowledge(entry.idempotency_key)
        assert store.outbox.unacknowledged(execution_id) == ()
        for record in rounds.list_rounds(execution_id):
            if record.status != "pending":
                assert record.responses["address"].content["street"] == f"street {record.round_index}"
        store.close()
    assert steps_seen == set(range(len(STEPS)))  # it really was at any moment
