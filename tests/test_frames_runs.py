"""Executions and events as DataFrames: of real runs, and of stores that hold what no run of ours would write."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from asking import form
from framing import START, TABLES, Rounds, accept, checked, named
from mcp.server import MCPServer
from runs import ADDRESS, accept as address, classic, shipping, wait_for_round

import m3nb
from m3nb import InMemoryExecutionStore, InProcessServer, MCPTestKit, SQLiteExecutionStore, Workbench, expect_form
from m3nb.errors import ManagedInputValidationError
from m3nb.frames import answers, events, executions, requests, rounds

SECRET = "a-secret-of-the-server"
TOOL = "shipping:book_shipment"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "executions.sqlite"


def test_a_run_from_its_prompt_to_its_end(store: SQLiteExecutionStore, kit: MCPTestKit) -> None:
    agent = kit.agents([{"harness": "scripted", "name": "robot"}], trials=2)[1]
    handle = agent.submit(
        f"Book it, {SECRET}.",
        server=shipping(environment={"API_TOKEN": SECRET}),
        tools=[TOOL],
        human_input="managed",
        case_id="case",
        run_id="run",
    )
    pending = wait_for_round(handle)
    open_ = checked(executions, store).iloc[0]
    assert open_[["lifecycle", "n_rounds", "waited"]].tolist() == ["waiting_for_input", 1, timedelta(0)]
    assert open_[["outcome", "took", "active", "finished_at", "final_text"]].isna().all()
    with pytest.raises(ManagedInputValidationError):
        handle.respond_elicitation(pending.round_id, {"shipping_address": address({})}, idempotency_key="k")
    time.sleep(0.2)
    handle.respond_elicitation(pending.round_id, {"shipping_address": address()}, idempotency_key="k")
    result = handle.result(timeout=30)

    frame = checked(executions, store)
    assert len(frame) == 1
    row = frame.iloc[0]
    assert row[["harness", "servers", "tools", "name", "trial", "case_id", "run_id", "managed"]].tolist() == [
        *("scripted", "shipping", TOOL, "robot", 2, "case", "run", True),
    ]
    assert row[["lifecycle", "outcome", "n_rounds", "tool_call_count"]].tolist() == ["finished", "completed", 1, 1]
    assert row[["prompt", "final_text"]].tolist() == ["Book it, [REDACTED].", result.final_text]
    assert row[["model", "suite_name", "project_id", "error_code", "cancel_requested_at"]].isna().all()
    assert row["execution_id"] == handle.execution_id
    assert row["took"] == row["finished_at"] - row["created_at"]
    assert row["waited"] == rounds(store)["waited"][0] > timedelta(seconds=0.2)
    assert row["active"] == row["took"] - row["waited"] > timedelta(0)

    frame = checked(events, store)
    assert frame["at"].is_monotonic_increasing
    own = frame[frame["source"] == "execution"].sort_values("sequence")
    assert own["sequence"].tolist() == [event.sequence for event in result.trace]
    assert own["kind"].tolist() == [event.kind for event in result.trace]
    assert [json.loads(text) for text in own["payload"]] == [event.model_dump()["payload"] for event in result.trace]
    steps = frame[frame["source"] == "round"]
    assert steps["kind"].tolist() == [
        *("create_round", "submit_responses", "submit_responses", "start_delivery", "mark_delivered", "resolve"),
    ]
    assert steps["to_status"].fillna("failed").tolist() == [
        *("pending", "failed", "response_validated", "delivery_started", "delivered", "resolved"),
    ]
    assert steps["from_status"].isna().tolist() == [True] + [False] * 5
    refused = json.loads(steps["payload"].iloc[1])
    assert refused["error"] == "managed_input_invalid"
    assert steps["payload"].isna().sum() == 5
    about = frame[frame["round_id"].notna() | frame["kind"].str.startswith("tool.")]
    assert {"tool.call", "elicitation.request", "elicitation.response", "tool.result"} < set(about["kind"])
    assert set(steps["kind"]) < set(about["kind"])
    assert about[["server", "operation_kind", "operation_name"]].drop_duplicates().values.tolist() == [
        ["shipping", "tool", "book_shipment"]
    ]
    assert set(about["round_id"].dropna()) == {pending.round_id}
    assert set(frame["execution_id"]) == {handle.execution_id}
    for table in TABLES:
        assert SECRET not in table(store).to_csv()


def test_runs_that_end_otherwise(store: SQLiteExecutionStore, kit: MCPTestKit) -> None:
    agent = kit.agents([{"harness": "scripted"}])[0]
    nobody = agent.submit("Book it.", server=shipping(), tools=[TOOL])
    error = nobody.result(timeout=30).error
    assert error is not None
    cancelled = agent.submit("Book it.", server=shipping(), tools=[TOOL], human_input="managed")
    wait_for_round(cancelled)
    cancelled.cancel()
    cancelled.result(timeout=30)
    frame = checked(executions, store)
    assert frame["outcome"].tolist() == ["failed", "cancelled"]
    assert frame["managed"].tolist() == [False, True]
    assert frame["n_rounds"].tolist() == [0, 1]
    assert frame["error_code"].tolist() == [error.code, "cancelled"]
    assert frame["error_message"][0] == error.message
    assert frame["cancel_requested_at"].isna().tolist() == [True, False]
    assert frame["trial"].tolist() == [1, 1]
    (round_,) = rounds(store).itertuples()
    assert frame["waited"].tolist() == [timedelta(0), round_.failed_at - round_.created_at]
    assert requests(store)["action"].isna().tolist() == [True]
    assert (frame["outcome"] > "completed").all()


def test_a_store_in_memory_has_executions_and_events() -> None:
    store = InMemoryExecutionStore()
    with MCPTestKit(store=store, env={}) as kit:
        result = kit.agents([{"harness": "scripted"}])[0].run("x", server=classic(), tools=["classic:plain"])
    frame = checked(executions, store)
    assert frame[["outcome", "final_text", "tool_call_count"]].values.tolist() == [["completed", result.final_text, 1]]
    reported = checked(events, store).sort_values("sequence")
    assert reported["kind"].tolist() == [event.kind for event in result.trace]
    assert [len(checked(table, store)) for table in (rounds, requests, answers)] == [0, 0, 0]


def test_what_a_plan_answers_is_in_the_events(store: SQLiteExecutionStore, kit: MCPTestKit) -> None:
    plan = expect_form("shipping_address").accept(ADDRESS)
    agent = kit.agents([{"harness": "scripted"}])[0]
    result = agent.run("Book it.", server=shipping(), tools=[TOOL], elicitation=plan)
    assert "to Pune" in str(result.final_text)
    assert [len(checked(table, store)) for table in (rounds, requests, answers)] == [0, 0, 0]
    frame = checked(events, store)
    asked = frame[frame["kind"].str.startswith("elicitation.")]
    assert asked[["kind", "server", "operation_kind", "operation_name"]].values.tolist() == [
        ["elicitation.request", "shipping", "tool", "book_shipment"],
        ["elicitation.response", "shipping", "tool", "book_shipment"],
    ]
    assert asked["round_id"].nunique() == 1


def test_a_tool_that_reports_a_failure_is_seen_among_the_events(store, kit) -> None:
    from mcp.server import MCPServer

    def made() -> MCPServer:
        server = MCPServer("shaky")

        @server.tool()
        def fails() -> str:
            raise ValueError("no")

        @server.tool()
        def works() -> str:
            return "yes"

        return server

    agent = kit.agents([{"harness": "scripted"}])[0]
    result = agent.run("shaky:fails\nshaky:works", server=InProcessServer(name="shaky", factory=made))
    assert result.outcome == "completed"
    frame = checked(events, store)
    assert frame[frame["is_error"].notna()][["operation_name", "is_error"]].values.tolist() == [
        ["fails", True],
        ["works", False],
    ]


def test_prompts_and_resources_have_their_names(store: SQLiteExecutionStore, kit: MCPTestKit) -> None:
    def made() -> MCPServer:
        server = MCPServer("library")

        @server.prompt()
        def greeting() -> str:
            return "Hello"

        @server.resource("text://poem")
        def poem() -> str:
            return "Roses are red"

        return server

    agent = kit.agents([{"harness": "scripted"}])[0]
    script = "prompt library:greeting\nresource library:text://poem"
    result = agent.run(script, server=InProcessServer(name="library", factory=made))
    assert result.outcome == "completed", result.error
    frame = checked(events, store)
    calls = frame[frame["server"].notna()]
    assert calls[["kind", "server", "operation_kind", "operation_name"]].values.tolist() == [
        ["prompt.call", "library", "prompt", "greeting"],
        ["prompt.result", "library", "prompt", "greeting"],
        ["resource.call", "library", "resource", "text://poem"],
        ["resource.result", "library", "resource", "text://poem"],
    ]


def test_what_people_took_is_summed_up(path: Path) -> None:
    store, asking = SQLiteExecutionStore(path), Rounds(path)
    for execution_id in ("a", "b"):
        store.create_execution(execution_id, spec={}, worker_id="w", managed=True)
    answered, failed, late, open_ = (
        named(form({}), execution_id="a", round_id=f"round {number}") for number in range(4)
    )
    for index, (round_, seconds) in enumerate(((answered, 1), (failed, 10), (late, 100))):
        asking.ask(round_, index)
        asking.now += timedelta(seconds=seconds)
        if round_ is not failed:
            asking.answer(round_, {"form": accept()})
            asking.now += timedelta(seconds=1000)  # not the person's
        if round_ is not answered:
            asking.step("fail", round_, code="timeout", message="too late")
    asking.ask(open_, 3)
    assert checked(executions, path)["waited"].tolist() == [timedelta(seconds=111), timedelta(0)]
    store.finish_execution("a", outcome="timed_out", result={}, error={"code": "timeout", "message": "too late"})
    store.close()
    frame = checked(executions, path)
    assert frame["n_rounds"].tolist() == [4, 0]
    assert frame["active"][0] == frame["took"][0] - timedelta(seconds=111)
    assert pd.isna(frame["active"][1])
    assert frame["outcome"].isna().tolist() == [False, True]
    assert frame["started_at"].isna().all()


def test_labels_and_payloads_may_hold_anything(path: Path) -> None:
    store = SQLiteExecutionStore(path)
    odd = {"harness": 1, "servers": "text", "tools": [1, "b"], "trial": "second", "run_id": ["r"], "name": None}
    store.create_execution("odd", spec={}, worker_id="w", managed=False, labels=odd)
    store.create_execution("big", spec={}, worker_id="w", managed=False, labels={"trial": 10**40})
    store.create_execution("no", spec={}, worker_id="w", managed=False)
    store.append_event("odd", "prompt", {"text": {"not": "text"}})
    store.append_event("odd", "tool.call", {"server": 1, "tool": ["x"], "round_id": 7})
    store.append_event("odd", "resource.call", {"server": "s", "resource": "file:///a", "n": 1.0, "text": "ß\n"})
    store.finish_execution("odd", outcome="failed", result={"final_text": 1}, error={"code": 5})
    store.close()
    frame = checked(executions, path)
    texts = ["harness", "servers", "run_id", "name", "prompt", "final_text", "error_code", "error_message"]
    assert frame[texts].isna().all(axis=None)
    assert frame["tools"].tolist() == ["1, b", pd.NA, pd.NA]
    assert frame["trial"].tolist() == [pd.NA, pd.NA, 1]
    frame = checked(events, path).set_index("kind")
    assert frame.loc["tool.call", ["server", "operation_name", "round_id"]].isna().all()
    read = frame.loc["resource.call"]
    assert read[["server", "operation_kind", "operation_name"]].tolist() == ["s", "resource", "file:///a"]
    assert read["payload"] == '{"server":"s","resource":"file:///a","n":1.0,"text":"ß\\n"}'


def test_rounds_without_an_execution_have_their_steps(path: Path) -> None:
    asking = Rounds(path)
    round_ = named(form({"properties": {"password": {}}}), execution_id="e", round_id="r")
    asking.ask(round_)
    asking.now += timedelta(seconds=1)
    asking.answer(round_, {"form": accept(password="hunter2", street="Main")})
    assert len(checked(executions, path)) == 0
    frame = checked(events, path)
    assert frame["at"].tolist() == [START, START + timedelta(seconds=1)]
    assert frame[["kind", "server", "owner_id", "execution_id"]].values.tolist() == [
        ["create_round", "shipping", "o", "e"],
        ["submit_responses", "shipping", "o", "e"],
    ]
    assert "hunter2" not in frame.to_csv()


def test_a_purge_leaves_what_happened(store: SQLiteExecutionStore, kit: MCPTestKit) -> None:
    agent = kit.agents([{"harness": "scripted"}])[0]
    handle = agent.submit("Book it.", server=shipping(), tools=[TOOL], human_input="managed")
    pending = wait_for_round(handle)
    handle.respond_elicitation(pending.round_id, {"shipping_address": address()}, idempotency_key="k")
    handle.result(timeout=30)
    before = {table: checked(table, store) for table in TABLES}
    assert ADDRESS["city"] in before[events].to_csv()
    assert store.purge(before=datetime.now(UTC) + timedelta(days=1)) == 1
    after = {table: checked(table, store) for table in TABLES}
    assert after[executions][["prompt", "final_text"]].isna().all(axis=None)
    assert after[answers][["action", "value"]].values.tolist() == [["accept", pd.NA]]
    for table, said in ((rounds, []), (requests, []), (executions, ["prompt", "final_text"])):
        pd.testing.assert_frame_equal(after[table].drop(columns=said), before[table].drop(columns=said))
    stay = ["at", "kind", "from_status", "to_status", "sequence"]
    pd.testing.assert_frame_equal(after[events][stay], before[events][stay])
    assert all(ADDRESS["city"] not in frame.to_csv() for frame in after.values())


def test_the_workbench_and_the_top_level_show_the_same(tmp_path: Path) -> None:
    with Workbench(tmp_path / "w.sqlite") as workbench:
        round_ = named(form({}), execution_id="e", round_id="r")
        workbench.store.create_execution("e", spec={}, worker_id="w", managed=True)
        Rounds(tmp_path / "w.sqlite").ask(round_)
        for name in ("executions", "rounds", "requests", "events"):
            frame = getattr(workbench, name)()
            assert len(frame) == 1
            pd.testing.assert_frame_equal(frame, getattr(m3nb, name)(tmp_path / "w.sqlite"))
