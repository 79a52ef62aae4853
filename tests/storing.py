"""Rounds, answers and a clock for the tests of the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from m3nb.elicitation import (
    ElicitationResponse,
    FormElicitationRequest,
    PendingElicitationRound,
    UrlElicitationRequest,
)
from m3nb.storage import ManagedInputRecord, ManagedInputStore, SQLiteExecutionStore, read_rows

STATUSES = ("pending", "response_validated", "delivery_started", "delivered", "resolved", "failed")
SCHEMA = {
    "type": "object",
    "properties": {
        "street": {"type": "string", "title": "Street", "minLength": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
        "password": {"type": "string"},
    },
    "required": ["street"],
}
HELD: dict[str, Any] = {"owner_id": "owner", "lease_token": "token"}
KEY = "key-1"


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def form(key: str = "address", schema: Mapping[str, Any] = SCHEMA, **fields: Any) -> FormElicitationRequest:
    return FormElicitationRequest(request_key=key, message="Where to?", requested_schema=schema, **fields)


def url(key: str = "consent") -> UrlElicitationRequest:
    return UrlElicitationRequest(request_key=key, message="Sign in", url="https://example.com/sign-in")


def question(execution_id: str = "e1", round_id: str = "r1", *requests: Any, **fields: Any) -> PendingElicitationRound:
    return PendingElicitationRound(
        **{
            "round_id": round_id,
            "execution_id": execution_id,
            "logical_operation_id": "operation-1",
            "server": "shipping",
            "operation_kind": "tool",
            "operation_name": "book_shipment",
            "requests": {request.request_key: request for request in requests or (form(),)},
            "created_at": datetime(2026, 5, 1, tzinfo=UTC),
            **fields,
        }
    )


def accept(key: str = "address", **content: Any) -> dict[str, ElicitationResponse]:
    return {key: ElicitationResponse(action="accept", content=content)}


GOOD = accept(street="1 Main Street", tags=["a", "b"])


def create(store: ManagedInputStore, pending: PendingElicitationRound | None = None, **fields: Any) -> tuple[str, str]:
    """Create a round and return its ids."""
    pending = pending or question()
    store.create_round(pending, **{"round_index": 0, "round_limit": 10, "lease_seconds": 30, **HELD, **fields})
    return pending.execution_id, pending.round_id


def submit(store: ManagedInputStore, ids: tuple[str, str], responses: Any = GOOD, key: str = KEY) -> ManagedInputRecord:
    return store.submit_responses(*ids, responses, response_idempotency_key=key, **HELD)


def bring(store: ManagedInputStore, status: str, pending: PendingElicitationRound | None = None) -> tuple[str, str]:
    """Create a round and bring it to a status."""
    ids = create(store, pending)
    if status == "failed":
        store.fail(*ids, code="timeout", message="nobody answered", **HELD)
        return ids
    reached = STATUSES.index(status)
    if reached >= 1:
        submit(store, ids)
    for step, method in enumerate(("start_delivery", "mark_delivered", "resolve"), start=2):
        if reached >= step:
            getattr(store, method)(*ids, **HELD)
    return ids


def transitions(source: SQLiteExecutionStore | Path) -> list[dict[str, Any]]:
    """The histories of all rounds: one row per transition and per refused attempt."""
    rows = [row for row in read_rows(source, "events") if row["source"] == "round"]
    return [row | {"method": row["kind"], "detail": row["payload"]} for row in rows]
