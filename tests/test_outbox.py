"""An answer is stored with its key before it is committed, and its content goes when the commit is known."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from storing import GOOD, HELD, accept, create, question, submit

from m3nb.elicitation import ElicitationResponse
from m3nb.errors import ManagedInputConflict, ManagedInputValidationError
from m3nb.storage import SQLiteExecutionStore

ROOT = Path(__file__).parent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteExecutionStore]:
    store = SQLiteExecutionStore(tmp_path / "store.sqlite")
    yield store
    store.close()


def test_the_way_of_an_answer(store: SQLiteExecutionStore) -> None:
    ids = create(store.managed_input_store)
    entry = store.outbox.prepare(*ids, GOOD)
    assert store.outbox.unacknowledged() == store.outbox.unacknowledged("e1") == (entry,)
    assert store.outbox.unacknowledged("e2") == ()
    assert (entry.execution_id, entry.round_id, entry.responses, entry.acknowledged_at) == (*ids, GOOD, None)
    assert entry.idempotency_key not in repr(entry)
    assert "Main" not in repr(entry)
    record = submit(store.managed_input_store, ids, entry.responses, entry.idempotency_key)
    assert record.response_idempotency_key == entry.idempotency_key
    store.outbox.acknowledge(entry.idempotency_key)
    assert store.outbox.unacknowledged() == ()
    later = store.outbox.prepare(*ids, GOOD)
    assert (later.idempotency_key, later.digest) == (entry.idempotency_key, entry.digest)
    assert later.responses is None
    assert later.acknowledged_at is not None
    store.outbox.acknowledge(entry.idempotency_key)
    store.outbox.acknowledge("no such key")
    assert store.outbox.prepare(*ids, GOOD) == later


def test_after_the_acknowledgement_the_content_is_gone_from_the_file(store: SQLiteExecutionStore) -> None:
    entry = store.outbox.prepare("e1", "r1", accept(street="17 Very Private Lane"))
    store.outbox.acknowledge(entry.idempotency_key)
    store.close()
    text = store.path.read_bytes()
    assert b"Very Private" not in text
    assert entry.idempotency_key.encode() in text
    assert entry.digest.encode() in text


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (accept(tags=["a", "b"], street="1 Main Street"), True),
        (accept(street="1 Main Street", tags=["b", "a"]), False),
        (accept(street="1 Main Street"), False),
        (accept("other", street="1 Main Street", tags=["a", "b"]), False),
        ({"address": ElicitationResponse(action="decline")}, False),
        ({"address": ElicitationResponse(action="accept", content=GOOD["address"].content, meta={})}, False),
        ({}, False),
    ],
)
def test_equal_answers_have_one_key(store: SQLiteExecutionStore, other: Any, same: bool) -> None:
    first = store.outbox.prepare("e1", "r1", GOOD)
    second = store.outbox.prepare("e1", "r1", other)
    assert (first.idempotency_key == second.idempotency_key) is same
    assert len(store.outbox.unacknowledged()) == (1 if same else 2)


def test_each_round_has_its_own_keys(store: SQLiteExecutionStore) -> None:
    keys = {store.outbox.prepare(*ids, GOOD).idempotency_key for ids in (("e1", "r1"), ("e1", "r2"), ("e2", "r1"))}
    assert len(keys) == 3
    assert [(entry.execution_id, entry.round_id) for entry in store.outbox.unacknowledged()] == [
        ("e1", "r1"),
        ("e1", "r2"),
        ("e2", "r1"),
    ]


@pytest.mark.parametrize(("one", "two"), [(True, 1), (1, 1.0), (0.0, -0.0), ("1", 1), (None, False)])
def test_answers_that_python_calls_equal_have_two_keys(store: SQLiteExecutionStore, one: Any, two: Any) -> None:
    keys = {store.outbox.prepare("e1", "r1", accept(x=value)).idempotency_key for value in (one, two)}
    assert len(keys) == 2


def test_a_retry_after_a_restart_uses_the_same_key(store: SQLiteExecutionStore) -> None:
    ids = create(store.managed_input_store, question())
    code = f"""
import sys
sys.path[:0] = {[str(ROOT), str(ROOT.parent)]!r}
from storing import *
from m3nb.storage import SQLiteExecutionStore
print(SQLiteExecutionStore({str(store.path)!r}).outbox.prepare("e1", "r1", GOOD).idempotency_key, end="")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    (entry,) = store.outbox.unacknowledged()
    assert done.stdout == entry.idempotency_key == store.outbox.prepare(*ids, GOOD).idempotency_key
    first = submit(store.managed_input_store, ids, entry.responses, entry.idempotency_key)
    assert submit(store.managed_input_store, ids, entry.responses, entry.idempotency_key) == first
    other = store.outbox.prepare(*ids, accept(street="2 Side Street"))
    with pytest.raises(ManagedInputConflict):
        store.managed_input_store.submit_responses(
            *ids, other.responses, response_idempotency_key=other.idempotency_key, **HELD
        )


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        "x",
        {"a": {"action": "accept"}},
        {1: ElicitationResponse(action="cancel")},
        {"\ud800": GOOD["address"]},
    ],
    ids=ascii,
)
def test_malformed_answers(store: SQLiteExecutionStore, bad: Any) -> None:
    with pytest.raises(ManagedInputValidationError):
        store.outbox.prepare("e1", "r1", bad)
    for ids in (("", "r1"), ("e1", None)):
        with pytest.raises(ManagedInputValidationError):
            store.outbox.prepare(*ids, GOOD)
    with pytest.raises(ManagedInputValidationError):
        store.outbox.acknowledge("")
    with pytest.raises(ManagedInputValidationError):
        store.outbox.unacknowledged("")
    assert store.outbox.unacknowledged() == ()
