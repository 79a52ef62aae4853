"""The public names, and values that cannot change."""

from __future__ import annotations

import ast
import copy
import json
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

import m3nb
from m3nb.errors import ManagedInputValidationError, MCPError
from m3nb.frozen import MAX_DEPTH, freeze, thaw

SPEC_NAMES = {
    "m3nb": (
        "ElicitationResponse MCPTestKit FormElicitationRequest UrlElicitationRequest PendingElicitationRound "
        "ElicitationPlan expect_form expect_url maybe_form maybe_url sequence optional one_of round_of ExecutionHandle "
        "StdioServer HTTPServer InProcessServer ExecutionOutcome ExecutionResult OperationTimeout OperationCancelled "
        "ModelValidationError KitClosed UnsupportedFeature Codex ClaudeCode OpenCode Pi ACPAgent __version__ Workbench "
        "AsyncMCPTestKit form executions requests events rounds answers"
    ),
    "m3nb.async_api": "AsyncMCPTestKit",
    "m3nb.storage": (
        "SQLiteExecutionStore SQLiteManagedInputStore InMemoryExecutionStore ManagedInputStore ManagedInputRecord "
        "ManagedInputLease ManagedInputStatus"
    ),
    "m3nb.types": "ExecutionStatus ExecutionOutcome ExecutionState ExecutionResult AgentSpec DirectSpec ServerBinding",
    "m3nb.errors": (
        "MCPError ManagedInputError ManagedInputValidationError ManagedInputConflict ManagedInputStateError "
        "ManagedInputRecoveryError ModelValidationError OperationTimeout OperationCancelled ElicitationRoundLimitError "
        "ElicitationExpectationError UnsupportedFeature KitClosed"
    ),
    "m3nb.elicitation": "ElicitationResponse FormElicitationRequest UrlElicitationRequest PendingElicitationRound",
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("module", SPEC_NAMES)
def test_every_name_of_the_contract_is_there(module: str) -> None:
    from importlib import import_module

    loaded = import_module(module)
    assert [name for name in SPEC_NAMES[module].split() if not hasattr(loaded, name)] == []


def test_what_type_checkers_see_is_what_is_loaded() -> None:
    tree = ast.parse(Path(m3nb.__file__).read_text())
    seen = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "m3nb._version":
            seen.update({alias.name: node.module for alias in node.names if node.module.startswith("m3nb.")})
    assert seen == m3nb._HOME
    for name in m3nb.__all__:
        assert getattr(m3nb, name) is not None


def test_codes_of_the_errors() -> None:
    codes = {
        "ManagedInputError": "managed_input_error",
        "ManagedInputValidationError": "managed_input_invalid",
        "ManagedInputConflict": "managed_input_conflict",
        "ManagedInputStateError": "managed_input_state",
        "ManagedInputRecoveryError": "managed_input_recovery_unavailable",
        "ModelValidationError": "invalid_argument",
        "OperationTimeout": "timeout",
        "OperationCancelled": "cancelled",
        "ElicitationRoundLimitError": "elicitation_round_limit",
        "ElicitationExpectationError": "elicitation_expectation_failed",
        "UnsupportedFeature": "unsupported",
        "KitClosed": "kit_closed",
    }
    assert {name: getattr(m3nb, name).code for name in codes} == codes
    error = ManagedInputValidationError("no", details={"errors": [{"pointer": "/a"}]})
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message, again.details) == (type(error), "no", error.details)
    assert isinstance(again, MCPError)


def pending(schema: dict) -> m3nb.PendingElicitationRound:
    return m3nb.PendingElicitationRound(
        round_id="r",
        execution_id="e",
        logical_operation_id="o",
        server="s",
        operation_kind="tool",
        operation_name="t",
        requests={"k": {"mode": "form", "request_key": "k", "message": "?", "requested_schema": schema}},
        created_at=datetime.now(UTC),
    )


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_a_schema_comes_back_as_it_was_sent(schema: dict) -> None:
    round_ = pending(schema)
    held = round_.requests["k"].requested_schema
    assert held == schema
    assert json.loads(json.dumps(held)) == json.loads(json.dumps(schema))
    assert copy.deepcopy(round_) == round_ == pickle.loads(pickle.dumps(round_))
    assert thaw(held) == schema
    assert type(thaw(held)) is dict
    dumped = round_.model_dump(mode="json")
    assert m3nb.PendingElicitationRound.model_validate(json.loads(json.dumps(dumped))) == round_


