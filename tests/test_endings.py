"""Ends that come early: close and cancel right after submit, the interpreter's exit, a vanished worker."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import wide
from runs import CLASSIC, accept, classic, until, wait_for_round

import m3nb.runtime.recovery as recovery
from m3nb import KitClosed, ManagedInputStateError, MCPTestKit, SQLiteExecutionStore


def submit(kit: MCPTestKit, tool: str = "book"):
    agent = kit.agents([{"harness": "scripted"}])[0]
    return agent.submit("Go.", server=classic(), tools=[f"classic:{tool}"], human_input="managed")


def classic_servers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "classic_server" in " ".join(child.cmdline())]


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_close_and_cancel_right_after_submit_never_hang(tmp_path: Path, end: str) -> None:
    store = SQLiteExecutionStore(tmp_path / "runs.sqlite")
    for attempt in range(20):
        kit = MCPTestKit(store=store, env={})
        handle = submit(kit)
        time.sleep((attempt % 5) * 0.03)
        started = time.monotonic()
        if end == "cancel":
            handle.cancel()
            assert handle.result(timeout=15).outcome.value == "cancelled"
        kit.close()
        assert time.monotonic() - started < 15
        assert handle.result(timeout=1).outcome.value == ("cancelled" if end == "cancel" else "interrupted")
        with pytest.raises(KitClosed):
            handle.snapshot()
    assert store.list_executions(unfinished=True) == ()
    assert store.list_workers() == ()
    assert until(lambda: not classic_servers())
    store.close()


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_a_thousand_that_end_right_after_their_submission(tmp_path: Path, end: str) -> None:
    """Five hundred each, ten at a time, ended at every moment of their short life."""
    store = SQLiteExecutionStore(tmp_path / "runs.sqlite")
    for attempt in range(50):
        with MCPTestKit(store=store, env={}) as kit:
            handles = [wide.submit(kit, wide.in_process(), "wide:one") for _ in range(10)]
            time.sleep(attempt * 0.01)
            started = time.monotonic()
            if end == "cancel":
                for handle in handles:
                    handle.cancel()
                assert {handle.result(timeout=60).outcome.value for handle in handles} == {"cancelled"}
        if end == "close":
            assert {handle.result(timeout=1).outcome.value for handle in handles} == {"interrupted"}
        assert time.monotonic() - started < 60
    assert store.list_executions(unfinished=True) == ()
    assert store.list_workers() == ()
    assert {record.status for record in store.unresolved_rounds()} == set()
    store.close()


def test_closing_ends_a_waiting_round(tmp_path: Path) -> None:
    store = SQLiteExecutionStore(tmp_path / "runs.sqlite")
    kit = MCPTestKit(store=store, env={})
    handle = submit(kit)
    pending = wait_for_round(handle)
    kit.close()
    kit.close()
    record = store.managed_input_store.get_round(handle.execution_id, pending.round_id)
    assert (record.status, record.failure_code) == ("failed", "worker_stopped")
    with MCPTestKit(store=store, env={}) as later:
        assert later.handle(handle.execution_id).snapshot().outcome.value == "interrupted"
    store.close()


HOST = """
import sys, time, threading
sys.path.insert(0, {tests!r})
from runs import classic, wait_for_round
from m3nb import MCPTestKit, SQLiteExecutionStore
store = SQLiteExecutionStore(sys.argv[1])
kit = MCPTestKit(store=store, env={{}})
agent = kit.agents([{{"harness": "scripted"}}])[0]
handle = agent.submit("Go.", server=classic(), tools=["classic:book"], human_input="managed")
pending = wait_for_round(handle)
print(handle.execution_id, pending.round_id, flush=True)
if sys.argv[2] == "stay":
    time.sleep(60)
"""


def start_host(path: Path, how: str) -> tuple[subprocess.Popen[str], str, str]:
    code = HOST.format(tests=str(CLASSIC.parent.parent))
    host = subprocess.Popen([sys.executable, "-c", code, str(path), how], stdout=subprocess.PIPE, text=True)
    execution_id, round_id = host.stdout.readline().split()
    return host, execution_id, round_id


def test_the_interpreters_exit_ends_what_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    host, execution_id, round_id = start_host(path, "exit")
    started = time.monotonic()
    assert host.wait(timeout=20) == 0
    assert time.monotonic() - started < 5
    store = SQLiteExecutionStore(path)
    record = store.managed_input_store.get_round(execution_id, round_id)
    assert (record.status, record.failure_code) == ("failed", "worker_stopped")
    assert store.get_execution(execution_id).outcome == "interrupted"
    store.close()


def pass_a_minute(path: Path) -> None:
    """Let every lease have ended long ago."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE rounds SET lease_expires_at = lease_expires_at - 60000000")
        connection.execute("UPDATE workers SET lease_expires = lease_expires - 60000000")


def test_a_killed_worker_is_recovered_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "GRACE_SECONDS", 0.5)
    path = tmp_path / "runs.sqlite"
    host, execution_id, round_id = start_host(path, "stay")
    server = [child for child in psutil.Process(host.pid).children() if "classic_server" in " ".join(child.cmdline())]
    os.kill(host.pid, signal.SIGKILL)
    host.wait()
    store = SQLiteExecutionStore(path)
    record = store.managed_input_store.get_round(execution_id, round_id)
    assert record.status == "pending"  # opening and reading has changed nothing

    pass_a_minute(path)
    with MCPTestKit(store=store, env={}) as kit:
        handle = kit.handle(execution_id)
        result = handle.result(timeout=20)
        assert (result.outcome.value, result.error.code) == ("failed", "managed_input_recovery_unavailable")
        with pytest.raises(ManagedInputStateError):
            handle.respond_elicitation(round_id, {"elicitation": accept()}, idempotency_key="late")
    record = store.managed_input_store.get_round(execution_id, round_id)
    assert (record.status, record.failure_code) == ("failed", "recovery_unavailable")
    assert store.list_workers() == ()
    until(lambda: not any(process.is_running() and process.status() != "zombie" for process in server))
    store.close()
