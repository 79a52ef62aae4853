"""One execution from its claim to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from m3nb.errors import (
    AgentError,
    MCPError,
    OperationCancelled,
    OperationTimeout,
    StorageError,
    WorkerStopped,
)
from m3nb.harness import AgentOutcome, AgentTask, find
from m3nb.runtime.clock import ActiveClock
from m3nb.runtime.coordinator import Coordinator
from m3nb.runtime.doorbell import Doorbell
from m3nb.runtime.journal import Journal, until_free
from m3nb.runtime.launch import Launch
from m3nb.storage import ExecutionStore, ManagedInputStore
from m3nb.types import AgentSpec, ExecutionOutcome, ExecutionStatus, HumanInput

logger = logging.getLogger(__name__)

UNWIND_SECONDS = 10.0
"""How long agent, gateway and servers may take to end once they were told to."""

RETRY_SECONDS = 1.0
"""How soon the end of an execution is tried again when the store refuses it."""

_OUTCOMES = {
    OperationTimeout: ExecutionOutcome.TIMED_OUT,
    OperationCancelled: ExecutionOutcome.CANCELLED,
    WorkerStopped: ExecutionOutcome.INTERRUPTED,
}


@dataclass(frozen=True)
class Job:
    """A submitted execution: what the store knows (the spec) and what only memory knows (the launches)."""

    execution_id: str
    spec: AgentSpec
    launches: tuple[Launch, ...]
    human_input: HumanInput


class Execution:
    """Runs one job in the worker's event loop."""

    def __init__(
        self,
        job: Job,
        *,
        store: ExecutionStore,
        rounds: ManagedInputStore | None,
        bell: Doorbell,
        announce: Callable[[], None],
    ) -> None:
        self.job = job
        self._store = store
        self._bell = bell
        secrets = [secret for launch in job.launches for secret in launch.secrets]
        self._journal = Journal(store, job.execution_id, announce, secrets)
        self._clock = ActiveClock(job.spec.timeout_seconds)
        self._ended = asyncio.Event()
        self.coordinator = Coordinator(
            execution_id=job.execution_id,
            journal=self._journal,
            rounds=rounds,
            human_input=job.human_input,
            plan=job.spec.elicitation,
            secrets=secrets,
            round_limit=job.spec.elicitation_round_limit,
            answer_within=job.spec.answer_within_seconds,
            clock=self._clock,
            bell=bell,
            abort=self.end,
        )

    def end(self, error: MCPError) -> None:
        """End the execution with an error; the first reason counts. Open rounds end at once."""
        if self.coordinator.ending is None:
            self.coordinator.ending = error
            self._ended.set()
            try:
                self.coordinator.fail_open_rounds(error)
            except StorageError:
                logger.debug("the rounds of %s end a little later", self.job.execution_id, exc_info=True)

    async def run(self) -> None:
        """Run to the end and store it. Never raises."""
        outcome: AgentOutcome | None = None
        work = asyncio.create_task(self._work(), name=f"m3nb-{self.job.execution_id}")
        watchers = [asyncio.create_task(watch) for watch in (self._watch_time(), self._watch_cancel())]
        try:
            ended = asyncio.create_task(self._ended.wait())
            await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            outcome = await self._outcome(work)
        except asyncio.CancelledError:
            self.end(WorkerStopped("the worker was stopped"))
        except Exception as error:
            logger.exception("execution %s failed in a way nobody foresaw", self.job.execution_id)
            self.end(_unforeseen(error))
        finally:
            for watcher in watchers:
                watcher.cancel()
            await self._finish(outcome)

    async def _outcome(self, work: asyncio.Task[AgentOutcome]) -> AgentOutcome | None:
        """Wait for the work to unwind; its error ends the execution unless something else has."""
        if not work.done():
            work.cancel()
            _, late = await asyncio.wait({work}, timeout=UNWIND_SECONDS)
            if late:
                logger.warning("execution %s did not unwind within %s s", self.job.execution_id, UNWIND_SECONDS)
                return None
        if work.cancelled():
            self.end(WorkerStopped("the execution was stopped"))
            return None
        error = work.exception()
        if error is None:
            return work.result()
        self.end(_foreseen(error))
        return None

    async def _work(self) -> AgentOutcome:
        # Loaded here: the SDK takes a second, and only a worker needs it.
        from m3nb.runtime import gateway, upstream

        spec = self.job.spec
        assert spec.harness is not None
        harness = find(spec.harness.kind)
        self._journal.emit("prompt", {"text": spec.message or ""})
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(upstream.connect(launch, self.coordinator))
                for launch in self.job.launches
            ]
            endpoints = await stack.enter_async_context(gateway.serve(servers, tools=spec.tools, journal=self._journal))
            self._journal.enter(ExecutionStatus.RUNNING_TURN)
            outcome = await harness.run(
                AgentTask(
                    execution_id=self.job.execution_id,
                    prompt=spec.message or "",
                    model=spec.harness.model,
                    endpoints=endpoints,
                    tools=spec.tools,
                    emit=self._journal.emit,
                )
            )
            if outcome.usage:
                self._journal.emit("usage", outcome.usage)
            self._journal.enter(ExecutionStatus.CLOSING)
            # The agent is gone: nobody waits for what is still open.
            self.coordinator.fail_open_rounds(AgentError("the agent ended while its call waited for an answer"))
        self.coordinator.finish_plan()
        return outcome

    async def _watch_time(self) -> None:
        await self._clock.expired()
        seconds = self.job.spec.timeout_seconds
        self.end(OperationTimeout(f"the execution took more than {seconds:g} s, not counting the time people took"))

    async def _watch_cancel(self) -> None:
        while True:
            record = await until_free(lambda: self._store.get_execution(self.job.execution_id))
            if record is not None and record.cancel_requested_at is not None:
                self.end(OperationCancelled("the execution was cancelled"))
                return
            await self._bell.wait()

    async def _finish(self, outcome: AgentOutcome | None) -> None:
        result = {"final_text": outcome.final_text if outcome else None}
        warned = False
        # An execution without an end would look alive for ever: a disk that is full may have room again.
        while True:
            try:
                ended, error = await until_free(self._end_rounds)
                await self._journal.finish(outcome=ended.value, result=result, error=error)
                return
            except StorageError as problem:
                if not warned:
                    warned = True
                    text = "the end of execution %s can't be stored yet: %s"
                    logger.warning(text, self.job.execution_id, problem.message)
                await asyncio.sleep(RETRY_SECONDS)

    def _end_rounds(self) -> tuple[ExecutionOutcome, dict[str, Any] | None]:
        """End what is still open; returns how the execution ended."""
        error = self.coordinator.ending
        if error is not None:
            self.coordinator.fail_open_rounds(error)
            return _OUTCOMES.get(type(error), ExecutionOutcome.FAILED), _info(error)
        failed = self.coordinator.first_failure()
        if failed is not None:
            error = AgentError(f"a question was not answered: {failed.failure_message}")
            return ExecutionOutcome.FAILED, _info(error, code=failed.failure_code)
        return ExecutionOutcome.COMPLETED, None


def _info(error: MCPError, *, code: str | None = None) -> dict[str, Any]:
    return {"code": code or error.code, "message": error.message, "retryable": False, "details": error.details}


def _foreseen(error: BaseException) -> MCPError:
    """The typed error inside whatever groups anyio has wrapped around it."""
    while isinstance(error, BaseExceptionGroup):
        typed = error.subgroup(MCPError)
        error = (typed or error).exceptions[0]
    return error if isinstance(error, MCPError) else _unforeseen(error)


def _unforeseen(error: BaseException) -> MCPError:
    return AgentError(f"the execution failed: {type(error).__name__}: {error}", details={"type": type(error).__name__})
