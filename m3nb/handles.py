"""What a submitted execution is held by: ask where it stands, answer its questions, wait for its end.

Source: spec "Public execution API"; engine-facts section 4.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound
from m3nb.errors import (
    KitClosed,
    ManagedInputStateError,
    ManagedInputValidationError,
    ModelValidationError,
    OperationTimeout,
    StorageError,
)
from m3nb.frozen import FrozenDict
from m3nb.runtime.coordinator import rounds_of
from m3nb.storage import EventRecord, ExecutionRecord, ExecutionStore, ManagedInputStore
from m3nb.types import (
    ErrorInfo,
    ExecutionId,
    ExecutionOutcome,
    ExecutionResult,
    ExecutionState,
    ExecutionStatus,
    TraceEvent,
)

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.05
"""How often a change made by another process is looked for while somebody waits."""


class Signals:
    """Tells the threads of one process that an execution changed."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        """How many changes there were."""
        return self._count

    def announce(self) -> None:
        """Wake everybody who waits."""
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def wait(self, seen: int, seconds: float) -> None:
        """Return when there were more than ``seen`` changes, or after ``seconds``."""
        with self._condition:
            if self._count == seen:
                self._condition.wait(seconds)


@dataclass
class Host:
    """What the handles of one kit share. ``ring`` wakes the kit's worker."""

    store: ExecutionStore
    ring: Callable[[], None]
    signals: Signals = field(default_factory=Signals)
    handles: weakref.WeakSet[ExecutionHandle] = field(default_factory=weakref.WeakSet)
    closed: bool = False
    pump: EventPump | None = None

    @property
    def rounds(self) -> ManagedInputStore | None:
        """The managed-input store, when the store has one."""
        return rounds_of(self.store)


