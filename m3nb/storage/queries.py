"""The SQL of the store, by name.

A file under ``sql/`` holds statements, each after a line ``-- name: …``. Migrations are numbered files; the number of
the last one is the ``user_version`` of a database.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def queries(file: str) -> Mapping[str, str]:
    """The named statements of ``sql/<file>.sql``."""
    text = (files("m3nb.storage") / "sql" / f"{file}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def migrations() -> tuple[tuple[str, ...], ...]:
    """The statements of each migration, in order; the first brings an empty database to version 1."""
    folder = files("m3nb.storage") / "sql" / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(tuple(_statements((folder / name).read_text(encoding="utf-8"))) for name in names)


def _statements(text: str) -> Iterator[str]:
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
