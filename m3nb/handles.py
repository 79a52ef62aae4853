"""What a submitted execution is held by: ask where it stands, answer its questions, wait for its end.

Source: spec "Public execution API"; engine-facts section 4.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
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
from m3nb.runtime.coordinator import open_rounds, rounds_of
from m3nb.storage import EventRecord, ExecutionRecord, ExecutionStore, ManagedInputStore
from m3nb.types import (
    LONGEST,
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


class Host:
    """What the handles of one kit share. ``ring`` wakes the kit's worker."""

    def __init__(self, store: ExecutionStore, *, ring: Callable[[], None]) -> None:
        self.store = store
        self.ring = ring
        self.signals = Signals()
        self.handles: weakref.WeakSet[ExecutionHandle] = weakref.WeakSet()
        self.closed = False
        self.watcher = Watcher(self)

    @property
    def rounds(self) -> ManagedInputStore | None:
        """The managed-input store, when the store has one."""
        return rounds_of(self.store)

    def close(self) -> None:
        """Tell everybody who waits that nothing more will come."""
        self.closed = True
        self.signals.announce()


class Watcher:
    """One thread for everybody who wants to be told of a change, made here or by another process.

    It lives while somebody watches, and looks once more when the kit is closed.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._looks: dict[int, Callable[[], bool]] = {}
        self._new: list[int] = []
        self._next = 0
        self._nudges = 0
        self._thread: threading.Thread | None = None

    def add(self, look: Callable[[], bool]) -> Callable[[], None]:
        """Call ``look`` now and after every change until it returns True; returns the function that ends it earlier.

        It is called in a thread of ours; after the kit was closed once, at once. A look that raises `StorageError`
        is taken again a little later.
        """
        with self._lock:
            number = self._next
            self._next += 1
            closed = self._host.closed
            if not closed:
                self._looks[number] = look
                if not self._new:
                    self._nudges += 1
                    self._host.signals.announce()
                self._new.append(number)
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._run, name="m3nb-changes", daemon=True)
                    self._thread.start()
        if closed:
            self._look({number: look})
        return lambda: self._forget(number)

    def _forget(self, number: int) -> None:
        with self._lock:
            self._looks.pop(number, None)

    def _run(self) -> None:
        again, last = True, (0, 0)
        while True:
            version = self._version()
            with self._lock:
                seen = self._host.signals.count
                # Newcomers only wake this thread: for the others that is no reason to look.
                state = (seen - self._nudges, version or 0)
                closed = self._host.closed
                looks = dict(self._looks)
                if not (closed or again) and state == last:
                    looks = {number: looks[number] for number in self._new if number in looks}
                self._new.clear()
                ends = closed or not self._looks
                if ends:
                    # Whoever comes from now on starts a new thread, or finds the kit closed.
                    self._looks.clear()
                    self._thread = None
            again, last = self._look(looks), state
            if ends:
                return
            del looks
            while self._host.signals.count == seen:
                self._host.signals.wait(seen, POLL_SECONDS)
                if again or self._version() != version:
                    break

    def _look(self, looks: Mapping[int, Callable[[], bool]]) -> bool:
        """Take every look, forget those that are done; returns whether the store refused one."""
        refused = False
        for number, look in looks.items():
            try:
                done = look()
            except StorageError:
                done, refused = False, True
            except Exception:
                logger.exception("a look at an execution failed")
                done = True
            if done:
                self._forget(number)
        return refused

    def _version(self) -> int | None:
        try:
            return self._host.store.data_version()
        except StorageError:
            # Whoever looks is told why.
            return None


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
        pending = [record.pending for record in open_rounds(rounds, self.execution_id) if record.status == "pending"]
        if len(pending) > 1:
            ids = [round_.round_id for round_ in pending]
            raise ManagedInputStateError(
                f"execution {self.execution_id} has {len(pending)} pending rounds: answer one by its id",
                details={"execution_id": self.execution_id, "round_ids": ids},
            )
        return pending[0] if pending else None

    def wait_for_elicitation(self, timeout: float | None = None) -> PendingElicitationRound | None:
        """Wait for the next question; None when the execution is finished without another one.

        ``while (pending := handle.wait_for_elicitation()) is not None`` answers all there is. ``timeout`` in seconds;
        None waits as long as it takes. Raises as `result` and `pending_elicitation` do.
        """
        check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            seen = self._host.signals.count
            found = self.question_or_end()
            if found is not None:
                return found[0]
            left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                raise too_late(self.execution_id, timeout, "asked nothing")
            self._host.signals.wait(seen, left)

    def question_or_end(self) -> tuple[PendingElicitationRound | None] | None:
        """``(round,)`` when one is pending, ``(None,)`` when the execution is finished, None before either."""
        # In this order: an execution may finish right after it was seen to have no question.
        finished = self.finished_result() is not None
        pending = None if self._host.closed else self.pending_elicitation()
        return (pending,) if pending is not None or finished else None

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
        check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            seen = self._host.signals.count
            result = self.finished_result()
            if result is not None:
                return result
            left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                raise too_late(self.execution_id, timeout)
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
            events, finished = self.news(after_sequence)
            for event in events:
                after_sequence = event.sequence
                yield event
            if finished or not follow:
                return
            self._host.signals.wait(seen, POLL_SECONDS)

    def news(self, after_sequence: int) -> tuple[tuple[TraceEvent, ...], bool]:
        """What happened after a sequence number, and whether nothing more will. Never waits."""
        if isinstance(after_sequence, bool) or not isinstance(after_sequence, int):
            raise ModelValidationError(
                f"after_sequence must be a whole number, not {type(after_sequence).__name__}",
                details={"operation": "execution.events"},
            )
        result = self.finished_result()
        if result is not None:
            # Also after the kit was closed.
            return tuple(event for event in result.trace if event.sequence > after_sequence), True
        events = self._host.store.events(self.execution_id, after_sequence=max(after_sequence, -1))
        return tuple(map(_trace_event, events)), False

    def on_event(self, callback: Callable[[TraceEvent], None]) -> Callable[[], None]:
        """Call back with every event, the past ones first, from a thread of ours; returns a function that ends it."""
        self._open()
        if not callable(callback):
            raise TypeError(f"callback is a function that takes an event, not {type(callback).__name__}")
        return self._host.watcher.add(_Subscription(self, callback).look)

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


class _Subscription:
    """Hands the events of one execution to a callback."""

    def __init__(self, handle: ExecutionHandle, callback: Callable[[TraceEvent], None]) -> None:
        self._handle = handle
        self._callback = callback
        self._after = -1

    def look(self) -> bool:
        """Hand on what is new; returns whether nothing more will come."""
        try:
            events, finished = self._handle.news(self._after)
        except KitClosed:
            return True
        for event in events:
            self._after = event.sequence
            try:
                self._callback(event)
            except Exception:
                logger.exception("an on_event callback failed")
        return finished


def check_timeout(timeout: float | None) -> None:
    """Raise unless a wait has an end after its beginning, or none."""
    if timeout is not None and (not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST):
        raise ModelValidationError(
            "timeout must be more than 0 seconds and at most ten years: None waits as long as it takes",
            details={"operation": "execution.result"},
        )


def too_late(execution_id: str, timeout: float | None, what: str = "has not finished") -> OperationTimeout:
    """The error of a wait that took too long."""
    return OperationTimeout(
        f"execution {execution_id} {what} within {timeout:g} s: it goes on",
        details={"execution_id": execution_id},
    )


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
