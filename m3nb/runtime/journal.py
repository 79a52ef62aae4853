"""What an execution says about itself: events and lifecycle, stored first, then announced.

The execution's own secrets are hidden in everything that is stored here; agent and server have them in clear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from m3nb.errors import StorageBusy
from m3nb.redaction import REDACTED
from m3nb.storage import ExecutionStore
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


class Journal:
    """Writes one execution's history. ``announce`` tells this process that something was written."""

    def __init__(
        self, store: ExecutionStore, execution_id: str, announce: Callable[[], None], secrets: Iterable[str] = ()
    ) -> None:
        self._store = store
        self._execution_id = execution_id
        self._announce = announce
        self._secrets = tuple(secrets)

    def emit(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Append one event."""
        self._store.append_event(self._execution_id, kind, self._hidden(payload))
        self._announce()

    def enter(self, status: ExecutionStatus) -> None:
        """Say where the execution stands."""
        self._store.set_lifecycle(self._execution_id, status.value)
        self._announce()

    def finish(self, *, outcome: str, result: Mapping[str, Any], error: Mapping[str, Any] | None) -> None:
        """End the execution. Only the first end counts."""
        self._store.finish_execution(
            self._execution_id, outcome=outcome, result=self._hidden(result), error=self._hidden(error)
        )
        self._announce()

    def _hidden(self, value: Any) -> Any:
        if not self._secrets:
            return value
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, REDACTED)
            return value
        if isinstance(value, Mapping):
            return {key: self._hidden(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._hidden(item) for item in value]
        return value
