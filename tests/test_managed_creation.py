"""Creating rounds, malformed arguments, and the records themselves."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given, strategies as st
from storing import GOOD, HELD, KEY, Clock, accept, bring, create, form, question, submit, url

from m3nb.elicitation import ElicitationResponse
from m3nb.errors import ManagedInputConflict, ManagedInputStateError, ManagedInputValidationError
from m3nb.storage import (
    ManagedInputLease,
    ManagedInputRecord,
    SQLiteExecutionStore,
    SQLiteManagedInputStore,
    read_rows,
)

GIVEN: dict[str, Any] = {
    "harness_session_id": "session",
    "native_resume_token": "resume",
    "delivery_idempotency_key": "delivery",
    "session_id": "s",
    "turn_id": "t",
    "operation_parameters": {"weight_kg": 2, "tags": ["a", {"b": None}]},
}
INVALID = ManagedInputValidationError


@pytest.fixture
def store(tmp_path: Path) -> SQLiteManagedInputStore:
    return SQLiteManagedInputStore(tmp_path / "store.sqlite", clock=Clock())


def make(store: SQLiteManagedInputStore, pending: Any = None, **fields: Any) -> ManagedInputRecord:
    return store.create_round(
        pending or question(), **{"round_index": 0, "round_limit": 10, "lease_seconds": 30, **HELD, **fields}
    )


def test_what_is_given_comes_back(store: SQLiteManagedInputStore) -> None:
    request = form(meta={"a": 1}, task={"ttl": 5}, server="other", operation_kind="prompt", operation_name="ask")
    pending = question(
        "e1", "r1", request, url(), request_state="st\u00e4te\n\0=", deadline=datetime(2030, 1, 1, tzinfo=UTC)
    )
    record = make(store, pending, **GIVEN)
    assert record == store.get_round("e1", "r1")
    assert record.pending == pending
    assert record.request_state == "st\u00e4te\n\0="
    for name, value in GIVEN.items():
        assert getattr(record, name) == value
    assert json.dumps(record.pending.requests["address"].requested_schema) == json.dumps(request.requested_schema)
    assert record.lease.expires_at == record.created_at + timedelta(seconds=30)
    assert (record.execution_id, record.round_id, record.owner_id, record.lease_token) == ("e1", "r1", "owner", "token")


def test_the_same_round_again_is_the_stored_one(store: SQLiteManagedInputStore) -> None:
    pending = question("e1", "r1", form(), url(), request_state="s")
    first = make(store, pending, **GIVEN)
    assert make(store, pending, **GIVEN, lease_seconds=99) == first
    submit(store, ("e1", "r1"), {**GOOD, "consent": ElicitationResponse(action="accept")})
    assert make(store, pending, **GIVEN).status == "response_validated"
    turned = {key: GIVEN["operation_parameters"][key] for key in reversed(GIVEN["operation_parameters"])}
    assert make(store, pending, **{**GIVEN, "operation_parameters": turned}).status == "response_validated"


@pytest.mark.parametrize(
    "other",
    [
        {"round_index": 1},
        {"round_limit": 11},
        {"owner_id": "someone"},
        {"lease_token": "another"},
        {"lease_token": None},
        {"operation_parameters": {"weight_kg": True}},
        {"operation_parameters": None},
        *({name: "another"} for name in GIVEN if name != "operation_parameters"),
        {"pending": question("e1", "r1", url())},
        {"pending": question("e1", "r1", form(), server="other")},
        {"pending": question("e1", "r1", form(), request_state="")},
        {"pending": question("e1", "r1", form(), deadline=datetime(2030, 1, 1, tzinfo=UTC))},
        {"pending": question("e1", "r1", form(schema={"type": "object", "minProperties": True}))},
    ],
    ids=str,
)
def test_the_same_id_with_other_data_is_a_conflict(store: SQLiteManagedInputStore, other: dict[str, Any]) -> None:
    schema = {"type": "object", "minProperties": 1}
    first = make(store, question("e1", "r1", form(schema=schema)), **GIVEN)
    with pytest.raises(ManagedInputConflict, match="'r1'"):
        make(store, **{"pending": question("e1", "r1", form(schema=schema)), **GIVEN, **other})
    assert store.list_rounds("e1") == (first,)


def test_an_index_is_used_once_per_execution(store: SQLiteManagedInputStore) -> None:
    make(store, question("e1", "r1"), round_index=3)
    with pytest.raises(ManagedInputConflict, match="round_index 3"):
        make(store, question("e1", "r2"), round_index=3)
    make(store, question("e2", "r1"), round_index=3)
    # Gaps, differing limits and several pending rounds are fine; the list is in order of the index.
    make(store, question("e1", "r0"), round_index=1, round_limit=2)
    make(store, question("e1", "r9"), round_index=0, round_limit=1)
    assert [record.round_index for record in store.list_rounds("e1")] == [0, 1, 3]
    assert [record.round_id for record in store.list_rounds("e2")] == ["r1"]


def test_without_a_token_a_random_one_is_made(store: SQLiteManagedInputStore) -> None:
    tokens = {make(store, question(f"e{number}"), lease_token=None).lease_token for number in range(3)}
    assert len(tokens) == 3
    assert all(token.startswith("lease-") and len(token) > 20 for token in tokens)


def test_naive_times_of_a_question_are_utc(store: SQLiteManagedInputStore) -> None:
    naive = datetime(2030, 1, 1, 12)
    pending = question(created_at=naive, deadline=naive)
    record = make(store, pending)
    assert record.pending.deadline == record.pending.created_at == naive.replace(tzinfo=UTC)
    assert record == store.get_round("e1", "r1") == make(store, pending)


BAD_CREATIONS = [
    {"pending": {"round_id": "r1"}},
    {"round_index": -1},
    {"round_index": 10},
    {"round_index": True},
    {"round_index": 0.0},
    {"round_index": 2**70, "round_limit": 2**71},
    {"round_index": 10**5000, "round_limit": 10**5001},
    {"round_limit": 0},
    {"round_limit": "10"},
    {"owner_id": ""},
    {"owner_id": None},
    {"owner_id": b"owner"},
    {"owner_id": "\ud800"},
    {"lease_token": ""},
    {"lease_token": 5},
    {"session_id": ""},
    {"turn_id": 7},
    *(
        {"lease_seconds": value}
        for value in (0, -1, float("nan"), float("inf"), 1e300, 10**30, 10**5000, True, "30", None)
    ),
    {"operation_parameters": {"x": float("nan")}},
    {"operation_parameters": {"x": b""}},
    {"operation_parameters": {1: 2}},
    {"operation_parameters": {"x": "\ud800"}},
    {"operation_parameters": {"x": 10**5000}},
    {"operation_parameters": []},
    {"operation_parameters": "x"},
    *({"pending": question().model_copy(update={name: "\ud800"})} for name in ("server", "round_id", "request_state")),
    {"pending": question().model_copy(update={"operation_name": ""})},
]


@pytest.mark.parametrize("bad", BAD_CREATIONS)
def test_malformed_creations(store: SQLiteManagedInputStore, bad: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ManagedInputValidationError):
        make(store, **bad)
    assert list(tmp_path.iterdir()) == []  # nothing was even created


@pytest.mark.parametrize("bad", ["", None, 5, b"x", "\ud800"], ids=ascii)
def test_malformed_texts(store: SQLiteManagedInputStore, bad: Any) -> None:
    bring(store, "pending")
    ids = ("e1", "r1")
    calls = [
        lambda: store.get_round(bad, "r1"),
        lambda: store.get_round("e1", bad),
        lambda: store.list_rounds(bad),
        lambda: store.redacted_responses("e1", bad),
        lambda: submit(store, ids, key=bad),
        lambda: store.fail(*ids, code=bad, message="m", **HELD),
        lambda: store.fail(*ids, code="c", message=bad, **HELD),
        lambda: store.fail_recovery(*ids, expected_lease_token=bad, message="m"),
        lambda: store.fail_recovery(*ids, expected_lease_token="t", message=bad),
        lambda: store.claim_round("e1", bad, owner_id="o", lease_seconds=1),
        lambda: store.claim_round(*ids, owner_id=bad, lease_seconds=1),
    ]
    for method in ("start_delivery", "mark_delivered", "resolve"):
        step = getattr(store, method)
        calls += [
            lambda step=step: step(bad, "r1", **HELD),
            lambda step=step: step("e1", bad, **HELD),
            lambda step=step: step(*ids, **{**HELD, "owner_id": bad}),
            lambda step=step: step(*ids, **{**HELD, "lease_token": bad}),
        ]
    for call in calls:
        with pytest.raises(ManagedInputValidationError):
            call()
    assert store.get_round(*ids).status == "pending"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e300, "1", None])
def test_malformed_leases(store: SQLiteManagedInputStore, seconds: Any) -> None:
    bring(store, "pending")
    with pytest.raises(ManagedInputValidationError):
        store.renew("e1", "r1", lease_seconds=seconds, **HELD)
    with pytest.raises(ManagedInputValidationError):
        store.claim_round("e1", "r1", owner_id="o", lease_seconds=seconds)
    with pytest.raises(ManagedInputValidationError):
        store.claim_round("e1", "r1", owner_id="o", lease_seconds=1, idempotent_delivery=1)


def test_construction(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    for bad in (-1, 1.5, True, "5"):
        with pytest.raises(ValueError, match="busy_timeout_ms"):
            SQLiteManagedInputStore(path, busy_timeout_ms=bad)
    with pytest.raises(ValueError, match="timezone-aware"):
        SQLiteManagedInputStore(path, clock=datetime.now)
    with pytest.raises(ValueError, match="redact"):
        SQLiteManagedInputStore(path, redact="some")
    times = [datetime.now(UTC)]
    store = SQLiteManagedInputStore(path, clock=lambda: times[-1])
    ids = bring(store, "pending")
    times.append(datetime.now())
    for call in (lambda: submit(store, ids), lambda: store.start_delivery(*ids, **HELD)):
        with pytest.raises(ManagedInputValidationError, match="timezone-aware"):
            call()
    times.append(datetime.now(UTC))
    assert submit(store, ids).status == "response_validated"


def test_what_other_processes_change_is_seen(tmp_path: Path) -> None:
    """A store remembers rounds it has seen; a change by another one is never overlooked."""
    one, two = (SQLiteManagedInputStore(tmp_path / "store.sqlite") for _ in range(2))
    ids = create(one)
    two.get_round(*ids)
    submit(two, ids)
    assert one.start_delivery(*ids, **HELD).responses == GOOD
    two.mark_delivered(*ids, **HELD)
    one.fail(*ids, code="cancelled", message="m", **HELD)
    with pytest.raises(ManagedInputStateError, match="cancelled"):
        two.resolve(*ids, **HELD)
    with pytest.raises(ManagedInputStateError):
        two.submit_responses(*ids, {}, response_idempotency_key=KEY, **HELD)
    assert two.get_round(*ids) == one.get_round(*ids)


def test_more_rounds_than_are_remembered(tmp_path: Path) -> None:
    executions = SQLiteExecutionStore(tmp_path / "store.sqlite")
    store = executions.managed_input_store
    rounds = [create(store, question(f"e{number}")) for number in range(150)]
    for ids in rounds:
        submit(store, ids, accept(street=ids[0]))
    for ids in rounds:
        assert store.start_delivery(*ids, **HELD).responses["address"].content == {"street": ids[0]}
    executions.close()


RECORD: dict[str, Any] = {
    "pending": question(),
    "round_index": 0,
    "round_limit": 1,
    "status": "pending",
    "lease": ManagedInputLease(owner_id="owner", lease_token="very-secret-token", expires_at=datetime(2026, 1, 1)),
    "created_at": datetime(2026, 1, 1),
    "updated_at": datetime(2026, 1, 1),
}


@pytest.mark.parametrize(
    "bad",
    [
        {"round_index": 1},
        {"status": "done"},
        {"responses": GOOD, "response_idempotency_key": KEY},
        {"delivery_attempts": 1},
        *({"status": status} for status in ("response_validated", "delivery_started", "delivered", "resolved")),
        {"status": "resolved", "responses": GOOD},
        {"status": "failed"},
        {"lease": None},
        {"unknown": 1},
        {"operation_parameters": {"x": float("inf")}},
    ],
    ids=str,
)
def test_records_hang_together(bad: dict[str, Any]) -> None:
    ManagedInputRecord(**RECORD)
    with pytest.raises(pydantic.ValidationError):
        ManagedInputRecord(**{**RECORD, **bad})


def test_records_are_immutable_and_hide_secrets(store: SQLiteManagedInputStore) -> None:
    ids = create(store, lease_token="very-secret-token", native_resume_token="very-secret-resume")
    answer = accept(street="a very-secret place")
    holder = {"owner_id": "owner", "lease_token": "very-secret-token"}
    record = store.submit_responses(*ids, answer, response_idempotency_key="very-secret-key", **holder)
    for shown in (repr(record), str(record), repr(record.lease), f"{record.lease}"):
        assert "very-secret" not in shown
        assert "owner" in shown
    assert "accept" in repr(record)
    assert "response_validated" in repr(record)
    with pytest.raises(pydantic.ValidationError):
        record.status = "resolved"
    with pytest.raises(TypeError):
        record.responses["address"].content["street"] = "x"
    with pytest.raises(TypeError):
        record.responses["x"] = None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SQLiteExecutionStore:
    return SQLiteExecutionStore(tmp_path_factory.mktemp("shared") / "store.sqlite")


@given(content=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values, max_size=4))
def test_any_content_comes_back_and_records_copy(shared: SQLiteExecutionStore, content: dict[str, Any]) -> None:
    """Through the file and back; a record deep-copies, pickles, and dumps to JSON that makes the same record."""
    store = shared.managed_input_store
    number = len(read_rows(shared, "rounds"))
    ids = create(store, question(f"e{number}", "r1", form(schema={"type": "object"})), operation_parameters=content)
    returned = submit(store, ids, {"address": ElicitationResponse(action="accept", content=content)})
    record = SQLiteManagedInputStore(shared.path).get_round(*ids)
    assert record == returned
    for copied in (copy.deepcopy(record), copy.copy(record), pickle.loads(pickle.dumps(record))):
        assert copied == record
        assert type(copied) is ManagedInputRecord
    assert json.dumps(record.responses["address"].content) == json.dumps(content)
    assert json.dumps(record.operation_parameters) == json.dumps(content)
    assert ManagedInputRecord.model_validate_json(record.model_dump_json()) == record
