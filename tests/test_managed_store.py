"""Every transition of a round, and every rule about who may make it (engine-facts section 6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from storing import GOOD, HELD, KEY, STATUSES, Clock, accept, bring, create, form, question, submit, transitions, url

from m3nb.elicitation import ElicitationResponse
from m3nb.errors import (
    ManagedInputConflict,
    ManagedInputRecoveryError,
    ManagedInputStateError,
    ManagedInputValidationError,
    MCPError,
)
from m3nb.storage import (
    ManagedInputRecord,
    ManagedInputStore,
    SQLiteExecutionStore,
    SQLiteManagedInputStore,
)

OTHER_HOLDERS = ({"owner_id": "someone"}, {"lease_token": "stolen"})
TERMINAL = ("resolved", "failed")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path: Path, clock: Clock) -> SQLiteManagedInputStore:
    return SQLiteManagedInputStore(path, clock=clock)


def history(path: Path) -> list[tuple[Any, ...]]:
    """(method, from, to) of every line in the history of the rounds."""
    return [(row["method"], row["from_status"], row["to_status"]) for row in transitions(path)]


def refused(
    store: ManagedInputStore, path: Path, ids: tuple[str, str], call: Callable[[], Any], error: type[MCPError]
) -> MCPError:
    """``call`` raises exactly ``error``, changes nothing in the round and leaves one line, without content."""
    before, lines = store.get_round(*ids), history(path)
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert store.get_round(*ids) == before
    added = history(path)[len(lines) :]
    assert len(added) == 1
    assert added[0][1:] == (before.status, None)
    assert caught.value.message
    return caught.value


def fresh(path: Path, ids: tuple[str, str]) -> ManagedInputRecord | None:
    """What somebody reads who opens the file."""
    return SQLiteManagedInputStore(path).get_round(*ids)


def test_both_stores_are_managed_input_stores(path: Path, store: SQLiteManagedInputStore) -> None:
    assert isinstance(store, ManagedInputStore)
    assert isinstance(SQLiteExecutionStore(path).managed_input_store, ManagedInputStore)


@pytest.mark.parametrize("borrowed", [False, True])
def test_a_round_from_question_to_end(path: Path, borrowed: bool) -> None:
    executions = SQLiteExecutionStore(path)
    store = executions.managed_input_store if borrowed else SQLiteManagedInputStore(path)
    pending = question("e1", "r1", form(), url(), request_state="", deadline=Clock().now)
    answer = {**GOOD, "consent": ElicitationResponse(action="accept")}
    steps = [
        store.create_round(pending, round_index=0, round_limit=3, lease_seconds=30, **HELD),
        store.submit_responses("e1", "r1", answer, response_idempotency_key=KEY, **HELD),
        store.start_delivery("e1", "r1", **HELD),
        store.mark_delivered("e1", "r1", **HELD),
        store.resolve("e1", "r1", **HELD),
    ]
    assert [record.status for record in steps] == list(STATUSES[:5])
    for record in steps:
        assert ManagedInputRecord.model_validate(record.model_dump()) == record
        assert record.pending == pending
    last = steps[-1]
    assert last == store.get_round("e1", "r1") == fresh(path, ("e1", "r1"))
    assert last.responses == answer
    assert (last.response_idempotency_key, last.delivery_attempts, last.request_state) == (KEY, 1, "")
    stamps = [
        *(last.created_at, last.response_validated_at, last.delivery_started_at),
        *(last.delivered_at, last.resolved_at, last.updated_at),
    ]
    assert stamps == sorted(stamps)
    assert all(stamp.utcoffset() == timedelta(0) for stamp in stamps)
    assert last.failed_at is last.failure_code is None
    assert history(path) == [
        ("create_round", None, "pending"),
        ("submit_responses", "pending", "response_validated"),
        ("start_delivery", "response_validated", "delivery_started"),
        ("mark_delivered", "delivery_started", "delivered"),
        ("resolve", "delivered", "resolved"),
    ]
    executions.close()


STEPS = {
    ("start_delivery", "response_validated"): "delivery_started",
    ("start_delivery", "delivery_started"): "delivery_started",
    ("mark_delivered", "delivery_started"): "delivered",
    ("mark_delivered", "delivered"): "delivered",
    ("resolve", "delivered"): "resolved",
    ("resolve", "resolved"): "resolved",
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("method", ["start_delivery", "mark_delivered", "resolve"])
def test_steps_of_a_delivery(
    store: SQLiteManagedInputStore, path: Path, clock: Clock, method: str, status: str
) -> None:
    ids = bring(store, status)
    step = getattr(store, method)
    for holder in OTHER_HOLDERS:
        refused(store, path, ids, lambda holder=holder: step(*ids, **{**HELD, **holder}), ManagedInputConflict)
    target = STEPS.get((method, status))
    if target is None:
        refused(store, path, ids, lambda: step(*ids, **HELD), ManagedInputStateError)
    else:
        before = store.get_round(*ids)
        clock.advance(1)
        record = step(*ids, **HELD)
        assert record.status == target
        assert record == fresh(path, ids)
        if target == status:
            assert record == before  # a repeat changes nothing, and attempts are not counted twice
        else:
            assert record.updated_at == clock.now
            stamp = {"delivery_started": "delivery_started_at", "delivered": "delivered_at", "resolved": "resolved_at"}
            assert getattr(record, stamp[target]) == clock.now
            assert record.delivery_attempts == 1
    clock.advance(30)
    refused(store, path, ids, lambda: step(*ids, **HELD), ManagedInputConflict)


@pytest.mark.parametrize("status", STATUSES)
def test_renew(store: SQLiteManagedInputStore, path: Path, clock: Clock, status: str) -> None:
    ids = bring(store, status)
    for holder in OTHER_HOLDERS:
        call = lambda holder=holder: store.renew(*ids, lease_seconds=9, **{**HELD, **holder})  # noqa: E731
        refused(store, path, ids, call, ManagedInputConflict)
    if status in TERMINAL:
        refused(store, path, ids, lambda: store.renew(*ids, lease_seconds=9, **HELD), ManagedInputStateError)
    else:
        before, lines = store.get_round(*ids), history(path)
        clock.advance(1)
        record = store.renew(*ids, lease_seconds=9, **HELD)
        assert record == fresh(path, ids)
        assert record.lease.expires_at == clock.now + timedelta(seconds=9)  # shorter is possible too
        assert (record.status, record.owner_id, record.lease_token) == (status, "owner", "token")
        assert record.updated_at == clock.now > before.updated_at
        assert history(path) == lines  # a heartbeat is no transition
    clock.advance(30)
    refused(store, path, ids, lambda: store.renew(*ids, lease_seconds=9, **HELD), ManagedInputConflict)


@pytest.mark.parametrize("status", STATUSES)
def test_fail(store: SQLiteManagedInputStore, path: Path, clock: Clock, status: str) -> None:
    ids = bring(store, status)
    reason = {"code": "timeout", "message": "nobody answered"}
    for holder in OTHER_HOLDERS:
        call = lambda holder=holder: store.fail(*ids, **reason, **{**HELD, **holder})  # noqa: E731
        refused(store, path, ids, call, ManagedInputConflict)
    if status == "resolved":
        refused(store, path, ids, lambda: store.fail(*ids, **reason, **HELD), ManagedInputStateError)
    else:
        record = store.fail(*ids, **reason, **HELD)
        assert (record.status, record.failure_code, record.failure_message) == ("failed", *reason.values())
        assert record.failed_at == clock.now
        assert record == fresh(path, ids) == store.fail(*ids, **reason, **HELD)
        for other in ({"code": "cancelled"}, {"message": "something else"}):
            call = lambda other=other: store.fail(*ids, **{**reason, **other}, **HELD)  # noqa: E731
            refused(store, path, ids, call, ManagedInputConflict)
    clock.advance(30)
    refused(store, path, ids, lambda: store.fail(*ids, **reason, **HELD), ManagedInputConflict)


@pytest.mark.parametrize("status", STATUSES)
def test_fail_recovery(store: SQLiteManagedInputStore, path: Path, clock: Clock, status: str) -> None:
    ids = bring(store, status)

    def give_up(token: str = "token", message: str = "the worker vanished") -> ManagedInputRecord:
        return store.fail_recovery(*ids, expected_lease_token=token, message=message)

    refused(store, path, ids, lambda: give_up("stolen"), ManagedInputConflict)
    if status in TERMINAL:
        refused(store, path, ids, give_up, ManagedInputStateError)
        return
    refused(store, path, ids, give_up, ManagedInputConflict)  # the lease is live
    clock.advance(30)  # at the instant of expiry it has expired
    refused(store, path, ids, lambda: give_up("stolen"), ManagedInputConflict)
    record = give_up()
    assert (record.status, record.failure_code) == ("failed", "recovery_unavailable")
    assert record == fresh(path, ids) == give_up(message="said later")
    assert record.failure_message == "the worker vanished"
    refused(store, path, ids, lambda: submit(store, ids), ManagedInputStateError)
    claim = {"owner_id": "new", "lease_seconds": 30, "expected_lease_token": "token", "delivery_state": "not_started"}
    refused(store, path, ids, lambda: store.claim_round(*ids, **claim), ManagedInputRecoveryError)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("evidence", [None, "not_started", "not_delivered", "delivered", "perhaps"])
@pytest.mark.parametrize("status", STATUSES)
def test_claim(
    store: SQLiteManagedInputStore, path: Path, clock: Clock, status: str, evidence: str | None, idempotent: bool
) -> None:
    ids = bring(store, status)
    target = {
        ("pending", "not_started"): "pending",
        ("response_validated", "not_delivered"): "response_validated" if idempotent else None,
        ("delivery_started", "not_delivered"): "response_validated" if idempotent else None,
        ("delivery_started", "delivered"): "delivered",
        ("delivered", "delivered"): "delivered",
    }.get((status, evidence))

    def claim(token: str | None = "token") -> ManagedInputRecord:
        return store.claim_round(
            *ids,
            owner_id="new",
            lease_seconds=60,
            expected_lease_token=token,
            delivery_state=evidence,
            idempotent_delivery=idempotent,
        )

    without_evidence = ManagedInputStateError if status in TERMINAL else ManagedInputRecoveryError
    refused(store, path, ids, claim, ManagedInputConflict if target else without_evidence)
    clock.advance(30)
    for token in (None, "stolen"):
        call = lambda token=token: claim(token)  # noqa: E731
        refused(store, path, ids, call, ManagedInputConflict if target else without_evidence)
    if target is None:
        refused(store, path, ids, claim, without_evidence)
        return
    before = store.get_round(*ids)
    record = claim()
    assert record == fresh(path, ids)
    assert (record.status, record.owner_id) == (target, "new")
    assert record.lease_token not in ("token", "")
    assert record.lease.expires_at == clock.now + timedelta(seconds=60)
    assert record.delivery_attempts == before.delivery_attempts
    assert record.delivered_at == (None if target != "delivered" else before.delivered_at or clock.now)
    assert history(path)[-1] == ("claim_round", status, target)
    refused(store, path, ids, lambda: store.renew(*ids, lease_seconds=9, **HELD), ManagedInputConflict)
    renewed = store.renew(*ids, lease_seconds=9, owner_id="new", lease_token=record.lease_token)
    assert renewed.lease_token == record.lease_token
    if target == "response_validated":
        again = store.start_delivery(*ids, owner_id="new", lease_token=record.lease_token)
        assert again.delivery_attempts == before.delivery_attempts + 1


BAD_ANSWERS = [
    {},
    accept("other", street="x"),
    {**GOOD, "other": ElicitationResponse(action="decline")},
    {"address": ElicitationResponse(action="accept")},
    {"address": {"action": "accept", "content": {"street": "x"}}},
    accept(street=""),
    accept(street="x", tags="a"),
    accept(tags=["a"]),
    [GOOD],
    None,
]


@pytest.mark.parametrize("status", STATUSES)
def test_answers(store: SQLiteManagedInputStore, path: Path, clock: Clock, status: str) -> None:
    ids = bring(store, status)
    other = accept(street="2 Side Street")
    if status == "failed":
        for answer in (GOOD, *BAD_ANSWERS):
            call = lambda answer=answer: submit(store, ids, answer)  # noqa: E731
            refused(store, path, ids, call, ManagedInputStateError)
        return
    for holder in OTHER_HOLDERS:
        for answer in (GOOD, {}):
            call = lambda holder=holder, answer=answer: store.submit_responses(  # noqa: E731
                *ids, answer, response_idempotency_key=KEY, **{**HELD, **holder}
            )
            refused(store, path, ids, call, ManagedInputConflict)
    for answer in BAD_ANSWERS:
        error = refused(store, path, ids, lambda answer=answer: submit(store, ids, answer), ManagedInputValidationError)
        assert error.details["errors"]
    if status == "pending":
        clock.advance(30)
        for answer in (GOOD, {}):  # the lease comes before the map
            call = lambda answer=answer: submit(store, ids, answer)  # noqa: E731
            refused(store, path, ids, call, ManagedInputConflict)
        return
    before = store.get_round(*ids)
    for expired in (0, 30):  # a repeat works after the lease too
        clock.advance(expired)
        assert submit(store, ids, GOOD) == before
        assert submit(store, ids, accept(tags=["a", "b"], street="1 Main Street")) == before
        refused(store, path, ids, lambda: submit(store, ids, other), ManagedInputConflict)
        refused(store, path, ids, lambda: submit(store, ids, GOOD, "key-2"), ManagedInputConflict)
        refused(store, path, ids, lambda: submit(store, ids, {}), ManagedInputValidationError)


@pytest.mark.parametrize(("first", "second"), [(True, 1), (1, 1.0), ("1", 1)])
def test_answers_that_python_calls_equal_are_not(
    store: SQLiteManagedInputStore, path: Path, first: Any, second: Any
) -> None:
    ids = create(store, question("e1", "r1", form(schema={"type": "object"})))
    record = submit(store, ids, accept(x=first))
    assert json.dumps(record.responses["address"].content) == json.dumps({"x": first})
    refused(store, path, ids, lambda: submit(store, ids, accept(x=second)), ManagedInputConflict)


def test_decline_and_cancel_are_answers(store: SQLiteManagedInputStore) -> None:
    for index, action in enumerate(("decline", "cancel")):
        ids = create(store, question("e1", f"r{index}", form(), url()), round_index=index)
        answers = {key: ElicitationResponse(action=action) for key in ("address", "consent")}
        record = submit(store, ids, answers)
        assert record.responses == answers
        projection = {"action": action, "content": None, "meta": None}
        assert store.redacted_responses(*ids) == {"address": projection, "consent": projection}


def test_redaction_is_stored_with_the_answer(path: Path, store: SQLiteManagedInputStore) -> None:
    ids = create(store)
    assert store.redacted_responses(*ids) is None
    assert store.redacted_responses("e1", "no such round") is None
    submit(store, ids, accept(street="1 Main Street", password="hunter2 hunter2"))
    shown = {"street": "1 Main Street", "password": "[REDACTED]"}
    expected = {"address": {"action": "accept", "content": shown, "meta": None}}
    assert store.redacted_responses(*ids) == SQLiteManagedInputStore(path).redacted_responses(*ids) == expected
    assert store.get_round(*ids).responses["address"].content["password"] == "hunter2 hunter2"


def test_redact_all_and_secrets_of_an_execution(path: Path) -> None:
    everything = SQLiteManagedInputStore(path, redact="all")
    ids = create(everything)
    submit(everything, ids)
    assert "Main" not in json.dumps(everything.redacted_responses(*ids))
    executions = SQLiteExecutionStore(path)
    executions.set_secrets("e2", ["open sesame"])
    store = executions.managed_input_store
    ids = create(store, question("e2"))
    submit(store, ids, accept(street="say open sesame twice"))
    assert store.redacted_responses(*ids)["address"]["content"]["street"] == "say [REDACTED] twice"
    executions.close()


def test_refusals_leave_no_content(path: Path, store: SQLiteManagedInputStore) -> None:
    ids = create(store)
    with pytest.raises(ManagedInputValidationError):
        submit(store, ids, accept(street="", **{"typed-as-a-name": 1}, tags=["typed-as-a-value", 7]))
    detail = transitions(path)[-1]["detail"]
    errors = json.loads(detail)["errors"]
    assert {"request_key": "address", "pointer": "/street", "keyword": "minLength"} in errors
    assert {"request_key": "address", "pointer": "/tags", "keyword": "type"} in errors
    assert "typed-as" not in detail
    assert b"typed-as" not in path.read_bytes()


def test_an_unknown_round(store: SQLiteManagedInputStore) -> None:
    ids = ("e1", "r1")
    assert store.get_round(*ids) is None
    assert store.list_rounds("e1") == ()
    for call in (
        lambda: submit(store, ids, {}),
        lambda: store.start_delivery(*ids, **HELD),
        lambda: store.mark_delivered(*ids, **HELD),
        lambda: store.resolve(*ids, **HELD),
        lambda: store.renew(*ids, lease_seconds=1, **HELD),
        lambda: store.fail(*ids, code="c", message="m", **HELD),
        lambda: store.fail_recovery(*ids, expected_lease_token="t", message="m"),
        lambda: store.claim_round(*ids, owner_id="o", lease_seconds=1),
    ):
        with pytest.raises(ManagedInputConflict, match="'r1'"):
            call()
    create(store, question("e1", "another"))
    with pytest.raises(ManagedInputConflict):
        store.start_delivery(*ids, **HELD)


def test_clock_of_another_zone(path: Path, clock: Clock) -> None:
    india = timezone(timedelta(hours=5, minutes=30))
    store = SQLiteManagedInputStore(path, clock=lambda: clock.now.astimezone(india))
    ids = create(store)
    record = submit(store, ids)
    assert record.created_at == clock.now
    assert record.created_at.utcoffset() == record.updated_at.utcoffset() == timedelta(0)
    assert record == fresh(path, ids)
