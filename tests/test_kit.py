"""Selecting agents and submitting: what is refused, and how."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import wide
from runs import classic

import m3nb
from m3nb import (
    AgentSpec,
    DirectSpec,
    HumanInputRequired,
    KitClosed,
    MCPTestKit,
    ModelValidationError,
    OperationTimeout,
    StdioServer,
    UnsupportedFeature,
)
from m3nb.types import CallTool, Scripted, ServerBinding

SCRIPTED = [{"harness": "scripted"}]


class Unhashable(Mapping):
    """A selection with a key that no dict could have."""

    def __getitem__(self, key: object) -> str:
        return "scripted" if key == "harness" else "x"

    def __iter__(self) -> Iterator[object]:
        return iter(("harness", ["a"]))

    def __len__(self) -> int:
        return 2


def spec(**fields: object) -> AgentSpec:
    base = {"harness": Scripted(), "message": "go", "servers": (ServerBinding(server=classic()),)}
    return AgentSpec(**{**base, **fields})


def test_one_agent_per_selection_model_and_trial(kit) -> None:
    agents = kit.agents([{"harness": "codex", "models": ["a", "b"]}, *SCRIPTED], trials=2)
    assert [(agent.harness.kind, agent.model, agent.trial) for agent in agents] == [
        ("codex", "a", 1),
        ("codex", "a", 2),
        ("codex", "b", 1),
        ("codex", "b", 2),
        ("scripted", None, 1),
        ("scripted", None, 2),
    ]
    assert agents[0].entry == {"harness": "codex", "models": ["a", "b"]}


@pytest.mark.parametrize(
    ("selections", "error", "part"),
    [
        ([{"harness": "cursor"}], ValueError, "cursor"),
        ([{"harness": ["codex"]}], ValueError, "codex"),
        ([{"harness": "codex"}], ValueError, "models"),
        ([{"harness": "codex", "models": []}], ValueError, "models"),
        ([{"harness": "codex", "models": "gpt"}], ValueError, "models"),
        ([{"harness": "codex", "models": ["a"], "colour": 1}], ValueError, "colour"),
        ([{"harness": "codex", "models": ["a"], "provider": "x"}], ValueError, "provider"),
        ([{"harness": "acp"}], ValueError, "manifest"),
        ([{"harness": "codex", "models": ["a", "a"]}], ValueError, "twice"),
        ([*SCRIPTED, *SCRIPTED], ValueError, "twice"),
        ([{"harness": "scripted", 5: 1, "colour": 1}], ValueError, "5"),
        ([{"harness": "scripted", ("a", 1): 1, None: 1}], ValueError, "'a', 1"),
        ([Unhashable()], ValueError, r"no key \['a'\]"),
        ([{"harness": "codex", "models": [["a"]]}], ValueError, "model"),
        ({"harness": "scripted"}, TypeError, "list"),
        ("scripted", TypeError, "list"),
        (["scripted"], TypeError, "mapping"),
    ],
)
def test_selections_that_make_no_sense(kit, selections, error, part) -> None:
    with pytest.raises(error, match=part):
        kit.agents(selections)


@pytest.mark.parametrize("trials", [0, -1, 1.5, True, "2"])
def test_trials_count_from_one(kit, trials) -> None:
    with pytest.raises(ModelValidationError):
        kit.agents(SCRIPTED, trials=trials)


@pytest.mark.parametrize(
    ("options", "error", "part"),
    [
        ({"server": None}, ValueError, "exactly one"),
        ({"servers": [classic()]}, ValueError, "exactly one"),
        ({"server": "classic"}, ValueError, "StdioServer"),
        ({"message": ""}, ValueError, "message"),
        ({"tools": ["other:book"]}, ValueError, "other:book"),
        ({"tools": ["book"]}, ValueError, "server:tool"),
        ({"tools": "classic:book"}, ValueError, "list"),
        ({"tools": ["classic:book", "classic:book"]}, ValueError, "twice"),
        ({"elicitation_round_limit": 0}, ValueError, "round_limit"),
        ({"answer_within": 0}, ValueError, "answer_within"),
        ({"answer_within": 1e12}, ValueError, "answer_within"),
        ({"answer_within": timedelta.max}, ValueError, "answer_within"),
        ({"answer_within": float("nan")}, ValueError, "answer_within"),
        ({"elicitation_round_limit": 10**30}, ValueError, "round_limit"),
        ({"tools": 5}, ValueError, "lists"),
        ({"server": classic(cwd="a\0b")}, ValueError, "folder"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"colour": "red"}, TypeError, "colour"),
        ({"goal": "win"}, UnsupportedFeature, "goal"),
        ({"evaluations": [{"a": 1}]}, UnsupportedFeature, "evaluations"),
        ({"workspace": {"a": 1}}, UnsupportedFeature, "workspace"),
        ({"sampling_policy": "allow"}, UnsupportedFeature, "sampling_policy"),
        ({"filesystem_policy": "allow"}, UnsupportedFeature, "filesystem_policy"),
        ({"terminal_policy": "allow"}, UnsupportedFeature, "terminal_policy"),
        ({"permission_policy": "prompt"}, UnsupportedFeature, "permission_policy"),
        ({"artifact_policy": "always"}, UnsupportedFeature, "artifact"),
        ({"message": None}, ValueError, "message"),
        ({"run_id": 5}, ValueError, "run_id"),
        ({"metadata": 5}, ValueError, "metadata"),
        ({"metadata": {5: 1}}, ValueError, "metadata"),
        ({"tools": [5]}, ValueError, "tools"),
        ({"human_input": "managed", "elicitation": m3nb.expect_form("a").accept({})}, ModelValidationError, "plan"),
        ({"elicitation": m3nb.expect_form("a")}, ModelValidationError, "answer"),
        ({"server": classic(command="no-such-command-here")}, m3nb.ServerError, "no-such-command-here"),
    ],
)
def test_submissions_that_make_no_sense(kit, store, options, error, part) -> None:
    arguments = {"message": "go", "server": classic(), **options}
    with pytest.raises(error, match=part):
        kit.agents(SCRIPTED)[0].submit(**arguments)
    with pytest.raises(error, match=part):
        kit.agents(SCRIPTED, trials=2)[1].submit(**arguments)
    assert store.list_executions() == ()


@pytest.mark.parametrize("human_input", ["maybe", "", None, ["managed"], {"managed"}, 1])
def test_human_input_has_two_values(kit, human_input) -> None:
    with pytest.raises(ModelValidationError) as refused:
        kit.submit(spec(), human_input)
    assert refused.value.details == {"operation": "execution.submit"}


def test_managed_input_needs_an_agent_and_a_store_that_lasts(kit) -> None:
    direct = DirectSpec(operation=CallTool(tool="book"), servers=(ServerBinding(server=classic()),))
    with pytest.raises(ModelValidationError, match="DirectSpec"):
        kit.submit(direct, "managed")
    with pytest.raises(UnsupportedFeature):
        kit.submit(direct)
    with MCPTestKit(env={}) as forgetful, pytest.raises(ModelValidationError, match="store"):
        forgetful.submit(spec(), "managed")


def test_a_kit_without_a_store_runs_what_asks_nobody() -> None:
    with MCPTestKit(env={}) as kit:
        result = kit.agents(SCRIPTED)[0].run("go", server=classic(), tools=["classic:plain"])
    assert result.final_text == "plain {}"


def test_a_harness_that_is_not_built_ends_the_execution_by_name(kit) -> None:
    agent = kit.agents([{"harness": "opencode", "models": ["m"]}])[0]
    result = agent.run("go", server=classic())
    assert result.outcome.value == "failed"
    assert result.error.code == "unsupported"
    assert "opencode" in result.error.message


def test_a_kit_that_is_closed_in_between_leaves_nothing_queued(kit, store) -> None:
    kit._worker.stop()
    with pytest.raises(KitClosed):
        kit.agents(SCRIPTED)[0].submit("go", server=classic())
    assert store.list_executions(unfinished=True) == ()
    assert store.list_workers() == ()


def test_a_kit_belongs_to_its_process(kit, store) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kit.agents(SCRIPTED)[0].submit("go", server=classic())
        except KitClosed as error:
            os.write(writing, error.message.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert "belongs to the process" in said.read()
    os.waitpid(child, 0)
    assert store.list_executions() == ()


def test_a_store_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="SQLiteExecutionStore"):
        MCPTestKit(store=str(tmp_path / "runs.sqlite"))


@pytest.mark.parametrize(
    "options", [{"config": {}}, {"embedded_worker": False}, {"record_checks": True}, {"harness_cache_dir": "x"}]
)
def test_kit_options_that_are_not_served_say_so(options) -> None:
    with pytest.raises(UnsupportedFeature):
        MCPTestKit(**options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"run_id": 5}, ModelValidationError),
        ({"suite_name": []}, ModelValidationError),
        ({"project_id": {}}, ModelValidationError),
        ({"cwd": 5}, ModelValidationError),
        ({"env": 5}, TypeError),
    ],
)
def test_kit_arguments_of_the_wrong_type_are_named(options, error) -> None:
    with pytest.raises(error, match=next(iter(options))):
        MCPTestKit(**options)


def test_an_existing_execution_is_found_again(kit, store) -> None:
    handle = kit.agents(SCRIPTED)[0].submit("go", server=classic(), tools=["classic:plain"])
    assert handle.result(timeout=20).final_text == "plain {}"
    again = kit.handle(handle.execution_id)
    assert again.snapshot() == handle.snapshot()
    assert again.result(timeout=1).final_text == "plain {}"
    with pytest.raises(ModelValidationError, match="nobody"):
        kit.handle("execution-of-nobody")


def test_handles_of_executions_that_take_no_answers(kit) -> None:
    handle = kit.agents(SCRIPTED)[0].submit("go", server=classic(), tools=["classic:plain"])
    assert handle.pending_elicitation() is None
    with pytest.raises(ModelValidationError, match="fail"):
        handle.respond_elicitation("r", {}, idempotency_key="k")
    for timeout in (0, -1, float("nan"), 10**400, "1"):
        with pytest.raises(ModelValidationError):
            handle.result(timeout=timeout)
    for wrong in (5, None):
        with pytest.raises(TypeError, match="callback"):
            handle.on_event(wrong)
    with pytest.raises(ModelValidationError, match="after_sequence"):
        next(handle.events(after_sequence="1"))
    handle.result(timeout=20)


def test_a_wait_that_is_too_short_says_so_and_the_execution_goes_on(kit) -> None:
    agent = kit.agents(SCRIPTED)[0]
    handle = agent.submit('classic:slow {"seconds": 1}', server=classic())
    with pytest.raises(m3nb.OperationTimeout, match="goes on"):
        handle.result(timeout=0.05)
    assert handle.result(timeout=20).final_text == "slept"


def test_a_closed_kit_takes_nothing_but_keeps_results(store) -> None:
    kit = MCPTestKit(store=store, env={})
    agent = kit.agents(SCRIPTED)[0]
    handle = agent.submit("go", server=classic(), tools=["classic:plain"])
    result = handle.result(timeout=20)
    kit.close()
    assert handle.result(timeout=1) == result
    for call in (
        lambda: kit.agents(SCRIPTED),
        lambda: agent.submit("go", server=classic()),
        lambda: kit.handle(handle.execution_id),
        handle.snapshot,
        handle.pending_elicitation,
        handle.cancel,
    ):
        with pytest.raises(KitClosed):
            call()
    with pytest.raises(RuntimeError):
        handle.snapshot()


def test_the_specs_first_example_runs(kit) -> None:
    """The spec's code, but for the import line and the harness."""
    import time

    from runs import shipping

    from m3nb import ElicitationResponse
    from m3nb.types import ExecutionStatus

    shipping_server = shipping()
    agent = kit.agents([{"harness": "scripted"}])[0]
    handle = agent.submit(
        "Ask for the delivery address, then book the shipment.",
        server=shipping_server,
        tools=["shipping:book_shipment"],
        human_input="managed",
    )
    deadline = time.monotonic() + 120
    pending = handle.pending_elicitation()
    while pending is None and time.monotonic() < deadline:
        snapshot = handle.snapshot()
        if snapshot.lifecycle is ExecutionStatus.FINISHED:
            raise RuntimeError(f"execution finished before it requested managed input: {snapshot.outcome}")
        time.sleep(0.2)
        pending = handle.pending_elicitation()
    assert pending is not None
    handle.respond_elicitation(
        pending.round_id,
        {"shipping_address": ElicitationResponse(action="accept", content={"street": "1 Main Street", "city": "Pune"})},
        idempotency_key=f"address-{pending.round_id}",
    )
    result = handle.result(timeout=120)
    assert result.outcome.value == "completed"
    assert "Pune" in result.final_text


