"""The way of one answer: what was typed, checked, kept in the outbox, committed, acknowledged (DESIGN "Storage").

Everything that goes wrong becomes words for the page. The page keeps what was typed until it hears `accepted`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from m3nb.elicitation import (
    ElicitationRequest,
    ElicitationResponse,
    FormElicitationRequest,
    PendingElicitationRound,
    UrlElicitationRequest,
)
from m3nb.errors import ManagedInputConflict, ManagedInputStateError, ManagedInputValidationError, MCPError, StorageBusy
from m3nb.notebook.keeping import Keeping

if TYPE_CHECKING:
    from m3nb.notebook.desk import Handle
    from m3nb.storage import ManagedInputRecord
    from m3nb.validity import FieldError

KEPT = "What you typed is still here."
ACTIONS = ("accept", "decline", "cancel")


class _Invalid(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__()
        self.errors = errors


def commit(keeping: Keeping, handle: Handle, round_id: str, answers: Any) -> dict[str, Any]:
    """Commit what a page sent for one round; the reply is ``accepted``, ``invalid`` or ``refused``.

    ``answers``: ``{request_key: {"action": "accept" | "decline" | "cancel", "values": {field: RawValue}}}``.
    """
    try:
        pending = handle.pending_elicitation()
        if pending is None or pending.round_id != round_id:
            return refused(_why_not_waiting(keeping, handle.execution_id, round_id))
        responses = _responses(pending, answers)
        entry = keeping.outbox.prepare(pending.execution_id, round_id, responses)
        handle.respond_elicitation(round_id, responses, idempotency_key=entry.idempotency_key)
    except _Invalid as found:
        return _invalid(found.errors)
    except ManagedInputValidationError as error:
        errors = error.details.get("errors") or []
        return _invalid(errors) if errors else refused(f"{error.message} {KEPT}")
    except (ManagedInputConflict, ManagedInputStateError) as error:
        return _after_conflict(keeping, handle.execution_id, round_id, error)
    except StorageBusy:
        return refused(f"The database is busy. {KEPT} Press Submit again.")
    except Exception as error:  # also of a handle that is not ours: a page gets words, whatever happened
        return refused(f"{words_of(error)} {KEPT}")
    keeping.forget(pending.execution_id, round_id)
    return {"kind": "accepted"}


def late_answer(
    keeping: Keeping, execution_id: str, round_id: str, answers: Any
) -> tuple[PendingElicitationRound, dict[str, ElicitationResponse]] | dict[str, Any]:
    """What a page sent for a round that has failed, checked like any answer; or the reply that says what is wrong."""
    try:
        record = keeping.record(execution_id, round_id)
        if record is None or record.status != "failed":
            return refused(_why_not_waiting(keeping, execution_id, round_id))
        return record.pending, _responses(record.pending, answers)
    except _Invalid as found:
        return _invalid(found.errors)
    except ManagedInputValidationError as error:
        errors = error.details.get("errors") or []
        return _invalid(errors) if errors else refused(f"{error.message} {KEPT}")


def finish_outbox(keeping: Keeping, handle: Handle) -> None:
    """Commit, with its first key, each answer that was stored but never acknowledged.

    An answer whose round was answered otherwise, or has failed, can't be sent any more: its content is dropped. Raises
    the store's and the handle's errors; then the answer stays in the outbox.
    """
    pending = handle.pending_elicitation()
    execution_id = pending.execution_id if pending is not None else handle.execution_id
    for entry in keeping.outbox.unacknowledged(execution_id) if execution_id else ():
        if pending is not None and entry.round_id == pending.round_id and entry.responses is not None:
            handle.respond_elicitation(entry.round_id, entry.responses, idempotency_key=entry.idempotency_key)
        keeping.outbox.acknowledge(entry.idempotency_key)


def words_of(error: Exception) -> str:
    """An error as a sentence: the message of a typed one, else also its kind."""
    if isinstance(error, MCPError):
        return error.message
    text = getattr(error, "message", None)
    text = text if isinstance(text, str) and text else str(error)
    return f"This did not work ({type(error).__name__}{': ' if text else ''}{text})."


def refused(message: str) -> dict[str, Any]:
    """The reply when nothing was committed and no field is to blame."""
    return {"kind": "refused", "message": message}


def _responses(pending: PendingElicitationRound, answers: Any) -> dict[str, ElicitationResponse]:
    from m3nb.forms import read_values
    from m3nb.validity import check_content, check_responses

    if not isinstance(answers, Mapping) or set(answers) != set(pending.requests):
        raise ManagedInputValidationError("The page answered other questions than the ones that are asked: reload it.")
    responses: dict[str, ElicitationResponse] = {}
    errors: list[FieldError] = []
    for key, request in pending.requests.items():
        answer = answers[key]
        action = answer.get("action") if isinstance(answer, Mapping) else None
        if action not in ACTIONS:
            raise ManagedInputValidationError(f"The page sent {action!r} where accept, decline or cancel is expected.")
        content = None
        if action == "accept":
            errors += _unopenable(request)
        if action == "accept" and isinstance(request, FormElicitationRequest):
            values = answer.get("values")
            content, unreadable = read_values(request, values if isinstance(values, Mapping) else {})
            if unreadable:
                # The other fields are checked in the same pass, so that a person sees every error at once.
                seen = {error["pointer"] for error in unreadable}
                errors += unreadable + [e for e in check_content(request, content) if e["pointer"] not in seen]
        responses[key] = ElicitationResponse(action=action, content=content)
    if errors:
        raise _Invalid(errors)
    return check_responses(pending, responses)


def _unopenable(request: ElicitationRequest) -> list[FieldError]:
    """Nobody can have agreed to what was never offered as a link."""
    from m3nb.forms import compile_form

    reason = compile_form(request)["blocked"] if isinstance(request, UrlElicitationRequest) else None
    if reason is None:
        return []
    message = f"This can only be declined or cancelled. {reason}"
    return [{"request_key": request.request_key, "pointer": "", "keyword": "url", "message": message}]


def _invalid(errors: list[FieldError]) -> dict[str, Any]:
    count = len(errors)
    message = "One answer needs another look." if count == 1 else f"{count} answers need another look."
    return {"kind": "invalid", "errors": errors, "message": message}


def _after_conflict(keeping: Keeping, execution_id: str, round_id: str, error: MCPError) -> dict[str, Any]:
    record = keeping.record(execution_id, round_id)
    if record is None or record.status == "pending":
        return refused(f"{error.message} {KEPT}")
    ours = any(
        entry.idempotency_key == record.response_idempotency_key for entry in keeping.of_round(execution_id, round_id)
    )
    keeping.forget(execution_id, round_id)
    return {"kind": "accepted"} if ours else refused(_why_closed(record))


def _why_not_waiting(keeping: Keeping, execution_id: str, round_id: str) -> str:
    record = keeping.record(execution_id, round_id)
    if record is not None:
        return _why_closed(record)
    if keeping.of_round(execution_id, round_id):
        return "This question is no longer waiting. An earlier try may have arrived: its answer counts, once."
    return "This question is not waiting, or not known here. Nothing was sent."


def _why_closed(record: ManagedInputRecord) -> str:
    if record.status == "failed":
        return f"This question is no longer waiting ({record.failure_code}): {record.failure_message}"
    return "This question was already answered elsewhere. Nothing was sent from here."
