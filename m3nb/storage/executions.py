"""Executions, their events and workers: the tables, and the two stores on them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from m3nb.errors import ModelValidationError, StorageError, UnsupportedFeature
from m3nb.frozen import EMPTY
from m3nb.storage.arguments import check_integer, check_optional_texts, check_texts, json_object, lease_end
from m3nb.storage.codec import dumps, load_event, load_execution, load_round, load_worker
from m3nb.storage.database import Database, MemoryDatabase, Tables
from m3nb.storage.managed import Redaction, SQLiteManagedInputStore
from m3nb.storage.outbox import Outbox
from m3nb.storage.purging import purge
from m3nb.storage.queries import queries
from m3nb.storage.records import EventRecord, ExecutionRecord, ManagedInputRecord, NewEvent, WorkerRecord
from m3nb.storage.times import now_microseconds, to_microseconds, utc_now
from m3nb.types import ExecutionOutcome, ExecutionStatus

_SQL = queries("executions")
_REFUSE = ModelValidationError
_BLOB_THRESHOLD = 65536
"""The reference's default; it says where a blob begins, and we have no blobs."""


class _Executions:
    """The methods of `ExecutionStore`, on whatever holds the tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def now(self) -> datetime:
        """See `ExecutionStore.now`."""
        return utc_now()

    def create_execution(
        self,
        execution_id: str,
        *,
        spec: Mapping[str, Any],
        worker_id: str,
        managed: bool,
        labels: Mapping[str, Any] = EMPTY,
    ) -> ExecutionRecord:
        """See `ExecutionStore.create_execution`."""
        check_texts(_REFUSE, execution_id=execution_id, worker_id=worker_id)
        values = {
            "execution_id": execution_id,
            "worker_id": worker_id,
            "managed": int(bool(managed)),
            "spec": json_object(_REFUSE, "spec", spec),
            "labels": json_object(_REFUSE, "labels", labels),
        }

        def create(connection: sqlite3.Connection) -> sqlite3.Row | None:
            values["now"] = now_microseconds()
            row: sqlite3.Row | None = connection.execute(_SQL["insert_execution"], values).fetchone()
            return row

        row = self._tables.write(create)
        if row is None:
            raise ModelValidationError(
                f"there is an execution {execution_id!r} in this store already: use a new id",
                details={"operation": "create_execution", "execution_id": execution_id},
            )
        return load_execution(row)

    def get_execution(self, execution_id: str) -> ExecutionRecord | None:
        """See `ExecutionStore.get_execution`."""
        check_texts(_REFUSE, execution_id=execution_id)
        rows = self._rows("execution", execution_id)
        return load_execution(rows[0]) if rows else None

    def list_executions(self, *, unfinished: bool = False, worker_id: str | None = None) -> tuple[ExecutionRecord, ...]:
        """See `ExecutionStore.list_executions`."""
        check_optional_texts(_REFUSE, worker_id=worker_id)
        name = "unfinished" if unfinished else "executions"
        if worker_id is None:
            return tuple(load_execution(row) for row in self._rows(name))
        return tuple(load_execution(row) for row in self._rows(f"{name}_of_worker", worker_id))

    def claim_execution(self, execution_id: str, *, worker_id: str) -> bool:
        """See `ExecutionStore.claim_execution`."""
        check_texts(_REFUSE, execution_id=execution_id, worker_id=worker_id)
        values = {"execution_id": execution_id, "worker_id": worker_id}
        event = {"lifecycle": ExecutionStatus.STARTING.value}
        return self._change("claim_execution", values, ("lifecycle", event))

    def set_lifecycle(self, execution_id: str, lifecycle: str) -> bool:
        """See `ExecutionStore.set_lifecycle`. The present one again changes nothing, adds no event, and is ``True``."""
        check_texts(_REFUSE, execution_id=execution_id, lifecycle=lifecycle)
        allowed = [status.value for status in ExecutionStatus if status is not ExecutionStatus.FINISHED]
        if lifecycle not in allowed:
            raise ModelValidationError(
                f"lifecycle must be one of {', '.join(allowed)}, not {lifecycle!r}; finish_execution ends an execution",
                details={"operation": "set_lifecycle"},
            )
        values = {"execution_id": execution_id, "lifecycle": str(lifecycle)}
        changed = self._change("set_lifecycle", values, ("lifecycle", {"lifecycle": str(lifecycle)}))
        return changed or self._unfinished(execution_id)

    def finish_execution(
        self, execution_id: str, *, outcome: str, result: Mapping[str, Any], error: Mapping[str, Any] | None
    ) -> bool:
        """See `ExecutionStore.finish_execution`."""
        check_texts(_REFUSE, execution_id=execution_id, outcome=outcome)
        allowed = [item.value for item in ExecutionOutcome]
        if outcome not in allowed:
            raise ModelValidationError(
                f"outcome must be one of {', '.join(allowed)}, not {outcome!r}",
                details={"operation": "finish_execution"},
            )
        values = {
            "execution_id": execution_id,
            "outcome": str(outcome),
            "result": json_object(_REFUSE, "result", result),
            "error": None if error is None else json_object(_REFUSE, "error", error),
        }
        code = None if error is None else error.get("code")
        return self._change("finish_execution", values, ("finished", {"outcome": str(outcome), "error_code": code}))

    def request_cancel(self, execution_id: str) -> bool:
        """See `ExecutionStore.request_cancel`. Asking again changes nothing and is ``True``."""
        check_texts(_REFUSE, execution_id=execution_id)
        return self._change("request_cancel", {"execution_id": execution_id}) or self._unfinished(execution_id)

    def append_event(self, execution_id: str, kind: str, payload: Mapping[str, Any]) -> int:
        """See `ExecutionStore.append_event`. Raises `ModelValidationError` for an unknown execution."""
        return self.append_events(execution_id, (NewEvent(kind, payload, self.now()),))

    def append_events(self, execution_id: str, events: Sequence[NewEvent]) -> int:
        """See `ExecutionStore.append_events`. Raises `ModelValidationError` for an unknown execution."""
        check_texts(_REFUSE, execution_id=execution_id)
        rows = []
        for event in events:
            check_texts(_REFUSE, kind=event.kind)
            rows.append((event.kind, json_object(_REFUSE, "payload", event.payload), to_microseconds(event.at)))

        def append(connection: sqlite3.Connection) -> int | None:
            sequence = None
            for kind, text, at in rows:
                sequence = _append(connection, execution_id, kind, text, at)
            return sequence

        sequence = self._tables.write(append)
        if sequence is None:
            raise ModelValidationError(
                f"there is no execution {execution_id!r} in this store",
                details={"operation": "append_event", "execution_id": execution_id},
            )
        return sequence

    def events(
        self, execution_id: str, *, after_sequence: int = -1, limit: int | None = None
    ) -> tuple[EventRecord, ...]:
        """See `ExecutionStore.events`."""
        check_texts(_REFUSE, execution_id=execution_id)
        check_integer(_REFUSE, "after_sequence", after_sequence, least=-1)
        if limit is not None:
            check_integer(_REFUSE, "limit", limit, least=0)
        rows = self._rows("events", execution_id, after_sequence, -1 if limit is None else limit)
        return tuple(load_event(execution_id, row) for row in rows)

    def register_worker(
        self,
        *,
        worker_id: str,
        kind: Literal["embedded", "detached"],
        pid: int,
        version: str,
        prefix: str,
        port: int | None = None,
        token: str | None = None,
        lease_seconds: float,
    ) -> WorkerRecord:
        """See `ExecutionStore.register_worker`."""
        check_texts(_REFUSE, worker_id=worker_id, version=version, prefix=prefix)
        check_optional_texts(_REFUSE, token=token)
        if kind not in ("embedded", "detached"):
            raise ModelValidationError(f"kind must be embedded or detached, not {kind!r}")
        check_integer(_REFUSE, "pid", pid, least=0)
        if port is not None:
            check_integer(_REFUSE, "port", port, least=1)
        values = {
            "worker_id": worker_id,
            "kind": kind,
            "pid": pid,
            "version": version,
            "prefix": prefix,
            "port": port,
            "token": token,
        }

        def register(connection: sqlite3.Connection) -> sqlite3.Row:
            values["lease_expires"] = lease_end(_REFUSE, now_microseconds(), lease_seconds)
            row: sqlite3.Row = connection.execute(_SQL["register_worker"], values).fetchone()
            return row

        return load_worker(self._tables.write(register))

    def renew_worker(self, worker_id: str, *, lease_seconds: float) -> bool:
        """See `ExecutionStore.renew_worker`. ``False`` if the worker is unknown."""
        check_texts(_REFUSE, worker_id=worker_id)

        def renew(connection: sqlite3.Connection) -> bool:
            now = now_microseconds()
            values = {"worker_id": worker_id, "now": now, "lease_expires": lease_end(_REFUSE, now, lease_seconds)}
            if connection.execute(_SQL["renew_worker"], values).fetchone() is None:
                return False
            connection.execute(_SQL["renew_rounds_of_worker"], values)
            return True

        return self._tables.write(renew)

    def remove_worker(self, worker_id: str) -> None:
        """See `ExecutionStore.remove_worker`."""
        check_texts(_REFUSE, worker_id=worker_id)
        self._tables.write(lambda connection: connection.execute(_SQL["remove_worker"], (worker_id,)) and None)

    def get_worker(self, worker_id: str) -> WorkerRecord | None:
        """See `ExecutionStore.get_worker`."""
        check_texts(_REFUSE, worker_id=worker_id)
        rows = self._rows("worker", worker_id)
        return load_worker(rows[0]) if rows else None

    def list_workers(self) -> tuple[WorkerRecord, ...]:
        """See `ExecutionStore.list_workers`."""
        return tuple(load_worker(row) for row in self._rows("workers"))

    def data_version(self) -> int:
        """See `ExecutionStore.data_version`."""
        return self._tables.data_version()

    def close(self) -> None:
        """See `ExecutionStore.close`."""
        self._tables.close()

    def _rows(self, name: str, *parameters: Any) -> list[sqlite3.Row]:
        return self._tables.read(lambda connection: connection.execute(_SQL[name], parameters).fetchall(), [])

    def _unfinished(self, execution_id: str) -> bool:
        record = self.get_execution(execution_id)
        return record is not None and record.outcome is None

    def _change(self, name: str, values: dict[str, Any], event: tuple[str, Mapping[str, Any]] | None = None) -> bool:
        """Run an update that applies to one execution or to none; an event only if it applied."""

        def change(connection: sqlite3.Connection) -> bool:
            now = values["now"] = now_microseconds()
            if connection.execute(_SQL[name], values).fetchone() is None:
                return False
            if event is not None:
                kind, payload = event
                _append(connection, values["execution_id"], kind, dumps(payload), now)
            return True

        return self._tables.write(change)


def _append(connection: sqlite3.Connection, execution_id: str, kind: str, payload: str, now: int) -> int | None:
    row = connection.execute(_SQL["next_sequence"], {"execution_id": execution_id, "kind": kind}).fetchone()
    if row is None:
        return None
    connection.execute(_SQL["insert_event"], (row["id"], row["sequence"], kind, payload, now))
    sequence: int = row["sequence"]
    return sequence


class InMemoryExecutionStore(_Executions):
    """An `ExecutionStore` that lasts as long as the process. It has no managed input: that needs a file."""

    def __init__(self) -> None:
        super().__init__(MemoryDatabase())

    def __repr__(self) -> str:
        return "InMemoryExecutionStore()"


class SQLiteExecutionStore(_Executions):
    """The `ExecutionStore` in a SQLite file, with rounds of managed input and the outbox beside it.

    A few connections stay open until `close`; after it every operation opens its own. Constructing and reading change
    nothing: the file appears with the first write, readable by its owner only. ``wal=False`` keeps a rollback journal,
    for network file systems. ``redact="all"`` hides every value in histories.

    Raises `StorageError` for a path that is a symbolic link, a folder, ``:memory:`` or a file that is no database of
    ours, `StorageBusy` when a lock was not to be had within ``busy_timeout_ms``, `UnsupportedFeature` for the options
    of the reference that are not served here (``blob_root``, ``config``, ``capture_config``,
    ``payload_blob_threshold``, ``execution_queue``).
    """

    def __init__(
        self,
        database: str | PathLike[str],
        *,
        blob_root: Any = None,
        config: Any = None,
        capture_config: Any = None,
        payload_blob_threshold: int = _BLOB_THRESHOLD,
        execution_queue: str | None = None,
        busy_timeout_ms: int = 5000,
        wal: bool = True,
        redact: Redaction = "default",
    ) -> None:
        _refuse_unserved(
            blob_root=blob_root,
            config=config,
            capture_config=capture_config,
            payload_blob_threshold=None if payload_blob_threshold == _BLOB_THRESHOLD else payload_blob_threshold,
            execution_queue=execution_queue,
        )
        self._database = Database(
            database, busy_timeout_ms=busy_timeout_ms, wal=wal, keep_open=True, refuse=StorageError
        )
        super().__init__(self._database)
        self._secrets: dict[str, tuple[str, ...]] = {}
        self._managed = SQLiteManagedInputStore.borrowing(
            self._database,
            clock=utc_now,
            redact=redact,
            secrets=lambda execution_id: self._secrets.get(execution_id, ()),
        )
        self.outbox = Outbox(self._database)
        self._database.check()

    def __repr__(self) -> str:
        return f"SQLiteExecutionStore({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The absolute path of the database."""
        return self._database.path

    @property
    def managed_input_store(self) -> SQLiteManagedInputStore:
        """The rounds in this file, on this store's connections. It still works after `close`."""
        return self._managed

    def resolve_managed_input_store(self) -> SQLiteManagedInputStore:
        """The same, as the method by which a kit recognises a store that has managed input."""
        return self._managed

    def set_secrets(self, execution_id: str, values: Iterable[str]) -> None:
        """Texts to hide in the histories of an execution, kept in this object only, never stored."""
        check_texts(_REFUSE, execution_id=execution_id)
        self._secrets[execution_id] = tuple(str(value) for value in values if value)

    def hides_secrets_of(self, execution_id: str) -> tuple[str, ...] | None:
        """What `set_secrets` was told; None when nothing was, so that it is not known what to hide."""
        return self._secrets.get(execution_id)

    def unresolved_rounds(self, *, expired_only: bool = False) -> tuple[ManagedInputRecord, ...]:
        """The rounds of all executions that are neither resolved nor failed, oldest first; or those without a lease."""
        rows = self._rows("expired_rounds", now_microseconds()) if expired_only else self._rows("unresolved_rounds")
        return tuple(load_round(row) for row in rows)

    def orphans(self) -> tuple[ExecutionRecord, ...]:
        """The unfinished executions whose worker is not, or no longer, in the store, oldest first."""
        return tuple(load_execution(row) for row in self._rows("orphans"))

    def purge(self, *, before: datetime) -> int:
        """Remove what people and servers said from executions that finished before a time; return how many.

        Contents of answers (also redacted ones), of the outbox, event payloads, results, call parameters and the
        server's opaque state go; questions, actions, statuses, times and digests stay. SQLite overwrites what it
        removes.
        """
        if not isinstance(before, datetime):
            raise ModelValidationError(f"before must be a datetime, not {before!r}")
        return purge(self._database, to_microseconds(before), now_microseconds())


def _refuse_unserved(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise UnsupportedFeature(
                f"SQLiteExecutionStore has no {name} here: leave it out. Everything is in the one database file",
                details={"option": name},
            )
