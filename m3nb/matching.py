"""Does what a server asks follow the plan, and what is the answer (engine-facts section 8)?

A plan describes sequences of rounds; a round is a non-empty map of requests. A request on its own is one round; a
``round_of`` is one round with one request for each of its plans. The plan becomes an automaton whose steps are rounds.
All places where the execution may be in the plan are kept at once, so the work for one round grows with the size of
the plan and never with the number of its readings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from m3nb.elicitation import ElicitationRequest, ElicitationResponse
from m3nb.errors import ElicitationExpectationError
from m3nb.plans import Combination, ElicitationPlan, Expectation, keys_of

Answers = Mapping[str, ElicitationResponse]
Plan = Expectation | Combination

_SHOWN = 5
"""How many expected rounds an error lists."""

_START, _END = 0, 1


class PlanMatcher:
    """Answers the rounds of one execution from a plan with answers. Made by `ElicitationPlan.matcher`."""

    def __init__(self, plan: ElicitationPlan) -> None:
        assert isinstance(plan, Expectation | Combination)
        if not plan.is_complete:
            raise ValueError("the plan has a request without an answer: add .accept(), .decline() or .cancel()")
        self._automaton = _Automaton(plan)
        self._places = {_START}

    def answer(self, requests: Mapping[str, ElicitationRequest]) -> Answers:
        """The answers to one round, which is taken as having happened.

        ``requests`` is a map of request key to request that is not empty; the answers have the same keys.

        Raises `ElicitationExpectationError` when the plan expects no such round here, or when it fits in more than one
        way with different answers (several ways with equal answers are all kept). Nothing has happened then.
        ``details`` holds ``requests``, ``expected`` (the rounds that would have fitted, as plans without answers) and
        either ``differences`` (``{"request_key", "field", "pointer", "expected", "actual"}``, the values at a JSON
        Pointer into the field) from the most similar of these, or ``ambiguous``, the request keys with more than one
        answer. ``ValueError`` for an empty map.
        """
        if not requests:
            raise ValueError("a round has at least one request")
        found: list[Answers] = []
        places = set()
        expected = list(self._expected())
        for step in expected:
            ways = _ways(step.round, requests)
            if ways:
                places.add(step.target)
            found = _distinct(found, ways)
        if not found:
            raise _unexpected(requests, [step.round for step in expected], done=self._is_done())
        if len(found) > 1:
            raise _ambiguous(requests, found, [step.round for step in expected])
        self._places = places
        return found[0]

    def finish(self) -> None:
        """Say that no further round will come.

        Raises `ElicitationExpectationError` when a required request never came; ``details["missing"]`` lists the rounds
        one of which the plan was waiting for, as plans without answers.
        """
        if self._is_done():
            return
        reached = self._reached()
        missing = [step.round for step in self._expected() if reached.isdisjoint(step.skippable_from)]
        raise ElicitationExpectationError(
            f"the elicitation plan was not fulfilled: {_listed(missing)} never came",
            details={"missing": [_unanswered(round_) for round_ in missing[:_SHOWN]]},
        )

    def _reached(self) -> set[int]:
        return self._automaton.reached_from(self._places)

    def _is_done(self) -> bool:
        return _END in self._reached()

    def _expected(self) -> Iterator[_Step]:
        """The steps that can be taken now."""
        for place in sorted(self._reached()):
            yield from self._automaton.steps.get(place, ())


class _Step(NamedTuple):
    """A round that leads to ``target``. Whoever is at a place of ``skippable_from`` need not take it."""

    round: Plan
    target: int
    skippable_from: frozenset[int]


class _Automaton:
    """Places between rounds, numbered; steps from place to place, and free moves past what is optional."""

    def __init__(self, plan: Plan) -> None:
        self.steps: dict[int, list[_Step]] = {}
        self._free: dict[int, list[int]] = {}
        self._count = 2
        self._add(plan, _START, _END, frozenset())

    def _add(self, plan: Plan, start: int, end: int, skippable: frozenset[int]) -> None:
        if plan.is_optional:
            self._free.setdefault(start, []).append(end)
            skippable |= {start}
        if isinstance(plan, Expectation) or plan.kind == "round_of":
            self.steps.setdefault(start, []).append(_Step(plan, end, skippable))
        elif plan.kind == "sequence":
            for child in plan.children[:-1]:
                between = self._count
                self._count += 1
                self._add(child, start, between, skippable)
                start = between
            self._add(plan.children[-1], start, end, skippable)
        else:
            # No part begins again, so alternatives may share their first and their last place.
            for child in plan.children:
                self._add(child, start, end, skippable)

    def reached_from(self, places: Iterable[int]) -> set[int]:
        """The places and all that free moves lead to."""
        found = list(places)
        reached = set(found)
        while found:
            for place in self._free.get(found.pop(), ()):
                if place not in reached:
                    reached.add(place)
                    found.append(place)
        return reached


def _ways(plan: Plan, requests: Mapping[str, ElicitationRequest]) -> list[Answers]:
    """The different answers by which a part of a round takes exactly these requests: none, one, or two of many."""
    if plan.is_optional and not requests:
        return [{}]
    if isinstance(plan, Expectation):
        request = requests.get(plan.request_key)
        if request is None or len(requests) > 1 or next(_differences(plan, request), None):
            return []
        assert plan.response is not None
        return [{plan.request_key: plan.response}]
    found: list[Answers] = []
    if plan.kind != "round_of":
        for child in plan.children:
            found = _distinct(found, _ways(child, requests))
        return found
    first: dict[str, ElicitationResponse] = {}
    second: Answers | None = None
    left = dict(requests)
    for child in plan.children:
        # The children name different keys, so each request belongs to one child.
        below = _ways(child, {key: left.pop(key) for key in keys_of(child) if key in left})
        if not below:
            return []
        first.update(below[0])
        second = below[1] if len(below) > 1 else second
    if left:
        return []
    return [first] if second is None else [first, {**first, **second}]


def _distinct(found: list[Answers], more: Iterable[Answers]) -> list[Answers]:
    """Up to two different of these answers; two are enough to know that there are several."""
    for answers in more:
        if len(found) < 2 and all(_first_difference(_plain(answers), _plain(known)) is not None for known in found):
            found = [*found, answers]
    return found


def _plain(answers: Answers) -> dict[str, Any]:
    return {key: {"action": a.action, "content": a.content, "meta": a.meta} for key, a in answers.items()}


class _Difference(NamedTuple):
    """What is not as expected; values are those at ``pointer`` in the field, None for one that is not there."""

    request_key: str
    field: str
    pointer: str
    expected: Any
    actual: Any


def _differences(leaf: Expectation, request: ElicitationRequest) -> Iterator[_Difference]:
    """What of a request with the right key is not as expected."""
    if leaf.kind != request.mode:
        yield _Difference(leaf.request_key, "mode", "", leaf.kind, request.mode)
    for name in ("server", "operation_kind", "operation_name", "message", "url", "elicitation_id", "requested_schema"):
        expected, actual = getattr(leaf, name), getattr(request, name, None)
        if expected is not None:
            first = _first_difference(expected, actual)
            if first is not None:
                yield _Difference(leaf.request_key, name, *first)


def _first_difference(one: Any, other: Any, at: str = "") -> tuple[str, Any, Any] | None:
    """Where two JSON values differ (a JSON Pointer) and the two values there; None for equal ones.

    ``1`` equals ``1.0`` but not ``true``; a value that is not there is None.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in {**one, **other}:
            step = at + "/" + str(key).replace("~", "~0").replace("/", "~1")
            if key not in one or key not in other:
                return step, one.get(key), other.get(key)
            if (below := _first_difference(one[key], other[key], step)) is not None:
                return below
        return None
    if isinstance(one, list) and isinstance(other, list):
        for index, (item, partner) in enumerate(zip(one, other, strict=False)):
            if (below := _first_difference(item, partner, f"{at}/{index}")) is not None:
                return below
        return None if len(one) == len(other) else (at, one, other)
    return None if isinstance(one, bool) == isinstance(other, bool) and one == other else (at, one, other)


