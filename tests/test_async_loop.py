"""The async kit leaves the loop alone: threads, several loops, busy databases."""

from __future__ import annotations

import asyncio
import inspect
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loops import PLAIN, Heartbeat, agent, locked, round_of, run, spec
from runs import accept, classic

import m3nb
from m3nb import (
    AsyncExecutionHandle,
    AsyncMCPTestKit,
    ExecutionOutcome,
    ExecutionStatus,
    SQLiteExecutionStore,
    StorageBusy,
)


def test_two_loops_and_one_that_goes_away(store, caplog) -> None:
    kit = AsyncMCPTestKit(store=store, env={})
    handle = agent(kit).submit('classic:slow {"seconds": 2}', server=classic())

    gone = asyncio.new_event_loop()
    left = gone.create_task(handle.result())
    left._log_destroy_pending = False
    gone.call_soon(lambda: handle.on_event(lambda _: None))
    gone.run_until_complete(asyncio.sleep(0.1))
    gone.close()

    results: list[m3nb.ExecutionResult] = []
    threads = [threading.Thread(target=lambda: results.append(run(_result(handle)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [result.final_text for result in results] == ["slept", "slept"]
    run(kit.aclose())
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def _result(handle: AsyncExecutionHandle) -> m3nb.ExecutionResult:
    return await handle.result(timeout=20)


def test_a_hundred_waiters_take_no_thread_each(store) -> None:
    for number in range(100):
        store.create_execution(f"e{number}", spec={}, worker_id="elsewhere", managed=False)

    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            before = threading.active_count()
            handles = [kit.handle(f"e{number}") for number in range(100)]
            waiters = [asyncio.create_task(handle.result()) for handle in handles for _ in range(2)]
            await asyncio.gather(*(handle.snapshot() for handle in handles))
            await asyncio.sleep(0.2)
            assert threading.active_count() - before < 10
            for number in range(100):
                await asyncio.to_thread(store.finish_execution, f"e{number}", outcome="failed", result={}, error=None)
            results = await asyncio.gather(*waiters)
            assert {str(result.snapshot.execution_id) for result in results} == {f"e{n}" for n in range(100)}

    run(main())


class Recording(SQLiteExecutionStore):
    """Remembers which threads its methods, and those of its rounds, are called in."""

    def __init__(self, path: Path) -> None:
        self.callers: dict[str, set[int]] = {}
        super().__init__(path)

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name == "resolve_managed_input_store":
            return lambda: _Recorded(value(), self.callers)
        return value if name.startswith("_") or not inspect.ismethod(value) else _recorded(value, self.callers)


class _Recorded:
    def __init__(self, rounds: Any, callers: dict[str, set[int]]) -> None:
        self._rounds, self._callers = rounds, callers

    def __getattr__(self, name: str) -> Any:
        return _recorded(getattr(self._rounds, name), self._callers)


def _recorded(method: Callable[..., Any], callers: dict[str, set[int]]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        callers.setdefault(method.__name__, set()).add(threading.get_ident())
        return method(*args, **named)

    return call


def test_no_call_holds_up_the_loop_while_the_database_is_locked(tmp_path: Path) -> None:
    """The lock is held for a second. The loop beats all the while, and no store method is ever called in it."""

    async def main() -> Recording:
        store = Recording(tmp_path / "runs.sqlite")
        kit = AsyncMCPTestKit(store=store, env={})
        asked, stopped = (
            agent(kit).submit("go", server=classic(), tools=["classic:book"], human_input="managed") for _ in range(2)
        )
        pending = await round_of(asked)
        await round_of(stopped)
        async with locked(store.path), Heartbeat() as heart:
            begun = kit.submit(spec())
            begun.on_event(lambda _: None)
            writing = [
                begun.snapshot(),
                stopped.cancel(),
                asked.respond_elicitation(pending.round_id, {"elicitation": accept()}, idempotency_key="k"),
            ]
            tasks = [asyncio.create_task(call) for call in writing]
            await asyncio.gather(
                asked.snapshot(), asked.pending_elicitation(), anext(asked.events()), kit.handle(asked.execution_id)
            )
            await asyncio.gather(*tasks, begun, stopped)
        assert heart.longest < 0.3
        assert (await asked).outcome is ExecutionOutcome.COMPLETED
        agent(kit).submit("go", server=classic(), tools=["classic:book"], human_input="managed")
        async with locked(store.path), Heartbeat() as heart:
            await kit.aclose()
        assert heart.longest < 0.3
        return store

    store = run(main())
    used = {"create_execution", "register_worker", "get_execution", "request_cancel", "submit_responses", "events"}
    assert used <= set(store.callers)
    assert {name for name, threads in store.callers.items() if threading.get_ident() in threads} == set()
    store.close()


def test_a_lock_that_lasts_is_told_to_whoever_waits_and_reading_goes_on(tmp_path: Path) -> None:
    store = SQLiteExecutionStore(tmp_path / "runs.sqlite", busy_timeout_ms=300)
    store.create_execution("e1", spec={}, worker_id="elsewhere", managed=False)

    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            existing = kit.handle("e1")
            await existing.snapshot()
            async with locked(store.path):
                cancels = [asyncio.create_task(existing.cancel()) for _ in range(20)]
                await asyncio.sleep(0.1)
                assert (await asyncio.wait_for(existing.snapshot(), 0.5)).lifecycle is ExecutionStatus.QUEUED
                lost = kit.submit(spec())
                with pytest.raises(StorageBusy):
                    await lost.result(timeout=20)
                told = await asyncio.gather(*cancels, return_exceptions=True)
                assert any(isinstance(error, StorageBusy) for error in told)
            assert (await agent(kit).run("go", **PLAIN)).final_text == "plain {}"

    run(main())
    store.close()


def test_servers_are_looked_for_in_another_thread(store, monkeypatch) -> None:
    callers: list[int] = []
    which = shutil.which

    def recorded(*args: Any, **named: Any) -> str | None:
        callers.append(threading.get_ident())
        return which(*args, **named)

    monkeypatch.setattr(shutil, "which", recorded)

    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            await kit.submit(spec())

    run(main())
    assert callers
    assert threading.get_ident() not in callers
