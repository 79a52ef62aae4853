"""What an execution says about itself: events and lifecycle, stored first, then announced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from m3nb.storage import ExecutionStore
from m3nb.types import ExecutionStatus


class Journal:
    """Writes one execution's history. ``announce`` tells this process that something was written."""

    def __init__(self, store: ExecutionStore, execution_id: str, announce: Callable[[], None]) -> None:
        self._store = store
        self._execution_id = execution_id
        self._announce = announce

    def emit(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Append one event."""
        self._store.append_event(self._execution_id, kind, payload)
        self._announce()

    def enter(self, status: ExecutionStatus) -> None:
        """Say where the execution stands."""
        self._store.set_lifecycle(self._execution_id, status.value)
        self._announce()

    def finish(self, *, outcome: str, result: Mapping[str, Any], error: Mapping[str, Any] | None) -> None:
        """End the execution. Only the first end counts."""
        self._store.finish_execution(self._execution_id, outcome=outcome, result=result, error=error)
        self._announce()
