"""Rounds of managed input in SQLite: compare-and-set by owner, lease token and status.

Source: spec "Persistent store contract", engine-facts section 6. Every change is one short transaction that also
appends to the history of the round; a refused attempt leaves a line there too, without content.
"""

from __future__ import annotations

import secrets as random_secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from os import PathLike
from typing import Any, Literal, NamedTuple

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound
from m3nb.errors import ManagedInputValidationError, MCPError, StorageError
from m3nb.frozen import FrozenDict
from m3nb.redaction import redact_responses
from m3nb.storage import refusals
from m3nb.storage.arguments import check_integer, check_optional_texts, check_texts, json_object, json_text, lease_end
from m3nb.storage.codec import (
    digest,
    dumps,
    load_object,
    load_round,
    new_lease,
    new_round,
    plain_responses,
)
from m3nb.storage.database import Database, Tables
from m3nb.storage.queries import queries
from m3nb.storage.records import TERMINAL, ManagedInputRecord, ManagedInputStatus
from m3nb.storage.rounds import (
    Change,
    Ids,
    Recent,
    Step,
    Stored,
    apply,
    asked,
    existing,
    failure,
    find,
    new_stamp,
    note,
    refuse,
)
from m3nb.storage.times import Clock, is_aware, read_clock, utc_now
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
        self._recent = Recent()

    @property
    def redacts_everything(self) -> bool:
        """Whether the store was opened with ``redact="all"``."""
        return self._everything

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
        lease_end(_INVALID, 0, lease_seconds)
        values = optional | asked(pending)
        values |= {
            "stamp": new_stamp(),
            "round_index": round_index,
            "round_limit": round_limit,
            "owner_id": owner_id,
            "lease_token": lease_token or _new_token(),
            "operation_parameters": "{}"
            if operation_parameters is None
            else json_object(_INVALID, "operation_parameters", operation_parameters),
        }

        def create(connection: sqlite3.Connection) -> Stored | MCPError:
            now, at = read_clock(self._clock)
            values["created_at"] = now
            values["lease_expires_at"] = lease_end(_INVALID, now, lease_seconds)
            cursor = connection.execute(_SQL["insert_round"], values)
            if cursor.rowcount != 1:
                return existing(connection, values)
            assert cursor.lastrowid is not None
            note(connection, cursor.lastrowid, "create_round", None, "pending", now, owner_id)
            return Stored(cursor.lastrowid, values["stamp"], values["lease_expires_at"], None, new_round(values, at))

        return self._write(create)

    def get_round(self, execution_id: str, round_id: str) -> ManagedInputRecord | None:
        """See `ManagedInputStore.get_round`."""
        check_texts(_INVALID, execution_id=execution_id, round_id=round_id)
        there = self._find((execution_id, round_id))
        return None if there is None else there.record

    def list_rounds(self, execution_id: str) -> tuple[ManagedInputRecord, ...]:
        """See `ManagedInputStore.list_rounds`."""
        return self._rounds("rounds", execution_id)

    def open_rounds(self, execution_id: str) -> tuple[ManagedInputRecord, ...]:
        """The rounds that are neither resolved nor failed, in their order. However many there were, this is quick."""
        return self._rounds("open_rounds", execution_id)

    def _rounds(self, query: str, execution_id: str) -> tuple[ManagedInputRecord, ...]:
        check_texts(_INVALID, execution_id=execution_id)
        rows: list[sqlite3.Row] = self._tables.read(
            lambda connection: connection.execute(_SQL[query], (execution_id,)).fetchall(), []
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
        ids = _check_holder(execution_id, round_id, owner_id, lease_token)
        check_texts(_INVALID, response_idempotency_key=response_idempotency_key)
        there = self._recent.get(ids)
        if there is None or there.record.status != "pending":
            there = self._find(ids)
        if there is None:
            raise refusals.unknown(*ids)
        pending = there.record.pending
        answer, problem = None, None
        try:
            answer = self._answer(pending, responses)
        except ManagedInputValidationError as error:
            problem = error

        def check(there: Stored, now: int) -> MCPError | None:
            objection = refusals.of_answer(there, owner_id, lease_token, now) or problem
            if objection is not None or answer is None:
                return objection
            if there.record.pending is not pending and there.record.pending.requests != pending.requests:
                return refusals.of_question(there.record)
            if there.record.status == "pending":
                return None
            return refusals.of_repeat(there, response_idempotency_key, answer.digest)

        def step(there: Stored, now: int, at: datetime) -> Change | None:
            if answer is None or there.record.status != "pending":
                return None
            fields = {
                "status": "response_validated",
                "updated_at": at,
                "response_validated_at": at,
                "responses": answer.responses,
                "response_idempotency_key": response_idempotency_key,
            }
            parameters = (answer.text, response_idempotency_key, answer.digest, answer.redacted)
            return Change("submit_responses", parameters, fields, digest=answer.digest)

        try:
            return self._change("submit_responses", ids, owner_id, check, step)
        except StorageError:
            # A database that can't take a line about it does not hide what is wrong with the answer.
            if problem is None:
                raise
            raise problem from None

    def start_delivery(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.start_delivery`."""

        def fields(record: ManagedInputRecord, at: datetime) -> dict[str, Any]:
            return {"delivery_started_at": at, "delivery_attempts": record.delivery_attempts + 1}

        ids = _check_holder(execution_id, round_id, owner_id, lease_token)
        return self._move(
            "start_delivery", ids, (owner_id, lease_token), "response_validated", "delivery_started", fields
        )

    def mark_delivered(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.mark_delivered`."""
        ids = _check_holder(execution_id, round_id, owner_id, lease_token)
        lease = (owner_id, lease_token)
        return self._move(
            "mark_delivered", ids, lease, "delivery_started", "delivered", lambda _, at: {"delivered_at": at}
        )

    def resolve(self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str) -> ManagedInputRecord:
        """See `ManagedInputStore.resolve`."""
        ids = _check_holder(execution_id, round_id, owner_id, lease_token)
        lease = (owner_id, lease_token)
        return self._move("resolve", ids, lease, "delivered", "resolved", lambda _, at: {"resolved_at": at})

    def renew(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str, lease_seconds: float
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.renew`. Also a ``delivered`` round is renewed: a slow end must not lose its lease."""
        ids = _check_holder(execution_id, round_id, owner_id, lease_token)
        lease_end(_INVALID, 0, lease_seconds)

        def check(there: Stored, now: int) -> MCPError | None:
            problem = refusals.of_lease(there, owner_id, lease_token, now)
            if problem is None and there.record.status in TERMINAL:
                problem = refusals.of_status(there.record, "unresolved")
            return problem

        def step(there: Stored, now: int, at: datetime) -> Change:
            end = lease_end(_INVALID, now, lease_seconds)
            fields = {"updated_at": at, "lease": new_lease(owner_id, lease_token, end)}
            return Change("renew", (end,), fields, lease_end=end)

        return self._change("renew", ids, owner_id, check, step)

    def fail(
        self, execution_id: str, round_id: str, *, owner_id: str, lease_token: str, code: str, message: str
    ) -> ManagedInputRecord:
        """See `ManagedInputStore.fail`."""
        ids = _check_holder(execution_id, round_id, owner_id, lease_token)
        check_texts(_INVALID, code=code, message=message)

        def check(there: Stored, now: int) -> MCPError | None:
            problem = refusals.of_lease(there, owner_id, lease_token, now)
            return problem or refusals.of_failure(there.record, code, message)

        return self._change("fail", ids, owner_id, check, failure(code, message))

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

        def check(there: Stored, now: int) -> MCPError | None:
            return refusals.of_recovery(there, expected_lease_token, now)

        step = failure(refusals.RECOVERY_UNAVAILABLE, message)
        return self._change("fail_recovery", (execution_id, round_id), None, check, step)

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
        """See `ManagedInputStore.claim_round`. The round gets a new random token."""
        check_texts(_INVALID, execution_id=execution_id, round_id=round_id, owner_id=owner_id)
        check_optional_texts(_INVALID, expected_lease_token=expected_lease_token, delivery_state=delivery_state)
        lease_end(_INVALID, 0, lease_seconds)
        if not isinstance(idempotent_delivery, bool):
            raise ManagedInputValidationError(f"idempotent_delivery must be True or False, not {idempotent_delivery!r}")
        token = _new_token()

        def check(there: Stored, now: int) -> MCPError | None:
            return refusals.of_claim(
                there,
                expected_lease_token=expected_lease_token,
                delivery_state=delivery_state,
                idempotent_delivery=idempotent_delivery,
                now=now,
            )

        def step(there: Stored, now: int, at: datetime) -> Change:
            status = refusals.claimed_status(there.record, delivery_state, idempotent_delivery)
            end = lease_end(_INVALID, now, lease_seconds)
            delivered_at = (there.record.delivered_at or at) if status == "delivered" else None
            fields = {
                "status": status,
                "updated_at": at,
                "lease": new_lease(owner_id, token, end),
                "delivered_at": delivered_at,
            }
            return Change("claim_round", (status, owner_id, token, end), fields, lease_end=end)

        return self._change("claim_round", (execution_id, round_id), owner_id, check, step)

    def _find(self, ids: Ids) -> Stored | None:
        there = self._tables.read(lambda connection: find(connection, ids), None)
        if there is not None:
            self._recent.put(there)
        return there

    def _answer(self, pending: PendingElicitationRound, responses: Mapping[str, ElicitationResponse]) -> _Answer:
        """Validate and redact. Raises `ManagedInputValidationError`."""
        checked = check_responses(pending, responses)
        plain = plain_responses(checked)
        text = json_text(_INVALID, "responses", plain)
        secrets = tuple(self._secrets(pending.execution_id))
        redacted = redact_responses(pending, checked, secrets=secrets, everything=self._everything)
        return _Answer(FrozenDict(checked), text, digest(plain), dumps(redacted))

    def _write(self, body: Callable[[sqlite3.Connection], Stored | MCPError]) -> ManagedInputRecord:
        """Run one transaction. An error that is returned is raised after the commit: its line in the history stays."""
        result = self._tables.write(body)
        if isinstance(result, MCPError):
            raise result
        return self._recent.put(result)

    def _change(
        self,
        method: str,
        ids: Ids,
        owner_id: str | None,
        check: Callable[[Stored, int], MCPError | None],
        step: Step,
    ) -> ManagedInputRecord:
        """Change one round. ``check`` says what speaks against it, ``step`` what is done, ``None`` for nothing.

        What this store has seen last is tried first, by its stamp: if the row has changed since, nothing happens, and
        the row is read. A refusal is only ever based on the row.
        """

        def change(connection: sqlite3.Connection) -> Stored | MCPError:
            now, at = read_clock(self._clock)
            there = self._recent.get(ids)
            if there is not None and check(there, now) is None:
                known = step(there, now, at)
                done = None if known is None else apply(connection, method, there, known, now, owner_id)
                if done is not None:
                    return done
            there = find(connection, ids)
            if there is None:
                return refusals.unknown(*ids)
            objection = check(there, now)
            if objection is not None:
                return refuse(connection, there, method, owner_id, now, objection)
            todo = step(there, now, at)
            if todo is None:
                return there
            done = apply(connection, method, there, todo, now, owner_id)
            assert done is not None, "nobody else writes in this transaction"
            return done

        return self._write(change)

    def _move(
        self,
        method: str,
        ids: Ids,
        lease: tuple[str, str],
        source: ManagedInputStatus,
        target: ManagedInputStatus,
        stamps: Callable[[ManagedInputRecord, datetime], dict[str, Any]],
    ) -> ManagedInputRecord:
        """One step of a delivery, from ``source`` to ``target``; a round that is there already is returned as it is."""

        def check(there: Stored, now: int) -> MCPError | None:
            problem = refusals.of_lease(there, *lease, now)
            if problem is None and there.record.status not in (source, target):
                problem = refusals.of_status(there.record, source)
            return problem

        def step(there: Stored, now: int, at: datetime) -> Change | None:
            if there.record.status == target:
                return None
            return Change(method, (), {"status": target, "updated_at": at, **stamps(there.record, at)})

        return self._change(method, ids, lease[0], check, step)


class _Answer(NamedTuple):
    """A valid answer, ready to be stored."""

    responses: Mapping[str, ElicitationResponse]
    text: str
    digest: str
    redacted: str


def _check_holder(execution_id: str, round_id: str, owner_id: str, lease_token: str) -> Ids:
    check_texts(_INVALID, execution_id=execution_id, round_id=round_id, owner_id=owner_id, lease_token=lease_token)
    return (execution_id, round_id)


def _new_token() -> str:
    return f"lease-{random_secrets.token_hex(16)}"
