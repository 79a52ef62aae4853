"""Rounds of managed input in SQLite: compare-and-set by owner, lease token and status.

Source: spec "Persistent store contract", engine-facts section 6. Every change is one short transaction that also
appends to the history of the round; a refused attempt leaves a line there too, without content.
"""

from __future__ import annotations

import secrets as random_secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from os import PathLike
from typing import Any, Literal

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound
from m3nb.errors import ManagedInputValidationError, MCPError, StorageError
from m3nb.frozen import EMPTY
from m3nb.redaction import redact_responses
from m3nb.storage import refusals
from m3nb.storage.arguments import check_integer, check_optional_texts, check_texts, json_object, json_text
from m3nb.storage.codec import digest, dumps, load_object, load_round, plain_requests, plain_responses
from m3nb.storage.database import Database, Tables
from m3nb.storage.history import existing, find, note, refuse
from m3nb.storage.queries import queries
from m3nb.storage.records import ManagedInputRecord
from m3nb.storage.times import Clock, is_aware, lease_end, read_clock, to_microseconds, utc_now
from m3nb.validity import check_responses

Redaction = Literal["default", "all"]
"""What the redacted projection hides: what looks secret, or every value."""

_SQL = queries("managed")
_INVALID = ManagedInputValidationError


class SQLiteManagedInputStore:
    """The `ManagedInputStore` in a SQLite file.

    Made with a path it opens one connection per operation and needs no closing. Constructing and reading change
    nothing: the file appears with the first round. ``clock`` returns aware datetimes, of any zone. ``redact="all"``
    hides every value in `redacted_responses`.

    Raises `ManagedInputValidationError` for a path that is a symbolic link, a folder, ``:memory:`` or a file that is no
    database of ours, `StorageBusy` when a lock was not to be had within ``busy_timeout_ms``, `StorageError` for
    everything else that SQLite reports, and ``ValueError`` for a negative timeout or a naive clock.
    """

    def __init__(
        self,
        database: str | PathLike[str],
        *,
        busy_timeout_ms: int = 5000,
        clock: Clock = utc_now,
        redact: Redaction = "default",
    ) -> None:
        tables = Database(
            database,
            busy_timeout_ms=busy_timeout_ms,
            wal=True,
            keep_open=False,
            refuse=ManagedInputValidationError,
        )
        tables.check()
        self._set_up(tables, clock, redact, lambda _: ())

    @classmethod
    def borrowing(
        cls, tables: Tables, *, clock: Clock, redact: Redaction, secrets: Callable[[str], Iterable[str]]
    ) -> SQLiteManagedInputStore:
        """A store on tables that somebody else opens and closes. ``secrets`` gives those of an execution."""
        store = cls.__new__(cls)
        store._set_up(tables, clock, redact, secrets)
        return store

    def _set_up(self, tables: Tables, clock: Clock, redact: Redaction, secrets: Callable[[str], Iterable[str]]) -> None:
        if redact not in ("default", "all"):
            raise ValueError(f'redact must be "default" or "all", not {redact!r}')
        if not is_aware(clock()):
            raise ValueError("clock must return timezone-aware datetimes")
        self._tables = tables
        self._clock = clock
        self._everything = redact == "all"
        self._secrets = secrets

    def create_round(
        self,
        pending: PendingElicitationRound,
        *,
        round_index: int,
        round_limit: int,
        owner_id: str,
        lease_seconds: float,
        lease_token: str | None = None,
        harness_session_id: str | None = None,
        native_resume_token: str | None = None,
        delivery_idempotency_key: str | None = None,
        session_id: str | None = None,
        turn_id: str | None = None,
        operation_parameters: Mapping[str, Any] | None = None,
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.create_round`. Without ``lease_token`` a random one is made."""
        if not isinstance(pending, PendingElicitationRound):
            raise ManagedInputValidationError(
                f"pending must be a PendingElicitationRound, not {type(pending).__name__}"
            )
        optional = {
            "harness_session_id": harness_session_id,
            "native_resume_token": native_resume_token,
            "delivery_idempotency_key": delivery_idempotency_key,
            "session_id": session_id,
            "turn_id": turn_id,
        }
        check_texts(_INVALID, owner_id=owner_id)
        check_optional_texts(_INVALID, lease_token=lease_token, **optional)
        check_integer(_INVALID, "round_index", round_index, least=0)
        check_integer(_INVALID, "round_limit", round_limit, least=1)
        if round_index >= round_limit:
            raise ManagedInputValidationError(f"round_index {round_index} must be less than round_limit {round_limit}")
        lease_end(0, lease_seconds)
        values = optional | _asked(pending)
        values |= {
            "round_index": round_index,
            "round_limit": round_limit,
            "owner_id": owner_id,
            "lease_token": lease_token or _new_token(),
            "operation_parameters": json_object(_INVALID, "operation_parameters", operation_parameters or EMPTY),
        }

        def create(connection: sqlite3.Connection) -> sqlite3.Row | MCPError:
            now = read_clock(self._clock)
            values["now"] = now
            values["lease_expires_at"] = lease_end(now, lease_seconds)
            row: sqlite3.Row | None = connection.execute(_SQL["insert_round"], values).fetchone()
            if row is not None:
                note(connection, row["id"], "create_round", None, "pending", now, owner_id)
                return row
            return existing(connection, values, now)

        return load_round(self._write(create))

    def get_round(self, execution_id: str, round_id: str) -> ManagedInputRecord | None:
        """See `ManagedInputStore.get_round`."""
        row = self._round(execution_id, round_id)
        return None if row is None else load_round(row)

    def list_rounds(self, execution_id: str) -> tuple[ManagedInputRecord, ...]:
        """See `ManagedInputStore.list_rounds`."""
        check_texts(_INVALID, execution_id=execution_id)
        rows: list[sqlite3.Row] = self._tables.read(
            lambda connection: connection.execute(_SQL["rounds"], (execution_id,)).fetchall(), []
        )
        return tuple(load_round(row) for row in rows)

    def redacted_responses(self, execution_id: str, round_id: str) -> Mapping[str, Any] | None:
        """See `ManagedInputStore.redacted_responses`. Reads what was stored with the answer."""
        check_texts(_INVALID, execution_id=execution_id, round_id=round_id)
        row = self._tables.read(
            lambda connection: connection.execute(_SQL["redacted"], (execution_id, round_id)).fetchone(), None
        )
        return None if row is None or row["redacted"] is None else load_object(row["redacted"])

    def submit_responses(
        self,
        execution_id: str,
        round_id: str,
        responses: Mapping[str, ElicitationResponse],
        *,
        owner_id: str,
        lease_token: str,
        response_idempotency_key: str,
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.submit_responses`.

        The answer is validated and redacted before the write transaction: neither can then hold the database up.
        That is lawful because the questions of a round never change, and the row is compared again inside.
        """
        values = _lease_holder(execution_id, round_id, owner_id, lease_token)
        check_texts(_INVALID, response_idempotency_key=response_idempotency_key)
        row = self._round(execution_id, round_id)
        if row is None:
            raise refusals.unknown(execution_id, round_id)
        problem = refusals.of_answer(row, values, read_clock(self._clock))
        if problem is not None:
            raise self._refused(row, "submit_responses", owner_id, problem)
        pending = load_round(row).pending
        try:
            checked = check_responses(pending, responses)
            plain = plain_responses(checked)
            values["responses"] = json_text(_INVALID, "responses", plain)
        except ManagedInputValidationError as error:
            raise self._refused(row, "submit_responses", owner_id, error) from None
        values["response_digest"] = digest(plain)
        values["response_idempotency_key"] = response_idempotency_key
        if row["status"] != "pending":
            conflict = refusals.of_repeat(row, values)
            if conflict is not None:
                raise self._refused(row, "submit_responses", owner_id, conflict)
            return load_round(row)
        values["redacted"] = dumps(
            redact_responses(pending, checked, secrets=tuple(self._secrets(execution_id)), everything=self._everything)
        )

        def blame(row: sqlite3.Row, now: int) -> MCPError | None:
            return refusals.of_answer(row, values, now) or refusals.of_repeat(row, values)

        return self._move("submit_responses", "pending", "response_validated", values, blame)

    def start_delivery(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.start_delivery`."""
        values = _lease_holder(execution_id, round_id, owner_id, lease_token)
        return self._move("start_delivery", "response_validated", "delivery_started", values)

    def mark_delivered(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.mark_delivered`."""
        values = _lease_holder(execution_id, round_id, owner_id, lease_token)
        return self._move("mark_delivered", "delivery_started", "delivered", values)

    def resolve(self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str) -> ManagedInputRecord:
        """See `ManagedInputStore.resolve`."""
        values = _lease_holder(execution_id, round_id, owner_id, lease_token)
        return self._move("resolve", "delivered", "resolved", values)

    def renew(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str, lease_seconds: float
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.renew`. Also a ``delivered`` round is renewed: a slow end must not lose its lease."""
        values = _lease_holder(execution_id, round_id, owner_id, lease_token)
        lease_end(0, lease_seconds)

        def renew(connection: sqlite3.Connection) -> sqlite3.Row | MCPError:
            now = values["now"] = read_clock(self._clock)
            values["lease_expires_at"] = lease_end(now, lease_seconds)
            row: sqlite3.Row | None = connection.execute(_SQL["renew"], values).fetchone()
            if row is not None:
                return row
            row = find(connection, execution_id, round_id)
            if row is None:
                return refusals.unknown(execution_id, round_id)
            problem = refusals.of_lease(row, values, now) or refusals.of_status(row, "unresolved")
            return refuse(connection, row, "renew", owner_id, now, problem)

        return load_round(self._write(renew))

    def fail(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str, code: str, message: str
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.fail`."""
        values = _lease_holder(execution_id, round_id, owner_id, lease_token)
        check_texts(_INVALID, code=code, message=message)

        def check(row: sqlite3.Row, now: int) -> MCPError | None:
            return refusals.of_lease(row, values, now) or refusals.of_failure(row, code, message)

        return self._end("fail", execution_id, round_id, owner_id, code, message, check)

    def fail_recovery(
        self, execution_id: str, round_id: str, *, expected_lease_token: str, message: str
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.fail_recovery`."""
        check_texts(
            _INVALID,
            execution_id=execution_id,
            round_id=round_id,
            expected_lease_token=expected_lease_token,
            message=message,
        )

        def check(row: sqlite3.Row, now: int) -> MCPError | None:
            return refusals.of_recovery(row, expected_lease_token, now)

        return self._end("fail_recovery", execution_id, round_id, None, refusals.RECOVERY_UNAVAILABLE, message, check)

    def claim_round(
        self,
        execution_id: str,
        round_id: str,
        *,
        owner_id: str,
        lease_seconds: float,
        expected_lease_token: str | None = None,
        delivery_state: str | None = None,
        idempotent_delivery: bool = False,
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.claim_round`."""
        check_texts(_INVALID, execution_id=execution_id, round_id=round_id, owner_id=owner_id)
        check_optional_texts(_INVALID, expected_lease_token=expected_lease_token, delivery_state=delivery_state)
        lease_end(0, lease_seconds)
        if not isinstance(idempotent_delivery, bool):
            raise ManagedInputValidationError(f"idempotent_delivery must be True or False, not {idempotent_delivery!r}")
        token = _new_token()

        def claim(connection: sqlite3.Connection) -> sqlite3.Row | MCPError:
            now = read_clock(self._clock)
            row = find(connection, execution_id, round_id)
            if row is None:
                return refusals.unknown(execution_id, round_id)
            problem = refusals.of_claim(
                row,
                expected_lease_token=expected_lease_token,
                delivery_state=delivery_state,
                idempotent_delivery=idempotent_delivery,
                now=now,
            )
            if problem is not None:
                return refuse(connection, row, "claim_round", owner_id, now, problem)
            status = refusals.claimed_status(row, delivery_state, idempotent_delivery)
            values = {
                "id": row["id"],
                "status": status,
                "owner_id": owner_id,
                "lease_token": token,
                "lease_expires_at": lease_end(now, lease_seconds),
                "now": now,
            }
            note(connection, row["id"], "claim_round", row["status"], status, now, owner_id)
            claimed: sqlite3.Row = connection.execute(_SQL["claim"], values).fetchone()
            return claimed

        return load_round(self._write(claim))

    def _round(self, execution_id: str, round_id: str) -> sqlite3.Row | None:
        check_texts(_INVALID, execution_id=execution_id, round_id=round_id)
        return self._tables.read(lambda connection: find(connection, execution_id, round_id), None)

    def _write(self, body: Callable[[sqlite3.Connection], sqlite3.Row | MCPError]) -> sqlite3.Row:
        """Run one transaction. An error that is returned is raised after the commit: its line in the history stays."""
        result = self._tables.write(body)
        if isinstance(result, MCPError):
            raise result
        return result

    def _move(
        self,
        method: str,
        source: str,
        target: str,
        values: dict[str, Any],
        blame: Callable[[sqlite3.Row, int], MCPError | None] | None = None,
    ) -> ManagedInputRecord:
        """One step of a round by compare-and-set; only when it does not apply is the row looked at for the reason."""

        def move(connection: sqlite3.Connection) -> sqlite3.Row | MCPError:
            now = values["now"] = read_clock(self._clock)
            row: sqlite3.Row | None = connection.execute(_SQL[method], values).fetchone()
            if row is not None:
                note(connection, row["id"], method, source, target, now, values["owner_id"])
                return row
            row = find(connection, values["execution_id"], values["round_id"])
            if row is None:
                return refusals.unknown(values["execution_id"], values["round_id"])
            if blame is not None:
                problem = blame(row, now)
            else:
                problem = refusals.of_lease(row, values, now)
                if problem is None and row["status"] != target:
                    problem = refusals.of_status(row, source)
            return row if problem is None else refuse(connection, row, method, values["owner_id"], now, problem)

        return load_round(self._write(move))

    def _end(
        self,
        method: str,
        execution_id: str,
        round_id: str,
        owner_id: str | None,
        code: str,
        message: str,
        check: Callable[[sqlite3.Row, int], MCPError | None],
    ) -> ManagedInputRecord:
        """Fail a round that ``check`` has nothing against; one that has failed so already is returned as it is."""

        def end(connection: sqlite3.Connection) -> sqlite3.Row | MCPError:
            now = read_clock(self._clock)
            row = find(connection, execution_id, round_id)
            if row is None:
                return refusals.unknown(execution_id, round_id)
            problem = check(row, now)
            if problem is not None:
                return refuse(connection, row, method, owner_id, now, problem)
            if row["status"] == "failed":
                return row
            note(connection, row["id"], method, row["status"], "failed", now, owner_id, {"code": code})
            values = {"id": row["id"], "now": now, "code": code, "message": message}
            failed: sqlite3.Row = connection.execute(_SQL["fail"], values).fetchone()
            return failed

        return load_round(self._write(end))

    def _refused(self, row: sqlite3.Row, method: str, owner_id: str, error: MCPError) -> MCPError:
        """The error, after a line about it in the history. A database that can't take the line hides no refusal."""

        def note_it(connection: sqlite3.Connection) -> None:
            refuse(connection, row, method, owner_id, read_clock(self._clock), error)

        with suppress(StorageError):
            self._tables.write(note_it)
        return error


def _lease_holder(execution_id: str, round_id: str, owner_id: str, lease_token: str) -> dict[str, Any]:
    check_texts(_INVALID, execution_id=execution_id, round_id=round_id, owner_id=owner_id, lease_token=lease_token)
    return {"execution_id": execution_id, "round_id": round_id, "owner_id": owner_id, "lease_token": lease_token}


def _new_token() -> str:
    return f"lease-{random_secrets.token_hex(16)}"


def _asked(pending: PendingElicitationRound) -> dict[str, Any]:
    """The columns of a question."""
    texts = {
        "execution_id": pending.execution_id,
        "round_id": pending.round_id,
        "logical_operation_id": pending.logical_operation_id,
        "server": pending.server,
        "operation_kind": pending.operation_kind,
        "operation_name": pending.operation_name,
    }
    check_texts(_INVALID, **texts)
    if pending.request_state:
        check_texts(_INVALID, request_state=pending.request_state)
    return texts | {
        "asked_at": to_microseconds(pending.created_at),
        "deadline": None if pending.deadline is None else to_microseconds(pending.deadline),
        "request_state": pending.request_state,
        "requests": json_text(_INVALID, "requests", plain_requests(pending.requests)),
    }