def _unexpected(
    requests: Mapping[str, ElicitationRequest], expected: list[Plan], *, done: bool
) -> ElicitationExpectationError:
    next_, closest = "no further request", []
    if expected:
        compared = [_compared(round_, requests) for round_ in expected]
        closest = min(compared, key=_distance)
        next_ = _listed(expected) + (", or no further request" if done else "")
    why = "; ".join(_said(difference) for difference in closest[:_SHOWN])
    return ElicitationExpectationError(
        f"{_asked(requests)}, and the elicitation plan expects {next_}" + (f". {why}" if why else ""),
        details={
            **_details(requests, expected),
            "differences": [difference._asdict() for difference in closest],
        },
    )


def _ambiguous(
    requests: Mapping[str, ElicitationRequest], found: list[Answers], expected: list[Plan]
) -> ElicitationExpectationError:
    one, other = map(_plain, found)
    keys = [key for key in requests if _first_difference(one[key], other[key]) is not None]
    return ElicitationExpectationError(
        f"{_asked(requests)}, and the elicitation plan has more than one answer here for {', '.join(map(repr, keys))}: "
        "say more of the expected requests (message, schema, server, operation_name), so that only one fits",
        details={**_details(requests, expected), "ambiguous": keys},
    )


def _compared(round_: Plan, requests: Mapping[str, ElicitationRequest]) -> list[_Difference]:
    """What keeps these requests from being this round, each key against the most similar request of that key."""
    leaves: dict[str, list[Expectation]] = {}
    for leaf in _leaves(round_):
        leaves.setdefault(leaf.request_key, []).append(leaf)
    found: list[_Difference] = []
    missing = [key for key in _required(round_) if key not in requests]
    for key, request in requests.items():
        if key in leaves:
            compared = [list(_differences(leaf, request)) for leaf in leaves[key]]
            closest = min(compared, key=_distance)
            found += closest
        else:
            found.append(_Difference(key, "request_key", "", missing or list(leaves), key))
    if requests.keys() <= leaves.keys():
        found += [_Difference(key, "request_key", "", key, None) for key in missing]
    return found or [_Difference(next(iter(requests)), "request_key", "", list(leaves), list(requests))]


