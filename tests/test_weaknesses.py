"""What the reference package gets wrong, number by number: correctness, 1 to 10.

Speed (11 to 15) is in tests/bench/store.py, what a person meets (16 to 25) in test_weaknesses_met.py.

Each test is short; what it touches is tested in depth elsewhere.
"""

from __future__ import annotations

import gc
import logging
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from runs import classic, wait_for_round
from storing import GOOD, HELD, accept, bring, create, form, question, submit

from m3nb import AgentSpec, ElicitationResponse, MCPTestKit, SQLiteExecutionStore
from m3nb.errors import (
    ManagedInputValidationError,
    ModelValidationError,
    StorageBusy,
    StorageError,
)
from m3nb.storage import SQLiteManagedInputStore
from m3nb.types import Scripted, ServerBinding

HERE = Path(__file__).parent
CHOICES = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "minItems": 1}
NESTED = {
    "type": "object",
    "properties": {"zip": {"type": "string"}, "lines": {"type": "array", "items": {"type": "string"}}},
    "required": ["zip"],
    "additionalProperties": {"type": "integer"},
}


@pytest.fixture
def rounds(store: SQLiteExecutionStore) -> SQLiteManagedInputStore:
    return store.managed_input_store


def ask(rounds: SQLiteManagedInputStore, value: Any, name: str = "x") -> tuple[str, str]:
    """A round that asks for one field of this schema."""
    schema = {"type": "object", "properties": {name: value}, "required": [name]}
    return create(rounds, question("e1", "r1", form(schema=schema)))


def errors_of(rounds: SQLiteManagedInputStore, ids: tuple[str, str], answer: Any) -> list[dict[str, str]]:
    """The refusal of an answer, after which the round still waits."""
    with pytest.raises(ManagedInputValidationError) as caught:
        submit(rounds, ids, answer)
    assert rounds.get_round(*ids).status == "pending"
    return caught.value.details["errors"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array"}, ["a"]),
        (CHOICES, ["a", "c"]),
        (NESTED, {"zip": "1", "lines": ["a", "b"], "floor": 3}),
        ({"type": "array", "items": NESTED}, [{"zip": "1"}, {"zip": "2", "lines": []}]),
    ],
)
def test_01_arrays_and_nested_objects_can_be_answered(
    rounds: SQLiteManagedInputStore, schema: dict[str, Any], value: Any
) -> None:
    record = submit(rounds, ask(rounds, schema), accept(x=value))
    assert record.status == "response_validated"
    assert record.responses["address"].content == {"x": value}


@pytest.mark.parametrize(
    ("schema", "value", "keyword", "pointer"),
    [
        ({"items": {"type": "string"}}, [1], "type", "/x/0"),
        ({"items": {"minimum": 3}}, [5, 1], "minimum", "/x/1"),
        (CHOICES, [], "minItems", "/x"),
        (CHOICES, ["d"], "enum", "/x/0"),
        (NESTED, {"lines": []}, "required", "/x/zip"),
        (NESTED, {"zip": "1", "floor": "third"}, "type", "/x/floor"),
    ],
)
def test_01_what_is_inside_of_them_is_checked(
    rounds: SQLiteManagedInputStore, schema: dict[str, Any], value: Any, keyword: str, pointer: str
) -> None:
    (error,) = errors_of(rounds, ask(rounds, schema), accept(x=value))
    assert (error["keyword"], error["pointer"]) == (keyword, pointer)


def nested(levels: int) -> Any:
    return "end" if levels == 0 else [nested(levels - 1)]


@pytest.mark.parametrize(
    "content",
    [{"x": "http://"}, {"x": "http://[bad"}, {"x": "http://u:p@[::1"}, {"x": nested(100)}, {"x": 1, "s3cr3t-k3y": 2}],
    ids=["http", "bracket", "user", "deep", "secret key"],
)
def test_02_no_text_is_too_odd_to_be_answered(store: SQLiteExecutionStore, content: dict[str, Any]) -> None:
    store.set_secrets("e1", ["s3cr3t-k3y"])
    rounds = store.managed_input_store
    ids = ask(rounds, {})
    assert submit(rounds, ids, accept(**content)).responses["address"].content == content
    redacted = rounds.redacted_responses(*ids)
    assert redacted["address"]["action"] == "accept"
    assert "s3cr3t-k3y" not in repr(redacted)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "["},
        {"type": "number-ish"},
        {"properties": 7},
        {"items": 7},
        {"minimum": "a"},
        {"$ref": "#/nowhere"},
    ],
    ids=repr,
)
def test_03_a_broken_schema_is_a_typed_refusal(rounds: SQLiteManagedInputStore, schema: dict[str, Any]) -> None:
    ids = ask(rounds, schema)
    (error,) = errors_of(rounds, ids, accept(x="text"))
    assert error["keyword"] == "schema"
    assert submit(rounds, ids, {"address": ElicitationResponse(action="decline")}).status == "response_validated"


