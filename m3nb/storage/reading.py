"""Rows for whoever studies a store: a database may be read by its path, without a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from os import PathLike
from typing import Any

from m3nb.errors import StorageError
from m3nb.storage.database import Database
from m3nb.storage.executions import SQLiteExecutionStore
from m3nb.storage.queries import queries

_NOTHING: Mapping[str, Any] = {}


def read_rows(
    source: SQLiteExecutionStore | str | PathLike[str], name: str, parameters: Mapping[str, Any] = _NOTHING
) -> list[dict[str, Any]]:
    """The rows of a query of ``sql/frames.sql``, as dicts. Nothing is changed or created.

    Times are integer microseconds UTC, JSON is text. Raises `StorageError` for a path that is no database of ours; a
    missing file has no rows.
    """
    sql = queries("frames")[name]

    def select(connection: sqlite3.Connection) -> list[dict[str, Any]]:
        return [dict(row) for row in connection.execute(sql, parameters)]

    path = source.path if isinstance(source, SQLiteExecutionStore) else source
    rows: list[dict[str, Any]] = []
    return Database(path, busy_timeout_ms=5000, wal=True, keep_open=False, refuse=StorageError).read(select, rows)