def _distance(differences: list[_Difference]) -> tuple[int, int]:
    """How far requests are from what was expected: other keys count more than all else."""
    return sum(difference.field == "request_key" for difference in differences), len(differences)


def _leaves(plan: Plan) -> Iterator[Expectation]:
    if isinstance(plan, Expectation):
        yield plan
    else:
        for child in plan.children:
            yield from _leaves(child)


def _required(round_: Plan) -> Iterator[str]:
    """The request keys without which this is not the round."""
    if isinstance(round_, Expectation):
        if round_.required:
            yield round_.request_key
    elif round_.kind == "round_of":
        for child in round_.children:
            yield from _required(child)


def _said(difference: _Difference) -> str:
    key, field, pointer, expected, actual = difference
    if field != "request_key":
        where = f"{field} of {key!r}" + (f" at {pointer}" if pointer else "")
        return f"{where}: expected {_short(expected)}, got {_short(actual)}"
    if actual is None:
        return f"request key {key!r} is missing"
    if actual == key:
        return f"request key: expected {' or '.join(map(repr, expected[:_SHOWN]))}, got {key!r}"
    return f"request keys {', '.join(map(repr, actual))} do not come together"


def _asked(requests: Mapping[str, ElicitationRequest]) -> str:
    first = next(iter(requests.values()))
    during = f" during {first.operation_kind} {first.operation_name}" if first.operation_name else ""
    what = "; ".join(f"{request.mode} {key!r} ({_short(request.message)})" for key, request in requests.items())
    return f"{first.server or 'the server'} asked{during} for {what}"


def _listed(rounds: list[Plan]) -> str:
    more = f" or {len(rounds) - _SHOWN} others" if len(rounds) > _SHOWN else ""
    return " or ".join(map(_named, rounds[:_SHOWN])) + more


def _named(plan: Plan) -> str:
    if isinstance(plan, Expectation):
        wanted = [f"{name} {_short(value)}" for name, value in _fields(plan) if name not in ("kind", "request_key")]
        text = f"{plan.kind} {plan.request_key!r}" + (f" ({', '.join(wanted)})" if wanted else "")
        return text if plan.required else f"perhaps {text}"
    parts = ", ".join(map(_named, islice(plan.children, _SHOWN)))
    parts += f" and {len(plan.children) - _SHOWN} others" if len(plan.children) > _SHOWN else ""
    return {"round_of": "one round of", "one_of": "one of", "optional": "perhaps"}[plan.kind] + f" [{parts}]"


def _fields(leaf: Expectation) -> Iterator[tuple[str, Any]]:
    for name in type(leaf).model_fields:
        value = getattr(leaf, name)
        if value is not None and name not in ("required", "response"):
            yield name, value


def _details(requests: Mapping[str, ElicitationRequest], expected: list[Plan]) -> dict[str, Any]:
    return {
        "requests": {key: request.model_dump(mode="json") for key, request in requests.items()},
        "expected": [_unanswered(round_) for round_ in expected[:_SHOWN]],
    }


def _unanswered(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values. Its answers are nothing that an error should show."""
    if isinstance(plan, Expectation):
        return {**dict(_fields(plan)), "required": plan.required}
    return {"kind": plan.kind, "children": [_unanswered(child) for child in plan.children]}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"
