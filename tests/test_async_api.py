"""The kit in an event loop: the same contract, and nothing that holds up the loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wide
from loops import PLAIN, SCRIPTED, agent, round_of, run, spec
from runs import ADDRESS, accept, classic, deliveries, shipping

import m3nb
from m3nb import (
    AsyncExecutionHandle,
    AsyncMCPTestKit,
    DirectSpec,
    ExecutionOutcome,
    ExecutionStatus,
    KitClosed,
    ManagedInputConflict,
    ManagedInputValidationError,
    MCPTestKit,
    ModelValidationError,
    OperationTimeout,
    ServerError,
    UnsupportedFeature,
)
from m3nb.types import CallTool, HTTPServer, SecretReference, ServerBinding, TraceEvent

# The contract


def test_a_round_is_answered_from_the_loop(store, tmp_path: Path) -> None:
    log = tmp_path / "deliveries.jsonl"

    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            handle = agent(kit).submit(
                "go", server=shipping(log), tools=["shipping:book_shipment"], human_input="managed"
            )
            assert isinstance(handle, AsyncExecutionHandle)
            assert handle.submitted_spec.message == "go"
            pending = await round_of(handle)
            assert pending.execution_id == handle.execution_id
            assert (await handle.snapshot()).lifecycle is ExecutionStatus.WAITING_FOR_INPUT
            with pytest.raises(ManagedInputValidationError):
                await handle.respond_elicitation(pending.round_id, {}, idempotency_key="k")
            answer = {"shipping_address": accept()}
            await handle.respond_elicitation(pending.round_id, answer, idempotency_key="k")
            await handle.respond_elicitation(pending.round_id, answer, idempotency_key="k")
            other = {"shipping_address": accept({**ADDRESS, "city": "Lyon"})}
            with pytest.raises(ManagedInputConflict):
                await handle.respond_elicitation(pending.round_id, other, idempotency_key="k")
            result = await handle.result(timeout=20)
            assert result.outcome is ExecutionOutcome.COMPLETED
            assert await handle == result
            assert await handle.pending_elicitation() is None
            await handle.cancel()
            assert (await handle.snapshot()).outcome is ExecutionOutcome.COMPLETED

    run(main())
    assert deliveries(log) == [{"action": "accept", "content": ADDRESS}]


def test_questions_are_waited_for_in_the_loop(store) -> None:
    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            handle = agent(kit).submit("wide:two", server=wide.in_process(), human_input="managed")
            asked = []
            while (pending := await handle.wait_for_elicitation(timeout=30)) is not None:
                asked.append(list(pending.requests))
                await handle.respond_elicitation(pending.round_id, wide.yes(pending), idempotency_key=pending.round_id)
            assert asked == [["a", "b"], ["c"]]
            assert (await handle).error is None
            slow = agent(kit).submit('wide:slow {"seconds": 60}', server=wide.in_process(), human_input="managed")
            with pytest.raises(OperationTimeout, match="asked nothing"):
                await slow.wait_for_elicitation(timeout=0.3)

    run(main())


def test_the_signatures_are_those_of_the_sync_kit() -> None:
    def parameters(of: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(of).parameters.values()]

    assert parameters(AsyncMCPTestKit) == parameters(MCPTestKit)
    assert parameters(AsyncMCPTestKit.agents) == parameters(MCPTestKit.agents)
    assert parameters(AsyncMCPTestKit.submit)[1:] == [("spec", 1, inspect.Parameter.empty), ("human_input", 3, "fail")]
    for name in ("pending_elicitation", "respond_elicitation", "snapshot", "result", "cancel", "events", "on_event"):
        ours, theirs = getattr(AsyncExecutionHandle, name), getattr(m3nb.ExecutionHandle, name)
        assert parameters(ours) == parameters(theirs), name
    assert not inspect.iscoroutinefunction(AsyncMCPTestKit.submit)
    assert m3nb.async_api.AsyncMCPTestKit is m3nb.AsyncMCPTestKit


def test_events_are_an_async_iterator_and_a_callback_in_the_loop(store) -> None:
    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            told: list[TraceEvent] = []
            threads: set[int] = set()

            def tell(event: TraceEvent) -> None:
                told.append(event)
                threads.add(threading.get_ident())
                raise RuntimeError("a callback that fails is logged, and goes on")

            handle = kit.submit(spec())
            unsubscribe = handle.on_event(tell)
            followed = [event async for event in handle.events(follow=True)]
            assert [event.sequence for event in followed] == list(range(len(followed)))
            assert followed[-1].kind == "finished"
            assert [event async for event in handle.events(after_sequence=2)] == followed[3:]
            assert (await handle).trace == tuple(followed)
            while len(told) < len(followed):
                await asyncio.sleep(0.01)
            assert told == followed
            assert threads == {threading.get_ident()}
            unsubscribe()

            quiet: list[TraceEvent] = []
            handle.on_event(quiet.append)()
            await asyncio.sleep(0.2)
            assert quiet == []
            for wrong in (5, main):
                with pytest.raises(TypeError, match="callback"):
                    handle.on_event(wrong)
            with pytest.raises(ModelValidationError, match="after_sequence"):
                await anext(aiter(handle.events(after_sequence="1")))

    run(main())


def test_an_existing_execution_is_found_again(store) -> None:
    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            result = await agent(kit).run("go", **PLAIN)
            again = kit.handle(str(result.snapshot.execution_id))
            assert again.spec is None
            assert await again.snapshot() == result.snapshot
            assert again.spec["message"] == "go"
            with pytest.raises(ModelValidationError, match="nobody"):
                await kit.handle("execution-of-nobody")
            for wrong in ("", 5, None, []):
                with pytest.raises(ModelValidationError, match="execution_id"):
                    kit.handle(wrong)

    run(main())


@pytest.mark.parametrize(
    ("change", "human_input", "error", "part"),
    [
        ({}, "maybe", ModelValidationError, "human_input"),
        ({}, ["managed"], ModelValidationError, "human_input"),
        ({}, {"managed"}, ModelValidationError, "human_input"),
        ({"elicitation": m3nb.expect_form("a").accept({})}, "managed", ModelValidationError, "plan"),
        ({"goal": "win"}, "fail", UnsupportedFeature, "goal"),
        ({"tools": ("other:plain",)}, "fail", ModelValidationError, "other:plain"),
        ({"servers": (ServerBinding(server=classic()),) * 2}, "fail", ModelValidationError, "two servers"),
        ({"servers": (ServerBinding(profile="classic"),)}, "fail", UnsupportedFeature, "profile"),
        ({"server": HTTPServer(name="classic", url="ftp://host")}, "fail", ModelValidationError, "http"),
        (
            {"server": classic(environment={"KEY": SecretReference(name="NO_SUCH_VARIABLE")})},
            "fail",
            ModelValidationError,
            "NO_SUCH_VARIABLE",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_submit_itself(store, change, human_input, error, part) -> None:
    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            with pytest.raises(error, match=part):
                kit.submit(spec(**change), human_input=human_input)
            with pytest.raises(TypeError):
                kit.submit(spec(), human_input)
            direct = DirectSpec(operation=CallTool(tool="book"), servers=(ServerBinding(server=classic()),))
            with pytest.raises(ModelValidationError, match="DirectSpec"):
                kit.submit(direct, human_input="managed")
            with pytest.raises(TypeError, match="colour"):
                agent(kit).submit("go", colour="red", **PLAIN)
            with pytest.raises(TypeError, match="list"):
                kit.agents("scripted")

    run(main())
    assert store.list_executions() == ()
    with pytest.raises(TypeError, match="SQLiteExecutionStore"):
        AsyncMCPTestKit(store="runs.sqlite")
    with pytest.raises(UnsupportedFeature):
        AsyncMCPTestKit(embedded_worker=False)


def test_a_wait_that_is_too_short_or_cancelled_leaves_the_execution_alone(store) -> None:
    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            handle = agent(kit).submit('classic:slow {"seconds": 1}', server=classic())
            for timeout in (0, -1, float("nan"), 10**400, "1"):
                with pytest.raises(ModelValidationError, match="timeout"):
                    await handle.result(timeout=timeout)
            with pytest.raises(OperationTimeout, match="goes on"):
                await handle.result(timeout=0.05)
            waiting = asyncio.create_task(handle.result())
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(handle.result(), 0.05)
            assert (await handle.result(timeout=20)).final_text == "slept"

    run(main())


def test_an_execution_is_cancelled(store) -> None:
    async def main() -> m3nb.ExecutionResult:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            handle = agent(kit).submit("go", server=classic(), tools=["classic:book"], human_input="managed")
            await round_of(handle)
            await handle.cancel()
            return await handle.result(timeout=20)

    assert run(main()).outcome is ExecutionOutcome.CANCELLED


def test_a_kit_without_a_store() -> None:
    async def main() -> str | None:
        async with AsyncMCPTestKit(env={}) as kit:
            with pytest.raises(ModelValidationError, match="store"):
                kit.submit(spec(), human_input="managed")
            return (await agent(kit).run("go", **PLAIN)).final_text

    assert run(main()) == "plain {}"


# Closing


def test_a_closed_kit_takes_nothing_but_keeps_results(store) -> None:
    async def main() -> None:
        kit = AsyncMCPTestKit(store=store, env={})
        chosen = agent(kit)
        handle = chosen.submit("go", **PLAIN)
        result = await handle
        await asyncio.gather(kit.aclose(), kit.aclose())
        await kit.aclose()
        assert await handle.result(timeout=1) == result
        assert [event async for event in handle.events(follow=True)] == list(result.trace)
        for call in (
            lambda: kit.agents(SCRIPTED),
            lambda: chosen.submit("go", **PLAIN),
            lambda: kit.submit(spec()),
            lambda: kit.handle(handle.execution_id),
            lambda: handle.on_event(print),
        ):
            with pytest.raises(KitClosed):
                call()
        for method in (handle.snapshot, handle.pending_elicitation, handle.cancel):
            with pytest.raises(KitClosed):
                await method()
        with pytest.raises(KitClosed):
            await handle.respond_elicitation("r", {}, idempotency_key="k")

    run(main())


def test_closing_ends_what_runs_and_answers_whoever_waits(store) -> None:
    async def main() -> None:
        kit = AsyncMCPTestKit(store=store, env={})
        running = [agent(kit).submit('classic:slow {"seconds": 60}', server=classic()) for _ in range(2)]
        await asyncio.gather(*(handle.snapshot() for handle in running))
        waiters = [asyncio.create_task(handle.result()) for handle in running for _ in range(3)]
        await asyncio.sleep(0.5)
        last = kit.submit(spec())  # nobody has waited for it to be stored
        await kit.aclose()
        results = [*await asyncio.gather(*waiters), await last]
        assert {result.outcome for result in results} == {ExecutionOutcome.INTERRUPTED}

    run(main())
    assert store.list_executions(unfinished=True) == ()
    assert len(store.list_executions()) == 3


def test_an_execution_of_another_process_is_waited_for_until_closing(store) -> None:
    store.create_execution("e1", spec={}, worker_id="elsewhere", managed=False)

    async def main() -> None:
        kit = AsyncMCPTestKit(store=store, env={})
        waiting = asyncio.create_task(kit.handle("e1").result())
        following = asyncio.create_task(anext(aiter(kit.handle("e1").events(follow=True))))
        await asyncio.sleep(0.2)
        await kit.aclose()
        for task in (waiting, following):
            with pytest.raises(KitClosed):
                await task

    run(main())


def test_a_change_by_another_process_is_seen(store) -> None:
    store.create_execution("e1", spec={}, worker_id="elsewhere", managed=False)
    code = (
        "import sys, m3nb; store = m3nb.SQLiteExecutionStore(sys.argv[1]);"
        "store.finish_execution('e1', outcome='completed', result={'final_text': 'there'}, error=None)"
    )

    async def main() -> str | None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            waiting = asyncio.create_task(kit.handle("e1").result(timeout=20))
            await asyncio.sleep(0.2)
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(store.path))
            assert await process.wait() == 0
            return (await waiting).final_text

    assert run(main()) == "there"


# Submissions that fail after submit has returned


def test_what_only_the_disk_knows_is_raised_by_what_is_awaited(store, caplog) -> None:
    async def main() -> None:
        async with AsyncMCPTestKit(store=store, env={}) as kit:
            handle = kit.submit(spec(server=classic(command="no-such-command-here")))
            told: list[TraceEvent] = []
            unsubscribe = handle.on_event(told.append)
            for call in (handle.snapshot, handle.result, handle.cancel, handle.pending_elicitation):
                with pytest.raises(ServerError, match="no-such-command-here"):
                    await call()
            with pytest.raises(ServerError):
                await anext(aiter(handle.events()))
            unsubscribe()
            assert told == []

    run(main())
    assert store.list_executions() == ()
    assert caplog.records == []


@pytest.mark.parametrize("kept", [True, False])
def test_a_submission_that_failed_unseen_is_logged(store, caplog, kept: bool) -> None:
    async def main() -> None:
        kit = AsyncMCPTestKit(store=store, env={})
        handles = [kit.submit(spec(server=classic(command="no-such-command-here")))]
        name = handles[0].execution_id
        if kept:
            await kit.aclose()
        else:
            handles.clear()
            await kit.submit(spec())
            gc.collect()
        assert [record.message for record in caplog.records] == [
            f"execution {name}: ServerError: classic: the command 'no-such-command-here' was not found: "
            "check its spelling and PATH"
        ]
        await kit.aclose()

    with caplog.at_level(logging.ERROR, "m3nb"):
        run(main())
    assert len(caplog.records) == 1
