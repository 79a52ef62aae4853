"""Rows to records and back. What comes out of the database was checked on its way in, so it is not checked again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from m3nb.elicitation import (
    ElicitationRequest,
    ElicitationResponse,
    FormElicitationRequest,
    Model,
    PendingElicitationRound,
    UrlElicitationRequest,
)
from m3nb.frozen import EMPTY, FrozenDict, FrozenList
from m3nb.storage.records import (
    EventRecord,
    ExecutionRecord,
    ManagedInputLease,
    ManagedInputRecord,
    OutboxEntry,
    WorkerRecord,
)
from m3nb.storage.times import from_microseconds, optional_datetime

M = TypeVar("M", bound=Model)

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_SORTED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)

_KEPT_QUESTIONS = 512
"""Parsed questions that are kept. The schema object of a question then stays the same, and its validator is found."""

_GIVEN = ("harness_session_id", "native_resume_token", "delivery_idempotency_key", "session_id", "turn_id")
_AS_THEY_ARE = (
    *("round_index", "round_limit", "status", "response_idempotency_key", "delivery_attempts"),
    *("failure_code", "failure_message"),
    *_GIVEN,
)
_TIMES = (
    *("created_at", "updated_at", "response_validated_at", "delivery_started_at"),
    *("delivered_at", "resolved_at", "failed_at"),
)
_UNSET: dict[str, Any] = {
    name: field.default for name, field in ManagedInputRecord.model_fields.items() if not field.is_required()
}

_FIELDS: dict[type[Model], set[str]] = {
    model: set(model.model_fields)
    for model in (
        *(PendingElicitationRound, ElicitationResponse, ManagedInputRecord, ManagedInputLease),
        *(ExecutionRecord, EventRecord, WorkerRecord, OutboxEntry),
    )
}
_set = object.__setattr__

_KEPT_ANSWERS = 32
"""Parsed answers that are kept: each is read again with every step of its delivery."""


def dumps(value: Any) -> str:
    """Compact JSON text, keys in the order given."""
    return _COMPACT.encode(value)


def canonical(value: Any) -> str:
    """JSON text that is equal for equal JSON: sorted keys. ``true`` and ``1`` differ, and so do ``1`` and ``1.0``."""
    return _SORTED.encode(value)


def load_object(text: str) -> FrozenDict:
    """The frozen JSON object of a text."""
    if text == "{}":
        return EMPTY
    value: FrozenDict = _frozen(json.loads(text))
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
            values[name] = _frozen(values[name])
    model = FormElicitationRequest if values["mode"] == "form" else UrlElicitationRequest
    return model.model_construct(request_key=key, **values)


def plain_responses(responses: Mapping[str, ElicitationResponse]) -> dict[str, Any]:
    """The JSON form of answers."""
    return {
        key: {"action": response.action, "content": response.content, "meta": response.meta}
        for key, response in responses.items()
    }


@lru_cache(_KEPT_ANSWERS)
def load_responses(text: str) -> FrozenDict:
    """Answers by request key."""
    return FrozenDict({key: _trusted(ElicitationResponse, _frozen(item)) for key, item in json.loads(text).items()})


def digest(plain: Any) -> str:
    """SHA-256 of canonical JSON, as hex. Equal answers have equal digests, whatever the order of their keys."""
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def _pending(values: Mapping[str, Any]) -> PendingElicitationRound:
    return _trusted(
        PendingElicitationRound,
        {
            "round_id": values["round_id"],
            "execution_id": values["execution_id"],
            "logical_operation_id": values["logical_operation_id"],
            "server": values["server"],
            "operation_kind": values["operation_kind"],
            "operation_name": values["operation_name"],
            "requests": load_requests(values["requests"]),
            "created_at": from_microseconds(values["asked_at"]),
            "request_state": values["request_state"],
            "deadline": optional_datetime(values["deadline"]),
        },
    )


def new_lease(owner_id: str, lease_token: str, end: int) -> ManagedInputLease:
    """A lease until ``end``."""
    expires_at = from_microseconds(end)
    return _trusted(ManagedInputLease, {"owner_id": owner_id, "lease_token": lease_token, "expires_at": expires_at})


def new_round(values: dict[str, Any], created_at: datetime) -> ManagedInputRecord:
    """The record of the columns of a round that was just created."""
    fields = {name: values[name] for name in ("round_index", "round_limit", *_GIVEN)}
    fields |= {
        "pending": _pending(values),
        "status": "pending",
        "lease": new_lease(values["owner_id"], values["lease_token"], values["lease_expires_at"]),
        "operation_parameters": load_object(values["operation_parameters"]),
        "created_at": created_at,
        "updated_at": created_at,
    }
    return _trusted(ManagedInputRecord, _UNSET | fields)


def load_round(row: sqlite3.Row) -> ManagedInputRecord:
    """The record of a row of ``rounds``."""
    values = _values(row)
    fields = {name: values[name] for name in _AS_THEY_ARE}
    responses = values["responses"]
    if responses is not None:
        fields["responses"] = load_responses(responses)
    fields["pending"] = _pending(values)
    fields["lease"] = new_lease(values["owner_id"], values["lease_token"], values["lease_expires_at"])
    fields["operation_parameters"] = load_object(values["operation_parameters"])
    for name in _TIMES:
        value = values[name]
        if value is not None:
            fields[name] = from_microseconds(value)
    return _trusted(ManagedInputRecord, _UNSET | fields)


@lru_cache(_KEPT_ANSWERS)
def _load_spec(text: str) -> FrozenDict:
    return load_object(text)


def load_execution(row: sqlite3.Row) -> ExecutionRecord:
    """The record of a row of ``executions``."""
    values = _values(row)
    del values["id"]
    # Read at every look of whoever waits for the execution, and large where it holds a plan.
    values["spec"] = _load_spec(values["spec"])
    values["labels"] = load_object(values["labels"])
    for name in ("result", "error"):
        values[name] = None if values[name] is None else load_object(values[name])
    values["managed"] = bool(values["managed"])
    values["created_at"] = from_microseconds(values["created_at"])
    for name in ("cancel_requested_at", "started_at", "finished_at", "purged_at"):
        values[name] = optional_datetime(values[name])
    return _trusted(ExecutionRecord, values)


def load_event(execution_id: str, row: sqlite3.Row) -> EventRecord:
    """The record of a row of ``execution_events``."""
    values = {"execution_id": execution_id, **_values(row)}
    values["payload"] = load_object(values["payload"])
    values["at"] = from_microseconds(values["at"])
    return _trusted(EventRecord, values)


def load_worker(row: sqlite3.Row) -> WorkerRecord:
    """The record of a row of ``workers``."""
    values = _values(row)
    values["lease_expires"] = from_microseconds(values["lease_expires"])
    return _trusted(WorkerRecord, values)


def load_outbox(row: sqlite3.Row) -> OutboxEntry:
    """The record of a row of ``outbox``."""
    values = _values(row)
    values["responses"] = None if values["responses"] is None else load_responses(values["responses"])
    values["created_at"] = from_microseconds(values["created_at"])
    values["acknowledged_at"] = optional_datetime(values["acknowledged_at"])
    return _trusted(OutboxEntry, values)


def _values(row: sqlite3.Row) -> dict[str, Any]:
    # A Row searches its columns for each name.
    return dict(zip(row.keys(), row, strict=True))


def _trusted(model: type[M], values: dict[str, Any]) -> M:
    """A model of values that are known to be right, put together as unpickling does it: several times faster."""
    made = model.__new__(model)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", _FIELDS[model])
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


def changed(record: M, fields: Mapping[str, Any]) -> M:
    """A record with other values in some fields, which are known to be right."""
    return _trusted(type(record), {**record.__dict__, **fields})


def _frozen(value: Any) -> Any:
    """`freeze` for what the JSON parser returns, which needs no checks."""
    if type(value) is dict:
        return FrozenDict({key: _frozen(item) for key, item in value.items()})
    if type(value) is list:
        return FrozenList([_frozen(item) for item in value])
    return value
