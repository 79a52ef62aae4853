"""What the store hands out: immutable records (spec "Persistent store contract"; engine-facts section 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, NonNegativeInt, PlainSerializer, PlainValidator, PositiveInt, model_validator

from m3nb.elicitation import ElicitationResponse, Model, PendingElicitationRound, Text
from m3nb.frozen import EMPTY, FrozenDict, JsonObject

ManagedInputStatus = Literal["pending", "response_validated", "delivery_started", "delivered", "resolved", "failed"]
"""Where a round is on its way. ``resolved`` and ``failed`` are for good."""

ANSWERED: frozenset[ManagedInputStatus] = frozenset({"response_validated", "delivery_started", "delivered", "resolved"})
"""The statuses of a round that holds a valid answer and has not failed."""

TERMINAL: frozenset[ManagedInputStatus] = frozenset({"resolved", "failed"})
"""The statuses that never change again."""


def _responses(value: Any) -> FrozenDict:
    if not isinstance(value, Mapping):
        raise ValueError("responses must be a mapping of request key to ElicitationResponse")
    return FrozenDict(
        {
            str(key): item if isinstance(item, ElicitationResponse) else ElicitationResponse.model_validate(item)
            for key, item in value.items()
        }
    )


def _dump_responses(value: Mapping[str, ElicitationResponse]) -> dict[str, Any]:
    return {key: response.model_dump(mode="json") for key, response in value.items()}


Responses = Annotated[
    Mapping[str, ElicitationResponse],
    PlainValidator(_responses),
    PlainSerializer(_dump_responses),
]
"""Answers by request key."""


class _Record(Model):
    """A record whose ``repr`` leaves out what is unset, what is secret, and what people typed."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            if value is None:
                continue
            if name == "responses":
                yield name, {key: response.action for key, response in value.items()}
            elif isinstance(value, datetime):
                yield name, value.isoformat()
            else:
                yield name, value


class ManagedInputLease(_Record):
    """The right to move a round on: compare-and-set by ``owner_id`` and ``lease_token`` until ``expires_at``.

    At the instant of expiry the lease has expired.
    """

    owner_id: Text
    lease_token: Text = Field(repr=False)
    expires_at: datetime


class ManagedInputRecord(_Record):
    """One stored round. Times are aware UTC datetimes.

    A ``pending`` round has no responses, key or attempts; from ``response_validated`` to ``resolved`` it has responses
    and key; a ``failed`` one has a ``failure_code``. After a purge the responses keep their actions only.
    """

    pending: PendingElicitationRound = Field(repr=False)
    round_index: NonNegativeInt
    round_limit: PositiveInt
    status: ManagedInputStatus
    lease: ManagedInputLease
    responses: Responses | None = None
    response_idempotency_key: Text | None = Field(default=None, repr=False)
    harness_session_id: Text | None = None
    native_resume_token: Text | None = Field(default=None, repr=False)
    delivery_idempotency_key: Text | None = Field(default=None, repr=False)
    session_id: Text | None = None
    turn_id: Text | None = None
    operation_parameters: JsonObject = Field(default=EMPTY, repr=False)
    delivery_attempts: NonNegativeInt = 0
    created_at: datetime
    updated_at: datetime
    response_validated_at: datetime | None = None
    delivery_started_at: datetime | None = None
    delivered_at: datetime | None = None
    resolved_at: datetime | None = None
    failed_at: datetime | None = None
    failure_code: Text | None = None
    failure_message: Text | None = None

    @model_validator(mode="after")
    def _hangs_together(self) -> ManagedInputRecord:
        if self.round_index >= self.round_limit:
            raise ValueError(f"round_index {self.round_index} must be less than round_limit {self.round_limit}")
        responses, key = self.responses, self.response_idempotency_key
        if self.status == "pending" and (responses is not None or key is not None or self.delivery_attempts):
            raise ValueError("a pending round has no responses, key or delivery attempts")
        if self.status in ANSWERED and (responses is None or key is None):
            raise ValueError(f"a round that is {self.status} has responses and their key")
        if self.status == "failed" and self.failure_code is None:
            raise ValueError("a failed round has a failure_code")
        return self

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        yield "execution_id", self.execution_id
        yield "round_id", self.round_id
        yield from super().__repr_args__()

    @property
    def execution_id(self) -> str:
        """The execution that asks."""
        return self.pending.execution_id

    @property
    def round_id(self) -> str:
        """The round's own id."""
        return self.pending.round_id

    @property
    def request_state(self) -> str | None:
        """The server's opaque state, to be sent back as it is."""
        return self.pending.request_state

    @property
    def owner_id(self) -> str:
        """Who holds the lease."""
        return self.lease.owner_id

    @property
    def lease_token(self) -> str:
        """The present token of the lease."""
        return self.lease.lease_token


class ExecutionRecord(_Record):
    """One stored execution. ``sequence`` is that of its last event, -1 before the first; times are aware UTC.

    ``labels`` say in JSON what ran (server, tools, harness, model). After a purge ``result`` is ``None``.
    """

    execution_id: Text
    spec: JsonObject = Field(repr=False)
    labels: JsonObject = EMPTY
    worker_id: Text
    managed: bool
    lifecycle: Text
    outcome: str | None = None
    result: JsonObject | None = Field(default=None, repr=False)
    error: JsonObject | None = None
    cancel_requested_at: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    purged_at: datetime | None = None
    sequence: int = -1
    tool_call_count: NonNegativeInt = 0


class NewEvent(NamedTuple):
    """An event on its way into the store: what happened, and when."""

    kind: str
    payload: Mapping[str, Any]
    at: datetime


class EventRecord(_Record):
    """One event of an execution, numbered from 0."""

    execution_id: Text
    sequence: NonNegativeInt
    kind: Text
    payload: JsonObject
    at: datetime


class WorkerRecord(_Record):
    """A process that runs executions. ``port`` and ``token`` reach its doorbell on loopback."""

    worker_id: Text
    kind: Literal["embedded", "detached"]
    pid: int
    version: str
    prefix: str
    port: int | None = None
    token: str | None = Field(default=None, repr=False)
    lease_expires: datetime


class OutboxEntry(_Record):
    """An answer that was stored before it was committed, so that a retry uses the same key.

    ``responses`` are ``None`` once acknowledged; ``digest`` stays.
    """

    idempotency_key: Text = Field(repr=False)
    execution_id: Text
    round_id: Text
    responses: Responses | None = None
    digest: Text
    created_at: datetime
    acknowledged_at: datetime | None = None
