"""One database file: short transactions on connections that are kept or made for each operation."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from m3nb.errors import StorageBusy, StorageError
from m3nb.storage import files
from m3nb.storage.opening import check_sqlite, open_alone, open_database, open_memory, typed
from m3nb.storage.retry import Patience, is_busy

T = TypeVar("T")

Body = Callable[[sqlite3.Connection], T]
"""What happens inside a transaction. It depends on nothing but the database and its arguments."""

_KEPT_READERS = 4
_FORK_PATIENCE_SECONDS = 2.0

_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}


class Tables(Protocol):
    """What the stores need from a database."""

    def read(self, body: Body[T], default: T) -> T:
        """The result of ``body``; ``default`` if nothing was ever written."""

    def write(self, body: Body[T]) -> T:
        """The result of ``body``, run in one ``BEGIN IMMEDIATE`` transaction that is undone if it raises."""

    def data_version(self) -> int:
        """A number that changes when somebody has committed."""

    def close(self) -> None:
        """Close what is kept open."""


class _Kept:
    """An open connection, and which file it belongs to."""

    __slots__ = ("connection", "identity")

    def __init__(self, connection: sqlite3.Connection, identity: files.Identity) -> None:
        self.connection = connection
        self.identity = identity


class Database:
    """The tables in the file ``path``.

    Nothing is opened or created before it is needed. With ``keep_open`` one connection for writing and a few for
    reading stay open until `close`, else each operation has its own: the last connection to a WAL database that
    closes pays for a checkpoint. A file that was removed or replaced is noticed by its inode.

    ``refuse`` is the error class for a path that can't be a database. Every other failure of SQLite is a
    `StorageError`; `StorageBusy` when a lock was not to be had within ``busy_timeout_ms``.
    """

    def __init__(
        self, database: Any, *, busy_timeout_ms: int, wal: bool, keep_open: bool, refuse: files.Refusal
    ) -> None:
        check_sqlite()
        if isinstance(busy_timeout_ms, bool) or not isinstance(busy_timeout_ms, int) or busy_timeout_ms < 0:
            raise ValueError(
                f"busy_timeout_ms must be a whole number of milliseconds, 0 or more, not {busy_timeout_ms!r}"
            )
        self.path: Path = files.database_path(database, refuse)
        self._name = str(self.path)
        self._wal = wal
        self._keep_open = keep_open
        self._refuse = refuse
        self._busy_seconds = min(busy_timeout_ms / 1000, threading.TIMEOUT_MAX)
        self._watch_count = 0
        self._watched = 0
        self._writing_paused = False
        self._new_locks()
        files.identify(self.path, refuse)
        _databases.add(self)

    def _new_locks(self) -> None:
        self._writing = threading.Lock()
        self._gate = threading.Lock()
        self._watching = threading.Lock()
        self._in_use = 0
        self._writer: _Kept | None = None
        self._readers: list[_Kept] = []
        self._watcher: _Kept | None = None

    def check(self) -> None:
        """Raise if an existing file is no database of ours. A file that is busy is not judged."""
        with suppress(StorageBusy):
            self.read(lambda _: None, None)

    def read(self, body: Body[T], default: T) -> T:
        """See `Tables.read`."""
        patience = Patience(self._busy_seconds)
        self._enter()
        kept: _Kept | None = None
        try:
            identity = files.identify(self.path, self._refuse)
            if identity is None:
                return default
            kept = self._reader(identity) or self._opened(identity, writing=False, patience=patience)
            if kept is None:
                return default
            connection = kept.connection
            return patience(lambda: body(connection))
        except sqlite3.Error as error:
            if kept is not None:
                kept.connection.close()
                kept = None
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _READ_ONLY:
                return self._read_alone(body, default, error)
            raise typed(error, self.path, self._refuse) from error
        finally:
            self._leave(kept)

    def write(self, body: Body[T]) -> T:
        """See `Tables.write`."""
        return self._alone(body, transaction=True)

    def checkpoint(self) -> None:
        """Write the log back and empty it, as far as present readers allow."""
        self._alone(
            lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone(), transaction=False
        )

    def _alone(self, body: Body[T], *, transaction: bool) -> T:
        # Threads of this process queue here, fairly and asleep, instead of at the file.
        if not self._writing.acquire(timeout=self._busy_seconds):
            raise StorageBusy(f"{self.path} is being written by other threads. Nothing was changed: try again")
        kept: _Kept | None = None
        try:
            kept = self._kept_writer() or self._new_writer()
            connection = kept.connection
            return _transaction(connection, body, self._busy_seconds) if transaction else body(connection)
        except sqlite3.Error as error:
            if kept is not None:
                # Whatever state it is in: the next operation gets a fresh one.
                self._writer = None
                kept.connection.close()
            raise typed(error, self.path, self._refuse) from error
        finally:
            if kept is not None and not self._keep_open:
                self._writer = None
                kept.connection.close()
            self._writing.release()

    def data_version(self) -> int:
        """See `Tables.data_version`. About ten microseconds: no query, no transaction."""
        with self._watching:
            try:
                return self._data_version()
            except sqlite3.Error as error:
                if is_busy(error):
                    return self._watched
                raise typed(error, self.path, self._refuse) from error

    def close(self) -> None:
        """Close what is kept open. From now on each operation opens its own connection."""
        self._keep_open = False
        with self._writing, self._watching, self._gate:
            self._close_idle()
            self._close_writer()

    def _close_idle(self) -> None:
        """Close what is open for reading. Whoever reads at the moment has taken its connection out."""
        for kept in (self._watcher, *self._readers):
            if kept is not None:
                kept.connection.close()
        self._watcher = None
        self._readers.clear()

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.connection.close()
            self._writer = None

    def _enter(self) -> None:
        with self._gate:
            self._in_use += 1

    def _leave(self, reader: _Kept | None) -> None:
        with self._gate:
            self._in_use -= 1
            if reader is not None and self._keep_open and len(self._readers) < _KEPT_READERS:
                self._readers.append(reader)
                return
        if reader is not None:
            reader.connection.close()

    def _reader(self, identity: files.Identity) -> _Kept | None:
        while True:
            with self._gate:
                if not self._readers:
                    return None
                kept = self._readers.pop()
            if kept.identity == identity:
                return kept
            kept.connection.close()

    def _opened(self, identity: files.Identity, *, writing: bool, patience: Patience) -> _Kept | None:
        connection = open_database(self.path, wal=self._wal, writing=writing, patience=patience, refuse=self._refuse)
        return None if connection is None else _Kept(connection, identity)

    def _kept_writer(self) -> _Kept | None:
        kept = self._writer
        if kept is None:
            return None
        try:
            found = os.lstat(self._name)
            if kept.identity == (found.st_dev, found.st_ino):
                return kept
        except OSError:
            # It is gone, and a new file takes its place.
            pass
        self._writer = None
        kept.connection.close()
        return None

    def _new_writer(self) -> _Kept:
        identity = files.identify(self.path, self._refuse)
        if identity is None:
            files.create(self.path)
            identity = files.identify(self.path, self._refuse)
        with self._watching, self._gate:
            # Our own readers must not be what stands in the way of a change of the journal.
            self._close_idle()
        patience = Patience(self._busy_seconds)
        opened = None if identity is None else self._opened(identity, writing=True, patience=patience)
        if opened is None:
            raise StorageError(f"{self.path} vanished while it was opened: try again", details={"path": str(self.path)})
        if self._keep_open:
            self._writer = opened
        return opened

    def _read_alone(self, body: Body[T], default: T, error: sqlite3.Error) -> T:
        """Read a database in a folder that can't be written: WAL needs files there even for a look."""
        folder = self.path.parent
        if files.has_wal(self.path, self._refuse):
            raise StorageError(
                f"{self.path} can't be read: it has a write-ahead log, and {folder} is read-only for this user. "
                f"Copy the database with its -wal file to a folder you may write to ({error})",
                details={"path": str(self.path), "folder": str(folder)},
            ) from error
        try:
            connection = open_alone(self.path, self._refuse)
            try:
                return default if connection is None else body(connection)
            finally:
                if connection is not None:
                    connection.close()
        except sqlite3.Error as second:
            raise typed(second, self.path, self._refuse) from error

    def _data_version(self) -> int:
        identity = files.identify(self.path, self._refuse)
        kept = self._watcher
        if kept is not None and kept.identity != identity:
            self._watcher = None
            kept.connection.close()
            kept = None
        if kept is None:
            if identity is None:
                return self._watched
            kept = self._opened(identity, writing=False, patience=Patience(0))
            if kept is None:
                return self._watched
            # The numbers of two connections are not comparable.
            self._watch_count += 1
        version: int = kept.connection.execute("PRAGMA data_version").fetchone()[0]
        if self._keep_open:
            self._watcher = kept
        else:
            kept.connection.close()
        self._watched = (self._watch_count << 32) + version
        return self._watched

    def before_fork(self) -> None:
        """Close everything and hold still: SQLite's locks don't survive a fork, and its bookkeeping does.

        A child that opened the file again would believe in locks that only its parent holds.
        """
        until = time.monotonic() + _FORK_PATIENCE_SECONDS
        self._writing_paused = self._writing.acquire(timeout=_FORK_PATIENCE_SECONDS)
        self._watching.acquire()
        self._gate.acquire()
        while self._in_use and time.monotonic() < until:
            self._gate.release()
            time.sleep(0.001)
            self._gate.acquire()
        self._close_idle()
        if self._writing_paused:
            self._close_writer()

    def after_fork(self) -> None:
        """Go on, in the parent."""
        self._gate.release()
        self._watching.release()
        if self._writing_paused:
            self._writing.release()

    def after_fork_in_child(self) -> None:
        """Start afresh. What a thread of the parent still writes with is neither used nor closed here."""
        if self._writer is not None:
            # One reference more than anybody will ever drop: not even the interpreter's end closes it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._writer.connection))
        self._new_locks()


