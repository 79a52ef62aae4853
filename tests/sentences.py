"""Each `must` and `must_not` sentence of the cases as a check of what was seen, or as one that can't be checked here.

A check gets the plays of one case in one combination, by variant; the plain play is ``""``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from form_cases import url
from playing import Seen

from m3nb.forms import compile_form
from m3nb.notebook.view import view_of

Plays = Mapping[str, Seen]
Check = Callable[[Plays], None]

CHECKS: dict[str, Check] = {}

NOT_CHECKABLE = {
    "open only on the human's click": "the page opens it: js/test/cases.test.ts draws this plan and presses",
    "appear in any href/src/window.open, in the live form or in the history": (
        "the page draws it: js/test/cases.test.ts draws this plan and counts the links"
    ),
}


CONTACTED: set[str] = set()


def watch_the_network() -> None:
    """Note every host that this process looks up or connects to from now on."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            CONTACTED.add(str(arguments[0]))
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            CONTACTED.add(str(arguments[1][0]))

    # It can't be taken away again: it costs nothing where nobody connects.
    sys.addaudithook(note)


def sentence(*texts: str) -> Callable[[Check], Check]:
    """Register a check of these sentences."""

    def register(check: Check) -> Check:
        for text in texts:
            assert text not in CHECKS
            CHECKS[text] = check
        return check

    return register


def text_of(value: Any) -> str:
    """JSON text that keeps the order of members and tells 1 from 1.0 and from true."""
    return json.dumps(value, ensure_ascii=False)


def url_plan(plays: Plays) -> dict[str, Any]:
    """The plan of the one URL request of a case."""
    seen = next(iter(plays.values()))
    request = next(iter(seen.records[0].pending.requests.values()))
    return dict(compile_form(request))


# What multi-round-trip results must and must not do.


@sentence("each answered on its own, delivered together", "cancel a because b was declined")
def _each_on_its_own(plays: Plays) -> None:
    seen = plays[""]
    assert text_of(seen.delivered) == text_of([seen.play.case["retry"]["inputResponses"]])
    assert {key: answer.action for key, answer in seen.records[0].responses.items()} == {"a": "accept", "b": "decline"}


@sentence("deliver a before b is decided", "retry with github_login alone")
def _nothing_in_part(plays: Plays) -> None:
    seen = plays[""]
    (asked,) = seen.asked
    keys = set(seen.play.case["result"]["inputRequests"])
    assert [set(answers) for answers in seen.delivered] == [keys]
    # Each part alone was offered before, and refused.
    for key in asked.pending.requests if len(asked.pending.requests) > 1 else ():
        assert [one for one in asked.tries if set(one.content) == {key} and one.error and one.pending]
    assert all(at > asked.at for at in seen.delivered_at)


@sentence("decided by resultType, not by which members are there", "need `content` to be absent")
def _by_result_type(plays: Plays) -> None:
    for variant in ("", "with-content"):
        assert len(plays[variant].asked) == 1
        assert plays[variant].own_result
    assert plays["with-content"].play.served["result"]["content"] == []


@sentence("no requestState member in the retry", "requestState: null or ''")
def _no_state(plays: Plays) -> None:
    first, retry = plays[""].calls
    assert "requestState" not in first["params"]
    assert "requestState" not in retry["params"]
    assert plays[""].records[0].pending.request_state is None


@sentence("all keys answered together in ONE retry")
def _one_retry(plays: Plays) -> None:
    (answers,) = plays[""].delivered
    assert list(answers) == plays[""].play.case["retry"]["inputResponses_keys"]


@sentence("new JSON-RPC id")
def _new_id(plays: Plays) -> None:
    ids = [call["id"] for call in plays[""].calls]
    assert len(set(ids)) == len(ids) == 2


@sentence("same tool name and arguments as the first call")
def _same_call(plays: Plays) -> None:
    first, retry = (without_retry(call) for call in plays[""].calls)
    assert text_of(first) == text_of(retry)


def without_retry(call: Mapping[str, Any]) -> dict[str, Any]:
    """The method and parameters of a call but for what a retry adds."""
    own = {k: v for k, v in call["params"].items() if k not in ("inputResponses", "requestState", "_meta")}
    return {"method": call["method"], "params": own}


