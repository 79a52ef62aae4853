"""The database as a file: what is refused, what is created, who may read it."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from storing import HELD, bring, create, question, submit

from m3nb.errors import ManagedInputValidationError, MCPError, StorageError
from m3nb.storage import SQLiteExecutionStore, SQLiteManagedInputStore, read_rows

Store = SQLiteExecutionStore | SQLiteManagedInputStore
STORES = [(SQLiteManagedInputStore, ManagedInputValidationError), (SQLiteExecutionStore, StorageError)]
both = pytest.mark.parametrize(("kind", "refusal"), STORES, ids=["managed", "execution"])


def managed(store: Store) -> SQLiteManagedInputStore:
    return store.managed_input_store if isinstance(store, SQLiteExecutionStore) else store


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def look(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*") if not path.is_dir()
    }


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@both
def test_constructing_and_reading_change_nothing(tmp_path: Path, kind: type[Store], refusal: type[MCPError]) -> None:
    path = tmp_path / "a" / "b" / "store.sqlite"
    store = kind(path)

    def read() -> None:
        assert managed(store).get_round("e1", "r1") is None
        assert managed(store).list_rounds("e1") == ()
        assert managed(store).redacted_responses("e1", "r1") is None
        if isinstance(store, SQLiteExecutionStore):
            assert (
                store.list_executions() == store.list_workers() == store.events("e1") == store.unresolved_rounds() == ()
            )
            assert store.get_execution("e1") is store.get_worker("w1") is None
            assert store.outbox.unacknowledged() == ()
            assert isinstance(store.data_version(), int)
        assert read_rows(path, "rounds") == []

    read()
    assert list(tmp_path.iterdir()) == []
    path.parent.mkdir(parents=True)
    path.touch(0o644)  # an empty file is filled at the first write
    before = files_in(tmp_path)
    read()
    kind(path)
    assert files_in(tmp_path) == before
    create(managed(store))
    if isinstance(store, SQLiteExecutionStore):
        store.close()
    before = files_in(tmp_path)
    again = kind(path)
    assert managed(again).get_round("e1", "r1").status == "pending"
    if isinstance(again, SQLiteExecutionStore):
        again.close()
    assert files_in(tmp_path) == before


@both
@pytest.mark.usefixtures("open_umask")
def test_a_new_database_is_private(tmp_path: Path, kind: type[Store], refusal: type[MCPError]) -> None:
    path = tmp_path / "deep" / "er" / "store.sqlite"
    store = kind(path)
    create(managed(store))
    kept = SQLiteExecutionStore(path)  # keeps -wal and -shm there
    submit(kept.managed_input_store, ("e1", "r1"))
    names = {"store.sqlite", "store.sqlite-wal", "store.sqlite-shm"}
    assert {found.name: mode(found) for found in path.parent.iterdir()} == dict.fromkeys(names, 0o600)
    assert mode(path.parent) == 0o777  # folders keep the umask
    kept.close()


def test_a_database_that_others_could_read_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    ids = create(SQLiteManagedInputStore(path))
    path.chmod(0o644)
    store = SQLiteExecutionStore(path)
    store.managed_input_store.get_round(*ids)
    assert mode(path) == 0o644  # a look changes nothing
    submit(store.managed_input_store, ids)
    assert mode(path) == mode(tmp_path / "store.sqlite-wal") == 0o600
    store.close()


def test_what_is_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    create(SQLiteManagedInputStore(path))
    assert look(path, "PRAGMA application_id") == [(0x6D336E62,)]
    assert look(path, "PRAGMA user_version") == [(1,)]
    assert look(path, "PRAGMA journal_mode") == [("wal",)]
    assert look(path, "PRAGMA integrity_check") == [("ok",)]
    tables = {name for name, strict in look(path, "SELECT name, strict FROM pragma_table_list") if strict}
    assert tables == {"workers", "executions", "execution_events", "rounds", "round_events", "outbox"}


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_spellings_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.chdir(tmp_path)
    name = "what? is#this%20 & 'that' ü.sqlite"
    stores = [SQLiteManagedInputStore(f"{prefix}{name}"), SQLiteManagedInputStore(f"{prefix}{tmp_path / name}")]
    monkeypatch.chdir("/")  # a relative path means what it meant at construction
    ids = create(stores[0])
    assert stores[1].get_round(*ids) == SQLiteManagedInputStore(tmp_path / name).get_round(*ids) is not None
    assert [path.name for path in tmp_path.iterdir()] == [name]


def _folder(path: Path) -> None:
    path.mkdir()


def _dangling(path: Path) -> None:
    path.symlink_to(path.with_name("target"))


def _link(path: Path) -> None:
    create(SQLiteManagedInputStore(path.with_name("target")))
    path.symlink_to(path.with_name("target"))


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is a notebook, not a database " * 100)


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()


def _foreign_by_id(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id=7")
    connection.close()


@both
@pytest.mark.parametrize("make", [_folder, _dangling, _link, _pipe, _garbage, _foreign, _foreign_by_id])
def test_what_is_no_database_of_ours(
    tmp_path: Path, kind: type[Store], refusal: type[MCPError], make: Callable[[Path], None]
) -> None:
    path = tmp_path / "store.sqlite"
    early = kind(path)  # nothing was there then
    make(path)
    before = files_in(tmp_path)
    for call in (
        lambda: kind(path),
        lambda: managed(early).get_round("e1", "r1"),
        lambda: create(managed(early)),
    ):
        with pytest.raises(refusal, match=r"store\.sqlite") as caught:
            call()
        assert type(caught.value) is refusal
    with pytest.raises(StorageError, match=r"store\.sqlite"):
        read_rows(path, "rounds")
    assert files_in(tmp_path) == before
    assert path.is_symlink() or not (tmp_path / "target").exists()


@both
@pytest.mark.parametrize("database", [":memory:", "", "sqlite:///", "sqlite:///:memory:", "a\0b", b"bytes", 5, None])
def test_what_names_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Store], refusal: type[MCPError], database: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(refusal):
        kind(database)
    assert list(tmp_path.iterdir()) == []


@both
def test_a_file_where_a_folder_should_be(tmp_path: Path, kind: type[Store], refusal: type[MCPError]) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "store.sqlite", tmp_path / "file" / "deeper" / "store.sqlite"):
        with pytest.raises(refusal, match="file"):
            kind(path)


@both
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_side_file_that_leads_elsewhere(
    tmp_path: Path, kind: type[Store], refusal: type[MCPError], suffix: str
) -> None:
    path = tmp_path / "store.sqlite"
    (tmp_path / f"store.sqlite{suffix}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(refusal, match=suffix):
        create(managed(kind(path)))
    assert not (tmp_path / "elsewhere").exists()


def test_a_database_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    create(SQLiteManagedInputStore(path))
    look(path, "PRAGMA user_version=99")
    for kind in (SQLiteManagedInputStore, SQLiteExecutionStore):
        with pytest.raises(StorageError, match="upgrade m3nb"):
            kind(path)


def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = SQLiteManagedInputStore(path)
    for number in range(50):
        create(store, question(f"e{number}"))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with pytest.raises(StorageError, match="damaged"):
        store.list_rounds("e7")
    with pytest.raises(StorageError, match="damaged"):
        submit(store, ("e7", "r1"))


def test_an_old_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StorageError, match=r"3\.37"):
        SQLiteExecutionStore(tmp_path / "store.sqlite")


def test_a_file_that_goes_away_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    executions = SQLiteExecutionStore(path)
    store = executions.managed_input_store
    first = bring(store, "delivered")
    version = executions.data_version()
    for name in list(tmp_path.iterdir()):
        name.unlink()
    assert store.get_round(*first) is None
    second = create(store, question("e2"))
    assert store.list_rounds("e1") == ()
    assert SQLiteManagedInputStore(path).get_round(*second) == store.get_round(*second) is not None
    assert executions.data_version() != version
    other = tmp_path / "other.sqlite"
    third = create(SQLiteManagedInputStore(other), question("e3"))
    executions.close()
    other.rename(path)
    assert store.get_round(*third).status == "pending"
    assert store.get_round(*second) is None
    submit(store, third)
    assert SQLiteManagedInputStore(path).get_round(*third).status == "response_validated"


def as_nobody(job: Callable[[], Any]) -> Any:
    """The result of ``job`` in a child that is not root, whom no mode of a folder stops."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            try:
                result = job()
            except MCPError as error:
                result = [type(error).__name__, error.message]
            os.write(writing, json.dumps(result).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return json.loads(text)


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "shared"
        Path(name).chmod(0o755)
        folder.mkdir(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_folder_that_cannot_be_written(read_only_folder: Path) -> None:
    path = read_only_folder / "store.sqlite"
    executions = SQLiteExecutionStore(path)
    bring(executions.managed_input_store, "resolved")
    executions.close()
    path.chmod(0o444)
    read_only_folder.chmod(0o555)
    before = files_in(read_only_folder)

    def read() -> Any:
        return [
            SQLiteExecutionStore(path).managed_input_store.get_round("e1", "r1").status,
            len(read_rows(path, "rounds")),
        ]

    assert as_nobody(read) == ["resolved", 1]
    assert files_in(read_only_folder) == before  # and no -wal or -shm of the wrong user
    for kind in (SQLiteManagedInputStore, SQLiteExecutionStore):
        error, message = as_nobody(lambda kind=kind: create(managed(kind(path)), question("e2")))
        assert error == "StorageError"
        assert str(path) in message
        assert "read-only" in message or "rights" in message
        error, message = as_nobody(lambda kind=kind: create(managed(kind(read_only_folder / "new" / "store.sqlite"))))
        assert error == "StorageError"
        assert str(read_only_folder) in message
    assert files_in(read_only_folder) == before


def test_a_log_in_a_folder_that_cannot_be_written(read_only_folder: Path) -> None:
    path = read_only_folder / "store.sqlite"
    executions = SQLiteExecutionStore(path)
    ids = create(executions.managed_input_store)
    executions.managed_input_store.renew(*ids, lease_seconds=5, **HELD)
    for suffix in ("", "-wal"):
        copy = read_only_folder / f"copy.sqlite{suffix}"
        copy.write_bytes((read_only_folder / f"store.sqlite{suffix}").read_bytes())
        copy.chmod(0o444)
    executions.close()
    read_only_folder.chmod(0o555)
    error, message = as_nobody(lambda: SQLiteManagedInputStore(read_only_folder / "copy.sqlite").list_rounds("e1"))
    assert error == "StorageError"
    assert f"{read_only_folder} is read-only" in message
