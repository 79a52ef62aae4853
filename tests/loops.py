"""Running the async kit in tests: a loop that must not complain, its heartbeat, a database that is locked."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from runs import classic

from m3nb import AgentSpec, AsyncAgent, AsyncExecutionHandle, AsyncMCPTestKit, PendingElicitationRound
from m3nb.types import Scripted, ServerBinding

SCRIPTED = [{"harness": "scripted"}]
PLAIN: dict[str, Any] = {"server": classic(), "tools": ["classic:plain"]}

T = TypeVar("T")


def spec(**fields: Any) -> AgentSpec:
    """One call of a tool that asks nobody."""
    server = fields.pop("server", classic())
    base = {"harness": Scripted(), "message": "go", "servers": (ServerBinding(server=server),)}
    return AgentSpec(**{**base, "tools": ("classic:plain",), **fields})


def agent(kit: AsyncMCPTestKit) -> AsyncAgent:
    return kit.agents(SCRIPTED)[0]


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run in a loop in debug mode; asyncio must have nothing to complain about."""
    complaints: list[Any] = []

    async def watched() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        return await main

    result = asyncio.run(watched(), debug=True)
    gc.collect()
    assert complaints == []
    return result


async def round_of(handle: AsyncExecutionHandle) -> PendingElicitationRound:
    """The pending round, as soon as there is one."""
    for _ in range(1000):
        pending = await handle.pending_elicitation()
        if pending is not None:
            return pending
        assert (await handle.snapshot()).outcome is None, (await handle.result()).error
        await asyncio.sleep(0.02)
    raise AssertionError("no round")


@contextlib.asynccontextmanager
async def locked(path: Path, seconds: float = 1.0) -> AsyncIterator[None]:
    """Another process holds the write lock for a while."""
    code = (
        "import sqlite3, sys, time; connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20);"
        "connection.execute('BEGIN IMMEDIATE'); print('held', flush=True);"
        "time.sleep(float(sys.argv[2])); connection.execute('COMMIT')"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(path), str(seconds), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    yield
    assert await process.wait() == 0


class Heartbeat:
    """The longest time, in seconds, that the running loop was away between two beats."""

    def __init__(self, interval: float = 0.002) -> None:
        self._interval = interval
        self.longest = 0.0

    async def __aenter__(self) -> Heartbeat:
        self._last = time.monotonic()
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(self._interval)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._task.cancel()
        self._note()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._note()

    def _note(self) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self._last - self._interval)
        self._last = now
