"""Histories as DataFrames: the same columns and dtypes always, ids and values as they were."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from asking import form, pending, url

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound
from m3nb.errors import ManagedInputValidationError, StorageError
from m3nb.frames import answers, rounds
from m3nb.storage import InMemoryExecutionStore, SQLiteExecutionStore, SQLiteManagedInputStore

ROUNDS = {
    "execution_id": "string",
    "round_id": "string",
    "round_index": "Int64",
    "server": "string",
    "operation_kind": "string",
    "operation_name": "string",
    "status": "category",
    "actions": "string",
    "n_requests": "Int64",
    "created_at": "datetime64[us, UTC]",
    "answered_at": "datetime64[us, UTC]",
    "delivered_at": "datetime64[us, UTC]",
    "resolved_at": "datetime64[us, UTC]",
    "failed_at": "datetime64[us, UTC]",
    "deadline": "datetime64[us, UTC]",
    "waited": "timedelta64[us]",
    "failure_code": "string",
    "failure_message": "string",
    "delivery_attempts": "Int64",
    "refused_attempts": "Int64",
}
ANSWERS = {
    "execution_id": "string",
    "round_id": "string",
    "round_index": "Int64",
    "request_key": "string",
    "server": "string",
    "operation_kind": "string",
    "operation_name": "string",
    "mode": "string",
    "action": "string",
    "field": "string",
    "value": "string",
    "masked": "boolean",
    "answered_at": "datetime64[us, UTC]",
}
STATUSES = ["pending", "response_validated", "delivery_started", "delivered", "resolved", "failed"]
START = datetime(2026, 10, 25, 0, 59, 59, 999_999, tzinfo=UTC)


class Store:
    """A managed store whose clock is set by hand, and the steps of a round."""

    def __init__(self, path: Path) -> None:
        self.now = START
        self.store = SQLiteManagedInputStore(path, clock=lambda: self.now)
        self.lease: dict[str, str] = {"owner_id": "o", "lease_token": "t"}

    def ask(self, round_: PendingElicitationRound, index: int = 0) -> None:
        self.store.create_round(round_, round_index=index, round_limit=10, lease_seconds=10**6, **self.lease)

    def answer(self, round_: PendingElicitationRound, responses: dict[str, ElicitationResponse]) -> None:
        ids = (round_.execution_id, round_.round_id)
        self.store.submit_responses(*ids, responses, response_idempotency_key="k", **self.lease)

    def step(self, method: str, round_: PendingElicitationRound, **more: str) -> None:
        getattr(self.store, method)(round_.execution_id, round_.round_id, **self.lease, **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "executions.sqlite"


@pytest.fixture
def store(path: Path) -> Store:
    return Store(path)


def named(*requests: Any, execution_id: str, round_id: str, **more: Any) -> PendingElicitationRound:
    return pending(*requests).model_copy(update={"execution_id": execution_id, "round_id": round_id, **more})


def accept(**content: Any) -> ElicitationResponse:
    return ElicitationResponse(action="accept", content=content)


def assert_columns(frame: pd.DataFrame, columns: dict[str, str]) -> None:
    assert {str(name): str(dtype) for name, dtype in frame.dtypes.items()} == columns
    assert list(frame.columns) == list(columns)
    assert isinstance(frame.index, pd.RangeIndex)


def test_an_empty_history_has_the_same_columns(path: Path) -> None:
    def check(source: Any) -> None:
        assert_columns(rounds(source), ROUNDS)
        assert_columns(answers(source), ANSWERS)
        assert len(rounds(source)) == len(answers(source)) == 0
        assert list(rounds(source)["status"].cat.categories) == STATUSES
        assert rounds(source)["status"].cat.ordered

    check(path)
    check(str(path))
    assert not path.exists()
    with_store = SQLiteExecutionStore(path)
    check(with_store)
    with_store.close()
    check(InMemoryExecutionStore())


def test_every_step_of_a_round_is_timed(store: Store, path: Path) -> None:
    round_ = named(form({}, "a"), url("b"), execution_id="0012", round_id="1234567890123456789", deadline=datetime.max)
    store.ask(round_)
    frame = rounds(path)
    assert_columns(frame, ROUNDS)
    assert frame.loc[0, ["answered_at", "waited", "actions", "failure_code", "resolved_at"]].isna().all()
    assert frame.loc[0, "status"] == "pending"
    with pytest.raises(ManagedInputValidationError, match="b has no response"):
        store.answer(round_, {"a": accept()})
    store.now += timedelta(seconds=1, microseconds=1)
    store.answer(round_, {"b": ElicitationResponse(action="decline"), "a": accept()})
    for number, method in enumerate(("start_delivery", "mark_delivered", "resolve"), 1):
        store.now = START + timedelta(hours=number)
        store.step(method, round_)
    frame = rounds(path)
    assert_columns(frame, ROUNDS)
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


def test_rounds_come_in_order_and_their_statuses_compare(store: Store, path: Path) -> None:
    first = named(form({}), execution_id="e", round_id="1")
    second = named(form({}), execution_id="e", round_id="2")
    store.ask(first)
    store.step("fail", first, code="timeout", message="too late")
    store.now += timedelta(seconds=1)
    store.ask(second, index=1)
    store.answer(second, {"form": ElicitationResponse(action="cancel")})
    frame = rounds(path)
    assert_columns(frame, ROUNDS)
    assert frame["round_id"].tolist() == ["1", "2"]
    assert frame["failure_code"].tolist() == ["timeout", pd.NA]
    assert frame["failure_message"].tolist() == ["too late", pd.NA]
    assert frame["actions"].tolist() == [pd.NA, "cancel"]
    assert (frame["status"] > "pending").all()
    assert frame.groupby("actions", dropna=True)["waited"].median().tolist() == [timedelta(0)]


SCHEMA = {"properties": {"zip": {}, "n": {}, "tags": {}, "none": {}, "left_out": {}, "apiKey": {}}}
CONTENT = {"zip": "0012", "n": 1234567890123456789, "tags": [], "none": None, "apiKey": "hidden", "extra": {"a": 1.0}}


def test_every_field_is_a_row_and_values_keep_their_json(store: Store, path: Path) -> None:
    round_ = named(form(SCHEMA, "a"), url("b"), form({}, "c"), form({}, "d"), execution_id="0012", round_id="r")
    store.ask(round_)
    answered = {"a": accept(**CONTENT), "b": accept_url(), "c": ElicitationResponse(action="decline"), "d": accept()}
    store.answer(round_, answered)
    frame = answers(path)
    assert_columns(frame, ANSWERS)
    assert frame.attrs == {"redacted": True}
    shown = frame[["request_key", "mode", "action", "field", "value", "masked"]].astype(object).values.tolist()
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
    assert [[repr(item) for item in row] for row in shown] == [[repr(item) for item in row] for row in expected]
    assert frame["execution_id"].unique().tolist() == ["0012"]
    assert frame["answered_at"].tolist() == [START] * 10
    values = frame["value"].map(json.loads, na_action="ignore")
    assert values[1] == 1234567890123456789
    assert values[3] is None or pd.isna(values[3])

    plain = answers(path, redacted=False)
    assert_columns(plain, ANSWERS)
    assert plain.attrs == {"redacted": False}
    assert plain.loc[5, "value"] == '"hidden"'
    assert not plain["masked"].fillna(False).any()
    assert "hidden" not in frame.to_csv()


def accept_url() -> ElicitationResponse:
    return ElicitationResponse(action="accept")


def test_a_store_and_its_path_say_the_same(path: Path) -> None:
    with_store = SQLiteExecutionStore(path)
    managed = with_store.managed_input_store
    round_ = named(form({}), execution_id="e", round_id="r")
    managed.create_round(round_, round_index=0, round_limit=1, owner_id="o", lease_seconds=60, lease_token="t")
    responses = {"form": accept(x="y")}
    managed.submit_responses("e", "r", responses, owner_id="o", lease_token="t", response_idempotency_key="k")
    for table in (rounds, answers):
        pd.testing.assert_frame_equal(table(with_store), table(str(path)))
        pd.testing.assert_frame_equal(table(with_store), table(path))
        assert len(table(path)) == 1
    with_store.close()


def test_reading_leaves_no_files_and_no_open_ones(store: Store, path: Path) -> None:
    store.ask(named(form({}), execution_id="e", round_id="r"))
    before = sorted(path.parent.iterdir())
    files = psutil.Process().num_fds()
    for _ in range(20):
        rounds(path)
        answers(path)
    assert sorted(path.parent.iterdir()) == before
    assert psutil.Process().num_fds() == files


def test_a_foreign_database_is_a_typed_error(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rounds (a)")
    connection.close()
    with pytest.raises(StorageError, match=r"executions\.sqlite"):
        rounds(path)
    with pytest.raises(StorageError):
        answers(path.parent)