def test_nothing_can_be_changed() -> None:
    schema = {"type": "object", "enum": [1, 2]}
    round_ = pending(schema)
    with pytest.raises(ValidationError):
        round_.round_id = "other"
    with pytest.raises(TypeError, match="frozen"):
        round_.requests["k"].requested_schema["type"] = "array"
    with pytest.raises(TypeError, match="frozen"):
        round_.requests["k"].requested_schema["enum"].append(3)
    with pytest.raises(TypeError, match="frozen"):
        round_.requests.clear()
    schema["type"] = "array"
    assert round_.requests["k"].requested_schema["type"] == "object"


def nested(levels: int) -> dict:
    value: dict = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), b"bytes", {1: "one"}, "\ud800", {"\udfff": 1}, nested(5_000), object()],
    ids=["nan", "inf", "bytes", "key", "surrogate", "surrogate key", "deep", "object"],
)
def test_what_is_no_json_is_refused_with_a_reason(value: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        freeze(value)
    with pytest.raises(ValidationError):
        m3nb.ElicitationResponse(action="accept", content={"x": value})


def test_depth_that_json_can_write_is_kept() -> None:
    deep = nested(MAX_DEPTH - 2)
    assert freeze(deep) == deep


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("content", [{}, {"a": 1}])
def test_only_accept_carries_content(action: str, content: dict) -> None:
    with pytest.raises(ValidationError, match="carries no content"):
        m3nb.ElicitationResponse(action=action, content=content)


def test_representations_are_readable_and_hide_values() -> None:
    assert "FrozenDict" not in repr(pending({"type": "object"}))
    assert "<b>" not in pending({"type": "object"}).requests["k"].message
    server = m3nb.StdioServer(name="s", command="c", environment={"TOKEN": "very-secret-value"})
    assert "very-secret-value" not in repr(server)
    assert "TOKEN" in repr(server)
    with pytest.raises(ValidationError) as refused:
        m3nb.ElicitationResponse(action="accept", content={"password": float("nan"), "x": "very-secret-value"})
    assert "very-secret-value" not in str(refused.value)


def test_requests_are_checked() -> None:
    sent = pending({}).model_dump(mode="json")
    url = {"mode": "url", "request_key": "k", "message": "", "url": ""}
    with pytest.raises(ValidationError, match="calls itself"):
        m3nb.PendingElicitationRound.model_validate({**sent, "requests": {"other": url}})
    for broken in ({}, {"k": {"request_key": "k", "message": "?"}}, "text"):
        with pytest.raises(ValidationError):
            m3nb.PendingElicitationRound.model_validate({**sent, "requests": broken})


def test_plans_are_complete_when_every_request_has_an_answer() -> None:
    plan = m3nb.sequence(m3nb.expect_form("a").accept({"x": 1}), m3nb.optional(m3nb.maybe_url("b").decline()))
    assert plan.is_complete
    assert json.loads(plan.canonical_json())["children"][0]["response"]["content"] == {"x": 1}
    assert not m3nb.expect_form("a").is_complete
    with pytest.raises(ValidationError, match="answers"):
        m3nb.round_of(m3nb.expect_form("a"), m3nb.expect_form("b"))
    with pytest.raises(ValidationError, match="at least two"):
        m3nb.one_of(m3nb.expect_form("a").cancel())


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: m3nb.StdioServer(name="x", comand="y"), "no field 'comand': did you mean command?"),
        (lambda: m3nb.StdioServer(name="x", command="y", env={}), "did you mean environment?"),
        (lambda: m3nb.StdioServer(name="x", command="y", args="a b"), r"write \['a', 'b'\]"),
        (lambda: m3nb.HTTPServer(name="x", url="http://y", header={}), "did you mean headers?"),
        (lambda: m3nb.InProcessServer(name="x", maker=print), "it has name, factory"),
    ],
)
def test_a_field_that_a_server_does_not_have_says_which_was_meant(make, part) -> None:
    with pytest.raises(ValueError, match=part):
        make()
