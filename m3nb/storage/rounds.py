"""A stored round: finding it, changing it, writing its history. All of it inside a transaction.

The history has one row per transition, and one per refused attempt: which rule refused, never what was typed.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from m3nb.elicitation import PendingElicitationRound
from m3nb.errors import ManagedInputValidationError, MCPError
from m3nb.frozen import EMPTY
from m3nb.storage import refusals
from m3nb.storage.arguments import check_texts, json_text
from m3nb.storage.codec import canonical, changed, dumps, load_round, plain_requests
from m3nb.storage.queries import queries
from m3nb.storage.records import ManagedInputRecord
from m3nb.storage.times import to_microseconds

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

_KEPT = 64

Ids = tuple[str, str]
"""Execution and round id."""


class Stored(NamedTuple):
    """A row of ``rounds``. As long as it has this ``stamp``, nothing in it has changed."""

    id: int
    stamp: int
    lease_end: int
    digest: str | None
    record: ManagedInputRecord


class Change(NamedTuple):
    """What a step does to a round: the statement and its own parameters, and the same change for the record."""

    statement: str
    parameters: tuple[Any, ...]
    fields: dict[str, Any]
    lease_end: int | None = None
    digest: str | None = None
    detail: Mapping[str, Any] | None = None


Step = Callable[[Stored, int, datetime], Change | None]
"""What is done to a round at a time (microseconds, and the same as a datetime); ``None`` for nothing."""


class Recent:
    """The rounds this store has seen last. What it knows may be out of date: a change is made by `Stored.stamp`."""

    def __init__(self) -> None:
        self._stored: OrderedDict[Ids, Stored] = OrderedDict()

    def get(self, ids: Ids) -> Stored | None:
        """What was seen of a round, if it is remembered."""
        return self._stored.get(ids)

    def put(self, stored: Stored) -> ManagedInputRecord:
        """Remember a round as it is in the database; returns its record."""
        pending = stored.record.pending
        # Without a lock: each call is atomic, and whoever forgets a round too many only has to read it again.
        self._stored[pending.execution_id, pending.round_id] = stored
        if len(self._stored) > _KEPT:
            with suppress(KeyError):
                self._stored.popitem(last=False)
        return stored.record


def new_stamp() -> int:
    """A number no row has had before."""
    return random.getrandbits(63)


def stored(row: sqlite3.Row) -> Stored:
    """The round of a row."""
    return Stored(row["id"], row["stamp"], row["lease_expires_at"], row["response_digest"], load_round(row))


def find(connection: sqlite3.Connection, ids: Ids) -> Stored | None:
    """A round by execution and round id."""
    row = connection.execute(_SQL["round"], ids).fetchone()
    return None if row is None else stored(row)


def apply(
    connection: sqlite3.Connection, method: str, there: Stored, change: Change, now: int, owner_id: str | None
) -> Stored | None:
    """Change a round if it is still as it was seen, and note the transition. ``None`` if it has another stamp."""
    stamp = new_stamp()
    parameters = (stamp, now, *change.parameters, there.id, there.stamp)
    if connection.execute(_SQL[change.statement], parameters).rowcount != 1:
        return None
    record = changed(there.record, change.fields)
    if change.statement != "renew":
        note(connection, there.id, method, there.record.status, record.status, now, owner_id, change.detail)
    return Stored(
        there.id,
        stamp,
        there.lease_end if change.lease_end is None else change.lease_end,
        there.digest if change.digest is None else change.digest,
        record,
    )


def existing(connection: sqlite3.Connection, values: Mapping[str, Any]) -> Stored | MCPError:
    """The round that stands in the way of a new one, if it is the same round; else the refusal, noted."""
    ids = (values["execution_id"], values["round_id"])
    row = connection.execute(_SQL["round"], ids).fetchone()
    if row is None:
        row = connection.execute(_SQL["round_at_index"], (ids[0], values["round_index"])).fetchone()
        differing = [f"round_id at round_index {values['round_index']}"]
    else:
        differing = [name for name in _COMPARED if row[name] != values[name]]
        # As JSON text: to Python, true equals 1.
        differing += [name for name in _COMPARED_JSON if _normal(row[name]) != _normal(values[name])]
    there = stored(row)
    if not differing:
        return there
    error = refusals.of_creation(there.record, ", ".join(differing))
    return refuse(connection, there, "create_round", values["owner_id"], values["created_at"], error)


def asked(pending: PendingElicitationRound) -> dict[str, Any]:
    """The columns of a question. Raises `ManagedInputValidationError` for what can't be stored."""
    invalid = ManagedInputValidationError
    texts = {
        "execution_id": pending.execution_id,
        "round_id": pending.round_id,
        "logical_operation_id": pending.logical_operation_id,
        "server": pending.server,
        "operation_kind": pending.operation_kind,
        "operation_name": pending.operation_name,
    }
    check_texts(invalid, **texts)
    if pending.request_state:
        check_texts(invalid, request_state=pending.request_state)
    return texts | {
        "asked_at": to_microseconds(pending.created_at),
        "deadline": None if pending.deadline is None else to_microseconds(pending.deadline),
        "request_state": pending.request_state,
        "requests": json_text(invalid, "requests", plain_requests(pending.requests)),
    }


def failure(code: str, message: str) -> Step:
    """The step that fails a round; nothing for one that has failed already."""

    def step(there: Stored, now: int, at: datetime) -> Change | None:
        if there.record.status == "failed":
            return None
        fields = {
            "status": "failed",
            "updated_at": at,
            "failed_at": at,
            "failure_code": code,
            "failure_message": message,
        }
        return Change("fail", (code, message), fields, detail={"code": code})

    return step


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
    connection: sqlite3.Connection, there: Stored, method: str, owner_id: str | None, now: int, error: MCPError
) -> MCPError:
    """The error, noted in the history."""
    detail: dict[str, Any] = {"error": error.code}
    errors = error.details.get("errors")
    if errors:
        detail["errors"] = [_rule(there.record, item) for item in errors]
    note(connection, there.id, method, there.record.status, None, now, owner_id, detail)
    return error


def _normal(text: str) -> str:
    return canonical(json.loads(text))


def _rule(record: ManagedInputRecord, error: Mapping[str, str]) -> dict[str, str]:
    """An error without its message, and with its pointer only as far as the schema, not the answer, has named it."""
    key = error["request_key"]
    request = record.pending.requests.get(key)
    if request is None:
        return {"keyword": error["keyword"]}
    field = error["pointer"].split("/")[1] if "/" in error["pointer"] else ""
    properties = getattr(request, "requested_schema", EMPTY).get("properties")
    known = isinstance(properties, Mapping) and field.replace("~1", "/").replace("~0", "~") in properties
    return {"request_key": key, "pointer": f"/{field}" if known else "", "keyword": error["keyword"]}
