"""The interfaces of the stores: what the runtime asks for, whoever provides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound
from m3nb.frozen import EMPTY
from m3nb.storage.records import EventRecord, ExecutionRecord, ManagedInputRecord, NewEvent, WorkerRecord


@runtime_checkable
class ManagedInputStore(Protocol):
    """Rounds of managed input (spec "Persistent store contract"; engine-facts section 6).

    Every method raises `ManagedInputValidationError` for a malformed argument, and one that changes a round raises
    `ManagedInputConflict` for an unknown round and for an owner, token or lease that does not hold.
    """

    def create_round(
        self,
        pending: PendingElicitationRound,
        *,
        round_index: int,
        round_limit: int,
        owner_id: str,
        lease_seconds: float,
        lease_token: str | None = None,
        harness_session_id: str | None = None,
        native_resume_token: str | None = None,
        delivery_idempotency_key: str | None = None,
        session_id: str | None = None,
        turn_id: str | None = None,
        operation_parameters: Mapping[str, Any] | None = None,
    ) -> ManagedInputRecord:
        """Store a question. The same round with the same data returns what is stored; other data is a conflict."""

    def get_round(self, execution_id: str, round_id: str) -> ManagedInputRecord | None:
        """One round, ``None`` if there is none. Changes nothing."""

    def list_rounds(self, execution_id: str) -> tuple[ManagedInputRecord, ...]:
        """The rounds of an execution by ``round_index``. Changes nothing."""

    def claim_round(
        self,
        execution_id: str,
        round_id: str,
        *,
        owner_id: str,
        lease_seconds: float,
        expected_lease_token: str | None = None,
        delivery_state: str | None = None,
        idempotent_delivery: bool = False,
    ) -> ManagedInputRecord:
        """Take a round over after its lease has expired, with evidence of how far its delivery got.

        ``delivery_state`` is ``not_started``, ``not_delivered`` or ``delivered``; it must fit the status.

        Raises `ManagedInputRecoveryError` without fitting evidence, `ManagedInputStateError` for a round that is over.
        """

    def renew(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str, lease_seconds: float
    ) -> ManagedInputRecord:
        """Let the lease end ``lease_seconds`` from now. Raises `ManagedInputStateError` for a round that is over."""

    def submit_responses(
        self,
        execution_id: str,
        round_id: str,
        responses: Mapping[str, ElicitationResponse],
        *,
        owner_id: str,
        lease_token: str,
        response_idempotency_key: str,
    ) -> ManagedInputRecord:
        """Commit an answer: ``pending`` to ``response_validated``. A repeat with key and answer returns the record.

        Raises `ManagedInputValidationError` (``details["errors"]``) and leaves the round pending if the answer does
        not fit, `ManagedInputStateError` for a failed round.
        """

    def start_delivery(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str
    ) -> ManagedInputRecord:
        """``response_validated`` to ``delivery_started``; counts the attempt. A repeat returns the record."""

    def mark_delivered(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str
    ) -> ManagedInputRecord:
        """``delivery_started`` to ``delivered``. A repeat returns the record."""

    def resolve(self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str) -> ManagedInputRecord:
        """``delivered`` to ``resolved``. A repeat returns the record."""

    def fail(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str, code: str, message: str
    ) -> ManagedInputRecord:
        """End an unresolved round as failed. A repeat with code and message returns the record."""

    def fail_recovery(
        self, execution_id: str, round_id: str, *, expected_lease_token: str, message: str
    ) -> ManagedInputRecord:
        """End a round whose lease has expired as ``recovery_unavailable``, for good."""

    def redacted_responses(self, execution_id: str, round_id: str) -> Mapping[str, Any] | None:
        """The stored answer without its secrets: ``{request_key: {"action", "content", "meta"}}``.

        ``None`` before an answer and for an unknown round.
        """


@runtime_checkable
class ExecutionStore(Protocol):
    """Executions, their events and the workers that run them. Safe between threads and between processes.

    Times are aware UTC datetimes. A method that answers ``bool`` says whether the change was made.
    """

    def now(self) -> datetime:
        """The present time by the store's clock."""

    def create_execution(
        self,
        execution_id: str,
        *,
        spec: Mapping[str, Any],
        worker_id: str,
        managed: bool,
        labels: Mapping[str, Any] = EMPTY,
    ) -> ExecutionRecord:
        """Store a queued execution, addressed to one worker. Raises `ModelValidationError` if the id is taken."""

    def get_execution(self, execution_id: str) -> ExecutionRecord | None:
        """One execution."""

    def list_executions(self, *, unfinished: bool = False, worker_id: str | None = None) -> tuple[ExecutionRecord, ...]:
        """Executions, oldest first; of one worker, or only those that are not finished."""

    def claim_execution(self, execution_id: str, *, worker_id: str) -> bool:
        """``queued`` to ``starting``, once, and only for the worker it is addressed to."""

    def set_lifecycle(self, execution_id: str, lifecycle: str) -> bool:
        """Move an unfinished execution on; appends a ``lifecycle`` event. ``False`` if it is finished or unknown."""

    def finish_execution(
        self, execution_id: str, *, outcome: str, result: Mapping[str, Any], error: Mapping[str, Any] | None
    ) -> bool:
        """End an execution; the first one wins. Appends a ``finished`` event."""

    def request_cancel(self, execution_id: str) -> bool:
        """Stamp ``cancel_requested_at``, once. ``False`` if the execution is finished or unknown."""

    def append_event(self, execution_id: str, kind: str, payload: Mapping[str, Any]) -> int:
        """Append an event and return its sequence. A ``tool.call`` counts as one."""

    def append_events(self, execution_id: str, events: Sequence[NewEvent]) -> int:
        """Append several events (at least one) in one transaction, in their order; the last one's sequence."""

    def events(
        self, execution_id: str, *, after_sequence: int = -1, limit: int | None = None
    ) -> tuple[EventRecord, ...]:
        """Events in order, after a sequence, at most ``limit``."""

    def register_worker(
        self,
        *,
        worker_id: str,
        kind: Literal["embedded", "detached"],
        pid: int,
        version: str,
        prefix: str,
        port: int | None = None,
        token: str | None = None,
        lease_seconds: float,
    ) -> WorkerRecord:
        """Store a worker, or replace what is stored under its id."""

    def renew_worker(self, worker_id: str, *, lease_seconds: float) -> bool:
        """Renew the lease of a worker and those of its executions' open, unexpired rounds, in one transaction."""

    def remove_worker(self, worker_id: str) -> None:
        """Forget a worker."""

    def get_worker(self, worker_id: str) -> WorkerRecord | None:
        """One worker."""

    def list_workers(self) -> tuple[WorkerRecord, ...]:
        """All workers, oldest first."""

    def data_version(self) -> int:
        """A number that changes when anybody has committed to the store. Cheap: made for polling."""

    def close(self) -> None:
        """Close what is kept open. Idempotent; later calls still work, on a connection of their own."""