LONE = "a\ud800b"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda s, r: r.create_round(question("e2"), **CREATION, lease_seconds=float("inf")), "managed_input_invalid"),
        (lambda s, r: r.create_round(question("e2"), **CREATION, lease_seconds=float("nan")), "managed_input_invalid"),
        (lambda s, r: r.renew("e1", "r1", lease_seconds=float("inf"), **HELD), "managed_input_invalid"),
        (lambda s, r: create(r, question("e2", "r2", form(operation_name=LONE))), "managed_input_invalid"),
        (lambda s, r: create(r, question("e2", "r2", request_state=LONE)), "managed_input_invalid"),
        (lambda s, r: submit(r, ("e1", "r1"), key=LONE), "managed_input_invalid"),
        (lambda s, r: submit(r, ("e1", "r1"), {LONE: GOOD["address"]}), "managed_input_invalid"),
        (lambda s, r: s.outbox.prepare("e1", "r1", {LONE: GOOD["address"]}), "managed_input_invalid"),
        (lambda s, r: r.fail("e1", "r1", code="c", message=LONE, **HELD), "managed_input_invalid"),
        (lambda s, r: s.create_execution("e2", spec={"m": LONE}, worker_id="w", managed=True), "invalid_argument"),
        (lambda s, r: s.append_event("e1", "prompt", {"text": LONE}), "invalid_argument"),
        (lambda s, r: s.get_execution(LONE), "invalid_argument"),
    ],
)
def test_03_numbers_and_texts_that_cannot_be_stored_are_typed_refusals(
    store: SQLiteExecutionStore, rounds: SQLiteManagedInputStore, call: Any, error: str
) -> None:
    create(rounds)
    with pytest.raises((ManagedInputValidationError, ModelValidationError)) as caught:
        call(store, rounds)
    assert caught.value.code == error
    caught.value.message.encode()  # whoever prints it doesn't stumble over the same text
    assert rounds.get_round("e1", "r1").status == "pending"


CREATION: dict[str, Any] = {"round_index": 0, "round_limit": 1, "owner_id": "owner"}


def test_03_a_busy_database_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    rounds = SQLiteManagedInputStore(path, busy_timeout_ms=50)
    ids = create(rounds)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageBusy, match="try again"):
        submit(rounds, ids)
    other.close()
    assert submit(rounds, ids).status == "response_validated"


@pytest.mark.parametrize(
    ("format_", "wrong", "right"),
    [
        ("email", "not an email", "a@example.com"),
        ("uri", "no uri", "https://example.com/a"),
        ("date", "2026-02-30", "2026-02-28"),
        ("date-time", "yesterday", "2026-02-28T10:00:00Z"),
    ],
)
def test_04_formats_are_checked(rounds: SQLiteManagedInputStore, format_: str, wrong: str, right: str) -> None:
    ids = ask(rounds, {"type": "string", "format": format_})
    (error,) = errors_of(rounds, ids, accept(x=wrong))
    assert (error["keyword"], error["pointer"]) == ("format", "/x")
    assert submit(rounds, ids, accept(x=right)).status == "response_validated"


WRITER = """
import sys
sys.path[:0] = {paths!r}
from storing import create, question
from m3nb.storage import SQLiteManagedInputStore
rounds = SQLiteManagedInputStore(sys.argv[1], busy_timeout_ms=500)
print("ready", flush=True)
number = 0
for line in sys.stdin:
    number += 1
    create(rounds, question(f"there-{{number}}"))
    print(number, flush=True)
"""


def test_05_a_pattern_that_runs_wild_holds_nobody_up(store: SQLiteExecutionStore) -> None:
    rounds = store.managed_input_store
    ids = ask(rounds, {"type": "string", "pattern": "^(a|aa)+$"})
    code = WRITER.format(paths=[str(HERE), str(HERE.parent)])
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout.readline() == "ready\n"
    refused: list[str] = []
    thread = threading.Thread(
        target=lambda: refused.extend(e["keyword"] for e in errors_of(rounds, ids, accept(x="a" * 5000 + "!")))
    )
    thread.start()
    written = 0
    while thread.is_alive():
        # The lock would be waited for half a second; the answer is worked on for longer.
        print(file=writer.stdin, flush=True)
        assert writer.stdout.readline(), "the other process did not get the lock"
        written += 1
        rounds.get_round(*ids)
    thread.join()
    writer.stdin.close()
    assert writer.wait(10) == 0
    assert (refused, written > 0) == (["budget"], True)


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_06_close_and_cancel_right_after_submit_return(tmp_path: Path, end: str) -> None:
    store = SQLiteExecutionStore(tmp_path / "runs.sqlite")
    for _ in range(3):
        kit = MCPTestKit(store=store, env={})
        handle = submitted(kit)
        if end == "cancel":
            handle.cancel()
            handle.result(timeout=20)
        kit.close()
        assert handle.result(timeout=5).outcome.value == ("cancelled" if end == "cancel" else "interrupted")
    assert store.list_executions(unfinished=True) == ()
    store.close()


