"""What an execution says about itself: events and lifecycle, stored first, then announced.

The execution's own secrets are hidden in everything that is stored here; agent and server have them in clear.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any, TypeVar, cast

from m3nb.errors import MCPError, StorageBusy
from m3nb.redaction import REDACTED
from m3nb.storage import ExecutionStore, NewEvent
from m3nb.types import ExecutionStatus

T = TypeVar("T")

BUSY_SECONDS = 0.2
"""How long a busy database is left alone before the next try."""


async def until_free(change: Callable[[], T]) -> T:
    """Make a change that may be repeated, as soon as the database is free.

    A call that has gone well must not fail because another program holds the file for some seconds.
    """
    while True:
        try:
            return change()
        except StorageBusy:
            await asyncio.sleep(BUSY_SECONDS)


async def until_free_elsewhere(change: Callable[[], T]) -> T:
    """The same in a thread, so that the event loop goes on while the disk is written."""
    while True:
        try:
            return await asyncio.to_thread(change)
        except StorageBusy:
            await asyncio.sleep(BUSY_SECONDS)


class Journal:
    """Writes one execution's history. ``announce`` tells this process that something was written.

    Entries are written in their order, by a thread, as soon as it gets to them: a call does not wait for the disk to
    have its history. `flush` waits. Lives in the worker's event loop.
    """

    def __init__(
        self, store: ExecutionStore, execution_id: str, announce: Callable[[], None], secrets: Iterable[str] = ()
    ) -> None:
        self._store = store
        self._execution_id = execution_id
        self._announce = announce
        self._secrets = tuple(secrets)
        self._entries: deque[NewEvent | ExecutionStatus] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._failure: MCPError | None = None

    def emit(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Append one event. Raises what an earlier one ran into: `StorageError`, or an execution that is gone."""
        self._add(NewEvent(kind, self._safe(payload), self._store.now()))

    def enter(self, status: ExecutionStatus) -> None:
        """Say where the execution stands. Raises as `emit` does."""
        self._add(status)

    async def flush(self) -> None:
        """Return when everything said so far is stored. Raises as `emit` does if it can't be."""
        while self._writer is not None and not self._writer.done():
            # Whoever waits may be cancelled; the writing goes on.
            await asyncio.shield(self._writer)
        if self._failure is not None:
            raise self._failure

    async def finish(self, *, outcome: str, result: Mapping[str, Any], error: Mapping[str, Any] | None) -> None:
        """End the execution. Only the first end counts."""
        with contextlib.suppress(MCPError):
            await self.flush()
        safe = self._safe(result), self._safe(error)
        await until_free(
            lambda: self._store.finish_execution(self._execution_id, outcome=outcome, result=safe[0], error=safe[1])
        )
        self._announce()

    def _add(self, entry: NewEvent | ExecutionStatus) -> None:
        if self._failure is not None:
            raise self._failure
        self._entries.append(entry)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._entries:
                await until_free_elsewhere(self._write_next)
                self._announce()
        except MCPError as error:
            # Said at the next entry, or at the end: an execution whose store is gone does not go on for long.
            self._failure = error

    def _write_next(self) -> None:
        """Write the next entries of one kind; they leave the queue when they are stored."""
        first = self._entries[0]
        if isinstance(first, ExecutionStatus):
            self._store.set_lifecycle(self._execution_id, first.value)
            self._entries.popleft()
            return
        events = list(takewhile(lambda entry: isinstance(entry, NewEvent), tuple(self._entries)))
        self._store.append_events(self._execution_id, cast(list[NewEvent], events))
        for _ in events:
            self._entries.popleft()

    def _safe(self, value: Any) -> Any:
        """The value as it is stored: without the execution's secrets and without what JSON or UTF-8 can't hold.

        A history must never be the reason why a call fails.
        """
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, REDACTED)
            return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
        if isinstance(value, Mapping):
            return {self._safe(str(key)): self._safe(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._safe(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return value
