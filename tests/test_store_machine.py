"""The managed store against a model of it: any calls in any order, by two stores on one file, time moving in between.

``M3NB_EXAMPLES`` says how many runs (200); thousands are for the night.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storing import GOOD, Clock, accept, question

from m3nb.errors import (
    ManagedInputConflict,
    ManagedInputRecoveryError,
    ManagedInputStateError,
    ManagedInputValidationError,
    MCPError,
)
from m3nb.storage import ManagedInputRecord, SQLiteExecutionStore, SQLiteManagedInputStore, read_rows

EXAMPLES = int(os.environ.get("M3NB_EXAMPLES", "200"))
MEMORY = Path("/dev/shm")
TERMINAL = ("resolved", "failed")
ANSWERS = {"good": GOOD, "other": accept(street="2 Side Street"), "empty": {}, "invalid": accept(street="")}
STEPS = {
    "start_delivery": ("response_validated", "delivery_started"),
    "mark_delivered": ("delivery_started", "delivered"),
    "resolve": ("delivered", "resolved"),
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


@dataclass
class Round:
    """What the model knows of one round."""

    index: int
    owner: str
    token: str
    end: float
    status: str = "pending"
    key: str | None = None
    answer: str | None = None
    attempts: int = 0
    failure: tuple[str, str] | None = None
    moves: list[tuple[str | None, str]] = field(default_factory=lambda: [(None, "pending")])
    refusals: int = 0


Outcome = Round | type[MCPError]
# Mostly two rounds that are there from the start, so that most calls meet something.
rounds = st.sampled_from([*[("e1", "r1")] * 5, *[("e2", "r1")] * 3, ("e1", "r2")])
stores = st.integers(0, 1)
owners = st.sampled_from(["owner", "owner", "owner", "thief"])
seconds = st.sampled_from([1, 10, 30])


class Managed(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None)
        self.path = Path(self.folder) / "store.sqlite"
        self.clock, self.time = Clock(), 0.0
        self.stores = [SQLiteManagedInputStore(self.path, clock=self.clock) for _ in range(2)]
        # Looks without telling the two what is there: they remember, and must notice that they are out of date.
        self.executions = SQLiteExecutionStore(self.path)
        self.reader = self.executions.managed_input_store
        self.model: dict[tuple[str, str], Round] = {}
        for store, ids in enumerate((("e1", "r1"), ("e2", "r1"))):
            self.create(store, ids, 0, "owner", 30)

    def teardown(self) -> None:
        self.executions.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def live(self, there: Round) -> bool:
        return there.end > self.time

    def held(self, ids: tuple[str, str], owner: str, token: bool) -> dict[str, str]:
        """What the caller shows: the stored token or a stolen one."""
        there = self.model.get(ids)
        return {"owner_id": owner, "lease_token": there.token if there is not None and token else "stolen"}

    def holds(self, there: Round, held: dict[str, str]) -> bool:
        return (there.owner, there.token) == (held["owner_id"], held["lease_token"])

    def compare(self, store: int, ids: tuple[str, str], method: str, expected: Outcome | None, **call: Any) -> None:
        """Call the store; it must do what the model says. ``None``: there is no such round."""
        function = getattr(self.stores[store], method)
        if isinstance(expected, Round):
            record = function(*ids, **call)
            assert record == self.reader.get_round(*ids)
            before = self.model[ids]
            if method == "claim_round":
                assert record.lease_token != before.token
                expected.token = record.lease_token
            self.same(record, expected)
            if method == "claim_round" or expected.status != before.status:
                expected.moves = [*before.moves, (before.status, expected.status)]
            self.model[ids] = expected
            return
        error = ManagedInputConflict if expected is None else expected
        with pytest.raises(MCPError) as caught:
            function(*ids, **call)
        assert type(caught.value) is error, (caught.value, self.model.get(ids))
        if ids in self.model:
            self.model[ids].refusals += 1

    def same(self, record: ManagedInputRecord, there: Round) -> None:
        assert (record.status, record.round_index, record.owner_id) == (there.status, there.index, there.owner)
        assert (record.lease_token, record.delivery_attempts) == (there.token, there.attempts)
        assert (record.lease.expires_at - self.clock.now).total_seconds() == there.end - self.time
        assert record.response_idempotency_key == there.key
        assert record.responses == (None if there.answer is None else ANSWERS[there.answer])
        failure = None if there.failure is None else there.failure
        assert (record.failure_code, record.failure_message) == (failure or (None, None))

    @rule(by=st.sampled_from([0, 1, 1, 1, 9, 29.5, 30]))
    def time_passes(self, by: float) -> None:
        self.clock.advance(by)
        self.time += by

    @rule(store=stores, ids=rounds, index=st.integers(0, 2), owner=owners, lease=seconds)
    def creates(self, store: int, ids: tuple[str, str], index: int, owner: str, lease: float) -> None:
        self.create(store, ids, index, owner, lease)

    def create(self, store: int, ids: tuple[str, str], index: int, owner: str, lease: float) -> None:
        there = self.model.get(ids)
        taken = next((other for (e, _), other in self.model.items() if e == ids[0] and other.index == index), None)
        token = f"token of {ids}"
        call = {"round_index": index, "round_limit": 3, "owner_id": owner, "lease_seconds": lease, "lease_token": token}
        if there is None and taken is None:
            record = self.stores[store].create_round(question(*ids), **call)
            self.model[ids] = Round(index, owner, token, self.time + lease)
            self.same(record, self.model[ids])
        elif there is not None and (there.index, there.owner, there.token) == (index, owner, token):
            self.same(self.stores[store].create_round(question(*ids), **call), there)
        else:
            with pytest.raises(ManagedInputConflict):
                self.stores[store].create_round(question(*ids), **call)
            (there or taken).refusals += 1

    @rule(
        store=stores,
        ids=rounds,
        answer=st.sampled_from(["good", "good", "good", "other", "empty", "invalid"]),
        key=st.sampled_from(["k1", "k1", "k2"]),
        owner=owners,
        token=st.sampled_from([True, True, True, False]),
    )
    def submits(self, store: int, ids: tuple[str, str], answer: str, key: str, owner: str, token: bool) -> None:
        self.submit(store, ids, answer, key, owner, token)

    def submit(self, store: int, ids: tuple[str, str], answer: str, key: str, owner: str, token: bool) -> None:
        there, held = self.model.get(ids), self.held(ids, owner, token)
        expected: Outcome | None = None
        if there is not None:
            if there.status == "failed":
                expected = ManagedInputStateError
            elif not self.holds(there, held) or (there.status == "pending" and not self.live(there)):
                expected = ManagedInputConflict
            elif answer in ("empty", "invalid"):
                expected = ManagedInputValidationError
            elif there.status == "pending":
                expected = replace(there, status="response_validated", key=key, answer=answer)
            else:
                expected = replace(there) if (there.key, there.answer) == (key, answer) else ManagedInputConflict
        call = {"responses": ANSWERS[answer], "response_idempotency_key": key, **held}
        self.compare(store, ids, "submit_responses", expected, **call)

    @rule(
        store=stores,
        ids=rounds,
        method=st.sampled_from(sorted(STEPS)),
        owner=owners,
        token=st.sampled_from([True, True, False]),
    )
    def steps(self, store: int, ids: tuple[str, str], method: str, owner: str, token: bool) -> None:
        self.step(store, ids, method, owner, token)

    def step(self, store: int, ids: tuple[str, str], method: str, owner: str, token: bool) -> None:
        there, held = self.model.get(ids), self.held(ids, owner, token)
        source, target = STEPS[method]
        expected: Outcome | None = None
        if there is not None:
            if not self.holds(there, held) or not self.live(there):
                expected = ManagedInputConflict
            elif there.status == source:
                attempts = there.attempts + (method == "start_delivery")
                expected = replace(there, status=target, attempts=attempts)
            else:
                expected = replace(there) if there.status == target else ManagedInputStateError
        self.compare(store, ids, method, expected, **held)

    @rule(store=stores, ids=rounds, steps=st.integers(1, 4))
    def goes_on(self, store: int, ids: tuple[str, str], steps: int) -> None:
        """What the owner would do next."""
        for _ in range(steps if ids in self.model else 0):
            there = self.model[ids]
            if there.status == "pending":
                self.submit(store, ids, "good", "k1", there.owner, True)
            for method, (source, _) in STEPS.items():
                if there.status == source:
                    self.step(store, ids, method, there.owner, True)

    @rule(store=stores, ids=rounds, owner=owners, token=st.sampled_from([True, True, False]), lease=seconds)
    def renew(self, store: int, ids: tuple[str, str], owner: str, token: bool, lease: float) -> None:
        there, held = self.model.get(ids), self.held(ids, owner, token)
        expected: Outcome | None = None
        if there is not None:
            if not self.holds(there, held) or not self.live(there):
                expected = ManagedInputConflict
            elif there.status in TERMINAL:
                expected = ManagedInputStateError
            else:
                expected = replace(there, end=self.time + lease)
        self.compare(store, ids, "renew", expected, lease_seconds=lease, **held)

    @rule(store=stores, ids=rounds, owner=owners, code=st.sampled_from(["timeout", "cancelled"]))
    def fail(self, store: int, ids: tuple[str, str], owner: str, code: str) -> None:
        there, held = self.model.get(ids), self.held(ids, owner, True)
        expected: Outcome | None = None
        if there is not None:
            if not self.holds(there, held) or not self.live(there):
                expected = ManagedInputConflict
            elif there.status == "resolved":
                expected = ManagedInputStateError
            elif there.status == "failed":
                expected = replace(there) if there.failure == (code, "why") else ManagedInputConflict
            else:
                expected = replace(there, status="failed", failure=(code, "why"))
        self.compare(store, ids, "fail", expected, code=code, message="why", **held)

    @rule(store=stores, ids=rounds, token=st.sampled_from([True, True, False]))
    def fail_recovery(self, store: int, ids: tuple[str, str], token: bool) -> None:
        there = self.model.get(ids)
        shown = there.token if there is not None and token else "stolen"
        expected: Outcome | None = None
        if there is not None:
            if shown != there.token:
                expected = ManagedInputConflict
            elif there.failure is not None and there.failure[0] == "recovery_unavailable":
                expected = replace(there)
            elif there.status in TERMINAL:
                expected = ManagedInputStateError
            elif self.live(there):
                expected = ManagedInputConflict
            else:
                expected = replace(there, status="failed", failure=("recovery_unavailable", "gone"))
        self.compare(store, ids, "fail_recovery", expected, expected_lease_token=shown, message="gone")

    @rule(
        store=stores,
        ids=rounds,
        owner=owners,
        token=st.sampled_from([True, True, True, False]),
        evidence=st.sampled_from([None, "not_started", "not_delivered", "delivered"]),
        idempotent=st.booleans(),
        lease=seconds,
    )
    def claim(
        self, store: int, ids: tuple[str, str], owner: str, token: bool, evidence: Any, idempotent: bool, lease: float
    ) -> None:
        there = self.model.get(ids)
        shown = there.token if there is not None and token else None
        expected: Outcome | None = None
        if there is not None:
            target = CLAIMS.get((there.status, evidence, idempotent))
            if there.failure is not None and there.failure[0] == "recovery_unavailable":
                expected = ManagedInputRecoveryError
            elif there.status in TERMINAL:
                expected = ManagedInputStateError
            elif target is None:
                expected = ManagedInputRecoveryError
            elif self.live(there) or shown != there.token:
                expected = ManagedInputConflict
            else:
                expected = replace(there, status=target, owner=owner, end=self.time + lease)
        call = {"owner_id": owner, "lease_seconds": lease, "expected_lease_token": shown}
        call |= {"delivery_state": evidence, "idempotent_delivery": idempotent}
        self.compare(store, ids, "claim_round", expected, **call)

    @rule(store=stores, ids=rounds)
    def look(self, store: int, ids: tuple[str, str]) -> None:
        record, there = self.stores[store].get_round(*ids), self.model.get(ids)
        assert (record is None) == (there is None)
        if there is not None:
            self.same(record, there)

    @invariant()
    def the_file_is_as_the_model(self) -> None:
        lines = read_rows(self.path, "round_events")
        for ids, there in self.model.items():
            record = self.reader.get_round(*ids)
            self.same(record, there)
            assert ManagedInputRecord.model_validate(record.model_dump()) == record
            assert (self.reader.redacted_responses(*ids) is None) == (there.answer is None)
            mine = [row for row in lines if (row["execution_id"], row["round_id"]) == ids]
            assert [row["sequence"] for row in mine] == list(range(len(mine)))
            assert [(row["from_status"], row["to_status"]) for row in mine if row["to_status"]] == there.moves
            assert sum(row["to_status"] is None for row in mine) == there.refusals
        for execution_id in ("e1", "e2"):
            wanted = sorted((there.index, name) for (e, name), there in self.model.items() if e == execution_id)
            assert [(r.round_index, r.round_id) for r in self.reader.list_rounds(execution_id)] == wanted


TestManaged = Managed.TestCase
TestManaged.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
