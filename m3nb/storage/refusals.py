"""Why the store refuses: checks on a stored round, each in the order that engine-facts section 6 gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from m3nb.errors import (
    ManagedInputConflict,
    ManagedInputRecoveryError,
    ManagedInputStateError,
    MCPError,
)
from m3nb.storage.records import TERMINAL, ManagedInputRecord, ManagedInputStatus

if TYPE_CHECKING:
    from m3nb.storage.rounds import Stored

RECOVERY_UNAVAILABLE = "recovery_unavailable"
"""The failure code of a round whose worker vanished."""

_EVIDENCE: dict[tuple[str, str | None, bool], ManagedInputStatus] = {
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


def of_lease(stored: Stored, owner_id: str, lease_token: str, now: int) -> MCPError | None:
    """The owner and token must be those stored, and the lease must be live."""
    return _of_holder(stored.record, owner_id, lease_token) or _of_expiry(stored, now)


def of_status(record: ManagedInputRecord, wanted: str) -> MCPError:
    """The round is not where this step starts from."""
    return ManagedInputStateError(
        f"round {record.round_id!r} is {_status(record)}, and this step needs it to be {wanted}",
        details=_details(record),
    )


def of_answer(stored: Stored, owner_id: str, lease_token: str, now: int) -> MCPError | None:
    """What speaks against an answer before it is looked at."""
    record = stored.record
    if record.status == "failed":
        return ManagedInputStateError(
            f"round {record.round_id!r} is {_status(record)}: it takes no answer any more", details=_details(record)
        )
    problem = _of_holder(record, owner_id, lease_token)
    return problem or (_of_expiry(stored, now) if record.status == "pending" else None)


def of_repeat(stored: Stored, key: str, digest: str) -> MCPError | None:
    """An answered round takes the same answer with the same key again, and nothing else."""
    record = stored.record
    same_key = record.response_idempotency_key == key
    if same_key and stored.digest == digest:
        return None
    reason = "the same idempotency key came with another answer" if same_key else "it was answered with another key"
    return ManagedInputConflict(
        f"round {record.round_id!r} has its answer already ({reason}). The first answer counts: read the round again",
        details=_details(record),
    )


def of_question(record: ManagedInputRecord) -> MCPError:
    """The answer was checked against other questions than the round has now."""
    return ManagedInputConflict(
        f"round {record.round_id!r} was replaced while its answer was checked: read the round again",
        details=_details(record),
    )


def of_failure(record: ManagedInputRecord, code: str, message: str) -> MCPError | None:
    """A failed round fails again only for the same reason, a resolved one not at all."""
    if record.status == "resolved":
        return of_status(record, "unresolved")
    if record.status == "failed" and (record.failure_code, record.failure_message) != (code, message):
        return ManagedInputConflict(
            f"round {record.round_id!r} is {_status(record)} already: the first reason stays", details=_details(record)
        )
    return None


def of_recovery(stored: Stored, expected_lease_token: str, now: int) -> MCPError | None:
    """Only the round that was seen, and only after its lease, can be given up."""
    record = stored.record
    if record.lease_token != expected_lease_token:
        return _replaced(record)
    if record.status == "failed" and record.failure_code == RECOVERY_UNAVAILABLE:
        return None
    if record.status in TERMINAL:
        return of_status(record, "unresolved")
    return _of_live_lease(stored, now)


def of_claim(
    stored: Stored,
    *,
    expected_lease_token: str | None,
    delivery_state: str | None,
    idempotent_delivery: bool,
    now: int,
) -> MCPError | None:
    """Nobody takes a round over without evidence of how far its delivery got: an answer is never delivered twice."""
    record = stored.record
    if record.status == "failed" and record.failure_code == RECOVERY_UNAVAILABLE:
        return ManagedInputRecoveryError(
            f"round {record.round_id!r} was given up when its worker vanished: it can't be claimed",
            details=_details(record),
        )
    if record.status in TERMINAL:
        return of_status(record, "unresolved")
    if claimed_status(record, delivery_state, idempotent_delivery) is None:
        return ManagedInputRecoveryError(
            f"round {record.round_id!r} is {_status(record)}, and delivery_state={delivery_state!r} with "
            f"idempotent_delivery={idempotent_delivery} is no proof that going on is safe: use fail_recovery",
            details=_details(record),
        )
    live = _of_live_lease(stored, now)
    if live is not None:
        return live
    return None if record.lease_token == expected_lease_token else _replaced(record)


def claimed_status(
    record: ManagedInputRecord, delivery_state: str | None, idempotent_delivery: bool
) -> ManagedInputStatus | None:
    """The status a claimed round goes on with, ``None`` if the evidence does not fit."""
    return _EVIDENCE.get((record.status, delivery_state, idempotent_delivery))


def of_creation(record: ManagedInputRecord, what: str) -> MCPError:
    """The id or the index is taken by a round with other data."""
    return ManagedInputConflict(
        f"round {record.round_id!r} of execution {record.execution_id!r} exists with another {what}: "
        "use a new round id and the next round_index",
        details=_details(record),
    )


def _of_holder(record: ManagedInputRecord, owner_id: str, lease_token: str) -> MCPError | None:
    lease = record.lease
    return None if lease.owner_id == owner_id and lease.lease_token == lease_token else _replaced(record)


def _replaced(record: ManagedInputRecord) -> MCPError:
    return ManagedInputConflict(
        f"round {record.round_id!r} has another owner or lease token by now: read the round again and use its lease",
        details=_details(record),
    )


def _of_expiry(stored: Stored, now: int) -> MCPError | None:
    if stored.lease_end > now:
        return None
    record = stored.record
    return ManagedInputConflict(
        f"the lease of round {record.round_id!r} ended at {record.lease.expires_at.isoformat()}: its worker has not "
        "renewed it, and nobody would take the answer",
        details=_details(record),
    )


def _of_live_lease(stored: Stored, now: int) -> MCPError | None:
    if stored.lease_end <= now:
        return None
    record = stored.record
    return ManagedInputConflict(
        f"round {record.round_id!r} is leased to {record.owner_id!r} until {record.lease.expires_at.isoformat()}: "
        "its worker is alive",
        details=_details(record),
    )


def _status(record: ManagedInputRecord) -> str:
    return f"failed ({record.failure_code})" if record.status == "failed" else record.status


def _details(record: ManagedInputRecord) -> dict[str, Any]:
    return {"execution_id": record.execution_id, "round_id": record.round_id, "status": record.status}
