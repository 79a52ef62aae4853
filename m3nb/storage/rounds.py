"""Reading a stored round inside a transaction, and writing the history of it.

One row per transition, and one per refused attempt: which rule refused, never what was typed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from m3nb.errors import MCPError
from m3nb.frozen import EMPTY
from m3nb.storage import refusals
from m3nb.storage.codec import canonical, dumps, load_requests
from m3nb.storage.queries import queries

_SQL = queries("managed")

_COMPARED = (
    "round_index",
    "round_limit",
    "owner_id",
    "lease_token",
    "logical_operation_id",
    "server",
    "operation_kind",
    "operation_name",
    "asked_at",
    "deadline",
    "request_state",
    "harness_session_id",
    "native_resume_token",
    "delivery_idempotency_key",
    "session_id",
    "turn_id",
)
_COMPARED_JSON = ("requests", "operation_parameters")


def find(connection: sqlite3.Connection, execution_id: str, round_id: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(_SQL["round"], (execution_id, round_id)).fetchone()
    return row


def existing(connection: sqlite3.Connection, values: Mapping[str, Any], now: int) -> sqlite3.Row | MCPError:
    """The round that stands in the way of a new one, if it is the same round."""
    row = find(connection, values["execution_id"], values["round_id"])
    if row is None:
        row = connection.execute(_SQL["round_at_index"], (values["execution_id"], values["round_index"])).fetchone()
        problem = refusals.of_creation(row, f"round_id at round_index {values['round_index']}")
        return refuse(connection, row, "create_round", values["owner_id"], now, problem)
    differing = [name for name in _COMPARED if row[name] != values[name]]
    # As JSON text: to Python, true equals 1.
    differing += [
        name for name in _COMPARED_JSON if canonical(json.loads(row[name])) != canonical(json.loads(values[name]))
    ]
    if not differing:
        return row
    problem = refusals.of_creation(row, ", ".join(differing))
    return refuse(connection, row, "create_round", values["owner_id"], now, problem)


def note(
    connection: sqlite3.Connection,
    round_row: int,
    method: str,
    source: str | None,
    target: str | None,
    now: int,
    owner_id: str | None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """A line in the history of a round."""
    text = None if detail is None else dumps(detail)
    connection.execute(_SQL["insert_event"], (round_row, method, source, target, now, owner_id, text))


def refuse(
    connection: sqlite3.Connection, row: sqlite3.Row, method: str, owner_id: str | None, now: int, error: MCPError
) -> MCPError:
    """The error, noted in the history: which rule refused, never what was typed."""
    detail: dict[str, Any] = {"error": error.code}
    errors = error.details.get("errors")
    if errors:
        detail["errors"] = [_rule(row, item) for item in errors]
    note(connection, row["id"], method, row["status"], None, now, owner_id, detail)
    return error


def _rule(row: sqlite3.Row, error: Mapping[str, str]) -> dict[str, str]:
    """An error without its message, and with its pointer only as far as the schema, not the answer, has named it."""
    requests = load_requests(row["requests"])
    key = error["request_key"]
    if key not in requests:
        return {"keyword": error["keyword"]}
    field = error["pointer"].split("/")[1] if "/" in error["pointer"] else ""
    properties = getattr(requests[key], "requested_schema", EMPTY).get("properties")
    known = isinstance(properties, Mapping) and field.replace("~1", "/").replace("~0", "~") in properties
    return {"request_key": key, "pointer": f"/{field}" if known else "", "keyword": error["keyword"]}
