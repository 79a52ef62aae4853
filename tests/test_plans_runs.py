"""Executions that a plan answers, with real servers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from runs import ADDRESS, HERE, classic, deliveries, shipping

from m3nb import (
    ElicitationPlan,
    ExecutionHandle,
    ExecutionResult,
    ExecutionStatus,
    MCPTestKit,
    ModelValidationError,
    SQLiteExecutionStore,
    StdioServer,
    expect_form,
    expect_url,
    maybe_form,
    one_of,
    optional,
    round_of,
    sequence,
)

ADDRESSED = expect_form("shipping_address").accept(ADDRESS)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "deliveries.jsonl"


def run(
    kit: MCPTestKit, server: StdioServer, prompt: str, plan: ElicitationPlan, **options: Any
) -> tuple[ExecutionHandle, ExecutionResult]:
    agent = kit.agents([{"harness": "scripted"}])[0]
    handle = agent.submit(prompt, server=server, elicitation=plan, **options)
    return handle, handle.result(timeout=30)


def events(handle: ExecutionHandle, kind: str) -> list[Any]:
    return [event.payload for event in handle.events() if event.kind == kind]


def failed(result: ExecutionResult, code: str = "elicitation_expectation_failed") -> Any:
    assert result.outcome is not None
    assert result.outcome.value == "failed"
    assert result.error is not None
    assert result.error.code == code
    return result.error


def test_a_plan_answers_without_a_round_and_without_a_pause(kit, store: SQLiteExecutionStore, log: Path) -> None:
    handle, result = run(kit, shipping(log), "shipping:book_shipment {}", ADDRESSED)
    assert result.outcome.value == "completed", result.error
    assert "Pune" in result.final_text
    assert deliveries(log) == [{"action": "accept", "content": ADDRESS}]
    assert store.managed_input_store.list_rounds(handle.execution_id) == ()
    [request], [response] = events(handle, "elicitation.request"), events(handle, "elicitation.response")
    assert (request["server"], request["operation_kind"], request["operation_name"], request["round_index"]) == (
        *("shipping", "tool", "book_shipment"),
        0,
    )
    assert list(request["requests"]) == ["shipping_address"]
    assert response == {
        "round_id": request["round_id"],
        "answered_by": "plan",
        "responses": {"shipping_address": {"action": "accept", "content": ADDRESS, "meta": None}},
    }
    lifecycles = [payload["lifecycle"] for payload in events(handle, "lifecycle")]
    assert ExecutionStatus.WAITING_FOR_INPUT.value not in lifecycles
    assert ExecutionStatus.RUNNING_TURN.value in lifecycles


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize(
    ("make", "tool", "key"), [(classic, "book", "elicitation"), (shipping, "book_shipment", "shipping_address")]
)
def test_decline_and_cancel_reach_the_server(kit, log: Path, make: Any, tool: str, key: str, action: str) -> None:
    plan = getattr(expect_form(key), action)()
    server = make(log)
    _, result = run(kit, server, f"{server.name}:{tool} {{}}", plan)
    assert result.outcome.value == "completed", result.error
    assert f"({action})" in result.final_text
    assert deliveries(log) == [{"action": action, "content": {}}]


@pytest.mark.parametrize(("protocol", "tool", "key"), [("legacy", "older", "elicitation"), ("auto", "newer", "place")])
def test_both_eras(kit, protocol: Any, tool: str, key: str) -> None:
    server = StdioServer(name="eras", command=sys.executable, args=(str(HERE / "servers" / "both_eras_server.py"),))
    plan = expect_form(key, message="Where?", server="eras", operation_name=tool).accept({"city": "Pune"})
    _, result = run(kit, server, f"eras:{tool} {{}}", plan, protocol=protocol)
    assert (result.outcome.value, result.final_text) == ("completed", "accept")


def test_questions_of_one_call_and_of_several_come_in_sequence(kit, log: Path) -> None:
    colour = {"type": "object", "properties": {"colour": {"type": "string", "enum": ["red", "green"]}}}
    plan = sequence(
        expect_form("elicitation", message="Your name?").accept({"name": "Asha"}),
        expect_form("elicitation", schema={**colour, "required": ["colour"]}).accept({"colour": "green"}),
        optional(expect_form("elicitation", operation_name="slow").decline()),
        expect_form("elicitation", operation_name="book").accept(ADDRESS),
    )
    _, result = run(kit, classic(log), "classic:twice {}\nclassic:plain {}\nclassic:book {}", plan)
    assert result.outcome.value == "completed", result.error
    assert [line["content"] for line in deliveries(log)] == [{"name": "Asha"}, {"colour": "green"}, ADDRESS]


@pytest.mark.parametrize(("tool", "content"), [("book", ADDRESS), ("twice", {"name": "Asha"})])
def test_one_of_two_happens(kit, log: Path, tool: str, content: dict[str, Any]) -> None:
    named = [
        expect_form("elicitation", message="Your name?").accept({"name": "Asha"}),
        expect_form("elicitation", message="Your colour?").decline(),
    ]
    plan = one_of(expect_form("elicitation", operation_name="book").accept(ADDRESS), sequence(*named))
    _, result = run(kit, classic(log), f"classic:{tool} {{}}", plan)
    assert result.outcome.value == "completed", result.error
    assert deliveries(log)[0] == {"action": "accept", "content": content}


def test_what_is_optional_need_not_be_asked(kit) -> None:
    plan = sequence(maybe_form("elicitation").decline(), optional(expect_url("elicitation").accept()))
    handle, result = run(kit, classic(), "classic:plain {}", plan)
    assert result.outcome.value == "completed", result.error
    assert events(handle, "elicitation.request") == []


def wide(log: Path) -> StdioServer:
    script = HERE / "servers" / "wide_server.py"
    return StdioServer(name="wide", command=sys.executable, args=(str(script),), environment={"WIDE_LOG": str(log)})


def test_several_keys_of_one_round(kit, log: Path) -> None:
    yes = optional(expect_form("b").accept({"yes": True}))
    plan = sequence(
        round_of(expect_form("a").accept({"city": "Pune"}), yes, maybe_form("z").cancel()),
        expect_form("c", operation_kind="prompt").accept({"city": "Goa"}),
    )
    _, result = run(kit, wide(log), "prompt wide:two {}", plan)
    assert result.outcome.value == "completed", result.error
    answers = [line["answers"] for line in deliveries(log)]
    assert [{key: answer["content"] for key, answer in given.items()} for given in answers] == [
        {"a": {"city": "Pune"}, "b": {"yes": True}},
        {"c": {"city": "Goa"}},
    ]


def test_a_url_is_consented_to(kit, log: Path) -> None:
    plan = expect_url("elicitation", url="https://pay.example.com/1", elicitation_id="pay-1").accept()
    _, result = run(kit, wide(log), "wide:url {}", plan, protocol="legacy")
    assert (result.outcome.value, result.final_text) == ("completed", "accept"), result.error
    assert [line["answers"] for line in deliveries(log)] == [{"elicitation": {"action": "accept"}}]


# How it fails: at once, by name, and the server never gets an answer that was not planned.


def test_a_question_nobody_planned_fails_the_execution(kit, store, log: Path) -> None:
    plan = expect_form("shipping_address", message="Where to?").accept(ADDRESS)
    handle, result = run(kit, shipping(log), "shipping:book_shipment {}", plan)
    error = failed(result)
    assert "Where should the parcel of 1 kg go?" in error.message
    assert [difference["field"] for difference in error.details["differences"]] == ["message"]
    assert deliveries(log) == []
    assert len(events(handle, "elicitation.request")) == 1
    assert events(handle, "elicitation.response") == []


def test_a_question_too_many_fails_the_execution(kit, log: Path) -> None:
    _, result = run(kit, classic(log), "classic:twice {}", expect_form("elicitation").accept({"name": "Asha"}))
    assert "expects no further request" in failed(result).message
    assert len(deliveries(log)) == 1


def test_a_question_that_never_came_fails_the_execution(kit, log: Path) -> None:
    plan = sequence(ADDRESSED, expect_form("receipt").decline())
    _, result = run(kit, shipping(log), "shipping:book_shipment {}", plan)
    error = failed(result)
    assert "form 'receipt' never came" in error.message
    assert [missing["request_key"] for missing in error.details["missing"]] == ["receipt"]
    assert len(deliveries(log)) == 1


def test_an_answer_that_does_not_fit_is_never_delivered(kit, log: Path) -> None:
    plan = expect_form("shipping_address").accept({"street": "1 Main Street", "city": 7})
    handle, result = run(kit, shipping(log), "shipping:book_shipment {}", plan)
    error = failed(result)
    assert [(e["request_key"], e["pointer"], e["keyword"]) for e in error.details["errors"]] == [
        ("shipping_address", "/city", "type")
    ]
    assert "shipping_address/city" in error.message
    assert deliveries(log) == []
    assert events(handle, "elicitation.response") == []


def test_the_round_limit_counts_for_a_plan_too(kit, log: Path) -> None:
    plan = sequence(expect_form("elicitation").accept({"name": "Asha"}), expect_form("elicitation").decline())
    _, result = run(kit, classic(log), "classic:twice {}", plan, elicitation_round_limit=1)
    assert failed(result, "elicitation_round_limit").details["limit"] == 1
    assert len(deliveries(log)) == 1


def test_a_schema_that_is_none_fails_the_execution(kit, log: Path) -> None:
    prompt = 'classic:ask {"message": "?", "schema": {"type": "nothing"}}'
    _, result = run(kit, classic(log), prompt, expect_form("elicitation").accept({}))
    failed(result, "invalid_schema")
    assert deliveries(log) == []


def test_the_history_hides_what_is_secret_and_the_server_gets_it(kit, log: Path, monkeypatch) -> None:
    schema = '{"type": "object", "properties": {"pin": {"type": "string"}, "note": {"type": "string"}}}'
    content = {"pin": "4711", "note": "key of-the-server-1", "of-the-server-1": 1}
    server = classic(log, environment={"API_TOKEN": "of-the-server-1"})
    prompt = f'classic:ask {{"message": "?", "schema": {schema}}}'
    handle, result = run(kit, server, prompt, expect_form("elicitation").accept(content))
    assert result.outcome.value == "completed", result.error
    assert deliveries(log) == [{"action": "accept", "content": content}]
    [response] = events(handle, "elicitation.response")
    shown = response["responses"]["elicitation"]["content"]
    assert shown == {"pin": "[REDACTED]", "note": "key [REDACTED]", "[REDACTED]": 1}


@pytest.mark.parametrize("given", [[ADDRESSED], (ADDRESSED, ADDRESSED), {"shipping_address": {}}, "address"])
def test_what_is_no_plan_is_refused_with_the_way_to_make_one(kit, given: Any) -> None:
    with pytest.raises(ModelValidationError, match=r"^elicitation: is one plan, not a .*sequence"):
        run(kit, shipping(), "shipping:book_shipment {}", given)


def test_a_plan_needs_no_store_that_lasts(log: Path) -> None:
    with MCPTestKit(env={}) as kit:
        _, result = run(kit, shipping(log), "shipping:book_shipment {}", ADDRESSED)
        _, again = run(kit, shipping(log), "shipping:book_shipment {}", ADDRESSED)
    assert result.outcome.value == again.outcome.value == "completed"
    assert len(deliveries(log)) == 2


def test_what_a_plan_answers_is_not_in_the_file(tmp_path: Path, log: Path) -> None:
    store = SQLiteExecutionStore(tmp_path / "plan.sqlite", redact="all")
    secret = {**ADDRESS, "street": "17 Confidential Road"}
    with MCPTestKit(store=store, env={}) as kit:
        plan = sequence(expect_form("shipping_address").accept(secret), maybe_form("receipt").accept(secret))
        handle, result = run(kit, shipping(log), "shipping:book_shipment {}", plan)
        assert result.outcome.value == "completed", result.error
        assert deliveries(log) == [{"action": "accept", "content": secret}]
        assert handle.spec.elicitation == plan
        [response] = events(handle, "elicitation.response")
        assert set(response["responses"]["shipping_address"]["content"].values()) == {"[REDACTED]"}
    store.close()
    files = list(tmp_path.glob("plan.sqlite*"))
    assert files
    assert not any(b"Confidential" in file.read_bytes() for file in files)
