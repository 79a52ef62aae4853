"""One pause: a server's question is stored, a person answers, the answer is handed over exactly once.

Source: DESIGN "One pause, step by step"; engine-facts section 7. The coordinator of an execution lives in the worker's
event loop. What it tells the store is short and synchronous, so that nothing can come between a look and a change.

Where the execution has an elicitation plan, the plan answers instead: nothing pauses and no round is stored.
"""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from m3nb.elicitation import (
    ElicitationRequest,
    ElicitationResponse,
    FormElicitationRequest,
    OperationKind,
    PendingElicitationRound,
)
from m3nb.errors import (
    ElicitationExpectationError,
    ElicitationRoundLimitError,
    HumanInputRequired,
    InvalidSchemaError,
    ManagedInputConflict,
    ManagedInputError,
    ManagedInputRecoveryError,
    ManagedInputValidationError,
    MCPError,
    OperationCancelled,
    OperationTimeout,
    UnsafeUrlError,
)
from m3nb.matching import PlanMatcher
from m3nb.plans import ElicitationPlan
from m3nb.redaction import redact_responses
from m3nb.runtime.clock import ActiveClock
from m3nb.runtime.doorbell import Doorbell
from m3nb.runtime.journal import Journal, until_free
from m3nb.storage import ExecutionStore, ManagedInputRecord, ManagedInputStore, SQLiteManagedInputStore
from m3nb.types import ExecutionStatus, HumanInput
from m3nb.validity import check_responses, check_schema
from m3nb.validity.urls import check_scheme

LEASE_SECONDS = 30.0
"""How long a worker's claim on a round lives; the worker renews it at a third of that."""

_OPEN = frozenset({"pending", "response_validated", "delivery_started", "delivered"})


def rounds_of(store: ExecutionStore) -> ManagedInputStore | None:
    """The managed-input store that an execution store resolves, or None for one that has none."""
    resolve = getattr(store, "resolve_managed_input_store", None)
    return None if resolve is None else cast(ManagedInputStore, resolve())


def open_rounds(rounds: ManagedInputStore, execution_id: str) -> tuple[ManagedInputRecord, ...]:
    """The rounds of an execution that are neither resolved nor failed; our own store finds them by an index."""
    if isinstance(rounds, SQLiteManagedInputStore):
        return rounds.open_rounds(execution_id)
    return tuple(record for record in rounds.list_rounds(execution_id) if record.status in _OPEN)


@dataclass(frozen=True)
class Operation:
    """One call of an agent that a server may interrupt with questions."""

    server: str
    kind: OperationKind
    name: str
    parameters: Mapping[str, Any]
    id: str = field(default_factory=lambda: f"operation-{uuid.uuid4().hex}")


class AnsweredRound:
    """An answer on its way to the server: a plan's, of whose delivery nothing is stored."""

    def __init__(self, responses: Mapping[str, ElicitationResponse]) -> None:
        self.responses = responses

    def start_delivery(self) -> None:
        """Say that the answer is handed over now: from here on it is never sent a second time."""

    def settle(self) -> None:
        """Say that the server has reacted to the answer: it was delivered, and the round is over."""

    def fail(self, error: MCPError) -> None:
        """Say that the answer may not have reached the server."""


class _StoredAnswer(AnsweredRound):
    """A person's answer on its way to the server. Each step is stored before the next begins."""

    def __init__(self, coordinator: Coordinator, record: ManagedInputRecord) -> None:
        super().__init__(record.responses or {})
        self._coordinator = coordinator
        self._record = record

    def start_delivery(self) -> None:
        self._record = self._coordinator.step("start_delivery", self._record)
        self._coordinator.running_again()

    def settle(self) -> None:
        self._record = self._coordinator.step("mark_delivered", self._record)
        self._record = self._coordinator.step("resolve", self._record)

    def fail(self, error: MCPError) -> None:
        self._coordinator.fail_round(self._record, error)


