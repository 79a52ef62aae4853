"""Ending what a vanished worker left behind (spec "Reopening a store and recovery boundary").

A lease counts as dead once this process has watched it stay expired for `GRACE_SECONDS` of its own monotonic clock:
a laptop that slept wakes with expired leases and a living worker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from m3nb.errors import ManagedInputError
from m3nb.storage import ExecutionStore, SQLiteExecutionStore

GRACE_SECONDS = 10.0
_LOST = "the worker that ran this execution has vanished; a waiting agent cannot be resumed: submit again"


class Recovery:
    """Looks for dead leases each time `scan` is called. One per worker; ``worker_id`` is that living worker."""

    def __init__(self, store: ExecutionStore, worker_id: str) -> None:
        self._store = store
        self._worker_id = worker_id
        self._watched: dict[str, float] = {}

    def scan(self) -> None:
        """End what has been dead for long enough."""
        now = time.monotonic()
        expired = dict(self._expired())
        self._watched = {key: self._watched.get(key, now) for key in expired}
        for key, since in self._watched.items():
            if now - since >= GRACE_SECONDS:
                expired[key]()

    def _expired(self) -> Iterator[tuple[str, _End]]:
        if not isinstance(self._store, SQLiteExecutionStore):
            return
        for record in self._store.unresolved_rounds(expired_only=True):
            execution = self._store.get_execution(record.execution_id)
            if execution is not None and execution.worker_id != self._worker_id:
                yield f"{record.round_id} {record.lease_token}", _End(self._store, record.execution_id)
        now = self._store.now()
        for worker in self._store.list_workers():
            if worker.worker_id != self._worker_id and worker.lease_expires <= now:
                yield worker.worker_id, _End(self._store, None, worker.worker_id)
        # A worker that could not end an execution in time has taken its own row with it.
        for execution in self._store.orphans():
            if execution.worker_id != self._worker_id:
                yield execution.execution_id, _End(self._store, execution.execution_id)


class _End:
    """Ends one execution, or every execution of one worker."""

    def __init__(self, store: SQLiteExecutionStore, execution_id: str | None, worker_id: str | None = None) -> None:
        self._store = store
        self._execution_id = execution_id
        self._worker_id = worker_id

    def __call__(self) -> None:
        if self._execution_id is not None:
            self._end(self._execution_id)
            return
        assert self._worker_id is not None
        for execution in self._store.list_executions(unfinished=True, worker_id=self._worker_id):
            self._end(execution.execution_id)
        self._store.remove_worker(self._worker_id)

    def _end(self, execution_id: str) -> None:
        rounds = self._store.managed_input_store
        lost_a_round = False
        for record in rounds.list_rounds(execution_id):
            if record.status in ("resolved", "failed"):
                continue
            if record.lease.expires_at > self._store.now():
                return
            try:
                rounds.fail_recovery(
                    execution_id, record.round_id, expected_lease_token=record.lease_token, message=_LOST
                )
            except ManagedInputError:
                # Its owner is back, or another process was quicker: look again at the next scan.
                return
            lost_a_round = True
        code = "managed_input_recovery_unavailable" if lost_a_round else "worker_stopped"
        error = {"code": code, "message": _LOST, "retryable": False, "details": {}}
        self._store.finish_execution(execution_id, outcome="failed", result={}, error=error)
