"""Rounds to be measured: through a managed store, ours or the reference's, and as bare sqlite3."""

from __future__ import annotations

import importlib
import json
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

ANSWER = {"street": "1 Main Street", "city": "Pune", "floor": 3, "gift": True}
HELD = {"owner_id": "owner", "lease_token": "token"}

Turn = Callable[[int], float]
"""Runs so many rounds; returns the seconds they took."""

Step = Callable[[], Any]


class Rounds(Protocol):
    """What can be measured."""

    def steps(self, number: int, index: int = 0) -> list[Step]:
        """The five transitions of a round, from its question to its end, of the execution of this number."""

    def get(self, number: int) -> Any:
        """Read a round."""

    def list(self, number: int) -> Any:
        """Read all rounds of an execution."""


def schema(number: int) -> dict[str, Any]:
    """A form of four fields; another one for each number."""
    return {
        "type": "object",
        "title": f"Delivery {number}",
        "properties": {
            "street": {"type": "string", "title": "Street", "minLength": 1, "maxLength": 200},
            "city": {"type": "string", "title": "City", "enum": ["Pune", "Lyon", "Turku", f"City {number}"]},
            "floor": {"type": "integer", "title": "Floor", "minimum": 0, "maximum": 200},
            "gift": {"type": "boolean", "title": "Gift wrap", "default": False},
        },
        "required": ["street", "city"],
    }


class Bare:
    """Plain statements on a connection that is kept open, or on a fresh one for each: the floor."""

    _INSERT = (
        "INSERT INTO rounds (execution_id, round_id, round_index, status, owner, token, lease, requests, at) "
        "VALUES (?, ?, ?, 'pending', 'owner', 'token', ?, ?, ?) RETURNING id"
    )
    _EVENT = "INSERT INTO events SELECT id, ?, ?, ?, ? FROM rounds WHERE execution_id = ? AND round_id = ?"
    _WHERE = "WHERE execution_id = ? AND round_id = ? AND status = ? AND owner = ? AND token = ? AND lease > ?"
    _ANSWER = f"UPDATE rounds SET status = ?, responses = ?, key = ?, at = ? {_WHERE}"
    _STEP = f"UPDATE rounds SET status = ?, at = ? {_WHERE}"
    _MOVES = (("response_validated", "delivery_started"), ("delivery_started", "delivered"), ("delivered", "resolved"))

    def __init__(self, path: Path, *, kept: bool = True, shared: bool = False) -> None:
        self._path, self._shared = path, shared
        self._kept: sqlite3.Connection | None = None
        connection = self._connect()
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS rounds (id INTEGER PRIMARY KEY, execution_id TEXT, round_id TEXT, "
            "round_index INTEGER, status TEXT, owner TEXT, token TEXT, lease INTEGER, requests TEXT, responses TEXT, "
            "key TEXT, at INTEGER, UNIQUE (execution_id, round_id), UNIQUE (execution_id, round_index))"
        )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS events (round INTEGER, sequence INTEGER, old TEXT, new TEXT, at INTEGER, "
            "PRIMARY KEY (round, sequence)) WITHOUT ROWID"
        )
        if kept:
            self._kept = connection
        else:
            connection.close()
        self._requests, self._responses = json.dumps(schema(0)), json.dumps(ANSWER)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=30, check_same_thread=not self._shared)
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _with(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        if self._kept is not None:
            return work(self._kept)
        connection = self._connect()
        try:
            return work(connection)
        finally:
            connection.close()

    def _write(self, statement: str, parameters: tuple[Any, ...], event: tuple[Any, ...]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(statement, parameters).fetchall()
            connection.execute(self._EVENT, event)
            connection.execute("COMMIT")

        self._with(work)

    def steps(self, number: int, index: int = 0) -> list[Step]:
        """See `Rounds.steps`."""
        ids = (f"execution-{number}", f"round-{index}")
        held = ("owner", "token", 1)
        create = (*ids, index, 2**60, self._requests, 1)
        answer = ("response_validated", self._responses, "key", 1, *ids, "pending", *held)
        steps = [
            partial(self._write, self._INSERT, create, (0, None, "pending", 1, *ids)),
            partial(self._write, self._ANSWER, answer, (1, "pending", "response_validated", 1, *ids)),
        ]
        for sequence, (old, new) in enumerate(self._MOVES, start=2):
            steps.append(
                partial(self._write, self._STEP, (new, 1, *ids, old, *held), (sequence, old, new, 1, *ids)),
            )
        return steps

    def get(self, number: int) -> Any:
        """See `Rounds.get`."""
        select = "SELECT * FROM rounds WHERE execution_id = ? AND round_id = 'round-0'"
        return self._with(lambda connection: connection.execute(select, (f"execution-{number}",)).fetchone())

    def list(self, number: int) -> Any:
        """See `Rounds.list`."""
        select = "SELECT * FROM rounds WHERE execution_id = ? ORDER BY round_index"
        return self._with(lambda connection: connection.execute(select, (f"execution-{number}",)).fetchall())


class Managed:
    """The managed store of a package: made with a path, or resolved by an execution store."""

    def __init__(self, package: str, path: Path, *, resolved: bool = True, schemas: int = 1) -> None:
        self._names, storage = importlib.import_module(package), importlib.import_module(f"{package}.storage")
        if resolved:
            self.store = storage.SQLiteExecutionStore(path).managed_input_store
        else:
            self.store = storage.SQLiteManagedInputStore(path)
        self._schemas = schemas
        self._answers = {"address": self._names.ElicitationResponse(action="accept", content=ANSWER)}

    def steps(self, number: int, index: int = 0) -> list[Step]:
        """See `Rounds.steps`."""
        request = self._names.FormElicitationRequest(
            request_key="address", message="Where to?", requested_schema=schema(number % self._schemas)
        )
        pending = self._names.PendingElicitationRound(
            round_id=f"round-{index}",
            execution_id=f"execution-{number}",
            logical_operation_id="operation",
            server="shipping",
            operation_kind="tool",
            operation_name="book_shipment",
            requests={"address": request},
            created_at=datetime.now(UTC),
        )
        store, ids = self.store, (pending.execution_id, pending.round_id)
        limits = {"round_index": index, "round_limit": 2000, "lease_seconds": 600}
        return [
            partial(store.create_round, pending, **limits, **HELD),
            partial(store.submit_responses, *ids, self._answers, response_idempotency_key="key", **HELD),
            partial(store.start_delivery, *ids, **HELD),
            partial(store.mark_delivered, *ids, **HELD),
            partial(store.resolve, *ids, **HELD),
        ]

    def get(self, number: int) -> Any:
        """See `Rounds.get`."""
        return self.store.get_round(f"execution-{number}", "round-0")

    def list(self, number: int) -> Any:
        """See `Rounds.list`."""
        return self.store.list_rounds(f"execution-{number}")


def turns(rounds: Rounds) -> Turn:
    """Whole rounds, one after the other; what they are made of is made before the clock runs."""
    count = 0

    def turn(number: int) -> float:
        nonlocal count
        steps = [step for offset in range(number) for step in rounds.steps(count + offset)]
        count += number
        started = time.perf_counter()
        for step in steps:
            step()
        return time.perf_counter() - started

    return turn
