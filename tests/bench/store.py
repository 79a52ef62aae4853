"""What a round costs in the store, against bare sqlite3 and, if there is one, the reference package.

    python tests/bench/store.py [--rounds 400] [--reference PYTHON] [--check]

The floor and ours take turns in one process, one round each; of the times the lower quartile counts, which other work
on the machine disturbs least. The floor is sqlite3 on a connection that is kept open, WAL and synchronous=FULL, a
round's five transitions as plain statements, each with a row in an events table; no JSON, no checks, no objects.
``--reference`` is the interpreter of another environment with ``sf-m3[storage]==0.2.37``; it takes turns as a
subprocess. ``--check`` exits with 1 if a ratio is above its limit.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ONE_SCHEMA_LIMIT = 2.5
MANY_SCHEMAS_LIMIT = 6.0
REFERENCE_LIMIT = 0.25
MANY = 200
WARM_UP = 20
ANSWER = {"street": "1 Main Street", "city": "Pune", "floor": 3, "gift": True}

Turn = Callable[[int], float]
"""Runs so many rounds; returns the seconds they took."""


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


def floor_turns(path: Path) -> Turn:
    """Bare sqlite3."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE rounds (id INTEGER PRIMARY KEY, execution_id TEXT, round_id TEXT, round_index INTEGER, "
        "status TEXT, owner TEXT, token TEXT, lease INTEGER, requests TEXT, responses TEXT, key TEXT, at INTEGER, "
        "UNIQUE (execution_id, round_id), UNIQUE (execution_id, round_index))"
    )
    connection.execute(
        "CREATE TABLE events (round INTEGER, sequence INTEGER, old TEXT, new TEXT, at INTEGER, "
        "PRIMARY KEY (round, sequence)) WITHOUT ROWID"
    )
    insert = (
        "INSERT INTO rounds (execution_id, round_id, round_index, status, owner, token, lease, requests, at) "
        "VALUES (?, ?, 0, 'pending', 'owner', 'token', ?, ?, ?) RETURNING id"
    )
    event = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"
    where = "WHERE execution_id = ? AND round_id = ? AND status = ? AND owner = ? AND token = ? AND lease > ?"
    answer = f"UPDATE rounds SET status = ?, responses = ?, key = ?, at = ? {where}"
    step = f"UPDATE rounds SET status = ?, at = ? {where}"
    requests, responses = json.dumps(schema(0)), json.dumps(ANSWER)
    later = 2**60
    count = 0

    def one_round(name: str) -> None:
        execute = connection.execute
        execute("BEGIN IMMEDIATE")
        (row,) = execute(insert, (name, "round", later, requests, 1)).fetchone()
        execute(event, (row, 0, None, "pending", 1))
        execute("COMMIT")
        held = ("owner", "token", 1)
        execute("BEGIN IMMEDIATE")
        execute(answer, ("response_validated", responses, "key", 1, name, "round", "pending", *held))
        execute(event, (row, 1, "pending", "response_validated", 1))
        execute("COMMIT")
        for number, (old, new) in enumerate(
            (("response_validated", "delivery_started"), ("delivery_started", "delivered"), ("delivered", "resolved"))
        ):
            execute("BEGIN IMMEDIATE")
            execute(step, (new, 1, name, "round", old, *held))
            execute(event, (row, number + 2, old, new, 1))
            execute("COMMIT")

    def turn(rounds: int) -> float:
        nonlocal count
        started = time.perf_counter()
        for _ in range(rounds):
            count += 1
            one_round(f"execution-{count}")
        return time.perf_counter() - started

    return turn


def store_turns(package: str, path: Path, schemas: int) -> Turn:
    """The managed store of the execution store of a package: ours or the reference."""
    names = importlib.import_module(package)
    rounds_of = importlib.import_module(f"{package}.storage").SQLiteExecutionStore(path).managed_input_store
    answers = {"address": names.ElicitationResponse(action="accept", content=ANSWER)}
    count = 0

    def question(number: int) -> Any:
        request = names.FormElicitationRequest(
            request_key="address", message="Where to?", requested_schema=schema(number % schemas)
        )
        return names.PendingElicitationRound(
            round_id="round",
            execution_id=f"execution-{number}",
            logical_operation_id="operation",
            server="shipping",
            operation_kind="tool",
            operation_name="book_shipment",
            requests={"address": request},
            created_at=datetime.now(UTC),
        )

    def one_round(pending: Any) -> None:
        held = {"owner_id": "owner", "lease_token": "token"}
        ids = (pending.execution_id, pending.round_id)
        rounds_of.create_round(pending, round_index=0, round_limit=10, lease_seconds=30, **held)
        rounds_of.submit_responses(*ids, answers, response_idempotency_key="key", **held)
        rounds_of.start_delivery(*ids, **held)
        rounds_of.mark_delivered(*ids, **held)
        rounds_of.resolve(*ids, **held)

    def turn(rounds: int) -> float:
        nonlocal count
        questions = [question(count + number) for number in range(rounds)]
        count += rounds
        started = time.perf_counter()
        for pending in questions:
            one_round(pending)
        return time.perf_counter() - started

    return turn


def remote_turns(python: str, path: Path) -> Turn:
    """The reference, in its own interpreter."""
    process = subprocess.Popen(
        [python, __file__, "--serve", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asks, tells = process.stdin, process.stdout

    def turn(rounds: int) -> float:
        asks.write(f"{rounds}\n")
        asks.flush()
        return float(tells.readline())

    return turn


def serve(path: Path) -> None:
    """Run turns of the reference as they are asked for on standard input."""
    turn = store_turns("m3", path, 1)
    for line in sys.stdin:
        print(turn(int(line)), flush=True)


def measure(turns: dict[str, Turn], rounds: int, *, warm: bool) -> dict[str, float]:
    """Microseconds per round: the lower quartile over rounds that alternate."""
    if warm:
        for turn in turns.values():
            turn(WARM_UP)
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            taken[name].append(turn(1) * 1e6)
    return {name: statistics.quantiles(values, n=4)[0] for name, values in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--reference", metavar="PYTHON")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return report(Path(folder), options.rounds, options.reference, options.check)


def report(folder: Path, rounds: int, reference: str | None, check: bool) -> int:
    """Measure, print, and say whether all limits hold."""
    floor = floor_turns(folder / "floor.sqlite")
    turns = {"floor": floor, "ours": store_turns("m3nb", folder / "one.sqlite", 1)}
    if reference:
        turns["reference"] = remote_turns(reference, folder / "reference.sqlite")
    one = measure(turns, rounds, warm=True)
    # Every schema is new here: its validator has to be built.
    many = measure({"floor": floor, "ours": store_turns("m3nb", folder / "many.sqlite", MANY)}, MANY, warm=False)
    ratios = [
        ("one schema, to the floor", one["ours"] / one["floor"], ONE_SCHEMA_LIMIT),
        (f"{MANY} distinct schemas, to the floor", many["ours"] / many["floor"], MANY_SCHEMAS_LIMIT),
    ]
    if reference:
        ratios.append(("one schema, to the reference", one["ours"] / one["reference"], REFERENCE_LIMIT))
    for name, value in (*one.items(), *((f"{key}, {MANY} schemas", value) for key, value in many.items())):
        print(f"{name:>34}: {value:7.0f} µs for the five transitions of a round")
    for name, ratio, limit in ratios:
        print(f"{name:>34}: {ratio:7.2f}  (limit {limit:g})")
    return int(check and any(ratio > limit for _, ratio, limit in ratios))


if __name__ == "__main__":
    sys.exit(main())
