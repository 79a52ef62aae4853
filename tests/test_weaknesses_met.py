"""What the reference package gets wrong, number by number: what a person meets, 16 to 25."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import subprocess
import sys
import threading
import tomllib
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from runs import HERE, accept, classic, deliveries, wait_for_round
from storing import GOOD, SCHEMA, accept as content, create, form, question, submit, url

import m3nb.runtime.recovery as recovery
from m3nb import ElicitationResponse, MCPTestKit, SQLiteExecutionStore, StdioServer
from m3nb.errors import ManagedInputValidationError, ModelValidationError, ServerError
from m3nb.forms import compile_form

ROOT = HERE.parent


def submitted(kit: MCPTestKit, tool: str = "book", harness: str = "scripted", **options: Any) -> Any:
    agent = kit.agents([{"harness": harness, **({} if harness == "scripted" else {"models": ["m"]})}])[0]
    options = {"server": classic(), "tools": [f"classic:{tool}"], "human_input": "managed", **options}
    return agent.submit("Go.", **options)


def answer(handle: Any, round_id: str) -> None:
    handle.respond_elicitation(round_id, {"elicitation": accept()}, idempotency_key=f"answer-{round_id}")


def test_16_a_paused_round_does_not_hold_up_a_later_submission(kit: MCPTestKit) -> None:
    first = submitted(kit)
    pending = wait_for_round(first)
    second = submitted(kit, "plain")
    assert second.result(timeout=30).outcome.value == "completed"
    assert first.pending_elicitation() == pending
    answer(first, pending.round_id)
    assert first.result(timeout=30).outcome.value == "completed"


def test_17_a_round_is_waited_for_without_a_poll_loop(kit: MCPTestKit) -> None:
    handle = submitted(kit)
    asked = threading.Event()
    unsubscribe = handle.on_event(lambda event: asked.set() if event.kind == "elicitation.request" else None)
    assert asked.wait(30)
    unsubscribe()
    pending = handle.pending_elicitation()
    for event in handle.events(follow=True):
        if event.kind == "elicitation.request":
            answer(handle, event.payload["round_id"])
    assert event.kind == "finished"
    assert handle.result(timeout=1).outcome.value == "completed"

    assert " at 0x" not in repr(pending)
    assert "Where should it go?" in repr(pending)
    shown = pending._repr_html_()
    assert pending.round_id in shown
    assert "Where should it go?" in shown


def test_18_a_refusal_names_the_answer_the_field_and_the_rule(store: SQLiteExecutionStore) -> None:
    other = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}, "required": ["n"]}
    ids = create(store.managed_input_store, question("e1", "r1", form(), form("count", other), url()))
    answers = content(street="", tags=[1]) | content("count", n=4) | {"consent": ElicitationResponse(action="accept")}
    with pytest.raises(ManagedInputValidationError) as caught:
        submit(store.managed_input_store, ids, answers)
    found = [(e["request_key"], e["pointer"], e["keyword"]) for e in caught.value.details["errors"]]
    assert found == [("address", "/street", "minLength"), ("address", "/tags/0", "type"), ("count", "/n", "maximum")]
    for error in caught.value.details["errors"]:
        assert error["message"] in caught.value.message


def test_19_records_copy_and_pickle_and_schemas_equal_what_was_sent(store: SQLiteExecutionStore) -> None:
    sent = {**SCHEMA, "x-unknown": [1, [2.0, None], {"a": (True,)}]}
    rounds = store.managed_input_store
    ids = create(rounds, question("e1", "r1", form(schema=sent)))
    submit(rounds, ids, GOOD)
    record = rounds.get_round(*ids)
    pending = record.pending
    for value in (record, pending, pending.requests["address"], record.responses["address"]):
        assert copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value
    schema = pending.requests["address"].requested_schema
    assert json.dumps(schema) == json.dumps(sent)
    assert schema == json.loads(json.dumps(sent))
    assert schema["required"] == ["street"]


def end_of(kit: MCPTestKit, **options: Any) -> tuple[str, str]:
    """How a run that can't work says so: the code and the message of its error."""
    try:
        error = submitted(kit, **options).result(timeout=30).error
    except (ModelValidationError, ServerError) as refused:
        error = refused
    return error.code, error.message


