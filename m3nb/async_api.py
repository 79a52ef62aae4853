"""The kit for programs that run in an event loop: AsyncMCPTestKit, its agents and handles.

Thin over `m3nb.kit`. Whatever touches a disk or waits runs in threads of the kit, so no call holds up the loop. Any
loop may be used, also several. Source: spec "Public execution API"; engine-facts sections 3 and 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound
from m3nb.errors import KitClosed, ModelValidationError
from m3nb.handles import ExecutionHandle, Host, check_timeout, too_late
from m3nb.kit import MCPTestKit, SelectedAgent, select
from m3nb.storage import ExecutionStore
from m3nb.types import AgentSpec, DirectSpec, ExecutionResult, ExecutionState, HumanInput, TraceEvent

logger = logging.getLogger(__name__)

READERS = 4
"""Threads for calls that read."""
WRITERS = 2
"""Threads for calls that write: they can wait for seconds while the database is busy, and reading goes on."""

T = TypeVar("T")


class AsyncMCPTestKit:
    """`m3nb.MCPTestKit` for an event loop: the same arguments, errors and results.

    ``async with`` or `aclose` ends what still runs. Opening a `SQLiteExecutionStore` looks at the file: a program that
    must not wait for that either makes the store in ``asyncio.to_thread``.
    """

    def __init__(
        self,
        config: Any = None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        probe_timeout_seconds: float = 5.0,
        probe_output_limit: int = 65536,
        store: ExecutionStore | None = None,
        embedded_worker: bool = True,
        adapter_registry: Any = None,
        run_id: str | None = None,
        suite_name: str | None = None,
        project_id: str | None = None,
        record_checks: bool = False,
        max_judge_requests: int | None = None,
        harness_cache_dir: str | None = None,
    ) -> None:
        self._kit = MCPTestKit(
            config,
            env=env,
            cwd=cwd,
            probe_timeout_seconds=probe_timeout_seconds,
            probe_output_limit=probe_output_limit,
            store=store,
            embedded_worker=embedded_worker,
            adapter_registry=adapter_registry,
            run_id=run_id,
            suite_name=suite_name,
            project_id=project_id,
            record_checks=record_checks,
            max_judge_requests=max_judge_requests,
            harness_cache_dir=harness_cache_dir,
        )
        self._threads = Threads(self._kit._host)
        self._lock = threading.Lock()
        self._closing: Future[None] | None = None
        self._starts: weakref.WeakSet[Start] = weakref.WeakSet()

    @property
    def store(self) -> ExecutionStore:
        """Where everything is kept."""
        return self._kit.store

    @property
    def env(self) -> dict[str, str]:
        """What configuration is read from."""
        return self._kit.env

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End every execution that still runs here (outcome ``interrupted``). May be called again.

        What was submitted before is stored before. Whoever waits for a result gets it, or `KitClosed`. Cancelling the
        wait does not stop the closing.
        """
        with self._lock:
            if self._closing is None:
                self._closing = self._threads.starter.submit(self._close)
        await arrival(self._closing)

    def _close(self) -> None:
        try:
            self._kit.close()
        finally:
            self._threads.shutdown()
            for start in list(self._starts):
                start.report()

    def agents(self, selections: Sequence[Mapping[str, Any]], *, trials: int = 1) -> tuple[AsyncAgent, ...]:
        """One agent per selection, model and trial. Does no I/O. Raises what `m3nb.MCPTestKit.agents` raises."""
        self._open()
        return tuple(AsyncAgent(self, *selected) for selected in select(selections, trials))

    def submit(self, spec: AgentSpec | DirectSpec, *, human_input: HumanInput = "fail") -> AsyncExecutionHandle:
        """Start an execution and return its handle at once; not a coroutine.

        Raises what `m3nb.MCPTestKit.submit` raises about arguments. The rest happens off the loop: that the database
        is busy or that a server's command or folder is not there is raised by whatever is awaited on the handle, and
        logged when nothing is.
        """
        submission = self._kit._prepare(spec, human_input)
        return self._handle(submission.execution_id, lambda: self._kit._start(submission), submission.spec)

    def handle(self, execution_id: str) -> AsyncExecutionHandle:
        """The handle of an existing execution of the store, also of another process. Returns at once.

        That the store does not have it is raised (`ModelValidationError`) by whatever is awaited on the handle.
        """
        if not isinstance(execution_id, str) or not execution_id:
            raise ModelValidationError(
                f"execution_id must be a text that is not empty, not {execution_id!r}",
                details={"operation": "execution.handle", "field": "execution_id"},
            )
        return self._handle(execution_id, lambda: self._kit.handle(execution_id))

    def _handle(self, execution_id: str, make: Callable[[], ExecutionHandle], spec: Any = None) -> AsyncExecutionHandle:
        start = Start(execution_id)
        with self._lock:
            self._open()
            self._threads.starter.submit(start.run, make)
        self._starts.add(start)
        return AsyncExecutionHandle(self._threads, start, spec)

    def _open(self) -> None:
        self._kit._open()
        if self._closing is not None:
            raise KitClosed("the kit is closed: make a new one")


