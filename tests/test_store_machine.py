"""The managed store against a model of it: any calls in any order, by two stores on one file, time moving in between.

One of the two is the store made with a path, the other is what an execution store resolves, with a clock of ours. The
model is engine-facts section 6 written down a second time: which status each method starts from, what it stamps, and
in which order it refuses. ``M3NB_EXAMPLES`` says how many runs (3000).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storing import GOOD, Clock, accept, question

from m3nb.elicitation import ElicitationResponse
from m3nb.errors import (
    ManagedInputConflict as Conflict,
    ManagedInputRecoveryError as RecoveryError,
    ManagedInputStateError as StateError,
    ManagedInputValidationError as Invalid,
    MCPError,
    StorageError,
)
from m3nb.storage import ManagedInputRecord, SQLiteExecutionStore, SQLiteManagedInputStore
from m3nb.storage.database import Database

pytestmark = pytest.mark.timeout(900)  # a minute and a half where nothing else runs
EXAMPLES = int(os.environ.get("M3NB_EXAMPLES", "3000"))
MEMORY = Path("/dev/shm")
INSTANT = timedelta(microseconds=1)
TERMINAL = ("resolved", "failed")
STAMPS = ("created_at", "updated_at", "response_validated_at", "delivery_started_at", "delivered_at")
STAMPS += ("resolved_at", "failed_at")
ANSWERS: dict[str, Any] = {
    "good": GOOD,
    "secret": accept(street="1 Main Street", password="hunter2hunter2"),
    "decline": {"address": ElicitationResponse(action="decline")},
    "empty": {},
    "invalid": accept(street=""),
    "stranger": GOOD | accept("phone", number="1"),
}
INVALID = ("empty", "invalid", "stranger")
REDACTED = {
    "good": {"action": "accept", "content": {"street": "1 Main Street", "tags": ["a", "b"]}, "meta": None},
    "secret": {"action": "accept", "content": {"street": "1 Main Street", "password": "[REDACTED]"}, "meta": None},
    "decline": {"action": "decline", "content": None, "meta": None},
}
# What a second create_round may say differently.
VARIANTS: dict[str, dict[str, Any]] = {
    "same": {},
    "limit": {"round_limit": 4},
    "session": {"session_id": "another"},
    "parameters": {"operation_parameters": {"weight_kg": 2}},
}
STEPS = {
    "start_delivery": ("response_validated", "delivery_started", "delivery_started_at"),
    "mark_delivered": ("delivery_started", "delivered", "delivered_at"),
    "resolve": ("delivered", "resolved", "resolved_at"),
}
CLAIMS = {
    ("pending", "not_started", False): "pending",
    ("pending", "not_started", True): "pending",
    ("response_validated", "not_delivered", True): "response_validated",
    ("delivery_started", "not_delivered", True): "response_validated",
    ("delivery_started", "delivered", False): "delivered",
    ("delivery_started", "delivered", True): "delivered",
    ("delivered", "delivered", False): "delivered",
    ("delivered", "delivered", True): "delivered",
}
CALLS: dict[str, dict[str, Any]] = {
    "submit_responses": {
        "responses": GOOD,
        "owner_id": "owner",
        "lease_token": "t",
        "response_idempotency_key": "k1",
    },
    "start_delivery": {"owner_id": "owner", "lease_token": "t"},
    "mark_delivered": {"owner_id": "owner", "lease_token": "t"},
    "resolve": {"owner_id": "owner", "lease_token": "t"},
    "renew": {"owner_id": "owner", "lease_token": "t", "lease_seconds": 1},
    "fail": {"owner_id": "owner", "lease_token": "t", "code": "c", "message": "m"},
    "fail_recovery": {"expected_lease_token": "t", "message": "m"},
    "claim_round": {"owner_id": "owner", "lease_seconds": 1, "expected_lease_token": "t"},
}
MALFORMED = [
    (method, name, wrong)
    for method, call in CALLS.items()
    for name in ("execution_id", "round_id", *call)
    if name != "responses"
    for wrong in ([0, -1, nan, inf, True, "1"] if name == "lease_seconds" else ["", 7, "\ud800"])
]
LINES = """
SELECT rounds.execution_id, rounds.round_id, method, from_status, to_status, at, round_events.owner_id
FROM round_events JOIN rounds ON rounds.id = round ORDER BY round, sequence
"""

Line = tuple[str, str | None, str | None, datetime, str | None]
"""One row of a history: method, from, to, at, owner. A refused attempt leads nowhere."""


@dataclass
class Round:
    """What the model knows of one round."""

    index: int
    variant: str
    owner: str
    token: str
    end: datetime
    stamps: dict[str, datetime]
    status: str = "pending"
    key: str | None = None
    answer: str | None = None
    attempts: int = 0
    failure: tuple[str, str] | None = None
    history: list[Line] = field(default_factory=list)


Outcome = Round | type[MCPError]


def moved(there: Round, now: datetime, status: str, stamp: str | None = None, **changes: Any) -> Round:
    """The round after a transition."""
    stamps = there.stamps | {"updated_at": now} | ({} if stamp is None else {stamp: now})
    return replace(there, status=status, stamps=stamps, **changes)


def lease(there: Round, held: dict[str, str], now: datetime) -> type[MCPError] | None:
    mine = (there.owner, there.token) == (held["owner_id"], held["lease_token"])
    return None if mine and there.end > now else Conflict


def after_submit(there: Round, now: datetime, held: dict[str, str], answer: str, key: str) -> Outcome:
    if there.status == "failed":
        return StateError
    if (there.owner, there.token) != (held["owner_id"], held["lease_token"]):
        return Conflict
    if there.status == "pending" and there.end <= now:
        return Conflict
    if answer in INVALID:
        return Invalid
    if there.status != "pending":
        return there if (there.key, there.answer) == (key, answer) else Conflict
    return moved(there, now, "response_validated", "response_validated_at", key=key, answer=answer)


def after_step(there: Round, now: datetime, held: dict[str, str], method: str) -> Outcome:
    source, target, stamp = STEPS[method]
    if lease(there, held, now):
        return Conflict
    if there.status == target:
        return there
    if there.status != source:
        return StateError
    return moved(there, now, target, stamp, attempts=there.attempts + (method == "start_delivery"))


def after_renew(there: Round, now: datetime, held: dict[str, str], seconds: float) -> Outcome:
    if lease(there, held, now):
        return Conflict
    if there.status in TERMINAL:
        return StateError
    return moved(there, now, there.status, end=now + timedelta(seconds=seconds))


def after_fail(there: Round, now: datetime, held: dict[str, str], failure: tuple[str, str]) -> Outcome:
    if lease(there, held, now):
        return Conflict
    if there.status == "resolved":
        return StateError
    if there.status == "failed":
        return there if there.failure == failure else Conflict
    return moved(there, now, "failed", "failed_at", failure=failure)


def after_recovery(there: Round, now: datetime, token: str) -> Outcome:
    if token != there.token:
        return Conflict
    if there.failure is not None and there.failure[0] == "recovery_unavailable":
        return there
    if there.status in TERMINAL:
        return StateError
    if there.end > now:
        return Conflict
    return moved(there, now, "failed", "failed_at", failure=("recovery_unavailable", "gone"))


def after_claim(
    there: Round, now: datetime, owner: str, seconds: float, token: str | None, evidence: tuple[str | None, bool]
) -> Outcome:
    if there.failure is not None and there.failure[0] == "recovery_unavailable":
        return RecoveryError
    if there.status in TERMINAL:
        return StateError
    status = CLAIMS.get((there.status, *evidence))
    if status is None:
        return RecoveryError
    if there.end > now or token != there.token:
        return Conflict
    claimed = moved(there, now, status, owner=owner, end=now + timedelta(seconds=seconds))
    if status == "delivered":
        claimed.stamps.setdefault("delivered_at", now)
    return claimed


# Mostly two rounds that are there from the start, so that most calls meet something.
rounds = st.sampled_from([*[("e1", "r1")] * 5, *[("e2", "r1")] * 3, ("e1", "r2")])
stores = st.integers(0, 1)
owners = st.sampled_from(["owner", "owner", "owner", "thief"])
seconds = st.sampled_from([1, 10, 30])
mostly = st.sampled_from([True, True, True, False])


class Managed(RuleBasedStateMachine):
    @initialize(steps=st.integers(0, 4))
    def start(self, steps: int) -> None:
        self.folder = tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None)
        self.path = Path(self.folder) / "store.sqlite"
        self.clock = Clock()
        self.kept = Database(self.path, busy_timeout_ms=5000, wal=True, keep_open=True, refuse=StorageError)
        self.stores = [
            SQLiteManagedInputStore(self.path, clock=self.clock),
            SQLiteManagedInputStore.borrowing(
                self.kept, clock=self.clock, redact="default", secrets=lambda execution_id: ()
            ),
        ]
        # Looks without telling the two what is there: they remember, and must notice that they are out of date.
        self.executions = SQLiteExecutionStore(self.path)
        self.reader = self.executions.managed_input_store
        self.model: dict[tuple[str, str], Round] = {}
        self.checked: dict[tuple[str, str], ManagedInputRecord] = {}
        for store, ids in enumerate((("e1", "r1"), ("e2", "r1"))):
            self.create(store, ids, 0, "owner", 30, "same")
        self.bare = sqlite3.connect(self.path)
        self.goes_on(0, ("e1", "r1"), steps)

    def teardown(self) -> None:
        self.bare.close()
        self.kept.close()
        self.executions.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def held(self, ids: tuple[str, str], owner: str, token: bool) -> dict[str, str]:
        """What the caller shows: the stored token or a stolen one."""
        there = self.model.get(ids)
        return {"owner_id": owner, "lease_token": there.token if there is not None and token else "stolen"}

    def note(self, there: Round, method: str, before: str | None, after: str | None, owner: str | None) -> None:
        there.history.append((method, before, after, self.clock.now, owner))

    def call(self, store: int, ids: tuple[str, str], method: str, expected: Outcome | None, **call: Any) -> None:
        """Call the store; it must do what the model says. ``None``: there is no such round."""
        function, owner = getattr(self.stores[store], method), call.get("owner_id")
        if isinstance(expected, Round):
            before = self.model[ids]
            record = function(*ids, **call)
            if method == "claim_round":
                assert record.lease_token not in (before.token, "")
                expected.token = record.lease_token
            if method == "claim_round" or expected.status != before.status:
                self.note(expected, method, before.status, expected.status, owner)
            self.model[ids] = expected
            self.same(record, expected)
            return
        with pytest.raises(MCPError) as caught:
            function(*ids, **call)
        assert type(caught.value) is (expected or Conflict), (caught.value, self.model.get(ids))
        if expected is not None:
            self.note(self.model[ids], method, self.model[ids].status, None, owner)

    def same(self, record: ManagedInputRecord, there: Round) -> None:
        assert (record.status, record.round_index, record.owner_id) == (there.status, there.index, there.owner)
        assert (record.lease_token, record.delivery_attempts) == (there.token, there.attempts)
        assert record.lease.expires_at == there.end
        assert record.response_idempotency_key == there.key
        assert record.responses == (None if there.answer is None else ANSWERS[there.answer])
        assert (record.failure_code, record.failure_message) == (there.failure or (None, None))
        assert {name: getattr(record, name) for name in STAMPS} == {name: there.stamps.get(name) for name in STAMPS}
        variant = VARIANTS[there.variant]
        assert (record.round_limit, record.session_id) == (variant.get("round_limit", 3), variant.get("session_id"))
        assert record.operation_parameters == variant.get("operation_parameters", {})

    @rule(by=st.sampled_from([0, 1, 1, 1, 9, 29.5]))
    def time_passes(self, by: float) -> None:
        self.clock.advance(by)

    @rule(ids=rounds, before=st.booleans())
    def the_lease_ends(self, ids: tuple[str, str], before: bool) -> None:
        """To the instant at which a lease has expired, or the last one at which it has not."""
        if ids in self.model:
            self.clock.now = max(self.clock.now, self.model[ids].end - (INSTANT if before else timedelta()))

    @rule(
        store=stores,
        ids=rounds,
        index=st.sampled_from([0, 0, 1, 2, 3]),
        owner=owners,
        lease=seconds,
        variant=st.sampled_from(["same", "same", *VARIANTS]),
    )
    def create(self, store: int, ids: tuple[str, str], index: int, owner: str, lease: float, variant: str) -> None:
        there, now = self.model.get(ids), self.clock.now
        taken = next((other for (e, _), other in self.model.items() if e == ids[0] and other.index == index), None)
        token = f"token of {ids}"
        call = {"round_index": index, "round_limit": 3, "owner_id": owner, "lease_seconds": lease, "lease_token": token}
        call |= VARIANTS[variant]
        function = self.stores[store].create_round
        if index >= call["round_limit"]:
            with pytest.raises(Invalid):
                function(question(*ids), **call)
        elif there is None and taken is None:
            stamps = {"created_at": now, "updated_at": now}
            there = Round(index, variant, owner, token, now + timedelta(seconds=lease), stamps)
            self.note(there, "create_round", None, "pending", owner)
            self.model[ids] = there
            self.same(function(question(*ids), **call), there)
        elif there is not None and (there.index, there.variant, there.owner, there.token) == (
            *(index, variant, owner),
            token,
        ):
            self.same(function(question(*ids), **call), there)
        else:
            with pytest.raises(Conflict):
                function(question(*ids), **call)
            other = there or taken
            assert other is not None
            self.note(other, "create_round", other.status, None, owner)

    @rule(
        store=stores,
        ids=rounds,
        answer=st.sampled_from(["good", "good", *ANSWERS]),
        key=st.sampled_from(["k1", "k1", "k2"]),
        owner=owners,
        token=mostly,
    )
    def submit(self, store: int, ids: tuple[str, str], answer: str, key: str, owner: str, token: bool) -> None:
        there, held = self.model.get(ids), self.held(ids, owner, token)
        expected = None if there is None else after_submit(there, self.clock.now, held, answer, key)
        call = {"responses": ANSWERS[answer], "response_idempotency_key": key, **held}
        self.call(store, ids, "submit_responses", expected, **call)

    @rule(store=stores, ids=rounds, method=st.sampled_from(sorted(STEPS)), owner=owners, token=mostly)
    def step(self, store: int, ids: tuple[str, str], method: str, owner: str, token: bool) -> None:
        there, held = self.model.get(ids), self.held(ids, owner, token)
        self.call(
            store, ids, method, None if there is None else after_step(there, self.clock.now, held, method), **held
        )

    @rule(store=stores, ids=rounds, steps=st.integers(1, 4))
    def goes_on(self, store: int, ids: tuple[str, str], steps: int) -> None:
        """What the owner would do next."""
        for _ in range(steps if ids in self.model else 0):
            there = self.model[ids]
            if there.status == "pending":
                self.submit(store, ids, "good", "k1", there.owner, True)
            for method, (source, *_) in STEPS.items():
                if there.status == source:
                    self.step(store, ids, method, there.owner, True)

    @rule(store=stores, ids=rounds, evidence=st.sampled_from(["not_started", "not_delivered", "delivered"]))
    def is_taken_over(self, store: int, ids: tuple[str, str], evidence: str) -> None:
        """What another worker would do."""
        self.the_lease_ends(ids, False)
        self.claim(store, ids, "heir", True, evidence, True, 30)

    @rule(store=stores, ids=rounds, what=st.sampled_from(["goes on", "fails", "is renewed", "is taken over"]))
    def changes_behind_its_back(self, store: int, ids: tuple[str, str], what: str) -> None:
        """A store has seen the round, another one changes it, and the first does what would have been next."""
        if ids not in self.model:
            return
        seen = self.model[ids]
        self.stores[store].get_round(*ids)
        if what == "goes on":
            self.goes_on(1 - store, ids, 1)
        elif what == "fails":
            self.fail(1 - store, ids, seen.owner, "cancelled")
        elif what == "is renewed":
            self.renew(1 - store, ids, seen.owner, True, 10)
        else:
            self.is_taken_over(1 - store, ids, "delivered" if seen.status == "delivery_started" else "not_started")
        if seen.status == "pending":
            self.submit(store, ids, "secret", "k2", seen.owner, True)
        for method, (source, *_) in STEPS.items():
            if seen.status == source:
                self.step(store, ids, method, seen.owner, True)

    @rule(store=stores, ids=rounds, owner=owners, token=mostly, lease=seconds)
    def renew(self, store: int, ids: tuple[str, str], owner: str, token: bool, lease: float) -> None:
        there, held = self.model.get(ids), self.held(ids, owner, token)
        expected = None if there is None else after_renew(there, self.clock.now, held, lease)
        self.call(store, ids, "renew", expected, lease_seconds=lease, **held)

    @rule(store=stores, ids=rounds, owner=owners, code=st.sampled_from(["timeout", "cancelled"]))
    def fail(self, store: int, ids: tuple[str, str], owner: str, code: str) -> None:
        there, held = self.model.get(ids), self.held(ids, owner, True)
        expected = None if there is None else after_fail(there, self.clock.now, held, (code, "why"))
        self.call(store, ids, "fail", expected, code=code, message="why", **held)

    @rule(store=stores, ids=rounds, token=mostly)
    def fail_recovery(self, store: int, ids: tuple[str, str], token: bool) -> None:
        there, shown = self.model.get(ids), self.held(ids, "", token)["lease_token"]
        expected = None if there is None else after_recovery(there, self.clock.now, shown)
        self.call(store, ids, "fail_recovery", expected, expected_lease_token=shown, message="gone")

    @rule(
        store=stores,
        ids=rounds,
        owner=owners,
        token=mostly,
        evidence=st.sampled_from([None, "not_started", "not_delivered", "delivered"]),
        idempotent=st.booleans(),
        lease=seconds,
    )
    def claim(
        self, store: int, ids: tuple[str, str], owner: str, token: bool, evidence: Any, idempotent: bool, lease: float
    ) -> None:
        there, now = self.model.get(ids), self.clock.now
        shown = there.token if there is not None and token else None
        expected = None if there is None else after_claim(there, now, owner, lease, shown, (evidence, idempotent))
        call = {"owner_id": owner, "lease_seconds": lease, "expected_lease_token": shown}
        call |= {"delivery_state": evidence, "idempotent_delivery": idempotent}
        self.call(store, ids, "claim_round", expected, **call)

    @rule(store=stores, ids=rounds, wrong=st.sampled_from(MALFORMED))
    def malformed(self, store: int, ids: tuple[str, str], wrong: tuple[str, str, Any]) -> None:
        """Refused before anything is looked up, and without a line in the history."""
        method, name, value = wrong
        call = {"execution_id": ids[0], "round_id": ids[1], **CALLS[method], name: value}
        with pytest.raises(Invalid):
            getattr(self.stores[store], method)(**call)

    @rule(store=stores, ids=rounds)
    def look(self, store: int, ids: tuple[str, str]) -> None:
        record, there = self.stores[store].get_round(*ids), self.model.get(ids)
        assert (record is None) == (there is None)
        if record is not None and there is not None:
            self.same(record, there)
        listed = self.stores[store].list_rounds(ids[0])
        wanted = sorted((there.index, name) for (e, name), there in self.model.items() if e == ids[0])
        assert [(r.round_index, r.round_id) for r in listed] == wanted
        answer = None if there is None else there.answer
        redacted = self.stores[store].redacted_responses(*ids)
        assert redacted == (None if answer is None else {"address": REDACTED[answer]})

    @invariant()
    def the_file_is_as_the_model(self) -> None:
        for ids, there in self.model.items():
            record = self.reader.get_round(*ids)
            assert record is not None
            self.same(record, there)
            if record != self.checked.get(ids):
                assert ManagedInputRecord.model_validate(record.model_dump()) == record
                self.checked[ids] = record
        histories: dict[tuple[str, str], list[Line]] = {ids: [] for ids in self.model}
        with closing(self.bare.execute(LINES)) as lines:
            for execution_id, round_id, method, source, target, at, owner in lines:
                histories[execution_id, round_id].append((method, source, target, at, owner))
        for ids, there in self.model.items():
            assert histories[ids] == [(*line[:3], round(line[3].timestamp() * 1e6), line[4]) for line in there.history]


TestManaged = Managed.TestCase
TestManaged.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=16,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