def test_20_causes_are_told_apart(kit: MCPTestKit) -> None:
    missing = StdioServer(name="classic", command="no-such-command-of-ours")
    dying = StdioServer(name="classic", command=sys.executable, args=("-c", "raise SystemExit(7)"))
    causes = {
        "harness": end_of(kit, harness="opencode"),
        "command": end_of(kit, server=missing),
        "server": end_of(kit, server=dying),
        "tool": end_of(kit, tool="no_such_tool"),
        "name": end_of(kit, tools=["other:book"]),
    }
    assert len({message for _, message in causes.values()}) == len(causes)
    parts = {
        "harness": "opencode",
        "command": "no-such-command-of-ours",
        "server": "classic",
        "tool": "no_such_tool",
        "name": "other:book",
    }
    for cause, part in parts.items():
        assert part in causes[cause][1]
    codes = {cause: code for cause, (code, _) in causes.items()}
    assert codes == {
        "harness": "unsupported",
        "command": "server_lost",
        "server": "server_lost",
        "tool": "invalid_argument",
        "name": "invalid_argument",
    }
    with pytest.raises(ModelValidationError, match="no harness 'cursor'"):
        kit.agents([{"harness": "cursor"}])


def test_21_a_new_kit_takes_up_a_live_round(kit: MCPTestKit, store: SQLiteExecutionStore) -> None:
    execution_id = submitted(kit).execution_id
    with MCPTestKit(store=store, env={}) as second:
        again = second.handle(execution_id)
        answer(again, wait_for_round(again).round_id)
        assert again.result(timeout=30).outcome.value == "completed"


ELSEWHERE = """
import sys
sys.path[:0] = {paths!r}
from runs import accept
from m3nb import MCPTestKit, SQLiteExecutionStore
store = SQLiteExecutionStore(sys.argv[1])
with MCPTestKit(store=store, env={{}}) as kit:
    handle = kit.handle(sys.argv[2])
    pending = handle.pending_elicitation()
    handle.respond_elicitation(pending.round_id, {{"elicitation": accept()}}, idempotency_key="elsewhere")
    print(handle.result(timeout=30).outcome.value)
store.close()
"""