class AsyncAgent(SelectedAgent["AsyncExecutionHandle"]):
    """One selected agent. Made by `AsyncMCPTestKit.agents`; ``submit`` returns a handle at once."""

    async def run(self, message: str, **options: Any) -> ExecutionResult:
        """`submit`, then wait for the result. Cancelling the wait does not cancel the execution."""
        return await self.submit(message, **options)


class AsyncExecutionHandle:
    """One execution, running here or elsewhere: `m3nb.ExecutionHandle` with methods that are awaited.

    ``await handle`` is ``await handle.result()``. Cancelling a wait cancels nothing but the wait: an answer is still
    committed, the execution still runs.
    """

    def __init__(self, threads: Threads, start: Start, spec: Any) -> None:
        self._threads = threads
        self._start = start
        self._spec = spec

    @property
    def execution_id(self) -> str:
        """The id under which the store knows the execution."""
        return self._start.execution_id

    @property
    def spec(self) -> Any:
        """The spec as it was submitted; of an existing execution the stored JSON, None before anything was awaited."""
        handle = self._start.handle
        return self._spec if handle is None else handle.spec

    @property
    def submitted_spec(self) -> Any:
        """The same."""
        return self.spec

    def __repr__(self) -> str:
        return f"AsyncExecutionHandle({self.execution_id!r})"

    def __await__(self) -> Generator[Any, None, ExecutionResult]:
        return self.result().__await__()

    async def snapshot(self) -> ExecutionState:
        """See `m3nb.ExecutionHandle.snapshot`."""
        return await self._read(lambda handle: handle.snapshot())

    async def pending_elicitation(self) -> PendingElicitationRound | None:
        """See `m3nb.ExecutionHandle.pending_elicitation`."""
        return await self._read(lambda handle: handle.pending_elicitation())

    async def wait_for_elicitation(self, timeout: float | None = None) -> PendingElicitationRound | None:
        """See `m3nb.ExecutionHandle.wait_for_elicitation`."""
        check_timeout(timeout)
        try:
            async with asyncio.timeout(timeout):
                handle = await self._start.made()
                return (await self._threads.until(handle.question_or_end))[0]
        except TimeoutError:
            raise too_late(self.execution_id, timeout, "asked nothing") from None

    async def respond_elicitation(
        self, round_id: str, responses: Mapping[str, ElicitationResponse], *, idempotency_key: str
    ) -> None:
        """See `m3nb.ExecutionHandle.respond_elicitation`."""
        await self._write(
            lambda handle: handle.respond_elicitation(round_id, responses, idempotency_key=idempotency_key)
        )

    async def cancel(self) -> None:
        """See `m3nb.ExecutionHandle.cancel`."""
        await self._write(lambda handle: handle.cancel())

    async def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait for the end. ``timeout`` in seconds; None waits as long as it takes.

        Raises `OperationTimeout` when the wait (not the execution) took too long, `ModelValidationError` for a timeout
        that is not positive.
        """
        check_timeout(timeout)
        try:
            async with asyncio.timeout(timeout):
                handle = await self._start.made()
                return await self._threads.until(handle.finished_result)
        except TimeoutError:
            raise too_late(self.execution_id, timeout) from None

    async def events(self, *, after_sequence: int = -1, follow: bool = False) -> AsyncIterator[TraceEvent]:
        """What happened, in order, beginning after a sequence number.

        ``follow=True`` goes on with what comes, until the execution is finished.
        """
        handle = await self._start.made()

        def new() -> tuple[tuple[TraceEvent, ...], bool] | None:
            events, finished = handle.news(after_sequence)
            return (events, finished) if events or finished else None

        events, finished = await self._read(lambda handle: handle.news(after_sequence))
        while True:
            for event in events:
                after_sequence = event.sequence
                yield event
            if finished or not follow:
                return
            events, finished = await self._threads.until(new)

    def on_event(self, callback: Callable[[TraceEvent], None]) -> Callable[[], None]:
        """Call back with every event, the past ones first, in the running event loop; returns a function that ends it.

        Raises ``TypeError`` for a coroutine function: ``async for event in handle.events(follow=True)`` is for those.
        """
        if not callable(callback) or inspect.iscoroutinefunction(callback):
            raise TypeError(f"callback is a plain function that takes an event, not {callback!r}")
        self._threads.check_open()
        subscription = _Subscription(asyncio.get_running_loop(), callback)
        self._start.when_made(subscription.begin)
        return subscription.end

    async def _read(self, call: Callable[[ExecutionHandle], T]) -> T:
        handle = await self._start.made()
        return await self._threads.run(self._threads.readers, lambda: call(handle))

    async def _write(self, call: Callable[[ExecutionHandle], T]) -> T:
        handle = await self._start.made()
        return await self._threads.run(self._threads.writers, lambda: call(handle))


class Start:
    """The handle behind an async one, made in another thread. An error that nobody was told is logged at the end."""

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id
        self._future: Future[ExecutionHandle] = Future()
        self._told = False

    def __del__(self) -> None:
        self.report()

    @property
    def handle(self) -> ExecutionHandle | None:
        """The handle, when it is made."""
        return self._future.result() if self._future.done() and self._future.exception() is None else None

    def run(self, make: Callable[[], ExecutionHandle]) -> None:
        """Make it."""
        try:
            self._future.set_result(make())
        except Exception as error:
            self._future.set_exception(error)

    async def made(self) -> ExecutionHandle:
        """The handle, or the error that it could not be made with."""
        try:
            return await arrival(self._future)
        except Exception:
            self._told = True
            raise

    def when_made(self, use: Callable[[ExecutionHandle], None]) -> None:
        """Call with the handle, now or in another thread; never when it could not be made."""

        def done(_: Future[ExecutionHandle]) -> None:
            if (handle := self.handle) is not None:
                use(handle)

        self._future.add_done_callback(done)

    def report(self) -> None:
        """Log the error unless somebody was told."""
        error = self._future.exception() if self._future.done() else None
        if error is not None and not self._told:
            self._told = True
            logger.error("execution %s: %s: %s", self.execution_id, type(error).__name__, error)


class Threads:
    """Where the calls of one kit run, and how what they bring gets into an event loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        # One, so that executions begin in the order of their submission, and all of them before the kit closes.
        self.starter = ThreadPoolExecutor(1, "m3nb-starter")
        self.readers = ThreadPoolExecutor(READERS, "m3nb-reader")
        self.writers = ThreadPoolExecutor(WRITERS, "m3nb-writer")

    def check_open(self) -> None:
        """Raise `KitClosed` when the kit is closed."""
        if self._host.closed:
            raise KitClosed("the kit is closed: handle(execution_id) of a new one reaches this execution again")

    def shutdown(self) -> None:
        """Let the threads end after their work. The kit is closed."""
        for pool in (self.starter, self.readers, self.writers):
            pool.shutdown(wait=False)

    async def run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        """The result of ``work``."""
        future: Future[T] | None = None
        with contextlib.suppress(RuntimeError):
            future = pool.submit(work)
        # The kit is closed: the handle answers from memory or raises KitClosed.
        return work() if future is None else await arrival(future)

    async def until(self, look: Callable[[], T | None]) -> T:
        """What ``look`` returns as soon as that is not None. One thread looks for everybody who waits."""
        found: Future[T] = Future()

        def looked() -> bool:
            try:
                seen = look()
            except Exception as error:
                found.set_exception(error)
                return True
            if seen is not None:
                found.set_result(seen)
            return seen is not None

        end = self._host.watcher.add(looked)
        try:
            return await arrival(found)
        finally:
            end()


class _Subscription:
    """Takes events from the watching thread into a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[TraceEvent], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._ended = False
        self._stop_watching: Callable[[], None] | None = None

    def begin(self, handle: ExecutionHandle) -> None:
        """Watch, from any thread."""
        with contextlib.suppress(KitClosed):
            self._stop_watching = handle.on_event(self._hand_over)
        if self._ended:
            self.end()

    def end(self) -> None:
        """Call back no more."""
        self._ended = True
        if self._stop_watching is not None:
            self._stop_watching()

    def _hand_over(self, event: TraceEvent) -> None:
        if not wake(self._loop, self._call_back, event):
            self.end()

    def _call_back(self, event: TraceEvent) -> None:
        if self._ended:
            return
        try:
            self._callback(event)
        except Exception:
            logger.exception("an on_event callback failed")


async def arrival(future: Future[T]) -> T:
    """What another thread brings, in whatever loop. Cancelling the wait does not cancel the work."""
    if not future.done():
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()
        future.add_done_callback(lambda _: wake(loop, arrived.set))
        await arrived.wait()
    return future.result()


def wake(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> bool:
    """Call something in a loop, from any thread. Returns False when the loop is closed: nobody waits there."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        return False
    return True