def submitted(kit: MCPTestKit, tool: str = "book", **options: Any) -> Any:
    agent = kit.agents([{"harness": "scripted"}])[0]
    return agent.submit("Go.", server=classic(), tools=[f"classic:{tool}"], human_input="managed", **options)


def test_07_a_missed_deadline_ends_as_timed_out(kit: MCPTestKit, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        handle = submitted(kit, answer_within=0.2)
        result = handle.result(timeout=30)
        gc.collect()
    assert (result.outcome.value, result.error.code) == ("timed_out", "timeout")
    (record,) = kit.store.managed_input_store.list_rounds(handle.execution_id)
    assert (record.status, record.failure_code) == ("failed", "timeout")
    assert "never retrieved" not in caplog.text


def test_07_one_round_too_many_ends_as_failed(kit: MCPTestKit, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        handle = submitted(kit, "twice", elicitation_round_limit=1)
        pending = wait_for_round(handle)
        answer = {"elicitation": ElicitationResponse(action="accept", content={"name": "Ada"})}
        handle.respond_elicitation(pending.round_id, answer, idempotency_key="k")
        result = handle.result(timeout=30)
        gc.collect()
    assert (result.outcome.value, result.error.code) == ("failed", "elicitation_round_limit")
    assert "never retrieved" not in caplog.text


def test_08_a_delivered_round_keeps_its_lease(rounds: SQLiteManagedInputStore) -> None:
    ids = bring(rounds, "delivered")
    before = rounds.get_round(*ids)
    renewed = rounds.renew(*ids, lease_seconds=600, **HELD)
    assert (renewed.status, renewed.lease.expires_at > before.lease.expires_at) == ("delivered", True)
    assert rounds.resolve(*ids, **HELD).status == "resolved"


@pytest.mark.parametrize(
    ("make", "error"),
    [(SQLiteManagedInputStore, ManagedInputValidationError), (SQLiteExecutionStore, StorageError)],
    ids=["managed", "execution"],
)
def test_09_paths_are_refused_at_once_and_files_are_private(tmp_path: Path, make: Any, error: Any) -> None:
    link, target = tmp_path / "link.sqlite", tmp_path / "target.sqlite"
    link.symlink_to(target)
    for path in (link, ":memory:", tmp_path):
        with pytest.raises(error, match=str(path)):
            make(path)
    assert not target.exists()
    store = make(tmp_path / "new.sqlite")
    modes = set()
    create(getattr(store, "managed_input_store", store))
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("new.sqlite*")}
    assert modes == {0o600}
    if isinstance(store, SQLiteExecutionStore):
        store.close()


def test_09_a_new_file_is_private_from_its_first_moment(tmp_path: Path) -> None:
    """Nobody ever sees it with another mode: a thread looks all the time."""
    seen: set[int] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for file in tmp_path.iterdir():
                try:
                    seen.add(stat.S_IMODE(file.stat().st_mode))
                except FileNotFoundError:
                    continue

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(30):
        create(SQLiteManagedInputStore(tmp_path / f"{number}.sqlite"))
    time.sleep(0.01)
    done.set()
    thread.join()
    assert seen == {0o600}


def spec() -> AgentSpec:
    return AgentSpec(harness=Scripted(), message="Go.", servers=(ServerBinding(server=classic()),))


@pytest.mark.parametrize("wrong", [["managed"], {}, set(), None, "maybe"], ids=repr)
def test_10_any_wrong_human_input_is_a_typed_error(kit: MCPTestKit, wrong: Any) -> None:
    with pytest.raises(ModelValidationError, match="human_input") as caught:
        kit.submit(spec(), wrong)
    assert caught.value.details == {"operation": "execution.submit"}
    with pytest.raises(ModelValidationError, match="human_input"):
        kit.submit(spec(), human_input=wrong)


def test_10_human_input_is_positional_as_the_document_shows_it(kit: MCPTestKit) -> None:
    handle = kit.submit(spec(), "managed")
    assert handle.pending_elicitation() is None
    handle.cancel()
