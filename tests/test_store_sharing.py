"""One database, many users of it: processes, threads, forks, locks, journals, descriptors."""

from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from storing import HELD, bring, create, question, submit

from m3nb.errors import ManagedInputValidationError, StorageBusy
from m3nb.storage import SQLiteExecutionStore, SQLiteManagedInputStore

ROOT = Path(__file__).parent
IN_ANOTHER_PROCESS = """
import sys
sys.path[:0] = {paths!r}
from storing import *
from m3nb.storage import *
path = {path!r}
store = SQLiteExecutionStore(path)
rounds = store.managed_input_store
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def executions(path: Path) -> Iterator[SQLiteExecutionStore]:
    store = SQLiteExecutionStore(path)
    yield store
    store.close()


def elsewhere(path: Path, code: str) -> str:
    """Run code in a new process that has ``store`` and ``rounds``; returns what it prints."""
    head = IN_ANOTHER_PROCESS.format(paths=[str(ROOT), str(ROOT.parent)], path=str(path))
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def journal(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return mode


def held(path: Path, statement: str = "BEGIN IMMEDIATE") -> sqlite3.Connection:
    """A connection of somebody else that holds a lock."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    return connection


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_second_store_and_a_second_process_lose_nothing(path: Path, executions: SQLiteExecutionStore) -> None:
    """Closing any descriptor of the file would drop this process's locks on it, and then the other process, which
    believes that it is the last one, would delete the log with what was committed here."""
    create(executions.managed_input_store, question("here-1"))
    second = SQLiteExecutionStore(path)
    assert second.unresolved_rounds()
    second.close()
    elsewhere(path, "create(rounds, question('there-1')); store.close()")
    create(executions.managed_input_store, question("here-2"))
    SQLiteManagedInputStore(path).list_rounds("here-1")
    elsewhere(path, "create(rounds, question('there-2')); store.close()")
    create(SQLiteManagedInputStore(path), question("here-3"))
    wanted = ["here-1", "there-1", "here-2", "there-2", "here-3"]
    assert [record.execution_id for record in executions.unresolved_rounds()] == wanted
    assert elsewhere(path, "print([r.execution_id for r in store.unresolved_rounds()])").strip() == str(wanted)


def test_the_locks_of_this_process_hold(path: Path, executions: SQLiteExecutionStore) -> None:
    """While a store is open here, the log stays: nobody else may think to be the last one."""
    create(executions.managed_input_store)
    for action in (
        lambda: SQLiteExecutionStore(path).close(),
        lambda: SQLiteManagedInputStore(path).get_round("e1", "r1"),
        lambda: SQLiteManagedInputStore(path).renew("e1", "r1", lease_seconds=9, **HELD),
        lambda: submit(SQLiteManagedInputStore(path), ("e1", "r1")),
    ):
        action()
        elsewhere(path, "rounds.get_round('e1', 'r1'); store.close()")
        assert path.with_name("store.sqlite-wal").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_descriptors_do_not_pile_up(path: Path, executions: SQLiteExecutionStore) -> None:
    alone, borrowed = SQLiteManagedInputStore(path), executions.managed_input_store

    def use(number: int) -> None:
        for store in (alone, borrowed):
            ids = bring(store, "resolved", question(f"{id(store)}-{number}"))
            store.get_round(*ids)
            store.list_rounds(ids[0])
            store.redacted_responses(*ids)
            with pytest.raises(ManagedInputValidationError):
                store.get_round("", "")
        executions.data_version()

    gc.disable()
    try:
        for number in range(5):  # SQLite keeps the descriptor of a closed connection for the next one
            use(number)
        before = descriptors()
        for number in range(5, 55):
            use(number)
        assert descriptors() == before
        executions.close()
        assert descriptors() < before
        for _ in range(10):
            borrowed.get_round("e1", "r1")
            executions.list_executions()
        fewer = descriptors()
        executions.close()
        assert descriptors() == fewer
    finally:
        gc.enable()


def test_after_close_everything_goes_on(path: Path) -> None:
    executions = SQLiteExecutionStore(path)
    store = executions.managed_input_store
    assert store is executions.managed_input_store is executions.resolve_managed_input_store()
    ids = create(store)
    executions.close()
    executions.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["store.sqlite"]
    assert submit(store, ids).status == "response_validated"
    assert executions.unresolved_rounds()[0].round_id == "r1"
    version = executions.data_version()
    submit(store, create(store, question("e2")))
    assert executions.data_version() != version
    assert [entry.name for entry in path.parent.iterdir()] == ["store.sqlite"]


@pytest.mark.parametrize("milliseconds", [0, 200])
def test_a_busy_database_is_a_typed_error(path: Path, milliseconds: int) -> None:
    create(SQLiteManagedInputStore(path))
    executions = SQLiteExecutionStore(path, busy_timeout_ms=milliseconds)
    stores = [executions.managed_input_store, SQLiteManagedInputStore(path, busy_timeout_ms=milliseconds)]
    with closing(held(path)) as other:
        for store in stores:
            started = time.monotonic()
            with pytest.raises(StorageBusy, match="try again"):
                submit(store, ("e1", "r1"))
            assert milliseconds / 1000 <= time.monotonic() - started < milliseconds / 1000 + 2
            assert store.get_round("e1", "r1").status == "pending"  # readers are not held up
            with pytest.raises(ManagedInputValidationError):  # what is wrong with an answer is said all the same
                submit(store, ("e1", "r1"), {})
        with pytest.raises(StorageBusy):
            executions.create_execution("e9", spec={}, worker_id="w", managed=True)
        other.execute("ROLLBACK")
    assert submit(stores[0], ("e1", "r1")) == submit(stores[1], ("e1", "r1"))
    executions.close()


