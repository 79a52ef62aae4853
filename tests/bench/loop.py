"""How long the async kit keeps an event loop away from everything else, beside the same loop left alone.

    python tests/bench/loop.py [--repeats 7] [--check]

For every method, with a quiet database and while another process holds the write lock, a task that wants to run every
2 ms notes the longest time it could not: during an idle stretch (the control: what the machine itself does to a loop)
and during a stretch of the same length with the call in it, turn and turn about. Printed are the medians over the
repeats and the worst. A real execution waits for an answer meanwhile, in the kit's own worker. ``--check`` exits with 1
if a median is more than 20 ms above its control.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from loops import Heartbeat, agent, locked, round_of, spec
from runs import accept, classic

from m3nb import AsyncExecutionHandle, AsyncMCPTestKit, InMemoryExecutionStore, SQLiteExecutionStore

LIMIT_MS = 20.0
LOCK_SECONDS = 0.4
STRETCH_SECONDS = 0.3

Call = Callable[[], Awaitable[object]]


async def gap(call: Call | None) -> float:
    """The longest absence of the loop, in ms, during a stretch of time with a call in it, or without one."""
    ends = time.monotonic() + STRETCH_SECONDS
    async with Heartbeat() as heart:
        if call is not None:
            await call()
        await asyncio.sleep(max(0.0, ends - time.monotonic()))
    return heart.longest * 1000


class Bench:
    """One kit on one store, and a call of each method."""

    def __init__(self, store: SQLiteExecutionStore) -> None:
        self.store = store
        self.kit = AsyncMCPTestKit(store=store, env={})
        self.closed: AsyncMCPTestKit | None = None

    async def asked(self) -> AsyncExecutionHandle:
        """An execution that waits for an answer."""
        handle = agent(self.kit).submit("go", server=classic(), tools=["classic:book"], human_input="managed")
        await round_of(handle)
        return handle

    async def calls(self) -> dict[str, Call]:
        """Each method once, on executions of their own where it changes one."""
        waiting, answered, cancelled = [await self.asked() for _ in range(3)]
        pending = await round_of(answered)
        other = AsyncMCPTestKit(store=self.store, env={})

        async def construct() -> None:
            self.closed = AsyncMCPTestKit(env={})
            await self.closed.aclose()

        async def watch() -> None:
            unsubscribe = waiting.on_event(lambda _: None)
            await asyncio.sleep(0.05)
            unsubscribe()

        async def wait() -> None:
            tasks = [asyncio.create_task(answered.result()) for _ in range(100)]
            await asyncio.gather(*tasks)

        async def follow() -> None:
            _ = [event async for event in waiting.events()]

        async def select() -> None:
            self.kit.agents([{"harness": "codex", "models": [f"m{number}" for number in range(20)]}])

        async def submit() -> None:
            await self.kit.submit(spec()).snapshot()

        async def answer() -> None:
            await answered.respond_elicitation(pending.round_id, {"elicitation": accept()}, idempotency_key="k")

        return {
            "AsyncMCPTestKit()": construct,
            "agents": select,
            "submit": submit,
            "handle": lambda: self.kit.handle(waiting.execution_id).snapshot(),
            "snapshot": waiting.snapshot,
            "pending_elicitation": waiting.pending_elicitation,
            "events": follow,
            "on_event": watch,
            "respond_elicitation": answer,
            "result, 100 waiters": wait,
            "cancel": cancelled.cancel,
            "aclose": other.aclose,
        }


async def measure(path: Path, repeats: int) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(idle, with the call) in ms, for each method and state of the database."""
    idle = await gap(None)
    bench = Bench(SQLiteExecutionStore(path))
    # The worker loads the MCP SDK once per process, in its own thread. The collector stops every thread meanwhile.
    first = await gap(lambda: bench.kit.submit(spec()))
    print(f"{'first execution of the process':>32}: {first:.1f} ms, idle {idle:.1f} ms (not checked: it loads the SDK)")
    taken: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(repeats):
        for state in ("quiet", "locked"):
            calls = await bench.calls()
            for name, call in calls.items():
                idle = await gap(None)
                if state == "quiet":
                    busy = await gap(call)
                else:
                    async with locked(path, LOCK_SECONDS):
                        busy = await gap(call)
                taken.setdefault((name, state), []).append((idle, busy))
    await bench.kit.aclose()
    bench.store.close()
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    started = time.perf_counter()
    InMemoryExecutionStore()
    print(f"{'first store in memory':>32}: {(time.perf_counter() - started) * 1000:.1f} ms (in the constructor)")
    with tempfile.TemporaryDirectory() as folder:
        taken = asyncio.run(measure(Path(folder) / "runs.sqlite", options.repeats))
    print(f"{'longest absence of the loop, ms':>32}    idle  (worst)   with the call  (worst)")
    above = False
    for (name, state), pairs in taken.items():
        idle, busy = ([pair[number] for pair in pairs] for number in (0, 1))
        middle = statistics.median(idle), statistics.median(busy)
        above |= middle[1] - middle[0] > LIMIT_MS
        print(f"{f'{name}, {state}':>32}: {middle[0]:6.1f}  {max(idle):7.1f}   {middle[1]:13.1f}  {max(busy):7.1f}")
    return int(options.check and above)


if __name__ == "__main__":
    sys.exit(main())
