"""Any object with the spec's five handle methods, seen as one of ours: sync or async, of this package or another.

Values are read by the spec's field names, never by class, and answers are handed over as the class that belongs to the
package of the pending round. Source: spec "Public execution API".
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
import threading
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime
from typing import Any

from m3nb.elicitation import (
    ElicitationResponse,
    FormElicitationRequest,
    PendingElicitationRound,
    UrlElicitationRequest,
)
from m3nb.errors import ModelValidationError
from m3nb.frozen import thaw
from m3nb.notebook.commit import words_of
from m3nb.types import ErrorInfo, ExecutionId, ExecutionOutcome, ExecutionResult, ExecutionState, ExecutionStatus

METHODS = ("pending_elicitation", "respond_elicitation", "snapshot", "result", "cancel")
"""What a handle must have. Each may be a plain method or one whose value is awaited."""

UNKNOWN = "unknown"
"""The execution id while neither the handle nor anything it returned says one."""

_TICK = 0.5


class Adapter:
    """A handle as a desk wants it: every call blocks, values are ours. Not to be called on the thread of ``loop``.

    ``loop`` runs what must be awaited: the given one, else the loop that runs where the adapter is made (an async
    handle belongs to it), else one of our own. Errors of the handle pass through as they are.
    """

    def __init__(self, handle: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        missing = [name for name in METHODS if not callable(getattr(handle, name, None))]
        if missing:
            raise ModelValidationError(
                f"a {type(handle).__name__} is no execution handle: it has no {' and no '.join(missing)}",
                details={"operation": "form", "missing": missing},
            )
        self.handle = handle
        self._loop = loop or _running_loop()
        self._began = datetime.now(UTC)
        self._execution_id = _text(getattr(handle, "execution_id", None))
        self._response_class: type[Any] = ElicitationResponse
        self._looks = itertools.count()

    @property
    def execution_id(self) -> str:
        """The handle's own, else that of the state or round it returned last; empty before that."""
        return self._execution_id

    def data_version(self) -> int:
        """Always another number: nobody tells when a handle has changed."""
        return next(self._looks)

    def snapshot(self) -> ExecutionState:
        """Where the execution stands, in our words."""
        return self._state(self.call("snapshot"))

    def finished_result(self) -> ExecutionResult | None:
        """How it ended (``error`` and ``snapshot`` only), or None while it goes on."""
        state = self.snapshot()
        if state.lifecycle is not ExecutionStatus.FINISHED:
            return None
        try:
            error = getattr(self.call("result"), "error", None)
        except Exception as raised:  # some handles raise how it ended
            error = raised
        message = _text(getattr(error, "message", error)) or (words_of(error) if isinstance(error, Exception) else "")
        code = _text(getattr(error, "code", None)) or "failed"
        return ExecutionResult(snapshot=state, error=ErrorInfo(code=code, message=message) if message else None)

    def pending_elicitation(self) -> PendingElicitationRound | None:
        """The question that waits, as our class. ValueError (pydantic's) for one that has not the spec's fields."""
        pending = self.call("pending_elicitation")
        if pending is None:
            return None
        self._response_class = _response_class_of(pending)
        ours = _round_of(pending)
        self._execution_id = self._execution_id or ours.execution_id
        return ours

    def respond_elicitation(
        self, round_id: str, responses: Mapping[str, ElicitationResponse], *, idempotency_key: str
    ) -> None:
        """Hand an answer over, as the response class that belongs to the pending round."""
        theirs = {key: self._response(response) for key, response in responses.items()}
        self.call("respond_elicitation", round_id, theirs, idempotency_key=idempotency_key)

    def cancel(self) -> None:
        """Cancel the execution."""
        self.call("cancel")

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the handle and wait for its value. One that exits is an error like any other."""
        try:
            value = getattr(self.handle, name)(*arguments, **options)
        except SystemExit as error:  # it would end the watcher's thread, without a word
            raise _exited(error) from error
        return self._settle(value) if inspect.isawaitable(value) else value

    async def result_here(self) -> Any:
        """The handle's result, from within a running loop."""
        value = self.handle.result()
        if not inspect.isawaitable(value):
            return value
        loop = self._loop or _own_loop()
        if loop is asyncio.get_running_loop():
            return await value
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(value), loop))

    def blocks_here(self) -> bool:
        """Whether a blocking wait on this thread would stop the loop that the handle needs."""
        return (
            self._loop is not None
            and self._loop is _running_loop()
            and any(inspect.iscoroutinefunction(getattr(self.handle, name)) for name in METHODS)
        )

    def _settle(self, value: Awaitable[Any]) -> Any:
        loop = self._loop or _own_loop()
        coroutine = _awaited(value)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:
            coroutine.close()
            if inspect.iscoroutine(value):
                value.close()
            raise
        while True:
            try:
                return future.result(_TICK)
            except TimeoutError:
                if future.done():
                    raise
                if loop.is_closed():
                    raise RuntimeError("the event loop of this handle is closed") from None

    def _response(self, response: ElicitationResponse) -> Any:
        if self._response_class is ElicitationResponse:
            return response
        given = {"action": response.action, "content": thaw(response.content), "meta": thaw(response.meta)}
        return self._response_class(**{name: value for name, value in given.items() if value is not None})

    def _state(self, theirs: Any) -> ExecutionState:
        self._execution_id = self._execution_id or _text(_field(theirs, "execution_id"))
        lifecycle, outcome = _text(_field(theirs, "lifecycle")), _text(_field(theirs, "outcome"))
        known = lifecycle in list(ExecutionStatus)
        created = _field(theirs, "created_at")
        return ExecutionState(
            execution_id=ExecutionId(self._execution_id or UNKNOWN),
            lifecycle=ExecutionStatus(lifecycle) if known else ExecutionStatus.RUNNING_TURN,
            outcome=ExecutionOutcome(outcome) if outcome in list(ExecutionOutcome) else None,
            created_at=created if isinstance(created, datetime) and created.tzinfo else self._began,
        )


