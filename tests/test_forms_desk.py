"""What a page hears beside its answers: the fields for what is typed so far, what was called, nested answers told."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import stand_in
from pages import LocalPage, accept, deliveries, eventually

import m3nb
from m3nb import SecretReference, SQLiteExecutionStore, StdioServer, Workbench
from m3nb.notebook.view import arguments_of

CLASSIC = Path(__file__).parent / "servers" / "classic_server.py"
RULED = {
    "type": "object",
    "properties": {"gift": {"type": "boolean"}},
    "if": {"properties": {"gift": {"const": True}}, "required": ["gift"]},
    "then": {"properties": {"wish": {"type": "string"}}, "required": ["wish"]},
}
NESTED = {
    "type": "object",
    "properties": {
        "address": {
            "type": "object",
            "title": "Address",
            "properties": {"city": {"type": "string", "title": "City", "minLength": 2}},
            "required": ["city"],
        },
        "lines": {
            "type": "array",
            "title": "Lines",
            "items": {
                "type": "object",
                "properties": {"qty": {"type": "integer", "title": "Quantity"}, "apiKey": {"type": "string"}},
            },
        },
    },
}
GIFT = {"gift": {"bool": True}}


@pytest.fixture
def asking(request: pytest.FixtureRequest) -> Iterator[tuple[LocalPage, stand_in.Handle]]:
    where = stand_in.FormRequest(request_key="where", message="A gift?", requested_schema=RULED)
    handle = stand_in.Handle([where, stand_in.link("https://a.example/")])
    shown = m3nb.form(handle)
    page = LocalPage(shown)
    page.wait_for_round()
    yield page, handle
    shown.close()


def check(page: LocalPage, values: Any, **other: Any) -> list[dict[str, Any]]:
    message = {"kind": "check", "round_id": page.view["round"]["round_id"], "key": "where", "values": values}
    return page.send(message | other)


def test_a_check_says_which_fields_there_are_now(asking: Any) -> None:
    page, handle = asking
    (plan, _link) = page.view["round"]["requests"]
    assert (plan["live"], [field["name"] for field in plan["fields"]]) == (True, ["gift"])
    before = page.view
    (reply,) = check(page, GIFT)
    assert {key: reply[key] for key in ("kind", "id", "round_id", "key", "blocked")} == {
        "kind": "plan", "id": "message-1", "round_id": "round-0", "key": "where", "blocked": None,
    }  # fmt: skip
    assert [(field["name"], field["required"]) for field in reply["fields"]] == [("gift", False), ("wish", True)]
    (reply,) = check(page, {"gift": {"bool": False}})
    assert [field["name"] for field in reply["fields"]] == ["gift"]
    assert (handle.committed, handle.keys) == ([], [])
    assert page.view | {"elapsed": 0} == before | {"elapsed": 0}


def test_a_repeated_check_is_answered_again(asking: Any) -> None:
    page, _ = asking
    message = {"kind": "check", "round_id": "round-0", "key": "where", "values": GIFT}
    first, second = page.send(message, times=2)
    assert first == second


@pytest.mark.parametrize("values", [None, 5, [], {"gift": 5}, {"gift": {"bool": "yes"}}, {"x": {"text": "y"}}])
def test_no_check_breaks_anything(asking: Any, values: Any) -> None:
    page, _ = asking
    (reply,) = check(page, values)
    assert [field["name"] for field in reply["fields"]] == ["gift"]


@pytest.mark.parametrize("other", [{"key": "link"}, {"key": None}, {"key": "no"}, {"round_id": "old"}, {"round_id": 1}])
def test_what_is_no_waiting_form_gets_no_fields(asking: Any, other: dict[str, Any]) -> None:
    assert check(asking[0], GIFT, **other) == []


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def wb(tmp_path: Path) -> Iterator[Workbench]:
    with Workbench(tmp_path / "executions.sqlite") as workbench:
        yield workbench


def test_nested_answers_are_sent_as_typed_and_told_by_label(
    wb: Workbench, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MINE", "value-of-the-token")
    environment = {"SHIPPING_LOG": str(log), "TOKEN": SecretReference(name="TOKEN_OF_MINE")}
    server = StdioServer(name="classic", command=sys.executable, args=(str(CLASSIC),), environment=environment)
    call = {"message": "Where?", "schema": NESTED, "note": "with value-of-the-token", "password": "hunter2"}
    run = wb.submit("classic:ask " + json.dumps(call), server=server)
    page = LocalPage(run)
    round_ = page.wait_for_round()

    shown = json.loads(round_["arguments"])
    assert (shown["message"], shown["schema"]["type"]) == ("Where?", "object")
    assert "value-of-the-token" not in round_["arguments"]
    assert "hunter2" not in round_["arguments"]
    with closing(SQLiteExecutionStore(tmp_path / "executions.sqlite")) as other:
        record = other.managed_input_store.get_round(run.execution_id, round_["round_id"])
        assert record is not None
        assert arguments_of(other, record) is None

    line = {"fields": {"qty": {"text": "2"}, "apiKey": {"text": "sk-very-secret"}}}
    values = {"address": {"fields": {"city": {"text": "X"}}}, "lines": {"items": [{"fields": {"qty": {"text": "x"}}}]}}
    (invalid,) = page.send(accept(page.view, values))
    assert [error["pointer"] for error in invalid["errors"]] == ["/lines/0/qty", "/address/city"]

    values = {"address": {"fields": {"city": {"text": "Pune"}}}, "lines": {"items": [line, {"fields": {}}]}}
    accepted, summary = page.send(accept(page.view, values))
    assert accepted["kind"] == "accepted"
    items = [(item["label"], item["text"]) for item in summary["rounds"][0]["items"]]
    assert items[:2] == [("Address · City", "Pune"), ("Lines 1 · Quantity", "2")]
    assert "sk-very-secret" not in json.dumps(summary)
    run.result(timeout=30)
    content = {"address": {"city": "Pune"}, "lines": [{"qty": 2, "apiKey": "sk-very-secret"}, {}]}
    assert deliveries(log) == [{"action": "accept", "content": content}]
    assert eventually(lambda: page.view["state"] == "finished")
    assert "Pune" not in json.dumps(page.widget.get_state(), default=str)