def test_a_short_lock_is_waited_for(path: Path, executions: SQLiteExecutionStore) -> None:
    ids = create(executions.managed_input_store)
    for store in (executions.managed_input_store, SQLiteManagedInputStore(path)):
        with closing(held(path)) as other:
            started = time.monotonic()
            waiter: list[Any] = []
            thread = threading.Thread(
                target=lambda store=store, waiter=waiter: waiter.append(store.renew(*ids, lease_seconds=60, **HELD))
            )
            thread.start()
            time.sleep(0.2)
            assert not waiter
            other.execute("ROLLBACK")
            thread.join(5)
            assert waiter
            assert time.monotonic() - started < 2


class NoSharedMemory(sqlite3.Connection):
    """What sqlite3 does on a file system that has no shared memory."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "PRAGMA journal_mode=wal":
            raise sqlite3.OperationalError("locking protocol")
        return super().execute(sql, *parameters)


def test_where_a_log_cannot_work(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=NoSharedMemory, **kwargs))
    executions = SQLiteExecutionStore(path)
    with pytest.warns(RuntimeWarning, match="rollback journal") as caught:
        bring(executions.managed_input_store, "resolved")
    assert len(caught) == 1
    assert str(path) in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        for number, store in enumerate((SQLiteManagedInputStore(path), executions.managed_input_store)):
            bring(store, "resolved", question(f"again-{number}"))
    executions.close()
    assert journal(path) == "delete"
    assert [entry.name for entry in path.parent.iterdir()] == ["store.sqlite"]


def test_without_a_log_on_request(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executions = SQLiteExecutionStore(path, wal=False)
        bring(executions.managed_input_store, "resolved")
        version = executions.data_version()
        elsewhere(
            path, "store = SQLiteExecutionStore(path, wal=False); create(store.managed_input_store, question('e2'))"
        )
        assert executions.data_version() != version
        assert journal(path) == "delete"
        executions.close()
        create(SQLiteManagedInputStore(path), question("e3"))
        assert journal(path) == "wal"
        executions = SQLiteExecutionStore(path, wal=False)
        executions.managed_input_store.list_rounds("e1")
        create(executions.managed_input_store, question("e4"))
        assert journal(path) == "delete"
        executions.close()


def test_without_a_log_while_others_use_one(path: Path, executions: SQLiteExecutionStore) -> None:
    create(executions.managed_input_store)
    second = SQLiteExecutionStore(path, wal=False)
    with pytest.warns(RuntimeWarning, match="wal=False"):
        create(second.managed_input_store, question("e2"))
    assert journal(path) == "wal"
    assert len(executions.unresolved_rounds()) == len(second.unresolved_rounds()) == 2
    second.close()


def test_readers_do_not_starve_a_commit_without_a_log(path: Path) -> None:
    executions = SQLiteExecutionStore(path, wal=False)
    ids = create(executions.managed_input_store)
    stop = threading.Event()

    def read() -> None:
        store = SQLiteExecutionStore(path, wal=False)
        while not stop.is_set():
            store.managed_input_store.list_rounds("e1")
        store.close()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(30):
            executions.managed_input_store.renew(*ids, lease_seconds=60, **HELD)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
        executions.close()


def test_threads_share_a_store(path: Path, executions: SQLiteExecutionStore) -> None:
    store = executions.managed_input_store
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(10):
                bring(store, "resolved", question(f"{name}-{number}"))
                assert store.get_round(f"{name}-{number}", "r1").status == "resolved"
                executions.data_version()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert executions.unresolved_rounds() == ()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_uses_the_store_too(path: Path, executions: SQLiteExecutionStore) -> None:
    store = executions.managed_input_store
    create(store, question("parent-0"))
    executions.data_version()
    stop = threading.Event()

    def keep_writing() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            create(store, question("thread", f"r{number}"), round_index=number, round_limit=10**6)

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        for number in range(5):
            child = os.fork()
            if not child:
                code = 1
                try:
                    open_files = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
                    assert str(path) not in open_files  # nothing of the parent is open here
                    create(store, question(f"child-{number}"))
                    assert store.get_round("parent-0", "r1") is not None
                    executions.close()
                    code = 0
                finally:
                    os._exit(code)
            create(store, question(f"parent-{number + 1}"))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()
    found = {record.execution_id for record in executions.unresolved_rounds()}
    assert found == {"thread", *(f"parent-{n}" for n in range(6)), *(f"child-{n}" for n in range(5))}
    written = len(store.list_rounds("thread"))
    executions.close()
    assert f"{written}" == elsewhere(path, "print(len(rounds.list_rounds('thread')))").strip()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
