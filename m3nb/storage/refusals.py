"""Why the store refuses: checks on a stored round, each in the order that engine-facts section 6 gives."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from m3nb.errors import (
    ManagedInputConflict,
    ManagedInputRecoveryError,
    ManagedInputStateError,
    MCPError,
)
from m3nb.storage.records import TERMINAL
from m3nb.storage.times import from_microseconds

RECOVERY_UNAVAILABLE = "recovery_unavailable"
"""The failure code of a round whose worker vanished."""

_EVIDENCE = {
    # status, how far the delivery got, whether a second delivery does no harm → the status the round goes on with
    ("pending", "not_started", False): "pending",
    ("pending", "not_started", True): "pending",
    ("response_validated", "not_delivered", True): "response_validated",
    ("delivery_started", "not_delivered", True): "response_validated",
    ("delivery_started", "delivered", False): "delivered",
    ("delivery_started", "delivered", True): "delivered",
    ("delivered", "delivered", False): "delivered",
    ("delivered", "delivered", True): "delivered",
}


def unknown(execution_id: str, round_id: str) -> MCPError:
    """No such round."""
    return ManagedInputConflict(
        f"there is no round {round_id!r} of execution {execution_id!r} in this store: read the round again",
        details={"execution_id": execution_id, "round_id": round_id},
    )


def of_lease(row: sqlite3.Row, values: Mapping[str, Any], now: int) -> MCPError | None:
    """The owner and token must be those stored, and the lease must be live."""
    return _of_holder(row, values) or _of_expiry(row, now)


def of_status(row: sqlite3.Row, wanted: str) -> MCPError:
    """The round is not where this step starts from."""
    return ManagedInputStateError(
        f"round {row['round_id']!r} is {_status(row)}, and this step needs it to be {wanted}", details=_details(row)
    )


def of_answer(row: sqlite3.Row, values: Mapping[str, Any], now: int) -> MCPError | None:
    """What speaks against an answer before it is looked at."""
    if row["status"] == "failed":
        return ManagedInputStateError(
            f"round {row['round_id']!r} is {_status(row)}: it takes no answer any more", details=_details(row)
        )
    return _of_holder(row, values) or (_of_expiry(row, now) if row["status"] == "pending" else None)


def of_repeat(row: sqlite3.Row, values: Mapping[str, Any]) -> MCPError | None:
    """An answered round takes the same answer with the same key again, and nothing else."""
    same_key = row["response_idempotency_key"] == values["response_idempotency_key"]
    if same_key and row["response_digest"] == values["response_digest"]:
        return None
    reason = "the same idempotency key came with another answer" if same_key else "it was answered with another key"
    return ManagedInputConflict(
        f"round {row['round_id']!r} has its answer already ({reason}). The first answer counts: read the round again",
        details=_details(row),
    )


def of_failure(row: sqlite3.Row, code: str, message: str) -> MCPError | None:
    """A failed round fails again only for the same reason, a resolved one not at all."""
    if row["status"] == "resolved":
        return of_status(row, "unresolved")
    if row["status"] == "failed" and (row["failure_code"], row["failure_message"]) != (code, message):
        return ManagedInputConflict(
            f"round {row['round_id']!r} is {_status(row)} already: the first reason stays", details=_details(row)
        )
    return None


def of_recovery(row: sqlite3.Row, expected_lease_token: str, now: int) -> MCPError | None:
    """Only the round that was seen, and only after its lease, can be given up."""
    if row["lease_token"] != expected_lease_token:
        return _replaced(row)
    if row["status"] == "failed" and row["failure_code"] == RECOVERY_UNAVAILABLE:
        return None
    if row["status"] in TERMINAL:
        return of_status(row, "unresolved")
    return _of_live_lease(row, now)


def of_claim(
    row: sqlite3.Row,
    *,
    expected_lease_token: str | None,
    delivery_state: str | None,
    idempotent_delivery: bool,
    now: int,
) -> MCPError | None:
    """Nobody takes a round over without evidence of how far its delivery got: an answer is never delivered twice."""
    if row["status"] == "failed" and row["failure_code"] == RECOVERY_UNAVAILABLE:
        return ManagedInputRecoveryError(
            f"round {row['round_id']!r} was given up when its worker vanished: it can't be claimed",
            details=_details(row),
        )
    if row["status"] in TERMINAL:
        return of_status(row, "unresolved")
    if claimed_status(row, delivery_state, idempotent_delivery) is None:
        return ManagedInputRecoveryError(
            f"round {row['round_id']!r} is {_status(row)}, and delivery_state={delivery_state!r} with "
            f"idempotent_delivery={idempotent_delivery} is no proof that going on is safe: use fail_recovery",
            details=_details(row),
        )
    live = _of_live_lease(row, now)
    if live is not None:
        return live
    return None if row["lease_token"] == expected_lease_token else _replaced(row)


def claimed_status(row: sqlite3.Row, delivery_state: str | None, idempotent_delivery: bool) -> str | None:
    """The status a claimed round goes on with, ``None`` if the evidence does not fit."""
    return _EVIDENCE.get((row["status"], delivery_state or "", bool(idempotent_delivery)))


def of_creation(row: sqlite3.Row, what: str) -> MCPError:
    """The id or the index is taken by a round with other data."""
    return ManagedInputConflict(
        f"round {row['round_id']!r} of execution {row['execution_id']!r} exists with another {what}: "
        "use a new round id and the next round_index",
        details=_details(row),
    )


def _of_holder(row: sqlite3.Row, values: Mapping[str, Any]) -> MCPError | None:
    if row["owner_id"] == values["owner_id"] and row["lease_token"] == values["lease_token"]:
        return None
    return _replaced(row)


def _replaced(row: sqlite3.Row) -> MCPError:
    return ManagedInputConflict(
        f"round {row['round_id']!r} has another owner or lease token by now: read the round again and use its lease",
        details=_details(row),
    )


def _of_expiry(row: sqlite3.Row, now: int) -> MCPError | None:
    if row["lease_expires_at"] > now:
        return None
    ended = from_microseconds(row["lease_expires_at"]).isoformat()
    return ManagedInputConflict(
        f"the lease of round {row['round_id']!r} ended at {ended}: its worker has not renewed it, "
        "and nobody would take the answer",
        details=_details(row),
    )


def _of_live_lease(row: sqlite3.Row, now: int) -> MCPError | None:
    if row["lease_expires_at"] <= now:
        return None
    return ManagedInputConflict(
        f"round {row['round_id']!r} is leased to {row['owner_id']!r} until "
        f"{from_microseconds(row['lease_expires_at']).isoformat()}: its worker is alive",
        details=_details(row),
    )


def _status(row: sqlite3.Row) -> str:
    return f"failed ({row['failure_code']})" if row["status"] == "failed" else str(row["status"])


def _details(row: sqlite3.Row) -> dict[str, Any]:
    return {"execution_id": row["execution_id"], "round_id": row["round_id"], "status": row["status"]}
