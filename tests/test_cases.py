"""Every case through every way: tools, prompts and resources, stdio and HTTP, both eras.

What was asked is what the server sent, what arrived is what was committed, once; and each sentence of a case holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from form_cases import form_of_case
from playing import (
    ARGUMENTS,
    CASES,
    COMBINATIONS,
    ERAS,
    Combination,
    Seen,
    Stage,
    applies,
    params_asked,
    plays_of,
)
from sentences import CHECKS, NOT_CHECKABLE, text_of, watch_the_network, without_retry
from servers.case_server import LEGACY, results_of

from m3nb.forms import compile_form, read_values

PAIRS = [(combination, case) for combination in COMBINATIONS for case in CASES if applies(case, combination.era)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    watch_the_network()
    stage = Stage(tmp_path_factory.mktemp("stage"))
    yield stage
    stage.close()


@pytest.mark.parametrize(
    ("combination", "case"), PAIRS, ids=lambda it: str(it if isinstance(it, Combination) else it["id"])
)
def test_case(stage: Stage, combination: Combination, case: dict[str, Any]) -> None:
    plays = stage.seen(combination)[case["id"]]
    for seen in plays.values():
        if seen.play.ends:
            continue
        assert seen.result.error is None, seen.result.error
        asked_as_sent(seen)
        refused_what_is_wrong(seen)
        delivered_once_as_committed(seen)
        assert seen.own_result
    EXPECTED[case["expect"]](plays)
    for text in sentences_of(case):
        if text not in NOT_CHECKABLE:
            CHECKS[text](plays)


def asked_as_sent(seen: Seen) -> None:
    """The pending round, the stored record and what another process reads: all say what the server sent."""
    expected = params_asked(seen.play, seen.era)
    assert len(seen.asked) == len(seen.records) == len(expected)
    states = [result.get("requestState") for result in results_of(seen.play.served)] if seen.era != LEGACY else []
    for index, params in enumerate(expected):
        pending, record, reopened = seen.asked[index].pending, seen.records[index], seen.reopened[index]
        assert record.pending == pending
        assert list(pending.requests) == list(params)
        assert (pending.server, pending.operation_kind) == (seen.play.server, seen.combination.kind)
        assert pending.operation_name == seen.play.name(seen.combination.kind)
        assert pending.request_state == reopened["request_state"] == (states[index] if states else None)
        for key, sent in params.items():
            request, read = pending.requests[key], reopened["requests"][key]
            assert (request.mode, request.message) == (sent.get("mode", "form"), sent["message"])
            assert read["message"] == sent["message"]
            if request.mode == "url":
                assert request.url == read["url"] == sent["url"]
                assert request.elicitation_id == sent.get("elicitationId")
            else:
                wanted = text_of(sent["requestedSchema"])
                assert text_of(request.requested_schema) == text_of(read["requested_schema"]) == wanted


def refused_what_is_wrong(seen: Seen) -> None:
    """Each wrong answer was refused with the field to blame, and the round stayed pending."""
    for asked in seen.asked:
        assert asked.tries
        for tried in asked.tries:
            assert tried.error is not None, tried.content
            assert tried.pending
            for error in tried.error.details["errors"]:
                assert error["message"]
                assert error["pointer"] == "" or error["pointer"].startswith("/")
        contents = len(seen.play.case.get("invalid", ()))
        for tried in asked.tries[:contents]:
            assert {error["request_key"] for error in tried.error.details["errors"]} == set(asked.pending.requests)


def delivered_once_as_committed(seen: Seen) -> None:
    """The server's log has each committed answer once, member for member, and only after the commit."""
    committed = [
        {key: answer.model_dump(mode="json", exclude_none=True, by_alias=True) for key, answer in asked.answer.items()}
        for asked in seen.asked
    ]
    kind = seen.play.served.get("kind")
    if kind == "error":
        assert (seen.delivered, len(seen.calls)) == ([], 2)
    elif seen.era == LEGACY:
        assert text_of(seen.delivered) == text_of([answer["elicitation"] for answer in committed])
        assert len(seen.calls) == 1
    else:
        asked = [set(params) for params in params_asked(seen.play, seen.era)]
        answers = [{k: v for k, v in got.items() if k in keys} for got, keys in zip(seen.delivered, asked, strict=True)]
        assert text_of(answers) == text_of(committed)
        results = results_of(seen.play.served)
        assert len(seen.calls) == len(results) + 1
        for result, retry in zip(results, seen.calls[1:], strict=True):
            assert set(retry["params"].get("inputResponses", ())) == set(result.get("inputRequests", ()))
            assert ("requestState" in retry["params"]) == ("requestState" in result)
            assert retry["params"].get("requestState") == result.get("requestState")
    for record, asked_round in zip(seen.records, seen.asked, strict=True):
        assert (record.status, record.delivery_attempts) == ("resolved", 1)
        assert record.responses == asked_round.answer
        assert all(at > asked_round.at for at in seen.delivered_at[seen.asked.index(asked_round) :])
    arguments = ARGUMENTS[seen.combination.kind]
    assert text_of(seen.calls[0]["params"].get("arguments")) == text_of(arguments)
    assert len({text_of(without_retry(call)) for call in seen.calls}) == 1
    assert len({call["id"] for call in seen.calls}) == len(seen.calls)


