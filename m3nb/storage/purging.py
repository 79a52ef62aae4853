"""Removing what was said, keeping what happened."""

from __future__ import annotations

import json
import sqlite3

from m3nb.storage.codec import dumps
from m3nb.storage.database import Database
from m3nb.storage.queries import queries

_SQL = queries("executions")


def purge(database: Database, before: int, now: int) -> int:
    """Remove the payloads of executions that finished before a time; return how many executions that were."""

    def purge(connection: sqlite3.Connection) -> int:
        rows = connection.execute(_SQL["purge_executions"], {"before": before, "now": now}).fetchall()
        for row in rows:
            _purge_execution(connection, row["execution_id"], now)
        return len(rows)

    count = database.write(purge)
    if count:
        # The removed text is still in the log, until it is written back.
        database.checkpoint()
    return count


def _purge_execution(connection: sqlite3.Connection, execution_id: str, now: int) -> None:
    for row in connection.execute(_SQL["answers_of_execution"], (execution_id,)).fetchall():
        actions = {
            key: {"action": response["action"], "content": None, "meta": None}
            for key, response in json.loads(row["responses"]).items()
        }
        connection.execute(_SQL["purge_answer"], {"id": row["id"], "actions": dumps(actions)})
    values = {"execution_id": execution_id, "now": now}
    connection.execute(_SQL["purge_questions"], values)
    connection.execute(_SQL["purge_outbox"], values)
    connection.execute(_SQL["purge_events"], (execution_id,))
