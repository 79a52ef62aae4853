"""Rows for whoever studies a store: a database may be read by its path, without a store."""

from __future__ import annotations

import sqlite3
from os import PathLike
from typing import Any

from m3nb.errors import StorageError
from m3nb.storage.database import Database
from m3nb.storage.executions import InMemoryExecutionStore, SQLiteExecutionStore
from m3nb.storage.queries import queries


def read_rows(
    source: SQLiteExecutionStore | InMemoryExecutionStore | str | PathLike[str], name: str
) -> list[dict[str, Any]]:
    """The rows of a query of ``sql/frames.sql``, as dicts. Nothing is changed or created.

    Times are integer microseconds UTC, JSON is text. Raises `StorageError` for a path that is no database of ours; a
    missing file has no rows.
    """
    sql = queries("frames")[name]

    def select(connection: sqlite3.Connection) -> list[dict[str, Any]]:
        cursor = connection.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    if isinstance(source, InMemoryExecutionStore):
        return source._tables.read(select, [])
    path = source.path if isinstance(source, SQLiteExecutionStore) else source
    rows: list[dict[str, Any]] = []
    return Database(path, busy_timeout_ms=5000, wal=True, keep_open=False, refuse=StorageError).read(select, rows)