def drawn(seen: Seen) -> list[dict[str, Any]]:
    return [dict(compile_form(request)) for asked in seen.asked for request in asked.pending.requests.values()]


BEYOND = ("json", "object", "list", "union")
"""Controls of what MCP's own subset of JSON Schema has not."""


def _form(plays: dict[str, Seen], *, fallback: bool = False, fields: bool = True) -> None:
    case = plays[""].play.case
    for seen in plays.values():
        for plan in drawn(seen):
            assert plan["blocked"] is None
            assert bool(plan["fields"]) == fields
            beyond = [field["name"] for field in plan["fields"] if field["control"] in BEYOND]
            # A pattern that Python's own `re` can't read is no fallback: it is translated.
            assert bool(beyond or plan["hints"]) == (fallback and "python_pattern_error" not in case)
    if "requestedSchema" in case:
        request = form_of_case(case)
        values = {f["name"]: f["initial"] for f in compile_form(request)["fields"] if f["initial"] is not None}
        content, errors = read_values(request, values)
        assert (text_of(content), errors) == (text_of(case.get("prefill", {})), [])


def _consent(plays: dict[str, Seen]) -> None:
    for seen in plays.values():
        for plan in drawn(seen):
            assert plan["openable"]
            assert plan["warnings"] == []


def _warned(plays: dict[str, Seen]) -> None:
    for seen in plays.values():
        for plan in drawn(seen):
            assert plan["warnings"] or plan["blocked"]


def _refused(plays: dict[str, Seen]) -> None:
    for seen in plays.values():
        assert seen.result.outcome.value == "failed"
        assert [record.status for record in seen.records] == ["failed"]
        assert seen.delivered == []


def _unasked(plays: dict[str, Seen]) -> None:
    for seen in plays.values():
        assert seen.asked == []


EXPECTED = {
    "render": _form,
    "render-fallback": lambda plays: _form(plays, fallback=True),
    "confirm-only": lambda plays: _form(plays, fields=False),
    "round-for-elicitation-only": _form,
    "consent": _consent,
    "consent-then-retry": _consent,
    "warn": _warned,
    "warn-or-refuse": _warned,
    "refuse": _refused,
    "retry-without-human": _unasked,
}


def sentences_of(case: dict[str, Any]) -> list[str]:
    return [*case.get("must", ()), *case.get("must_not", ())]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_case_is_decided(case: dict[str, Any]) -> None:
    assert [text for text in sentences_of(case) if (text in CHECKS) == (text in NOT_CHECKABLE)] == []
    assert [era for era in ERAS if applies(case, era)]
    # Of the valid contents each has its turn.
    assert len(case.get("valid", ())) <= len(COMBINATIONS)


def test_no_sentence_is_left_over() -> None:
    said = {text for case in CASES for text in sentences_of(case)}
    assert {*CHECKS, *NOT_CHECKABLE} == said


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
class TestCombination:
    def test_one_execution_held_all_that_could_share_it(self, stage: Stage, combination: Combination) -> None:
        seen = [one for plays in stage.seen(combination).values() for one in plays.values()]
        assert {(one.play.case["id"], one.play.variant) for one in seen} == {
            (play.case["id"], play.variant) for case in CASES for play in plays_of(case, combination)
        }
        shared = {one.result.snapshot.execution_id.root for one in seen if not one.play.ends}
        assert len(shared) == 1

    def test_deliveries_of_those_that_failed(self, stage: Stage, combination: Combination) -> None:
        for plays in stage.seen(combination).values():
            for seen in plays.values():
                if seen.play.ends:
                    answered = [record for record in seen.records if record.status == "resolved"]
                    delivered = list(seen.delivered)
                    if any(record.failure_code == "timeout" for record in seen.records):
                        # Of a question that nobody decided in time a server may still learn just that.
                        delivered = [answer for answer in delivered if answer != {"action": "cancel"}]
                    # An error -32042 is answered by calling again, and these were not to be called again.
                    assert len(delivered) == (0 if seen.play.case.get("kind") == "error" else len(answered))

    def test_only_what_is_handled_was_declared(self, stage: Stage, combination: Combination) -> None:
        name = "io.modelcontextprotocol/clientCapabilities"
        for plays in stage.seen(combination).values():
            for seen in plays.values():
                if combination.era == LEGACY:
                    assert len(seen.hello) == 1
                    declared = [hello["capabilities"] for hello in seen.hello]
                else:
                    declared = [call["params"]["_meta"][name] for call in seen.calls]
                assert {text_of(one) for one in declared} == {'{"elicitation": {"form": {}, "url": {}}}'}

    def test_nothing_is_left(self, stage: Stage, combination: Combination) -> None:
        stage.seen(combination)
        assert stage.left[combination] == []
