"""Rows to records and back. What comes out of the database was checked on its way in, so it is not checked again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from m3nb.elicitation import (
    ElicitationRequest,
    ElicitationResponse,
    FormElicitationRequest,
    PendingElicitationRound,
    UrlElicitationRequest,
)
from m3nb.frozen import EMPTY, FrozenDict, freeze
from m3nb.storage.records import (
    EventRecord,
    ExecutionRecord,
    ManagedInputLease,
    ManagedInputRecord,
    OutboxEntry,
    WorkerRecord,
)
from m3nb.storage.times import from_microseconds, optional_datetime

_KEPT_QUESTIONS = 512
"""Parsed questions that are kept. The schema object of a question then stays the same, and its validator is found."""


def dumps(value: Any) -> str:
    """Compact JSON text, keys in the order given."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def canonical(value: Any) -> str:
    """JSON text that is equal for equal JSON: sorted keys. ``true`` and ``1`` differ, and so do ``1`` and ``1.0``."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)


def load_object(text: str) -> FrozenDict:
    """The frozen JSON object of a text."""
    if text == "{}":
        return EMPTY
    value: FrozenDict = freeze(json.loads(text))
    return value


def plain_requests(requests: Mapping[str, ElicitationRequest]) -> dict[str, Any]:
    """The JSON form of a round's questions, unset fields left out."""
    return {key: _plain_request(request) for key, request in requests.items()}


def _plain_request(request: ElicitationRequest) -> dict[str, Any]:
    values = {"mode": request.mode, **request.__dict__}
    del values["request_key"]
    return {name: value for name, value in values.items() if value is not None}


@lru_cache(_KEPT_QUESTIONS)
def load_requests(text: str) -> FrozenDict:
    """The questions of a round."""
    return FrozenDict({key: _request(key, values) for key, values in json.loads(text).items()})


def _request(key: str, values: dict[str, Any]) -> ElicitationRequest:
    for name in ("requested_schema", "meta", "task"):
        if name in values:
            values[name] = freeze(values[name])
    model = FormElicitationRequest if values["mode"] == "form" else UrlElicitationRequest
    return model.model_construct(request_key=key, **values)


def plain_responses(responses: Mapping[str, ElicitationResponse]) -> dict[str, Any]:
    """The JSON form of answers."""
    return {
        key: {"action": response.action, "content": response.content, "meta": response.meta}
        for key, response in responses.items()
    }


def load_responses(text: str) -> FrozenDict:
    """Answers by request key."""
    return FrozenDict(
        {
            key: ElicitationResponse.model_construct(
                action=item["action"], content=freeze(item["content"]), meta=freeze(item["meta"])
            )
            for key, item in json.loads(text).items()
        }
    )


def digest(plain: Any) -> str:
    """SHA-256 of canonical JSON, as hex. Equal answers have equal digests, whatever the order of their keys."""
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def load_round(row: sqlite3.Row) -> ManagedInputRecord:
    """The record of a row of ``rounds``."""
    responses = row["responses"]
    return ManagedInputRecord.model_construct(
        pending=PendingElicitationRound.model_construct(
            round_id=row["round_id"],
            execution_id=row["execution_id"],
            logical_operation_id=row["logical_operation_id"],
            server=row["server"],
            operation_kind=row["operation_kind"],
            operation_name=row["operation_name"],
            requests=load_requests(row["requests"]),
            created_at=from_microseconds(row["asked_at"]),
            request_state=row["request_state"],
            deadline=optional_datetime(row["deadline"]),
        ),
        round_index=row["round_index"],
        round_limit=row["round_limit"],
        status=row["status"],
        lease=ManagedInputLease.model_construct(
            owner_id=row["owner_id"],
            lease_token=row["lease_token"],
            expires_at=from_microseconds(row["lease_expires_at"]),
        ),
        responses=None if responses is None else load_responses(responses),
        response_idempotency_key=row["response_idempotency_key"],
        harness_session_id=row["harness_session_id"],
        native_resume_token=row["native_resume_token"],
        delivery_idempotency_key=row["delivery_idempotency_key"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        operation_parameters=load_object(row["operation_parameters"]),
        delivery_attempts=row["delivery_attempts"],
        created_at=from_microseconds(row["created_at"]),
        updated_at=from_microseconds(row["updated_at"]),
        response_validated_at=optional_datetime(row["response_validated_at"]),
        delivery_started_at=optional_datetime(row["delivery_started_at"]),
        delivered_at=optional_datetime(row["delivered_at"]),
        resolved_at=optional_datetime(row["resolved_at"]),
        failed_at=optional_datetime(row["failed_at"]),
        failure_code=row["failure_code"],
        failure_message=row["failure_message"],
    )


def load_execution(row: sqlite3.Row) -> ExecutionRecord:
    """The record of a row of ``executions``."""
    return ExecutionRecord.model_construct(
        execution_id=row["execution_id"],
        spec=load_object(row["spec"]),
        labels=load_object(row["labels"]),
        worker_id=row["worker_id"],
        managed=bool(row["managed"]),
        lifecycle=row["lifecycle"],
        outcome=row["outcome"],
        result=None if row["result"] is None else load_object(row["result"]),
        error=None if row["error"] is None else load_object(row["error"]),
        cancel_requested_at=optional_datetime(row["cancel_requested_at"]),
        created_at=from_microseconds(row["created_at"]),
        started_at=optional_datetime(row["started_at"]),
        finished_at=optional_datetime(row["finished_at"]),
        purged_at=optional_datetime(row["purged_at"]),
        sequence=row["sequence"],
        tool_call_count=row["tool_call_count"],
    )


def load_event(execution_id: str, row: sqlite3.Row) -> EventRecord:
    """The record of a row of ``execution_events``."""
    return EventRecord.model_construct(
        execution_id=execution_id,
        sequence=row["sequence"],
        kind=row["kind"],
        payload=load_object(row["payload"]),
        at=from_microseconds(row["at"]),
    )


def load_worker(row: sqlite3.Row) -> WorkerRecord:
    """The record of a row of ``workers``."""
    return WorkerRecord.model_construct(
        worker_id=row["worker_id"],
        kind=row["kind"],
        pid=row["pid"],
        version=row["version"],
        prefix=row["prefix"],
        port=row["port"],
        token=row["token"],
        lease_expires=from_microseconds(row["lease_expires"]),
    )


def load_outbox(row: sqlite3.Row) -> OutboxEntry:
    """The record of a row of ``outbox``."""
    return OutboxEntry.model_construct(
        idempotency_key=row["idempotency_key"],
        execution_id=row["execution_id"],
        round_id=row["round_id"],
        responses=None if row["responses"] is None else load_responses(row["responses"]),
        digest=row["digest"],
        created_at=from_microseconds(row["created_at"]),
        acknowledged_at=optional_datetime(row["acknowledged_at"]),
    )