async def _awaited(value: Awaitable[Any]) -> Any:
    try:
        return await value
    except SystemExit as error:  # it would end the loop, for every handle on it
        raise _exited(error) from error


def _exited(error: SystemExit) -> RuntimeError:
    return RuntimeError(f"the handle called sys.exit({'' if error.code is None else repr(error.code)})")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_own: list[asyncio.AbstractEventLoop] = []
_own_lock = threading.Lock()


def _own_loop() -> asyncio.AbstractEventLoop:
    """One loop for all async handles that came without one; its thread ends with the process."""
    with _own_lock:
        if not _own:
            _own.append(asyncio.new_event_loop())
            threading.Thread(target=_own[0].run_forever, name="m3nb-form-loop", daemon=True).start()
        return _own[0]


def _text(value: Any) -> str:
    """The text of an id or of a member of an enumeration; empty for anything else."""
    for name in ("value", "root"):
        value = getattr(value, name, value)
    return value if isinstance(value, str) else ""


def _field(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _fields(thing: Any, wanted: Any) -> dict[str, Any]:
    found = {name: _field(thing, name) for name in wanted}
    return {name: value for name, value in found.items() if value is not None}


def _round_of(pending: Any) -> PendingElicitationRound:
    if isinstance(pending, PendingElicitationRound):
        return pending
    fields = _fields(pending, PendingElicitationRound.model_fields)
    requests = fields.get("requests")
    if isinstance(requests, Mapping):
        fields["requests"] = {key: _request_of(request) for key, request in requests.items()}
    return PendingElicitationRound.model_validate(fields)


def _request_of(request: Any) -> FormElicitationRequest | UrlElicitationRequest:
    if _field(request, "mode") == "url":
        return UrlElicitationRequest.model_validate(_fields(request, UrlElicitationRequest.model_fields))
    return FormElicitationRequest.model_validate(_fields(request, FormElicitationRequest.model_fields))


def _response_class_of(pending: Any) -> type[Any]:
    """The ``ElicitationResponse`` of the module, or of the nearest package above it, that the round's class is from."""
    name = type(pending).__module__
    while name:
        found = getattr(sys.modules.get(name), "ElicitationResponse", None)
        if isinstance(found, type):
            return found
        name = name.rpartition(".")[0]
    return ElicitationResponse
