"""Many processes at one database: one answer wins, nobody sees a lock, nothing is lost."""

from __future__ import annotations

import multiprocessing
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

import pytest
from storing import HELD, accept, bring, create, form, question, transitions

from m3nb.errors import ManagedInputConflict
from m3nb.storage import SQLiteExecutionStore, SQLiteManagedInputStore, read_rows
from m3nb.validity import check_content

ROUNDS = 100
COMMITS = 100
SECONDS = 120


class Crew:
    """Processes that do the same at the same moment. They live through all tests: each takes seconds to load."""

    def __init__(self, count: int) -> None:
        context: SpawnContext = multiprocessing.get_context("spawn")
        self._barriers = {size: context.Barrier(size) for size in range(2, count + 1)}
        self._pipes = []
        for number in range(count):
            here, there = context.Pipe()
            context.Process(target=_work, args=(there, number, self._barriers), daemon=True).start()
            self._pipes.append(here)

    def run(self, target: Any, count: int, *args: Any) -> list[Any]:
        """What ``target(number, barrier, *args)`` returns in each of ``count`` processes."""
        for pipe in self._pipes[:count]:
            pipe.send((target, count, args))
        found = [pipe.recv() for pipe in self._pipes[:count]]
        self._barriers[count].reset()  # who failed has broken it
        assert [text for ok, text in found if not ok] == []
        return [result for _, result in found]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


def _work(pipe: Any, number: int, barriers: dict[int, Any]) -> None:
    check_content(form(), {"street": "x"})  # loads what checks answers
    while True:
        try:
            target, count, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, target(number, barriers[count], *args)))
        except BaseException as error:
            barriers[count].abort()
            pipe.send((False, f"process {number}: {type(error).__name__}: {error}"))


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(8)
    yield crew
    crew.close()


def answer_all(number: int, barrier: Any, path: Path) -> list[str | None]:
    """Answer each round at the same moment as everybody else: the key if this answer won, else ``None``."""
    # Half of the processes keep their connections open, half open one per operation.
    store = SQLiteExecutionStore(path).managed_input_store if number % 2 else SQLiteManagedInputStore(path)
    won: list[str | None] = []
    for index in range(ROUNDS):
        key = f"key of {number}"
        barrier.wait(SECONDS)
        try:
            record = store.submit_responses(
                "e1", f"r{index}", accept(street=f"street of {number}"), response_idempotency_key=key, **HELD
            )
            assert record.response_idempotency_key == key
            won.append(key)
        except ManagedInputConflict:
            won.append(None)
    return won


def test_one_of_eight_answers_wins_a_hundred_times(crew: Crew, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = SQLiteManagedInputStore(path)
    for index in range(ROUNDS):
        create(store, question("e1", f"r{index}"), round_index=index, round_limit=ROUNDS, lease_seconds=600)
    results = crew.run(answer_all, 8, path)
    for index, record in enumerate(store.list_rounds("e1")):
        winners = [won[index] for won in results if won[index]]
        assert winners == [record.response_idempotency_key]
        number = winners[0].removeprefix("key of ")
        assert record.responses == accept(street=f"street of {number}")
        assert record.status == "response_validated"
    lines = Counter((row["method"], row["to_status"]) for row in transitions(path))
    assert lines == {
        ("create_round", "pending"): ROUNDS,
        ("submit_responses", "response_validated"): ROUNDS,
        ("submit_responses", None): 7 * ROUNDS,
    }


def commit_many(number: int, barrier: Any, path: Path, wal: bool) -> list[float]:
    """Make rounds and events from the first moment of the file on; the seconds each took."""
    store = SQLiteExecutionStore(path, wal=wal)
    barrier.wait(SECONDS)
    store.create_execution(f"e{number}", spec={}, worker_id="w", managed=True)
    taken = []
    for index in range(COMMITS):
        started = time.perf_counter()
        bring(store.managed_input_store, "resolved", question(f"e{number}-{index}"))
        store.append_event(f"e{number}", "message", {"index": index})
        taken.append(time.perf_counter() - started)
    store.close()
    return taken


@pytest.mark.parametrize("wal", [True, False], ids=["log", "rollback journal"])
def test_four_processes_commit_without_a_lock_error(crew: Crew, tmp_path: Path, wal: bool) -> None:
    path = tmp_path / "folder" / "store.sqlite"
    taken = crew.run(commit_many, 4, path, wal)
    assert max(map(max, taken)) < 5
    store = SQLiteExecutionStore(path)
    for number in range(4):
        assert [event.payload["index"] for event in store.events(f"e{number}")] == list(range(COMMITS))
    assert store.unresolved_rounds() == ()
    assert len(read_rows(path, "rounds")) == 4 * COMMITS
    assert len(transitions(path)) == 20 * COMMITS
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def claim_all(number: int, barrier: Any, path: Path) -> list[int]:
    """The executions, claims and endings this process got."""
    store = SQLiteExecutionStore(path)
    rounds = store.managed_input_store
    got = []
    for index in range(30):
        barrier.wait(SECONDS)
        if store.claim_execution(f"e{index}", worker_id="w1"):
            got.append(3 * index)
        if store.finish_execution(f"e{index}", outcome="failed", result={"by": number}, error=None):
            got.append(3 * index + 1)
        try:
            rounds.claim_round(
                f"e{index}",
                "r1",
                owner_id=f"owner {number}",
                lease_seconds=600,
                expected_lease_token="token",
                delivery_state="not_started",
            )
            got.append(3 * index + 2)
        except ManagedInputConflict:
            continue
    return got


def test_one_process_claims_and_ends_an_execution_and_its_round(crew: Crew, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = SQLiteExecutionStore(path)
    for index in range(30):
        store.create_execution(f"e{index}", spec={}, worker_id="w1", managed=True)
        create(store.managed_input_store, question(f"e{index}"), lease_seconds=0.001)
    results = crew.run(claim_all, 4, path)
    # A claim comes before the ending, or never: who claims late finds the execution finished.
    everything = Counter(item for got in results for item in got)
    assert set(everything.values()) == {1}
    assert {item for item in everything if item % 3} == {item for item in range(90) if item % 3}
    store.close()