def _transaction(connection: sqlite3.Connection, body: Body[T], busy_seconds: float) -> T:
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        Patience(busy_seconds)(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        result = body(connection)
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            # With a rollback journal, readers can hold a commit up; it is tried again where it stands.
            Patience(busy_seconds)(lambda: connection.execute("COMMIT"))
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


class MemoryDatabase:
    """Tables in memory, on one connection that threads share."""

    def __init__(self) -> None:
        check_sqlite()
        self._lock = threading.Lock()
        self._connection = open_memory()

    def read(self, body: Body[T], default: T) -> T:
        """See `Tables.read`."""
        with self._lock:
            return body(self._connection)

    def write(self, body: Body[T]) -> T:
        """See `Tables.write`."""
        with self._lock:
            return _transaction(self._connection, body, 0)

    def data_version(self) -> int:
        """See `Tables.data_version`."""
        with self._lock:
            return self._connection.total_changes

    def close(self) -> None:
        """Nothing to close: the tables go with the object."""


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_paused: list[Database] = []


def _before_fork() -> None:
    _paused.extend(_databases)
    for database in _paused:
        database.before_fork()
    files.creating.acquire()


def _after_fork_in_parent() -> None:
    files.creating.release()
    while _paused:
        _paused.pop().after_fork()


def _after_fork_in_child() -> None:
    files.creating.release()
    while _paused:
        _paused.pop().after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