def test_waiting_for_questions_ends_with_the_execution(kit) -> None:
    agent = kit.agents([{"harness": "scripted"}])[0]
    handle = agent.submit("wide:two", server=wide.in_process(), human_input="managed")
    asked = []
    while (pending := handle.wait_for_elicitation(timeout=30)) is not None:
        asked.append(list(pending.requests))
        handle.respond_elicitation(pending.round_id, wide.yes(pending), idempotency_key=pending.round_id)
    assert asked == [["a", "b"], ["c"]]
    assert handle.result().raise_for_error() is handle.result()
    waiting = agent.submit("wide:one", server=wide.in_process(), human_input="managed")
    assert waiting.wait_for_elicitation(timeout=30) is not None
    slow = agent.submit('wide:slow {"seconds": 60}', server=wide.in_process(), human_input="managed")
    with pytest.raises(OperationTimeout, match="asked nothing"):
        slow.wait_for_elicitation(timeout=0.3)


def test_an_error_of_a_result_is_raised_as_what_it_is(kit) -> None:
    agent = kit.agents([{"harness": "scripted"}])[0]
    result = agent.run("wide:one", server=wide.in_process())
    assert result.error is not None
    with pytest.raises(HumanInputRequired, match="managed"):
        result.raise_for_error()
    with pytest.raises(TypeError, match="did you mean elicitation"):
        agent.run("wide:one", server=wide.in_process(), elicitations=1)
    with pytest.raises(ModelValidationError, match="cwd must be a folder that exists"):
        agent.run("x:y", server=StdioServer(name="x", command="python3", cwd="/nowhere"))