class Coordinator:
    """The rounds of one execution. ``abort`` ends the execution with an error.

    ``plan`` answers in a person's stead (with ``human_input="fail"`` only); ``secrets`` are hidden in the history of
    its answers.
    """

    def __init__(
        self,
        *,
        execution_id: str,
        journal: Journal,
        rounds: ManagedInputStore | None,
        human_input: HumanInput,
        plan: ElicitationPlan | None,
        secrets: Iterable[str],
        round_limit: int,
        answer_within: float | None,
        clock: ActiveClock,
        bell: Doorbell,
        abort: Callable[[MCPError], None],
    ) -> None:
        self.execution_id = execution_id
        self._journal = journal
        self._rounds = rounds
        self._human_input = human_input
        self._plan = None if plan is None else plan.matcher()
        self._secrets = tuple(secrets)
        self._round_limit = round_limit
        self._answer_within = answer_within
        self._clock = clock
        self._bell = bell
        self.abort = abort
        self._owner = f"managed-runtime:{execution_id}"
        self._turn = asyncio.Lock()
        self._next_index = 0
        self._pending = 0
        self._early: set[tuple[str, str]] = set()
        self.ending: MCPError | None = None

    async def await_round(
        self, operation: Operation, requests: Mapping[str, ElicitationRequest], request_state: str | None
    ) -> AnsweredRound:
        """Store the question, wait for the person, return the answer; or return the plan's.

        Raises the typed error that the execution ends with: `HumanInputRequired`, `ElicitationRoundLimitError`,
        `InvalidSchemaError`, `OperationTimeout`, `OperationCancelled`, `ManagedInputRecoveryError`,
        `ElicitationExpectationError`.
        """
        try:
            return await self._await_round(operation, requests, request_state)
        except MCPError as error:
            self.abort(error)
            raise

    async def _await_round(
        self, operation: Operation, requests: Mapping[str, ElicitationRequest], request_state: str | None
    ) -> AnsweredRound:
        if self._plan is not None:
            async with self._turn:
                return await self._answer_from(self._plan, operation, requests, request_state)
        if self._human_input == "fail" or self._rounds is None:
            raise _nobody_there(operation, requests)
        async with self._turn:
            self._pending += 1
            try:
                # Before the question can be seen: whoever sees it sees an execution that waits.
                self._journal.enter(ExecutionStatus.WAITING_FOR_INPUT)
                await self._journal.flush()
                record = await self._create(operation, requests, request_state)
                with self._clock.paused():
                    record = await self._answered_or_taken_back(record)
            except asyncio.CancelledError:
                # Taken back: the agent goes on without this call.
                if self.ending is None and self._pending == 1:
                    self._journal.enter(ExecutionStatus.RUNNING_TURN)
                raise
            finally:
                self._pending -= 1
            self._journal.emit("elicitation.response", self._response_event(record))
            return _StoredAnswer(self, record)

    async def _answer_from(
        self,
        plan: PlanMatcher,
        operation: Operation,
        requests: Mapping[str, ElicitationRequest],
        request_state: str | None,
    ) -> AnsweredRound:
        pending = self._new_round(operation, requests, request_state)
        asked = _request_event(pending, self._next_index)
        self._next_index += 1
        self._journal.emit("elicitation.request", asked)
        _check_requests(requests)
        try:
            responses = check_responses(pending, plan.answer(requests))
        except ManagedInputValidationError as error:
            raise _does_not_fit(operation, error) from None
        everything = getattr(self._rounds, "redacts_everything", False)
        answered = {
            "round_id": pending.round_id,
            "answered_by": "plan",
            "responses": redact_responses(pending, responses, secrets=self._secrets, everything=everything),
        }
        self._journal.emit("elicitation.response", answered)
        return AnsweredRound(responses)

    def finish_plan(self) -> None:
        """Say that the agent is done: `ElicitationExpectationError` when the plan expected more questions."""
        if self._plan is not None:
            self._plan.finish()

    def _new_round(
        self, operation: Operation, requests: Mapping[str, ElicitationRequest], request_state: str | None
    ) -> PendingElicitationRound:
        if self._next_index >= self._round_limit:
            raise ElicitationRoundLimitError(
                f"{operation.server} asked more than {self._round_limit} times in one execution: "
                "raise elicitation_round_limit if that is meant",
                details={"limit": self._round_limit, "operation": operation.name},
            )
        now = datetime.now(UTC)
        return PendingElicitationRound(
            round_id=f"round-{uuid.uuid4().hex}",
            execution_id=self.execution_id,
            logical_operation_id=operation.id,
            server=operation.server,
            operation_kind=operation.kind,
            operation_name=operation.name,
            requests=requests,
            created_at=now,
            request_state=request_state,
            deadline=None if self._answer_within is None else now + timedelta(seconds=self._answer_within),
        )

    async def _create(
        self, operation: Operation, requests: Mapping[str, ElicitationRequest], request_state: str | None
    ) -> ManagedInputRecord:
        assert self._rounds is not None
        pending = self._new_round(operation, requests, request_state)
        create = functools.partial(
            self._rounds.create_round,
            pending,
            round_index=self._next_index,
            round_limit=self._round_limit,
            owner_id=self._owner,
            lease_seconds=LEASE_SECONDS,
            # Made here, so that a repeat is the same round.
            lease_token=f"lease-{uuid.uuid4().hex}",
            operation_parameters=operation.parameters,
        )
        record = await until_free(create)
        self._next_index += 1
        self._journal.emit("elicitation.request", _request_event(pending, record.round_index))
        self._early = {said for said in self._early if not self._emit_completed(pending, *said)}
        try:
            _check_requests(requests)
        except (InvalidSchemaError, UnsafeUrlError) as error:
            self.fail_round(record, error)
            raise
        return record

    async def _answered_or_taken_back(self, record: ManagedInputRecord) -> ManagedInputRecord:
        try:
            return await self._answered(record)
        except asyncio.CancelledError:
            self.fail_round(
                record, self.ending or OperationCancelled("the question was taken back before it was answered")
            )
            raise

    async def _answered(self, record: ManagedInputRecord) -> ManagedInputRecord:
        deadline = record.pending.deadline
        while True:
            record = await until_free(functools.partial(self._look, record))
            if record.status == "failed":
                raise self.ending or ManagedInputRecoveryError(
                    f"round {record.round_id} was ended elsewhere: {record.failure_message}",
                    details={"round_id": record.round_id, "failure_code": record.failure_code},
                )
            now = datetime.now(UTC)
            if record.status != "pending" and not _late(record, deadline):
                return record
            if deadline is not None and now >= deadline:
                error = OperationTimeout(
                    f"nobody answered {record.pending.server} within the given time",
                    details={"round_id": record.round_id, "deadline": deadline.isoformat()},
                )
                self.fail_round(record, error)
                raise error
            if record.lease.expires_at <= now:
                record = self._reclaim(record)
            # Woken at least every second, so that a clock that was set or slept is noticed.
            left = 1.0 if deadline is None else max(0.0, min(1.0, (deadline - now).total_seconds()))
            await self._bell.wait(left)

    def _look(self, record: ManagedInputRecord) -> ManagedInputRecord:
        assert self._rounds is not None
        current = self._rounds.get_round(self.execution_id, record.round_id)
        if current is None:
            raise ManagedInputRecoveryError(
                f"round {record.round_id} has disappeared from the store", details={"round_id": record.round_id}
            )
        return current

    def step(self, method: str, record: ManagedInputRecord) -> ManagedInputRecord:
        """Take one step of a delivery; a lease that ran out while the machine slept is claimed again first."""
        record = self._look(record)
        try:
            return self._step(method, record)
        except ManagedInputConflict:
            return self._step(method, self._reclaim(record))

    def _step(self, method: str, record: ManagedInputRecord) -> ManagedInputRecord:
        changed: ManagedInputRecord = getattr(self._rounds, method)(
            self.execution_id, record.round_id, owner_id=record.owner_id, lease_token=record.lease_token
        )
        return changed

    def _reclaim(self, record: ManagedInputRecord) -> ManagedInputRecord:
        """Claim an own round again after its lease ran out (a laptop slept). This process knows how far it got."""
        assert self._rounds is not None
        evidence = {"pending": "not_started", "response_validated": "not_delivered"}.get(record.status, "delivered")
        return self._rounds.claim_round(
            self.execution_id,
            record.round_id,
            owner_id=self._owner,
            lease_seconds=LEASE_SECONDS,
            expected_lease_token=record.lease_token,
            delivery_state=evidence,
            idempotent_delivery=record.status == "response_validated",
        )

    def fail_round(self, record: ManagedInputRecord, error: MCPError) -> None:
        """End a round with the error's code. A round that is over already stays as it is."""
        assert self._rounds is not None
        current = self._rounds.get_round(self.execution_id, record.round_id)
        if current is None or current.status not in _OPEN:
            return
        try:
            if current.lease.expires_at <= datetime.now(UTC):
                current = self._reclaim(current)
            self._rounds.fail(
                self.execution_id,
                current.round_id,
                owner_id=current.owner_id,
                lease_token=current.lease_token,
                code=error.code,
                message=error.message,
            )
        except ManagedInputError:
            # Somebody ended it in between: that is the truth now.
            return

    def fail_open_rounds(self, error: MCPError) -> None:
        """End every round of the execution that is still open."""
        if self._rounds is not None:
            for record in open_rounds(self._rounds, self.execution_id):
                self.fail_round(record, error)

    def first_failure(self) -> ManagedInputRecord | None:
        """The first failed round, if there is one: such an execution has not completed."""
        if self._rounds is None:
            return None
        return next((r for r in self._rounds.list_rounds(self.execution_id) if r.status == "failed"), None)

    async def completed(self, server: str, elicitation_id: str) -> None:
        """Record that a server calls a URL request of its own done, whether or not the person has answered by now."""
        if self._rounds is None:
            return
        rounds = self._rounds
        for record in reversed(await until_free(lambda: rounds.list_rounds(self.execution_id))):
            if self._emit_completed(record.pending, server, elicitation_id):
                return
        # Said before its round was stored.
        self._early.add((server, elicitation_id))

    def _emit_completed(self, pending: PendingElicitationRound, server: str, elicitation_id: str) -> bool:
        for key, request in pending.requests.items():
            if pending.server == server and getattr(request, "elicitation_id", None) == elicitation_id:
                about = {"server": server, "round_id": pending.round_id, "request_key": key}
                self._journal.emit("elicitation.complete", {**about, "elicitation_id": elicitation_id})
                return True
        return False

    def running_again(self) -> None:
        """Say that the agent works on, unless another call's question is waiting by now."""
        if not self._pending:
            self._journal.enter(ExecutionStatus.RUNNING_TURN)

    def _response_event(self, record: ManagedInputRecord) -> dict[str, Any]:
        assert self._rounds is not None
        redacted = self._rounds.redacted_responses(self.execution_id, record.round_id)
        return {"round_id": record.round_id, "responses": redacted}


