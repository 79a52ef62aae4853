"""The worker: a thread with its own event loop that owns executions and holds their leases.

Each execution is a task of the loop, so that one that waits blocks no other.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import sys
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable

from m3nb._version import __version__
from m3nb.elicitation import FormElicitationRequest
from m3nb.errors import KitClosed, MCPError, StorageError, WorkerStopped
from m3nb.runtime.coordinator import LEASE_SECONDS, rounds_of
from m3nb.runtime.doorbell import Doorbell
from m3nb.runtime.execution import UNWIND_SECONDS, Execution, Job
from m3nb.runtime.journal import until_free
from m3nb.runtime.recovery import Recovery
from m3nb.storage import ExecutionStore
from m3nb.validity import check_schema

SCAN_SECONDS = 2.0
"""How often leases are looked at; they are renewed at a third of their length."""

EXIT_SECONDS = 1.5
"""How long the interpreter's exit waits before server processes are killed."""

_living: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """Runs executions of one store. ``announce`` is called, in the worker's thread, when one of them changed."""

    def __init__(self, store: ExecutionStore, *, announce: Callable[[], None]) -> None:
        self.id = f"worker-{uuid.uuid4().hex}"
        self._store = store
        self._announce = announce
        self._lock = threading.Lock()
        self._inbox: deque[Job] = deque()
        self._stopping: MCPError | None = None
        self._registered = False
        self._serving = False
        self._died: str | None = None
        self._bell: Doorbell | None = None
        self._thread = threading.Thread(target=self._main, name=f"m3nb-{self.id[:13]}", daemon=True)
        self._running: dict[str, Execution] = {}
        _living.add(self)
        self._thread.start()

    def register(self) -> None:
        """Make the worker known to the store. Called before its first execution is created."""
        with self._lock:
            self._refuse_when_stopped()
            # A process that was suspended for long is taken for dead, and its worker's row removed.
            if not self._registered or self._store.get_worker(self.id) is None:
                self._store.register_worker(
                    worker_id=self.id,
                    kind="embedded",
                    pid=os.getpid(),
                    version=__version__,
                    prefix=os.path.realpath(sys.prefix),
                    lease_seconds=LEASE_SECONDS,
                )
                self._registered = True

    def enqueue(self, job: Job) -> None:
        """Run a created execution. Raises `KitClosed` after `stop`."""
        with self._lock:
            self._refuse_when_stopped()
            self._inbox.append(job)
        self.ring()

    def _refuse_when_stopped(self) -> None:
        if self._stopping is not None or not self._thread.is_alive():
            raise KitClosed(self._died or "the kit or workbench is closed: make a new one")

    def ring(self) -> None:
        """Say that something changed in the store. From any thread."""
        bell = self._bell
        if bell is not None:
            bell.ring()

    def stop(self, reason: MCPError | None = None, *, seconds: float = UNWIND_SECONDS + 2) -> bool:
        """End every execution and the thread. Returns whether that took no longer than ``seconds``."""
        with self._lock:
            reason = self._stopping = (
                self._stopping or reason or WorkerStopped("the kit or workbench was closed while the execution ran")
            )
            unstarted = [] if self._serving else [*self._inbox]
            if not self._serving:
                self._inbox.clear()
        if not self._serving:
            # The thread still loads what it needs, and will find nothing to do.
            for job in unstarted:
                with contextlib.suppress(StorageError):
                    end_unstarted(self._store, job.execution_id, reason)
            self._sign_off()
            return True
        self.ring()
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _sign_off(self) -> None:
        if self._registered:
            with contextlib.suppress(StorageError):
                # A row that stays is taken for a dead worker's, and removed as such.
                self._store.remove_worker(self.id)

    def kill(self) -> None:
        """Kill every server process that is left, by process group."""
        for group in _process_groups():
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def _main(self) -> None:
        with contextlib.suppress(BaseException), asyncio.Runner() as runner:
            try:
                self._load()
                runner.run(self._serve())
            except BaseException as error:
                # Before the runner ends what is left in its loop: whoever waits must hear of it in any case.
                self._die(error)

    def _load(self) -> None:
        """SDK and validator take a second each to load: here, while the person still writes the cell."""
        from m3nb.runtime import gateway, upstream  # noqa: F401

        check_schema(FormElicitationRequest(request_key="first", message="", requested_schema={"type": "object"}))

    def _die(self, error: BaseException) -> None:
        """End in the store what the loop could not end itself, and take nothing more."""
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        reason = WorkerStopped(f"the worker of this kit was ended by {what}: make a new kit")
        with self._lock:
            self._died = reason.message
            self._stopping = self._stopping or reason
            waiting = [job.execution_id for job in self._inbox]
            self._inbox.clear()
        with contextlib.suppress(StorageError):
            for execution_id, execution in self._running.items():
                execution.coordinator.fail_open_rounds(reason)
                waiting.append(execution_id)
            for execution_id in waiting:
                end_unstarted(self._store, execution_id, reason)
        self._sign_off()
        self._announce()

    async def _serve(self) -> None:
        bell = self._bell = Doorbell(self._store.data_version)
        with self._lock:
            if self._stopping is not None:
                return
            self._serving = True
        tasks: set[asyncio.Task[None]] = set()
        keeper = asyncio.create_task(self._keep())
        try:
            while self._stopping is None:
                while self._inbox:
                    task = asyncio.create_task(self._run(self._inbox.popleft(), bell))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                await bell.rung()
        finally:
            keeper.cancel()
            reason = self._stopping or WorkerStopped("the worker was stopped")
            for execution in list(self._running.values()):
                execution.end(reason)
            for job in self._inbox:
                await self._end_unstarted(job, reason)
            if tasks:
                await asyncio.wait(tasks, timeout=UNWIND_SECONDS + 1)
            self._sign_off()

    async def _run(self, job: Job, bell: Doorbell) -> None:
        if not await until_free(lambda: self._store.claim_execution(job.execution_id, worker_id=self.id)):
            return
        execution = Execution(job, store=self._store, rounds=rounds_of(self._store), bell=bell, announce=self._announce)
        self._running[job.execution_id] = execution
        try:
            if self._stopping is not None:
                execution.end(self._stopping)
            await execution.run()
        finally:
            del self._running[job.execution_id]
            self._announce()

    async def _end_unstarted(self, job: Job, reason: MCPError) -> None:
        with contextlib.suppress(StorageError):
            await until_free(lambda: end_unstarted(self._store, job.execution_id, reason))
        self._announce()

    async def _keep(self) -> None:
        """Renew the leases of this worker, end those of dead ones."""
        recovery = Recovery(self._store, self.id)
        renewed = time.monotonic()
        while True:
            try:
                recovery.scan()
                if self._registered and time.monotonic() - renewed >= LEASE_SECONDS / 3:
                    self._store.renew_worker(self.id, lease_seconds=LEASE_SECONDS)
                    renewed = time.monotonic()
            except StorageError:
                # Busy: the next tick comes long before a lease ends.
                pass
            await asyncio.sleep(SCAN_SECONDS)


def end_unstarted(store: ExecutionStore, execution_id: str, reason: MCPError) -> None:
    """End an execution that no worker has begun."""
    error = {"code": reason.code, "message": reason.message, "retryable": True, "details": {}}
    store.finish_execution(execution_id, outcome="interrupted", result={}, error=error)


def _process_groups() -> set[int]:
    """The process groups of the server processes this interpreter started."""
    import psutil

    from m3nb.runtime.transports import MARK

    groups = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if MARK in child.environ():
                groups.add(os.getpgid(child.pid))
        except (psutil.Error, ProcessLookupError):
            continue
    return groups - {os.getpgrp()}


def _at_exit() -> None:
    workers = list(_living)
    for worker in workers:
        worker.stop(WorkerStopped("the interpreter has ended"), seconds=0)
    deadline = time.monotonic() + EXIT_SECONDS
    for worker in workers:
        if not worker.stop(seconds=max(0.0, deadline - time.monotonic())):
            worker.kill()


atexit.register(_at_exit)