def test_21_so_does_another_process(kit: MCPTestKit, store: SQLiteExecutionStore, tmp_path: Path) -> None:
    log = tmp_path / "answers.log"
    handle = submitted(kit, server=classic(log))
    wait_for_round(handle)
    code = ELSEWHERE.format(paths=[str(HERE), str(ROOT)])
    command = [sys.executable, "-c", code, str(store.path), handle.execution_id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout.split() == ["completed"], done.stderr
    assert len(deliveries(log)) == 1


def test_21_an_abandoned_round_ends_without_a_submission(
    store: SQLiteExecutionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "GRACE_SECONDS", 0.0)
    short = {"kind": "embedded", "pid": 1, "version": "0", "prefix": "/", "lease_seconds": 0.001}
    store.register_worker(worker_id="dead", **short)
    store.create_execution("e1", spec={}, worker_id="dead", managed=True)
    ids = create(store.managed_input_store, question("e1"), lease_seconds=0.001)
    with MCPTestKit(store=store, env={}) as kit:
        error = kit.handle("e1").result(timeout=30).error
    assert error.code == "managed_input_recovery_unavailable"
    assert store.managed_input_store.get_round(*ids).failure_code == "recovery_unavailable"


def test_22_what_a_classic_server_asks_during_a_call_is_answered(kit: MCPTestKit, tmp_path: Path) -> None:
    log = tmp_path / "answers.log"
    agent = kit.agents([{"harness": "scripted"}])[0]
    handle = agent.submit('classic:book {"weight_kg": 2}', server=classic(log), human_input="managed")
    pending = wait_for_round(handle)
    assert (pending.operation_name, list(pending.requests)) == ("book", ["elicitation"])
    answer(handle, pending.round_id)
    assert handle.result(timeout=30).final_text == "booked to Pune"
    assert deliveries(log) == [{"action": "accept", "content": {"street": "1 Main Street", "city": "Pune"}}]


def installed_by_us() -> set[str]:
    """Every distribution that a plain `pip install m3nb` brings, as far as they are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found: set[str] = set()
    todo = [Requirement(text) for text in project["dependencies"]]
    while todo:
        requirement = todo.pop()
        wanted = [{"extra": extra} for extra in requirement.extras] or [{"extra": ""}]
        key = requirement.name.lower().replace("_", "-") + ",".join(sorted(requirement.extras))
        if key in found:
            continue
        found |= {key, requirement.name.lower().replace("_", "-")}
        try:
            needed = [Requirement(text) for text in requires(requirement.name) or ()]
        except PackageNotFoundError:
            continue
        todo += [r for r in needed if r.marker is None or any(r.marker.evaluate(extra) for extra in wanted)]
    return found


PLAIN = """
import importlib.abc, json, sys

class OnlyWhatWeBring(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in foreign:
            raise ModuleNotFoundError(f"No module named {name!r}: a plain install does not bring it", name=name)

foreign = set(json.loads(sys.argv[2]))
sys.meta_path.insert(0, OnlyWhatWeBring())
sys.path[:0] = json.loads(sys.argv[3])
from runs import accept, classic, wait_for_round
from m3nb import ElicitationResponse, MCPTestKit
from m3nb.storage import SQLiteExecutionStore
import m3nb
for name in m3nb.__all__:
    getattr(m3nb, name)
store = SQLiteExecutionStore(sys.argv[1])
with MCPTestKit(store=store, env={}) as kit:
    agent = kit.agents([{"harness": "scripted"}])[0]
    handle = agent.submit("Go.", server=classic(), tools=["classic:book"], human_input="managed")
    pending = wait_for_round(handle)
    handle.respond_elicitation(pending.round_id, {"elicitation": accept()}, idempotency_key="k")
    print(handle.result(timeout=60).outcome.value)
store.close()
"""


def test_23_a_plain_install_suffices(tmp_path: Path) -> None:
    """The document's example runs where every module that a plain install does not bring can't be imported."""
    ours = installed_by_us() | {"m3nb"}
    modules = packages_distributions()
    foreign = [name for name, homes in modules.items() if not {h.lower().replace("_", "-") for h in homes} & ours]
    assert {"pytest", "jupyterlab"} <= set(foreign)
    arguments = [str(tmp_path / "runs.sqlite"), json.dumps(foreign), json.dumps([str(HERE), str(ROOT)])]
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["completed"], done.stderr


def test_23_every_import_is_brought_by_a_plain_install() -> None:
    """Also those inside of functions. Only the demo opens a notebook, and says what to install for it; and the loading
    of jsonschema puts off a module where there is one."""
    ours, homes = installed_by_us(), packages_distributions()
    foreign: dict[str, set[str]] = {}
    for path in (ROOT / "m3nb").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"m3nb"}:
                if not {home.lower().replace("_", "-") for home in homes.get(name, [name])} & ours:
                    foreign.setdefault(str(path.relative_to(ROOT)), set()).add(name)
    assert set(foreign) <= {"m3nb/notebook/demo.py", "m3nb/validity/loading.py"}, foreign


def test_24_what_was_said_can_be_purged(tmp_path: Path) -> None:
    store = SQLiteExecutionStore(tmp_path / "store.sqlite")
    rounds = store.managed_input_store
    store.create_execution("e1", spec={}, worker_id="w", managed=True)
    ids = create(rounds, question("e1"))
    said = content(street="1 Main Street", password="correct horse battery staple")
    store.outbox.prepare(*ids, said)
    submit(rounds, ids, said)
    store.append_event("e1", "message", {"text": "correct horse battery staple"})
    store.finish_execution("e1", outcome="completed", result={"final_text": "correct horse"}, error=None)
    assert store.purge(before=store.now() - timedelta(days=1)) == 0
    assert store.purge(before=store.now() + timedelta(seconds=1)) == 1
    record = rounds.get_round(*ids)
    assert (record.status, record.responses["address"].action) == ("response_validated", "accept")
    assert record.responses["address"].content is None
    store.close()
    for file in tmp_path.iterdir():
        assert b"correct horse" not in file.read_bytes(), file.name
        assert b"Main Street" not in file.read_bytes(), file.name


@pytest.mark.parametrize(
    "target",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        " javascript:alert(1)",
        "java\tscript:alert(1)",
        "data:text/html,<script>alert(1)</script>",
        "vbscript:x",
        "file:///etc/passwd",
        "//example.com/a",
        "",
    ],
)
def test_25_only_web_addresses_become_links(target: str) -> None:
    plan = compile_form(url().model_copy(update={"url": target}))
    assert plan["openable"] is False
    assert plan["blocked"]
    assert plan["url"]["text"] == target
    assert compile_form(url())["openable"] is True
