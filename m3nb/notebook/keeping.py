"""Where answers are kept on their way: in the outbox of a store, or in memory for as long as a form lives."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from m3nb.elicitation import ElicitationResponse
from m3nb.storage.codec import digest, plain_responses
from m3nb.storage.records import OutboxEntry

if TYPE_CHECKING:
    from m3nb.storage import ManagedInputRecord, SQLiteExecutionStore


class AnyOutbox(Protocol):
    """What `m3nb.storage.Outbox` and `MemoryOutbox` have in common: stored, committed, then acknowledged."""

    def prepare(self, execution_id: str, round_id: str, responses: Mapping[str, ElicitationResponse]) -> OutboxEntry:
        """Keep an answer. Equal responses to the same round get the key they had."""

    def acknowledge(self, idempotency_key: str) -> None:
        """Drop the content of an answer; its key stays."""

    def unacknowledged(self, execution_id: str | None = None) -> tuple[OutboxEntry, ...]:
        """Answers whose commit is not known to have ended, oldest first."""


class MemoryOutbox:
    """An outbox that ends with the process."""

    def __init__(self) -> None:
        self._entries: dict[str, OutboxEntry] = {}

    def prepare(self, execution_id: str, round_id: str, responses: Mapping[str, ElicitationResponse]) -> OutboxEntry:
        """See `AnyOutbox.prepare`."""
        found = digest(plain_responses(responses))
        for entry in self._entries.values():
            if (entry.execution_id, entry.round_id, entry.digest) == (execution_id, round_id, found):
                return entry
        entry = OutboxEntry(
            idempotency_key=f"answer-{secrets.token_hex(16)}",
            execution_id=execution_id,
            round_id=round_id,
            responses=dict(responses),
            digest=found,
            created_at=datetime.now(UTC),
        )
        self._entries[entry.idempotency_key] = entry
        return entry

    def acknowledge(self, idempotency_key: str) -> None:
        """See `AnyOutbox.acknowledge`."""
        entry = self._entries.get(idempotency_key)
        if entry is not None and entry.acknowledged_at is None:
            done = {"responses": None, "acknowledged_at": datetime.now(UTC)}
            self._entries[idempotency_key] = entry.model_copy(update=done)

    def unacknowledged(self, execution_id: str | None = None) -> tuple[OutboxEntry, ...]:
        """See `AnyOutbox.unacknowledged`."""
        return tuple(
            entry
            for entry in self._entries.values()
            if entry.acknowledged_at is None and execution_id in (None, entry.execution_id)
        )


class Keeping:
    """The outbox, and what is known of the rounds besides: their records, when ``store`` is where they are."""

    def __init__(self, store: SQLiteExecutionStore | None) -> None:
        self.store = store
        self.outbox: AnyOutbox = MemoryOutbox() if store is None else store.outbox

    def record(self, execution_id: str, round_id: str) -> ManagedInputRecord | None:
        """The record of a round, or None when it is not in this store."""
        if self.store is None or not execution_id or not round_id:
            return None
        return self.store.managed_input_store.get_round(execution_id, round_id)

    def of_round(self, execution_id: str, round_id: str) -> list[OutboxEntry]:
        """The answers to one round that are still on their way."""
        entries = self.outbox.unacknowledged(execution_id) if execution_id else ()
        return [entry for entry in entries if entry.round_id == round_id]

    def forget(self, execution_id: str, round_id: str) -> None:
        """The round has its answer: what was typed leaves the outbox, earlier tries included."""
        for entry in self.of_round(execution_id, round_id):
            self.outbox.acknowledge(entry.idempotency_key)
