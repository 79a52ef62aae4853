"""Histories as DataFrames: the same columns and dtypes always, ids and values as they were."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from asking import form, url
from framing import START, TABLES, Rounds, accept, checked, named

from m3nb.elicitation import ElicitationResponse
from m3nb.errors import ManagedInputValidationError, StorageError
from m3nb.frames import answers, events, requests, rounds
from m3nb.storage import InMemoryExecutionStore, SQLiteExecutionStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "executions.sqlite"


@pytest.fixture
def store(path: Path) -> Rounds:
    return Rounds(path)


def test_an_empty_history_has_the_same_columns(path: Path) -> None:
    def check(source: Any) -> None:
        assert [len(checked(table, source)) for table in TABLES] == [0] * len(TABLES)

    check(path)
    check(str(path))
    assert not path.exists()
    with_store = SQLiteExecutionStore(path)
    check(with_store)
    with_store.close()
    check(InMemoryExecutionStore())


def test_every_step_of_a_round_is_timed(store: Rounds, path: Path) -> None:
    round_ = named(form({}, "a"), url("b"), execution_id="0012", round_id="1234567890123456789", deadline=datetime.max)
    store.ask(round_)
    frame = checked(rounds, path)
    assert frame.loc[0, ["answered_at", "waited", "actions", "failure_code", "resolved_at"]].isna().all()
    assert frame.loc[0, "status"] == "pending"
    with pytest.raises(ManagedInputValidationError, match="b has no response"):
        store.answer(round_, {"a": accept()})
    store.now += timedelta(seconds=1, microseconds=1)
    store.answer(round_, {"b": ElicitationResponse(action="decline"), "a": accept()})
    for number, method in enumerate(("start_delivery", "mark_delivered", "resolve"), 1):
        store.now = START + timedelta(hours=number)
        store.step(method, round_)
    frame = checked(rounds, path)
    row = frame.iloc[0]
    assert row[["execution_id", "round_id", "status", "actions"]].tolist() == [
        "0012",
        "1234567890123456789",
        "resolved",
        "accept, decline",
    ]
    assert row[["round_index", "n_requests", "delivery_attempts", "refused_attempts"]].tolist() == [0, 2, 1, 1]
    assert row["created_at"] == START
    assert row["waited"] == timedelta(seconds=1, microseconds=1)
    assert row["answered_at"] - row["created_at"] == row["waited"]
    assert [row["delivered_at"], row["resolved_at"]] == [START + timedelta(hours=2), START + timedelta(hours=3)]
    assert pd.isna(row["failed_at"])
    assert row["deadline"].year == 9999


def test_rounds_come_in_order_and_their_statuses_compare(store: Rounds, path: Path) -> None:
    first = named(form({}), execution_id="e", round_id="1")
    second = named(form({}), execution_id="e", round_id="2")
    store.ask(first)
    store.step("fail", first, code="timeout", message="too late")
    store.now += timedelta(seconds=1)
    store.ask(second, index=1)
    store.answer(second, {"form": ElicitationResponse(action="cancel")})
    frame = checked(rounds, path)
    assert frame["round_id"].tolist() == ["1", "2"]
    assert frame["failure_code"].tolist() == ["timeout", pd.NA]
    assert frame["failure_message"].tolist() == ["too late", pd.NA]
    assert frame["actions"].tolist() == [pd.NA, "cancel"]
    assert (frame["status"] > "pending").all()
    assert frame.groupby("actions", dropna=True)["waited"].median().tolist() == [timedelta(0)]


SCHEMA = {"properties": {"zip": {}, "n": {}, "tags": {}, "none": {}, "left_out": {}, "apiKey": {}}}
CONTENT = {"zip": "0012", "n": 1234567890123456789, "tags": [], "none": None, "apiKey": "hidden", "extra": {"a": 1.0}}


def test_every_field_is_a_row_and_values_keep_their_json(store: Rounds, path: Path) -> None:
    round_ = named(form(SCHEMA, "a"), url("b"), form({}, "c"), form({}, "d"), execution_id="0012", round_id="r")
    store.ask(round_)
    answered = {"a": accept(**CONTENT), "b": accept_url(), "c": ElicitationResponse(action="decline"), "d": accept()}
    store.answer(round_, answered)
    frame = checked(answers, path)
    assert frame.attrs == {"redacted": True}
    shown = frame[["request_key", "mode", "action", "field", "value", "masked"]]
    na = pd.NA
    expected = [
        ["a", "form", "accept", "zip", '"0012"', False],
        ["a", "form", "accept", "n", "1234567890123456789", False],
        ["a", "form", "accept", "tags", "[]", False],
        ["a", "form", "accept", "none", "null", False],
        ["a", "form", "accept", "left_out", na, na],
        ["a", "form", "accept", "apiKey", '"[REDACTED]"', True],
        ["a", "form", "accept", "extra", '{"a": 1.0}', False],
        ["b", "url", "accept", na, na, na],
        ["c", "form", "decline", na, na, na],
        ["d", "form", "accept", na, na, na],
    ]
    assert values(shown) == [[repr(item) for item in row] for row in expected]
    assert frame["execution_id"].unique().tolist() == ["0012"]
    assert frame["answered_at"].tolist() == [START] * 10
    python = frame["value"].map(json.loads, na_action="ignore")
    assert python[1] == 1234567890123456789
    assert python[3] is None or pd.isna(python[3])

    plain = checked(answers, path, redacted=False)
    assert plain.attrs == {"redacted": False}
    assert plain.loc[5, "value"] == '"hidden"'
    assert not plain["masked"].fillna(False).any()
    assert "hidden" not in frame.to_csv()


def values(frame: pd.DataFrame) -> list[list[str]]:
    """What the cells say of themselves: ``1``, ``'1'`` and ``<NA>`` differ."""
    return [[repr(item) for item in row] for row in frame.astype(object).values.tolist()]


def accept_url() -> ElicitationResponse:
    return ElicitationResponse(action="accept")


def test_every_request_of_a_round_is_a_row(path: Path, store: Rounds) -> None:
    executions = SQLiteExecutionStore(path)
    executions.create_execution("e", spec={}, worker_id="w", managed=True)
    pay = url("pay").model_copy(update={"message": "Pay", "elicitation_id": "id-1", "server": "context only"})
    first = named(
        form({"properties": {"zip": {}, "tags": {}}}, "where"),
        pay,
        form({}, "sure"),
        form({"properties": ["broken"]}, "odd"),
        execution_id="e",
        round_id="1",
        operation_kind="prompt",
        operation_name="deposit",
        deadline=datetime.max,
    )
    second = named(url("pay"), execution_id="e", round_id="2", operation_kind="resource", operation_name="file:///a")
    store.ask(first)
    store.now += timedelta(seconds=2)
    store.ask(second, index=1)
    frame = checked(requests, path)
    assert frame["request_key"].tolist() == ["where", "pay", "sure", "odd", "pay"]
    assert frame[["action", "answered_at", "waited", "completed_at"]].isna().all(axis=None)

    decline = ElicitationResponse(action="decline")
    store.answer(first, {"odd": decline, "sure": accept(), "pay": accept_url(), "where": accept(zip="1")})
    for _ in range(2):
        executions.append_event("e", "elicitation.complete", {"round_id": "1", "request_key": "pay"})
    executions.append_event("e", "elicitation.complete", {"round_id": "0", "request_key": "where"})
    complete = executions.events("e")[0].at
    executions.close()
    frame = checked(requests, path)
    shown = frame[["operation_kind", "operation_name", "mode", "message", "fields", "n_fields", "url", "action"]]
    na, link = pd.NA, "https://example.com"
    expected = [
        ["prompt", "deposit", "form", "?", "zip, tags", 2, na, "accept"],
        ["prompt", "deposit", "url", "Pay", na, na, link, "accept"],
        ["prompt", "deposit", "form", "?", "", 0, na, "accept"],
        ["prompt", "deposit", "form", "?", "", 0, na, "decline"],
        ["resource", "file:///a", "url", "?", na, na, link, na],
    ]
    assert [[repr(item) for item in row] for row in shown.astype(object).values] == [
        list(map(repr, r)) for r in expected
    ]
    assert frame["server"].unique().tolist() == ["shipping"]
    assert frame["elicitation_id"].tolist() == [na, "id-1", na, na, na]
    assert frame["status"].tolist() == ["response_validated"] * 4 + ["pending"]
    assert frame["waited"].dropna().tolist() == [timedelta(seconds=2)] * 4
    assert frame["completed_at"].isna().tolist() == [True, False, True, True, True]
    assert frame.loc[1, "completed_at"] == complete
    assert frame["round_id"].tolist() == ["1"] * 4 + ["2"]
    assert frame.loc[[0, 4], "round_index"].tolist() == [0, 1]
    assert frame["deadline"].isna().tolist() == [False] * 4 + [True]


def test_a_store_and_its_path_say_the_same(path: Path) -> None:
    with_store = SQLiteExecutionStore(path)
    managed = with_store.managed_input_store
    round_ = named(form({}), execution_id="e", round_id="r")
    managed.create_round(round_, round_index=0, round_limit=1, owner_id="o", lease_seconds=60, lease_token="t")
    responses = {"form": accept(x="y")}
    managed.submit_responses("e", "r", responses, owner_id="o", lease_token="t", response_idempotency_key="k")
    with_store.create_execution("e", spec={}, worker_id="w", managed=True)
    for table in TABLES:
        pd.testing.assert_frame_equal(table(with_store), table(str(path)))
        pd.testing.assert_frame_equal(table(with_store), table(path))
        assert len(table(path)) == (2 if table is events else 1)
    with_store.close()


def test_reading_leaves_no_files_and_no_open_ones(store: Rounds, path: Path) -> None:
    store.ask(named(form({}), execution_id="e", round_id="r"))
    before = sorted(path.parent.iterdir())
    files = psutil.Process().num_fds()
    for _ in range(20):
        for table in TABLES:
            table(path)
    assert sorted(path.parent.iterdir()) == before
    assert psutil.Process().num_fds() == files


def test_a_foreign_database_is_a_typed_error(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rounds (a)")
    connection.close()
    for table in TABLES:
        with pytest.raises(StorageError, match=r"executions\.sqlite"):
            table(path)
        with pytest.raises(StorageError):
            table(path.parent)
