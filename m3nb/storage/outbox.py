"""Answers on their way: stored before they are committed, so that a retry sends the same answer with the same key."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping

from m3nb.elicitation import ElicitationResponse
from m3nb.errors import ManagedInputValidationError
from m3nb.storage.arguments import check_optional_texts, check_texts, json_text
from m3nb.storage.codec import digest, load_outbox, plain_responses
from m3nb.storage.database import Tables
from m3nb.storage.queries import queries
from m3nb.storage.records import OutboxEntry
from m3nb.storage.times import now_microseconds

_SQL = queries("outbox")
_INVALID = ManagedInputValidationError


class Outbox:
    """The outbox of a store. An answer is checked (`m3nb.validity.check_responses`) before it is put in here.

    Then it is committed with the key of its entry, and acknowledged: also when the commit was refused for good.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def prepare(self, execution_id: str, round_id: str, responses: Mapping[str, ElicitationResponse]) -> OutboxEntry:
        """Store an answer and return it with its idempotency key.

        Equal responses to the same round get the key they had, also after a restart; others get a new one.
        """
        check_texts(_INVALID, execution_id=execution_id, round_id=round_id)
        if not isinstance(responses, Mapping) or not all(
            isinstance(key, str) and isinstance(response, ElicitationResponse) for key, response in responses.items()
        ):
            raise ManagedInputValidationError("responses must be a mapping of request key to ElicitationResponse")
        plain = plain_responses(responses)
        values = {
            "idempotency_key": f"answer-{secrets.token_hex(16)}",
            "execution_id": execution_id,
            "round_id": round_id,
            "responses": json_text(_INVALID, "responses", plain),
            "digest": digest(plain),
        }

        def prepare(connection: sqlite3.Connection) -> sqlite3.Row:
            row: sqlite3.Row = connection.execute(_SQL["prepare"], values | {"now": now_microseconds()}).fetchone()
            return row

        return load_outbox(self._tables.write(prepare))

    def acknowledge(self, idempotency_key: str) -> None:
        """Drop the content of an entry; its key and digest stay. Unknown and acknowledged keys change nothing."""
        check_texts(_INVALID, idempotency_key=idempotency_key)

        def acknowledge(connection: sqlite3.Connection) -> None:
            connection.execute(_SQL["acknowledge"], {"idempotency_key": idempotency_key, "now": now_microseconds()})

        self._tables.write(acknowledge)

    def unacknowledged(self, execution_id: str | None = None) -> tuple[OutboxEntry, ...]:
        """Entries whose commit is not known to have ended, oldest first; of one execution, or of all."""
        check_optional_texts(_INVALID, execution_id=execution_id)
        rows: list[sqlite3.Row] = self._tables.read(
            lambda connection: (
                connection.execute(_SQL["unacknowledged"]).fetchall()
                if execution_id is None
                else connection.execute(_SQL["unacknowledged_of_execution"], (execution_id,)).fetchall()
            ),
            [],
        )
        return tuple(load_outbox(row) for row in rows)