def _late(record: ManagedInputRecord, deadline: datetime | None) -> bool:
    at = record.response_validated_at
    return deadline is not None and at is not None and at > deadline


def _check_requests(requests: Mapping[str, ElicitationRequest]) -> None:
    for request in requests.values():
        if isinstance(request, FormElicitationRequest):
            check_schema(request)
        else:
            check_scheme(request)


def _request_event(pending: PendingElicitationRound, round_index: int) -> dict[str, Any]:
    return {
        "round_id": pending.round_id,
        "round_index": round_index,
        "server": pending.server,
        "operation_kind": pending.operation_kind,
        "operation_name": pending.operation_name,
        "logical_operation_id": pending.logical_operation_id,
        "requests": {key: request.model_dump(mode="json") for key, request in pending.requests.items()},
    }


def _nobody_there(operation: Operation, requests: Mapping[str, ElicitationRequest]) -> HumanInputRequired:
    asked = "; ".join(f"{key}: {request.message}" for key, request in requests.items())
    return HumanInputRequired(
        f'{operation.server} asked during {operation.kind} {operation.name}, and human_input="fail" has nobody answer: '
        f'{asked}. Submit with human_input="managed" to answer it',
        details={
            "server": operation.server,
            "operation_kind": operation.kind,
            "operation_name": operation.name,
            "requests": {key: request.model_dump(mode="json") for key, request in requests.items()},
        },
    )


def _does_not_fit(operation: Operation, error: ManagedInputValidationError) -> ElicitationExpectationError:
    errors = error.details["errors"]
    reasons = "; ".join(f"{e['request_key']}{e['pointer']} {e['message']}" for e in errors)
    return ElicitationExpectationError(
        f"the elicitation plan's answer does not fit what {operation.server} asked during {operation.kind} "
        f"{operation.name}: {reasons}",
        details={"errors": errors},
    )
