"""What every DataFrame of a history looks like, and a managed store whose clock is set by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from asking import pending

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound
from m3nb.frames import answers, events, executions, requests, rounds
from m3nb.storage import SQLiteManagedInputStore

START = datetime(2026, 10, 25, 0, 59, 59, 999_999, tzinfo=UTC)
STATUSES = ["pending", "response_validated", "delivery_started", "delivered", "resolved", "failed"]
TABLES = (executions, rounds, requests, answers, events)
TIME, DURATION = "datetime64[us, UTC]", "timedelta64[us]"

_WHO = {"server": "string", "operation_kind": "string", "operation_name": "string"}
_IDS = {"round_index": "Int64", "round_id": "string", "execution_id": "string"}
COLUMNS = {
    "executions": {
        "harness": "string",
        "model": "string",
        "servers": "string",
        "prompt": "string",
        "lifecycle": "category",
        "outcome": "category",
        "took": DURATION,
        "waited": DURATION,
        "active": DURATION,
        "n_rounds": "Int64",
        "tool_call_count": "Int64",
        "final_text": "string",
        "error_code": "string",
        "error_message": "string",
        "tools": "string",
        "name": "string",
        "trial": "Int64",
        "managed": "boolean",
        "created_at": TIME,
        "started_at": TIME,
        "finished_at": TIME,
        "cancel_requested_at": TIME,
        "case_id": "string",
        "suite_name": "string",
        "run_id": "string",
        "project_id": "string",
        "worker_id": "string",
        "execution_id": "string",
    },
    "rounds": {
        **_WHO,
        "status": "category",
        "actions": "string",
        "n_requests": "Int64",
        "waited": DURATION,
        "created_at": TIME,
        "answered_at": TIME,
        "delivered_at": TIME,
        "resolved_at": TIME,
        "failed_at": TIME,
        "deadline": TIME,
        "failure_code": "string",
        "failure_message": "string",
        "delivery_attempts": "Int64",
        "refused_attempts": "Int64",
        **_IDS,
    },
    "requests": {
        **_WHO,
        "request_key": "string",
        "mode": "string",
        "message": "string",
        "fields": "string",
        "n_fields": "Int64",
        "url": "string",
        "status": "category",
        "action": "string",
        "waited": DURATION,
        "created_at": TIME,
        "answered_at": TIME,
        "completed_at": TIME,
        "deadline": TIME,
        "elicitation_id": "string",
        **_IDS,
    },
    "answers": {
        **_WHO,
        "request_key": "string",
        "mode": "string",
        "action": "string",
        "field": "string",
        "value": "string",
        "masked": "boolean",
        "answered_at": TIME,
        **_IDS,
    },
    "events": {
        "at": TIME,
        "source": "category",
        "kind": "string",
        **_WHO,
        "is_error": "boolean",
        "from_status": "category",
        "to_status": "category",
        "payload": "string",
        "sequence": "Int64",
        "owner_id": "string",
        "round_id": "string",
        "execution_id": "string",
    },
}
CATEGORIES = {
    "lifecycle": ["created", "queued", "starting", "idle", "running_turn", "waiting_for_input", "closing", "finished"],
    "outcome": ["completed", "failed", "timed_out", "cancelled", "interrupted"],
    "status": STATUSES,
    "from_status": STATUSES,
    "to_status": STATUSES,
    "source": ["execution", "round"],
}


def checked(table: Any, *arguments: Any, **options: Any) -> pd.DataFrame:
    """The frame that a function of `m3nb.frames` returns; its columns and dtypes are right."""
    frame: pd.DataFrame = table(*arguments, **options)
    columns = COLUMNS[table.__name__]
    assert {str(name): str(dtype) for name, dtype in frame.dtypes.items()} == columns
    assert list(frame.columns) == list(columns)
    assert isinstance(frame.index, pd.RangeIndex)
    for name, categories in CATEGORIES.items():
        if name in frame:
            assert list(frame[name].cat.categories) == categories
            assert frame[name].cat.ordered
    return frame


class Rounds:
    """A managed store whose clock is set by hand, and the steps of a round."""

    def __init__(self, path: Path) -> None:
        self.now = START
        self.store = SQLiteManagedInputStore(path, clock=lambda: self.now)
        self.lease: dict[str, str] = {"owner_id": "o", "lease_token": "t"}

    def ask(self, round_: PendingElicitationRound, index: int = 0) -> None:
        self.store.create_round(round_, round_index=index, round_limit=10, lease_seconds=10**6, **self.lease)

    def answer(self, round_: PendingElicitationRound, responses: dict[str, ElicitationResponse]) -> None:
        ids = (round_.execution_id, round_.round_id)
        self.store.submit_responses(*ids, responses, response_idempotency_key="k", **self.lease)

    def step(self, method: str, round_: PendingElicitationRound, **more: str) -> None:
        getattr(self.store, method)(round_.execution_id, round_.round_id, **self.lease, **more)


def named(*requests: Any, execution_id: str, round_id: str, **more: Any) -> PendingElicitationRound:
    """A round with these ids."""
    return pending(*requests).model_copy(update={"execution_id": execution_id, "round_id": round_id, **more})


def accept(**content: Any) -> ElicitationResponse:
    return ElicitationResponse(action="accept", content=content)