class ExecutionHandle:
    """One execution, running here or elsewhere. Made by ``submit`` and by `m3nb.MCPTestKit.handle`."""

    def __init__(self, host: Host, execution_id: str, *, managed: bool, spec: Any = None) -> None:
        self._host = host
        self._managed = managed
        self._result: ExecutionResult | None = None
        self.execution_id = execution_id
        self.spec = spec
        host.handles.add(self)

    @property
    def submitted_spec(self) -> Any:
        """The spec as it was submitted; for a handle of an existing execution the stored JSON, secrets withheld."""
        return self.spec

    def __repr__(self) -> str:
        return f"ExecutionHandle({self.execution_id!r})"

    def snapshot(self) -> ExecutionState:
        """Where the execution stands now. Raises `KitClosed` after the kit was closed."""
        return _state(self._record())

    def pending_elicitation(self) -> PendingElicitationRound | None:
        """The question that waits for an answer, or None.

        Raises `ManagedInputStateError` when the store holds more than one pending round of this execution.
        """
        self._open()
        rounds = self._host.rounds
        if not self._managed or rounds is None:
            return None
        pending = [record.pending for record in rounds.list_rounds(self.execution_id) if record.status == "pending"]
        if len(pending) > 1:
            ids = [round_.round_id for round_ in pending]
            raise ManagedInputStateError(
                f"execution {self.execution_id} has {len(pending)} pending rounds: answer one by its id",
                details={"execution_id": self.execution_id, "round_ids": ids},
            )
        return pending[0] if pending else None

    def respond_elicitation(
        self, round_id: str, responses: Mapping[str, ElicitationResponse], *, idempotency_key: str
    ) -> None:
        """Commit the answer to a round, exactly once, and wake the worker.

        A repeat with the same key and equal responses changes nothing. Raises `ManagedInputValidationError` (ids, the
        response map, content; the round stays pending), `ManagedInputConflict` (answered otherwise, stale owner),
        `ManagedInputStateError` (the round has failed), `ModelValidationError` (submitted with ``human_input="fail"``).
        """
        self._open()
        for name, value in (("round_id", round_id), ("idempotency_key", idempotency_key)):
            if not isinstance(value, str) or not value:
                raise ManagedInputValidationError(f"{name} must be text that is not empty", details={"field": name})
        rounds = self._host.rounds
        if not self._managed or rounds is None:
            raise ModelValidationError(
                f'execution {self.execution_id} was submitted with human_input="fail": it takes no answers',
                details={"operation": "execution.respond_elicitation", "execution_id": self.execution_id},
            )
        record = rounds.get_round(self.execution_id, round_id)
        if record is None:
            raise ManagedInputValidationError(
                f"execution {self.execution_id} has no round {round_id!r}: take the id from pending_elicitation()",
                details={"execution_id": self.execution_id, "round_id": round_id},
            )
        rounds.submit_responses(
            self.execution_id,
            round_id,
            responses,
            owner_id=record.owner_id,
            lease_token=record.lease_token,
            response_idempotency_key=idempotency_key,
        )
        self._host.ring()
        self._host.signals.announce()

    def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait for the end. ``timeout`` in seconds; None waits as long as it takes.

        Raises `OperationTimeout` when the wait (not the execution) took too long, `ModelValidationError` for a timeout
        that is not positive.
        """
        if timeout is not None and (not isinstance(timeout, int | float) or not timeout > 0):
            raise ModelValidationError("timeout must be more than 0 seconds", details={"operation": "execution.result"})
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            seen = self._host.signals.count
            result = self.finished_result()
            if result is not None:
                return result
            left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                raise OperationTimeout(
                    f"execution {self.execution_id} has not finished within {timeout:g} s: it goes on",
                    details={"execution_id": self.execution_id},
                )
            self._host.signals.wait(seen, left)

    def finished_result(self) -> ExecutionResult | None:
        """The result when the execution is finished, else None. Never waits."""
        if self._result is None:
            record = self._record()
            if record.lifecycle == ExecutionStatus.FINISHED:
                self._result = _result(record, self._host.store.events(self.execution_id))
        return self._result

    def cancel(self) -> None:
        """Cancel the execution; a waiting round fails. Nothing happens when it is finished."""
        self._open()
        self._host.store.request_cancel(self.execution_id)
        self._host.ring()

    def events(self, *, after_sequence: int = -1, follow: bool = False) -> Iterator[TraceEvent]:
        """What happened, in order, beginning after a sequence number.

        ``follow=True`` goes on with what comes, until the execution is finished.
        """
        while True:
            seen = self._host.signals.count
            finished = self.finished_result() is not None
            for event in self._host.store.events(self.execution_id, after_sequence=after_sequence):
                after_sequence = event.sequence
                yield _trace_event(event)
            if finished or not follow:
                return
            self._host.signals.wait(seen, POLL_SECONDS)

    def on_event(self, callback: Callable[[TraceEvent], None]) -> Callable[[], None]:
        """Call back with every event, the past ones first, from a thread of ours; returns a function that ends it."""
        self._open()
        if self._host.pump is None:
            self._host.pump = EventPump(self._host)
        return self._host.pump.subscribe(self.execution_id, callback)

    def _open(self) -> None:
        if self._host.closed:
            raise KitClosed(
                "the kit (or workbench) is closed: handle(execution_id) of a new one reaches this execution again"
            )

    def _record(self) -> ExecutionRecord:
        self._open()
        record = self._host.store.get_execution(self.execution_id)
        if record is None:
            raise ModelValidationError(
                f"the store has no execution {self.execution_id!r}", details={"execution_id": self.execution_id}
            )
        return record


class EventPump:
    """One thread that hands events to callbacks."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._subscriptions: dict[int, _Subscription] = {}
        self._next = 0
        self._thread: threading.Thread | None = None

    def subscribe(self, execution_id: str, callback: Callable[[TraceEvent], None]) -> Callable[[], None]:
        """Add a callback; returns the function that removes it."""
        with self._lock:
            number = self._next
            self._next += 1
            self._subscriptions[number] = _Subscription(execution_id, callback)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="m3nb-events", daemon=True)
                self._thread.start()

        def unsubscribe() -> None:
            with self._lock:
                self._subscriptions.pop(number, None)

        return unsubscribe

    def _run(self) -> None:
        while not self._host.closed:
            seen = self._host.signals.count
            with self._lock:
                subscriptions = list(self._subscriptions.items())
                if not subscriptions:
                    self._thread = None
                    return
            for number, subscription in subscriptions:
                # A store that is busy is asked again at the next turn.
                with contextlib.suppress(StorageError):
                    if self._deliver(subscription):
                        with self._lock:
                            self._subscriptions.pop(number, None)
            self._host.signals.wait(seen, POLL_SECONDS)

    def _deliver(self, subscription: _Subscription) -> bool:
        """Hand on what is new; returns whether nothing more will come."""
        events = self._host.store.events(subscription.execution_id, after_sequence=subscription.after)
        for event in events:
            subscription.after = event.sequence
            try:
                subscription.callback(_trace_event(event))
            except Exception:
                logger.exception("an on_event callback failed")
        return any(event.kind == "finished" for event in events)


@dataclass
class _Subscription:
    execution_id: str
    callback: Callable[[TraceEvent], None]
    after: int = -1


def _trace_event(event: EventRecord) -> TraceEvent:
    return TraceEvent(sequence=event.sequence, kind=event.kind, payload=event.payload, at=event.at)


def _state(record: ExecutionRecord) -> ExecutionState:
    labels = record.labels
    return ExecutionState(
        execution_id=ExecutionId(record.execution_id),
        lifecycle=ExecutionStatus(record.lifecycle),
        outcome=None if record.outcome is None else ExecutionOutcome(record.outcome),
        sequence=record.sequence,
        tool_call_count=record.tool_call_count,
        created_at=record.created_at,
        finished_at=record.finished_at,
        project_id=labels.get("project_id"),
        run_id=labels.get("run_id"),
        suite_name=labels.get("suite_name"),
        agent=FrozenDict({name: labels[name] for name in ("harness", "model", "name", "trial") if name in labels}),
    )


def _result(record: ExecutionRecord, events: tuple[EventRecord, ...]) -> ExecutionResult:
    return ExecutionResult(
        snapshot=_state(record),
        final_text=(record.result or {}).get("final_text"),
        trace=tuple(_trace_event(event) for event in events),
        error=None if record.error is None else ErrorInfo.model_validate(dict(record.error)),
    )
