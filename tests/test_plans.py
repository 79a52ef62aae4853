"""Plans: what follows one, by definition and by the automaton; and executions that a plan answers."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import assume, event, given, strategies as st

from m3nb import (
    ElicitationExpectationError,
    ElicitationPlan,
    ElicitationResponse,
    FormElicitationRequest,
    UrlElicitationRequest,
    expect_form,
    expect_url,
    maybe_form,
    maybe_url,
    one_of,
    optional,
    round_of,
    sequence,
)
from m3nb.plans import MAX_LEVELS, MAX_PARTS, Combination, Expectation

ANY: dict[str, Any] = {"type": "object"}


def asked(key: str, message: str = "?", **fields: Any) -> FormElicitationRequest:
    context = {"server": "shop", "operation_kind": "tool", "operation_name": "buy"}
    return FormElicitationRequest(request_key=key, message=message, **{"requested_schema": ANY, **context, **fields})


def round_(*keys: str) -> dict[str, FormElicitationRequest]:
    return {key: asked(key) for key in keys}


def a(n: int = 1, **fields: Any) -> Expectation:
    return expect_form("a", **fields).accept({"n": n})


B = expect_form("b").decline()
C = expect_form("c").cancel()


def actions(answers: Mapping[str, ElicitationResponse]) -> dict[str, str]:
    return {key: response.action for key, response in answers.items()}


def refused(plan: ElicitationPlan, *rounds: dict[str, FormElicitationRequest]) -> ElicitationExpectationError:
    matcher = plan.matcher()
    for earlier in rounds[:-1]:
        matcher.answer(earlier)
    with pytest.raises(ElicitationExpectationError) as error:
        matcher.answer(rounds[-1])
    return error.value


# What follows a plan, written down as the docstrings say it: all the sequences of rounds that fulfil it.

Round = tuple[Expectation, ...]
Word = tuple[Round, ...]


def words(plan: Expectation | Combination) -> list[Word]:
    if isinstance(plan, Expectation):
        return [((plan,),)] if plan.required else [((plan,),), ()]
    below = [words(child) for child in plan.children]
    if plan.kind == "optional":
        return [*below[0], ()]
    if plan.kind == "one_of":
        return list(itertools.chain(*below))
    chosen = itertools.product(*below)
    if plan.kind == "sequence":
        return [tuple(itertools.chain(*parts)) for parts in chosen]
    merged = (tuple(leaf for word in parts for round_ in word for leaf in round_) for parts in chosen)
    return [(leaves,) if leaves else () for leaves in merged]


def by_definition(plan: Expectation | Combination, trace: list[dict[str, FormElicitationRequest]]) -> list[Any]:
    """One outcome per round (the answers as JSON, "unexpected" or "ambiguous", which end it), then how it ends."""
    left = words(plan)
    outcomes: list[Any] = []
    for index, requests in enumerate(trace):
        left = [word for word in left if len(word) > index and fits(word[index], requests)]
        answers = {
            json.dumps({leaf.request_key: plain(leaf.response) for leaf in w[index]}, sort_keys=True) for w in left
        }
        if len(answers) != 1:
            return [*outcomes, "ambiguous" if answers else "unexpected"]
        outcomes.append(json.loads(answers.pop()))
    return [*outcomes, "fulfilled" if any(len(word) == len(trace) for word in left) else "unmet"]


def fits(leaves: Round, requests: dict[str, FormElicitationRequest]) -> bool:
    return sorted(leaf.request_key for leaf in leaves) == sorted(requests) and all(
        leaf.message in (None, requests[leaf.request_key].message) for leaf in leaves
    )


def by_automaton(plan: ElicitationPlan, trace: list[dict[str, FormElicitationRequest]]) -> list[Any]:
    matcher = plan.matcher()
    outcomes: list[Any] = []
    for requests in trace:
        try:
            answers = matcher.answer(requests)
        except ElicitationExpectationError as error:
            json.dumps(error.details)
            return [*outcomes, "ambiguous" if "ambiguous" in error.details else "unexpected"]
        outcomes.append({key: plain(response) for key, response in answers.items()})
    try:
        matcher.finish()
    except ElicitationExpectationError as error:
        return [*outcomes, "unmet" if error.details["missing"] else "nothing is missing"]
    return [*outcomes, "fulfilled"]


def plain(response: ElicitationResponse | None) -> Any:
    assert response is not None
    return response.model_dump(mode="json")


@st.composite
def leaves(draw: st.DrawFn, keys: str = "abc", *, required: bool | None = None) -> Expectation:
    make = expect_form if required or (required is None and draw(st.booleans())) else maybe_form
    leaf = make(draw(st.sampled_from(keys)), message=draw(st.sampled_from([None, None, "1", "2"])))
    answer = draw(st.sampled_from([True, 1, None]))  # true and 1 are equal in Python, and not in JSON
    return leaf.decline() if answer is None else leaf.accept({"x": answer})


@st.composite
def rounds(draw: st.DrawFn) -> Combination:
    keys = draw(st.permutations("abc"))[: draw(st.integers(2, 3))]
    parts: list[Expectation | Combination] = []
    for key in keys:
        kind = draw(st.sampled_from(["leaf", "leaf", "one_of", "optional"]))
        if kind == "one_of":
            parts.append(one_of(draw(leaves(key, required=True)), draw(leaves(key, required=True))))
        else:
            parts.append(optional(draw(leaves(key))) if kind == "optional" else draw(leaves(key)))
    if len(parts) == 3 and draw(st.booleans()):
        return round_of(parts[0], optional(round_of(*parts[1:])))
    return round_of(*parts)


def something(plan: Expectation | Combination) -> Expectation | Combination:
    return sequence(plan, B) if plan.is_optional else plan


def combined(plans: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(plans, min_size=2, max_size=3)
    return st.one_of(
        several.map(lambda children: sequence(*children)),
        several.map(lambda children: one_of(*map(something, children))),
        plans.map(optional),
    )


PLANS = st.recursive(st.one_of(leaves(), rounds()), combined, max_leaves=5)


@st.composite
def plans_and_traces(draw: st.DrawFn) -> tuple[Any, list[dict[str, FormElicitationRequest]]]:
    plan = draw(PLANS)
    trace: list[dict[str, FormElicitationRequest]] = []
    if draw(st.booleans()):
        found = words(plan)
        assume(len(found) < 5_000)
        for leaves_ in draw(st.sampled_from(found)):
            said = {leaf.request_key: leaf.message or draw(st.sampled_from("123")) for leaf in leaves_}
            trace.append({key: asked(key, message) for key, message in said.items()})
        if draw(st.booleans()):
            return plan, trace
    for _ in range(draw(st.integers(0, 3))):
        said = draw(st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"), min_size=1, max_size=3))
        trace.insert(draw(st.integers(0, len(trace))), {key: asked(key, message) for key, message in said.items()})
    return plan, trace


@given(plans_and_traces())
def test_the_automaton_decides_as_the_definition_does(case: Any) -> None:
    plan, trace = case
    outcomes = by_definition(plan, trace)
    event(str(outcomes[-1]))
    assert by_automaton(plan, trace) == outcomes


def told_apart(plan: Expectation | Combination, numbers: Iterator[int]) -> Any:
    """The same plan, each request with a message and an answer of its own."""
    if isinstance(plan, Expectation):
        number = next(numbers)
        return plan.model_copy(update={"message": f"m{number}"}).accept({"n": number})
    return plan.model_copy(update={"children": tuple(told_apart(child, numbers) for child in plan.children)})


@given(PLANS, st.data())
def test_what_follows_a_plan_gets_the_answers_of_the_plan(plan: Any, data: st.DataObject) -> None:
    plan = told_apart(plan, itertools.count())
    found = words(plan)
    assume(len(found) < 5_000)
    matcher = plan.matcher()
    for leaves_ in data.draw(st.sampled_from(found)):
        answers = matcher.answer({leaf.request_key: asked(leaf.request_key, leaf.message) for leaf in leaves_})
        assert answers == {leaf.request_key: leaf.response for leaf in leaves_}
    matcher.finish()


@given(PLANS)
def test_a_plan_survives_json_and_equal_plans_give_equal_text(plan: Any) -> None:
    text = plan.canonical_json()
    again = type(plan).model_validate(backwards(json.loads(text)))
    assert again.canonical_json() == text
    assert again == plan


def backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in sorted(value, reverse=True)}
    return [backwards(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "other",
    [
        expect_form("a").accept({"n": True}),
        expect_form("a").accept({"n": 1, "m": None}),
        expect_form("a").decline(),
        maybe_form("a").accept({"n": 1}),
        expect_form("a", message="").accept({"n": 1}),
        expect_url("a").accept(),
        optional(expect_form("a").accept({"n": 1})),
    ],
)
def test_different_plans_give_different_text(other: ElicitationPlan) -> None:
    assert other.canonical_json() != a().canonical_json()


# What single requests must be like.


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ({"message": "Which?"}, ("message", "", "Which?", "?")),
        ({"server": "other"}, ("server", "", "other", "shop")),
        ({"operation_kind": "prompt"}, ("operation_kind", "", "prompt", "tool")),
        ({"operation_name": "sell"}, ("operation_name", "", "sell", "buy")),
        ({"schema": {"type": "object", "required": ["x"]}}, ("requested_schema", "/required", ["x"], None)),
    ],
)
def test_a_field_that_differs_is_named(fields: dict[str, Any], difference: tuple[Any, ...]) -> None:
    error = refused(a(**fields), round_("a"))
    assert error.details["differences"] == [
        dict(zip(("request_key", "field", "pointer", "expected", "actual"), ("a", *difference), strict=True))
    ]
    assert error.details["requests"]["a"]["message"] == "?"
    assert error.details["expected"][0]["request_key"] == "a"
    for part in ("shop", "tool buy", "'a'", difference[0], json.dumps(difference[2])):
        assert part in error.message
    with pytest.raises(ElicitationExpectationError):
        a(**fields).matcher().finish()


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        ({"maximum": 1}, {"maximum": 1.0}, True),
        ({"default": True}, {"default": 1}, False),
        ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}, False),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, False),
        ({"a": {}, "b": None}, {"b": None, "a": {}}, True),
        ({"a": {}}, {"a": []}, False),
        ({"a": None}, {}, False),
    ],
)
def test_schemas_are_equal_as_json_is(expected: dict[str, Any], actual: dict[str, Any], equal: bool) -> None:
    matcher = a(schema=expected).matcher()
    requests = {"a": asked("a", requested_schema=actual)}
    if equal:
        assert matcher.answer(requests)["a"].content == {"n": 1}
    else:
        with pytest.raises(ElicitationExpectationError, match="requested_schema"):
            matcher.answer(requests)


def test_a_url_request_is_told_from_others_by_its_url_and_id() -> None:
    request = UrlElicitationRequest(request_key="pay", message="Pay.", url="https://pay.example/1", elicitation_id="e1")
    fitting = expect_url("pay", message="Pay.", url="https://pay.example/1", elicitation_id="e1").accept()
    assert actions(fitting.matcher().answer({"pay": request})) == {"pay": "accept"}
    for plan, field in (
        (expect_url("pay", url="https://pay.example/2").accept(), "url"),
        (maybe_url("pay", elicitation_id="e2").accept(), "elicitation_id"),
        (expect_form("pay").accept({}), "mode"),
    ):
        with pytest.raises(ElicitationExpectationError) as error:
            plan.matcher().answer({"pay": request})
        assert [difference["field"] for difference in error.value.details["differences"]] == [field]


# What an error says, and that a refused round has not happened.


def test_a_refused_round_has_not_happened() -> None:
    matcher = sequence(a(), B).matcher()
    with pytest.raises(ElicitationExpectationError, match="expected 'a', got 'b'"):
        matcher.answer(round_("b"))
    assert actions(matcher.answer(round_("a"))) == {"a": "accept"}
    with pytest.raises(ElicitationExpectationError, match="form 'b' never came") as unmet:
        matcher.finish()
    assert unmet.value.details == {"missing": [{"kind": "form", "request_key": "b", "required": True}]}
    assert actions(matcher.answer(round_("b"))) == {"b": "decline"}
    matcher.finish()
    with pytest.raises(ElicitationExpectationError, match="expects no further request"):
        matcher.answer(round_("b"))


@pytest.mark.parametrize(
    ("plan", "requests", "part"),
    [
        (round_of(a(), B), round_("a"), "request key 'b' is missing"),
        (round_of(a(), B), round_("a", "b", "c"), "got 'c'"),
        (sequence(a(), B), round_("a", "b"), "expected 'a', got 'b'"),
        (one_of(a(), B), round_("a", "b"), "got 'b'"),
        (round_of(a(), optional(round_of(B, C))), round_("a", "b"), "do not come together"),
        (optional(a()), round_("b"), "or no further request"),
    ],
)
def test_a_round_that_does_not_fit_says_why(plan: ElicitationPlan, requests: Any, part: str) -> None:
    assert part in refused(plan, requests).message


def test_an_ambiguous_round_names_the_keys_and_shows_no_answer() -> None:
    twice = one_of(round_of(a(), B), round_of(expect_form("a").accept({"n": "hunter2"}), B))
    error = refused(twice, round_("a", "b"))
    assert error.details["ambiguous"] == ["a"]
    assert "hunter2" not in error.message + json.dumps(error.details)
    # Which of the two it is does not matter as long as the answer is the same.
    matcher = one_of(sequence(a(), B), sequence(a(), C)).matcher()
    assert actions(matcher.answer(round_("a"))) == {"a": "accept"}
    with pytest.raises(ElicitationExpectationError, match="form 'b' or form 'c' never came"):
        matcher.finish()
    assert actions(matcher.answer(round_("c"))) == {"c": "cancel"}
    matcher.finish()


def test_what_is_optional_is_not_called_missing() -> None:
    plan = sequence(optional(sequence(a(), B)), maybe_form("d").cancel(), C)
    with pytest.raises(ElicitationExpectationError) as error:
        plan.matcher().finish()
    assert [missing["request_key"] for missing in error.value.details["missing"]] == ["c"]
    begun = plan.matcher()
    begun.answer(round_("a"))
    with pytest.raises(ElicitationExpectationError, match="form 'b' never came"):
        begun.finish()


# Plans that make no sense are refused when they are made.


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: sequence(a()), "two"),
        (lambda: Combination(kind="optional", children=(a(), B)), "one plan"),
        (lambda: sequence(a(), expect_form("b")), "answer"),
        (lambda: one_of(a(), optional(B)), "ask something"),
        (lambda: round_of(a(), sequence(B, C)), "sequence"),
        (lambda: round_of(a(), optional(a())), "'a'"),
        (lambda: expect_form("a").accept(), "content"),
        (lambda: expect_url("a").accept({}), "content"),
        (lambda: expect_form("a").accept({"x": float("nan")}), "nan"),
        (lambda: expect_form("a").matcher(), "answer"),
        (lambda: a().matcher().answer({}), "at least one"),
        (lambda: functools.reduce(sequence, [a()] * (MAX_LEVELS + 2)), "levels"),
        (lambda: functools.reduce(lambda plan, _: optional(plan), range(5_000), a()), "levels"),
        (lambda: functools.reduce(lambda plan, _: sequence(plan, plan), range(50), a()), f"{MAX_PARTS:,}"),
        (lambda: one_of(*[a()] * MAX_PARTS), f"{MAX_PARTS:,}"),
    ],
)
def test_plans_that_make_no_sense(make: Any, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        make()


def test_a_large_plan_and_a_deep_one_answer() -> None:
    keys = [f"k{number}" for number in range(MAX_PARTS - 1)]
    every = [expect_form(key).accept({"key": key}) for key in keys]
    assert round_of(*every).matcher().answer(round_(*keys))[keys[-1]].content == {"key": keys[-1]}
    matcher = sequence(*(maybe_form(key).accept({"key": key}) for key in keys)).matcher()
    for key in (keys[0], keys[4_000], keys[-1]):
        assert matcher.answer(round_(key))[key].content == {"key": key}
    assert one_of(*every).matcher().answer(round_("k77"))["k77"].content == {"key": "k77"}
    deep = functools.reduce(lambda plan, _: optional(plan), range(MAX_LEVELS), a())
    assert actions(deep.matcher().answer(round_("a"))) == {"a": "accept"}
    # Alternatives that all begin alike: their number of readings is no number of steps.
    alike = functools.reduce(lambda plan, _: sequence(optional(a()), plan), range(MAX_LEVELS - 1), a())
    matcher = alike.matcher()
    for _ in range(MAX_LEVELS):
        matcher.answer(round_("a"))
    matcher.finish()