@sentence("drop the sampling request silently: if sampling is not supported the capability must not have been declared")
def _sampling_is_answered(plays: Plays) -> None:
    seen = plays[""]
    declared = seen.calls[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert "sampling" not in declared
    assert "elicitation" in declared
    answer = seen.delivered[0]["capital_of_france"]
    assert answer["role"] == "assistant"
    assert answer["content"]["type"] == "text"
    assert (answer["model"], answer["stopReason"]) == ("m3nb/unsupported", "unsupported")
    # It never was a question for the person.
    assert set(seen.records[0].pending.requests) == {"github_login"}


@sentence(
    "echoed code point for code point, with the trailing blank and the newline, after SQLite and a process restart",
    "strip, re-encode, normalise (NFC), parse",
)
def _state_unchanged(plays: Plays) -> None:
    seen = plays[""]
    state = seen.play.case["result"]["requestState"]
    assert seen.calls[1]["params"]["requestState"] == state
    assert [round_["request_state"] for round_ in seen.reopened] == [state]
    assert seen.records[0].request_state == state


@sentence("no round shown", "show an empty form")
def _no_round(plays: Plays) -> None:
    for seen in plays.values():
        assert (seen.asked, seen.records, seen.events("elicitation.request")) == ([], [], [])


@sentence("retry with requestState 'opaque-1' and no inputResponses", "return it as the tool result")
def _state_only(plays: Plays) -> None:
    _, retry = plays[""].calls
    assert retry["params"]["requestState"] == "opaque-1"
    assert "inputResponses" not in retry["params"]
    assert plays[""].own_result


@sentence("bounded number of retries, with a pause")
def _bounded(plays: Plays) -> None:
    seen = plays["for-ever"]
    at = [line["at"] for line in seen.log]
    assert 3 <= len(at) <= 20
    # The last pauses are longer than the first: a server that sheds load is given time.
    assert at[-1] - at[-2] > 0.1
    assert seen.result.outcome.value == "failed"
    assert "asks nothing" in seen.result.error.message


@sentence("two rounds in order under one execution")
def _two_rounds(plays: Plays) -> None:
    first, second = plays[""].records
    assert [set(record.pending.requests) for record in (first, second)] == [{"step1"}, {"step2"}]
    assert second.round_index == first.round_index + 1
    assert first.execution_id == second.execution_id
    assert first.pending.logical_operation_id == second.pending.logical_operation_id
    assert first.resolved_at <= second.created_at


@sentence("second retry carries round-2 and only step2's answer", "send step1's answer again as step2's")
def _second_retry(plays: Plays) -> None:
    _, first, second = (call["params"] for call in plays[""].calls)
    assert (first["requestState"], list(first["inputResponses"])) == ("round-1", ["step1"])
    assert (second["requestState"], list(second["inputResponses"])) == ("round-2", ["step2"])
    assert first["inputResponses"]["step1"]["content"] != second["inputResponses"]["step2"]["content"]


@sentence("reuse the first idempotency key")
def _keys_differ(plays: Plays) -> None:
    first, second = plays[""].records
    assert first.response_idempotency_key != second.response_idempotency_key
    assert [asked.key for asked in plays[""].asked] == [r.response_idempotency_key for r in (first, second)]


# What a request to visit a URL must and must not do.


@sentence("refused")
def _refused(plays: Plays) -> None:
    never_offered(plays[""])
    for address in (
        "file:///etc/passwd",
        "blob:x",
        "vscode://x",
        " JAVASCRIPT:alert(1)",
        "java\tscript:x",
        "\nhttps://a",
    ):
        assert compile_form(url(address))["blocked"]


def never_offered(seen: Seen) -> None:
    """A refused request: nobody could answer it, the round says why, and so does the execution's typed error."""
    (record,) = seen.records
    assert record.status == "failed"
    assert record.responses is None
    assert seen.delivered == []
    assert seen.result.outcome.value == "failed"
    assert seen.result.error.code == record.failure_code
    plan = url_plan({"": seen})
    assert (plan["openable"], bool(plan["blocked"])) == (False, True)


@sentence("decode or render it")
def _not_decoded(plays: Plays) -> None:
    plan = url_plan(plays)
    assert plan["url"]["text"] == plays[""].play.case["request"]["params"]["url"]
    assert plan["url"]["host"] == ""
    assert "script>" not in text_of(plan)


@sentence("refused before display as a link")
def _no_link(plays: Plays) -> None:
    never_offered(plays[""])


@sentence("round recorded with reason")
def _reason(plays: Plays) -> None:
    (record,) = plays[""].records
    assert "https" in record.failure_message
    assert record.failure_message in plays[""].result.error.message


@sentence("error on the wire (-32602), not a decline in the user's name")
def _error_on_the_wire(plays: Plays) -> None:
    seen = plays[""]
    if seen.era == "legacy":
        (reply,) = seen.replies
        assert reply["error"]["code"] == -32602
        assert "result" not in reply
    else:
        # An InputRequiredResult is no request, so no error can answer it: the call is not made again.
        assert len(seen.calls) == 1


@sentence("history tells the three apart")
def _told_apart(plays: Plays) -> None:
    told = {}
    for variant, seen in plays.items():
        (record,) = seen.records
        action = record.responses["elicitation" if seen.era == "legacy" else "ask"].action if record.responses else None
        told[variant] = (record.status, action, record.failure_code)
    assert told == {
        "0": ("resolved", "decline", None),
        "1": ("resolved", "cancel", None),
        "2": ("failed", None, "timeout"),
    }
    assert plays["2"].result.outcome.value == "timed_out"


@sentence("`content` in any of them")
def _no_content(plays: Plays) -> None:
    for seen in plays.values():
        assert "content" not in text_of(seen.delivered)
    for variant in ("0", "1"):
        assert len(plays[variant].delivered) == 1
    # An answer that nobody gave is not made up: no action reaches the server in the person's name.
    assert plays["2"].delivered in ([], [{"action": "cancel"}])


@sentence("plain http to a non-loopback host flagged")
def _plain_http(plays: Plays) -> None:
    assert any("not encrypted" in warning for warning in url_plan(plays)["warnings"])


@sentence("flag http://127.0.0.1:8788/cb and http://localhost:… the same way")
def _loopback(_plays: Plays) -> None:
    for address in ("http://127.0.0.1:8788/cb", "http://localhost:8788/cb", "http://[::1]:8788/cb"):
        plan = compile_form(url(address))
        assert (plan["openable"], plan["warnings"]) == (True, [])


@sentence(
    "accept returned at once on consent "
    "(not held until the payment is over: LibreChat PR 14141 ran into the 60 s timeout)"
)
def _at_once(plays: Plays) -> None:
    # The server says that it is complete only after it has the answer: a client that waited would wait for ever.
    for seen in plays.values():
        assert [reply["result"] for reply in seen.replies] == [{"action": "accept"}]
    events = [line["event"] for line in plays[""].log]
    assert events.index("answer") < events.index("complete")


@sentence("complete notification for a known id marks the round as completed out of band")
def _completed(plays: Plays) -> None:
    for variant in ("", "early"):
        (event,) = plays[variant].events("elicitation.complete")
        assert event["round_id"] == plays[variant].records[0].round_id
    events = [line["event"] for line in plays["early"].log]
    assert events.index("complete") < events.index("answer")


@sentence("let a complete from server B finish a round of server A that has the same id")
def _other_server(plays: Plays) -> None:
    silent, other = plays["silent"], plays["elsewhere"]
    ids = [next(iter(seen.records[0].pending.requests.values())).elicitation_id for seen in (silent, other)]
    assert ids[0] == ids[1]
    assert (silent.play.server, other.play.server) == ("cases", "other")
    (event,) = other.events("elicitation.complete")
    assert event["round_id"] == other.records[0].round_id
    for variant in ("silent", "later"):
        assert plays[variant].events("elicitation.complete") == []


@sentence("a manual way on (retry / cancel) where the notification never comes (modelcontextprotocol #1819)")
def _never_comes(plays: Plays) -> None:
    assert [line["event"] for line in plays["silent"].log] == ["call", "answer"]
    assert plays["silent"].own_result


@sentence("fail on a complete notification for an unknown or already completed id: ignore it")
def _ignored(plays: Plays) -> None:
    for variant in ("", "early"):
        sent = [line["id"] for line in plays[variant].log if line["event"] == "complete"]
        assert len(sent) == 3
        assert len(set(sent)) == 2
        assert plays[variant].own_result


@sentence("ASCII (xn--) form shown", "show only the decoded look-alike")
def _ascii(plays: Plays) -> None:
    parts = url_plan(plays)["url"]
    assert parts["host"] == "xn--pple-43d.example"
    assert all(part.isascii() for part in parts.values())


@sentence("warning")
def _warning(plays: Plays) -> None:
    assert any("Punycode" in warning for warning in url_plan(plays)["warnings"])


@sentence("a round per listed elicitation")
def _each_listed(plays: Plays) -> None:
    listed = plays[""].play.case["error"]["data"]["elicitations"]
    shown = [
        {"mode": one.mode, "elicitationId": one.elicitation_id, "url": one.url, "message": one.message}
        for record in plays[""].records
        for one in record.pending.requests.values()
    ]
    assert shown == listed


@sentence(
    "after consent/complete the ORIGINAL call can be retried, by an explicit action or a bounded automatic retry",
    "the retry is the same call, not a second side effect recorded as new",
)
def _called_again(plays: Plays) -> None:
    seen = plays[""]
    first, again = seen.calls
    assert text_of(without_retry(first)) == text_of(without_retry(again))
    assert first["id"] != again["id"]
    assert seen.log[-1]["at"] > seen.asked[0].at
    kind = seen.combination.kind
    assert len(seen.events(f"{kind}.call")) == len(seen.events(f"{kind}.result")) == 1


@sentence("show it as a plain tool failure with the URL buried in a traceback")
def _no_failure(plays: Plays) -> None:
    assert plays[""].own_result
    assert plays[""].events(f"{plays[''].combination.kind}.error") == []


@sentence("both shown, each accepted/declined on its own", "accept both by one click without naming both hosts")
def _both_shown(plays: Plays) -> None:
    for variant, actions in (("", ["accept", "accept"]), ("declined", ["accept", "decline"])):
        (asked,) = plays[variant].asked
        plans = [compile_form(request) for request in asked.pending.requests.values()]
        assert [plan["url"]["host"] for plan in plans] == ["shop.example.com", "example.com"]
        assert [answer.action for answer in plays[variant].records[0].responses.values()] == actions
        # One answer for both is none.
        assert [set(one.content) for one in asked.tries[:2]] == [{"pay-7"}, {"link-7"}]
        assert all(one.error is not None and one.pending for one in asked.tries)


@sentence("one declined => no retry, the reason kept")
def _declined(plays: Plays) -> None:
    seen = plays["declined"]
    assert len(seen.calls) == 1
    assert seen.result.outcome.value == "failed"
    assert seen.play.case["error"]["message"] in seen.result.error.message
    assert "declin" in seen.result.error.message
    assert seen.records[0].status == "resolved"


@sentence("full URL shown as text before anything is opened")
def _whole_url(plays: Plays) -> None:
    assert url_plan(plays)["url"]["text"] == plays[""].play.case["request"]["params"]["url"]


@sentence("host shown apart (mcp.example.com)")
def _host(plays: Plays) -> None:
    assert url_plan(plays)["url"]["host"] == "mcp.example.com"


@sentence("server name shown")
def _server_name(plays: Plays) -> None:
    (asked,) = plays[""].asked
    assert view_of(plays[""].result.snapshot, asked.pending, None, None, [])["server"] == "cases asks"


@sentence(
    "accept result has no `content`", "treat accept as 'the key is set': it only means the human agreed to open it"
)
def _consent_only(plays: Plays) -> None:
    seen = plays[""]
    answer = {"action": "accept"}
    assert seen.delivered == [answer if seen.era == "legacy" else {"ask": answer}]
    assert seen.records[0].status == "resolved"
    assert seen.events("elicitation.complete") == []


@sentence("prefetch, HEAD, favicon or link preview of the URL by kernel or browser")
def _nothing_fetched(_plays: Plays) -> None:
    # The kernel's half; the page has no other address than the link (js/test/cases.test.ts).
    assert "127.0.0.1" in CONTACTED
    assert {host for host in CONTACTED if "example" in host} == set()


@sentence("the host shown is evil.example", "highlight login.bank.example")
def _true_host(plays: Plays) -> None:
    parts = url_plan(plays)["url"]
    assert parts["host"] == "evil.example"
    assert "bank" not in parts["path"]


@sentence("user-info part shown as suspicious (or refused)")
def _user_info(plays: Plays) -> None:
    assert any("evil.example" in warning and "@" in warning for warning in url_plan(plays)["warnings"])
