"""Opening a database file: whose it is, its journal, its tables."""

from __future__ import annotations

import sqlite3
import warnings
from pathlib import Path
from typing import Final

from m3nb.errors import MCPError, StorageBusy, StorageError
from m3nb.storage import files
from m3nb.storage.queries import migrations
from m3nb.storage.retry import Patience, is_busy

APPLICATION_ID: Final = 0x6D336E62
"""``m3nb`` in the header of every database of ours."""

MINIMUM_SQLITE: Final = (3, 37, 0)
"""The first version with STRICT tables."""

_JOURNAL_PATIENCE_SECONDS = 0.5

_NO_SHARED_MEMORY = {
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_IOERR_SHMLOCK,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}

_without_wal: set[Path] = set()
"""Databases on file systems that can't hold a write-ahead log, as this process found out."""

_warned: set[Path] = set()


def check_sqlite() -> None:
    """Raise if the SQLite that Python was built with is too old."""
    if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
        raise StorageError(
            f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or later is needed. Use a Python built with a newer one",
            details={"sqlite_version": sqlite3.sqlite_version},
        )


def typed(error: sqlite3.Error, path: Path | str, refuse: files.Refusal) -> MCPError:
    """The error of this project that says what SQLite said."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    details = {"path": str(path), "sqlite": getattr(error, "sqlite_errorname", type(error).__name__)}
    if is_busy(error) or code == sqlite3.SQLITE_PROTOCOL:
        text = f"{path} was locked by another connection for too long. Nothing was changed: try again"
        return StorageBusy(text, details=details)
    if code == sqlite3.SQLITE_NOTADB:
        return refuse(f"{path} is not a SQLite database: give another path", details=details)
    reasons = {
        sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a copy, or save what is left with `sqlite3 FILE .recover`",
        sqlite3.SQLITE_FULL: "can't grow: the disk is full",
        sqlite3.SQLITE_READONLY: "can't be written: the file or its folder is read-only",
        sqlite3.SQLITE_CANTOPEN: f"can't be opened: check the rights on {path} and on its folder",
    }
    return StorageError(f"{path} {reasons.get(code, 'failed')} ({error})", details=details)


def open_database(
    path: Path, *, wal: bool, writing: bool, patience: Patience, refuse: files.Refusal
) -> sqlite3.Connection | None:
    """A connection to a database of ours, its tables made or brought up to date.

    ``None`` when only reading, and there is nothing to read yet: a file without our tables is filled at the first
    write, never by a look.
    """
    if writing:
        files.check_side_files(path, refuse)
        files.make_private(path)
    try:
        return _open(path, wal=wal and path not in _without_wal, writing=writing, patience=patience, refuse=refuse)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) not in _NO_SHARED_MEMORY and "locking protocol" not in str(error):
            raise
        # It may also be nothing but load: then others use the file, and its journal stays.
        if not _leave_wal(path):
            raise
        _without_wal.add(path)
        if wal:
            _warn(
                path,
                f"this file system can't hold a write-ahead log ({error}); using a rollback journal, which is slower. "
                "Put the database on a local disk, or pass wal=False to say that this is meant",
            )
        return _open(path, wal=False, writing=writing, patience=patience, refuse=refuse)


def open_alone(path: Path, refuse: files.Refusal) -> sqlite3.Connection | None:
    """A connection that takes no locks and makes no files, for a folder that can't be written. Reads only."""
    connection = sqlite3.connect(files.uri(path, mode="ro", immutable="1"), uri=True, isolation_level=None)
    try:
        if _version(_configured(connection), path, refuse):
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def open_memory() -> sqlite3.Connection:
    """A database that lasts as long as its connection."""
    connection = _configured(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
    _create_tables(connection, 0)
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    return _configured(
        sqlite3.connect(files.uri(path, mode="rw"), uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    )


def _configured(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.row_factory = sqlite3.Row
    return connection


def _open(
    path: Path, *, wal: bool, writing: bool, patience: Patience, refuse: files.Refusal
) -> sqlite3.Connection | None:
    connection = _connect(path)
    try:
        # Each step needs a lock, if only for a moment, and each can be taken again.
        filled = patience(lambda: _prepare(connection, path, wal=wal, writing=writing, refuse=refuse))
    except BaseException:
        connection.close()
        raise
    if filled:
        return connection
    connection.close()
    return None


def _prepare(connection: sqlite3.Connection, path: Path, *, wal: bool, writing: bool, refuse: files.Refusal) -> bool:
    """Make a connection ready. ``False`` for a file without our tables, which only writing fills."""
    version = _version(connection, path, refuse)
    if version == 0 and not writing:
        return False
    if writing:
        _choose_journal(connection, path, "wal" if wal else "delete")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=ON")
    if version < len(migrations()):
        _migrate(connection, path, refuse)
    return True


def _version(connection: sqlite3.Connection, path: Path, refuse: files.Refusal) -> int:
    """The version of our tables, 0 in an empty file. Raises for a database of somebody else."""
    owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    details = {"path": str(path), "application_id": owner, "user_version": version}
    if owner == APPLICATION_ID and version > 0:
        if version > len(migrations()):
            raise StorageError(
                f"{path} was written by a newer m3nb (its tables have version {version}, this m3nb knows "
                f"{len(migrations())}): upgrade m3nb",
                details=details,
            )
        return version
    if owner or version or connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise refuse(f"{path} is a SQLite database of another program: give another path", details=details)
    return 0


def _migrate(connection: sqlite3.Connection, path: Path, refuse: files.Refusal) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been quicker.
        _create_tables(connection, _version(connection, path, refuse))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _create_tables(connection: sqlite3.Connection, version: int) -> None:
    for statements in migrations()[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={len(migrations())}")


def _choose_journal(connection: sqlite3.Connection, path: Path, wanted: str) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == wanted:
        return
    patience = Patience(_JOURNAL_PATIENCE_SECONDS)
    try:
        mode = patience(lambda: connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()[0])
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        # Somebody uses the file right now. Both journals are safe, so the present one will do.
        if wanted == "delete":
            _warn(path, "it is in use elsewhere with a write-ahead log, so wal=False has no effect until that is over")
        return
    # Only a look at the tables maps the shared memory.
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if mode != wanted:
        raise sqlite3.OperationalError(f"locking protocol: SQLite keeps the journal mode {mode}")


def _leave_wal(path: Path) -> bool:
    """Turn a database back to a rollback journal where WAL has no shared memory. Returns whether that worked.

    In exclusive mode the index of the log lives in this process's own memory.
    """
    connection = _connect(path)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        mode: str = connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return mode == "delete"


def _warn(path: Path, text: str) -> None:
    """Once per path and process."""
    if path not in _warned:
        _warned.add(path)
        warnings.warn(f"{path}: {text}", RuntimeWarning, stacklevel=2)
