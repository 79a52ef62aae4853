"""What the page draws: the `view` trait and the summary of answered rounds, both plain JSON.

The view holds plans and words, never an answer: widget state is saved into notebooks. Answers are shown from the
redacted projection only, and travel as messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from m3nb.elicitation import (
    ElicitationRequest,
    FormElicitationRequest,
    PendingElicitationRound,
    UrlElicitationRequest,
)
from m3nb.redaction import redact_value
from m3nb.types import ExecutionState, ExecutionStatus

if TYPE_CHECKING:
    from m3nb.storage import ManagedInputRecord, SQLiteExecutionStore

STATES = {
    ExecutionStatus.CREATED: "queued",
    ExecutionStatus.QUEUED: "queued",
    ExecutionStatus.STARTING: "starting",
    ExecutionStatus.FINISHED: "finished",
}
WORDS = {
    "queued": "Queued",
    "starting": "Starting",
    "running": "Running",
    "waiting": "Waiting for your answer",
    "finished": "Finished",
    "completed": "Completed",
    "failed": "Failed",
    "timed_out": "Timed out",
    "cancelled": "Cancelled",
    "interrupted": "Interrupted",
}
MAX_ARGUMENTS = 20_000
"""Characters shown of what an operation was called with."""

KINDS = {"tool": "", "prompt": "the prompt ", "resource": "the resource "}


def view_of(
    state: ExecutionState,
    pending: PendingElicitationRound | None,
    round_: dict[str, Any] | None,
    error: str | None,
    done: list[str],
    again: str | None = None,
) -> dict[str, Any]:
    """The `view` trait of an execution. ``elapsed``: seconds since the question, or else since the submission.

    ``done``: keys of the round's requests of which the server says that they are done. ``again``: the round whose
    answer, come too late, the run can be made again with.
    """
    drawn = STATES.get(state.lifecycle, "running")
    if pending is not None and drawn != "finished":
        drawn = "waiting"
    outcome = state.outcome.value if state.outcome else None
    began = pending.created_at if pending else state.created_at
    return {
        "state": drawn,
        "status": WORDS[outcome or drawn],
        "outcome": outcome,
        "error": error,
        "server": f"{pending.server} asks" if pending else None,
        "operation": f"{KINDS[pending.operation_kind]}{pending.operation_name} waits" if pending else None,
        "round": round_,
        "done": done,
        "again": again,
        "execution_id": str(state.execution_id),
        "elapsed": None if drawn == "finished" else round((datetime.now(UTC) - began).total_seconds(), 3),
    }


def waiting_view(execution_id: str) -> dict[str, Any]:
    """The view of an execution that nobody has looked at yet."""
    return {
        "state": "starting",
        "status": WORDS["starting"],
        "outcome": None,
        "error": None,
        "server": None,
        "operation": None,
        "round": None,
        "done": [],
        "again": None,
        "execution_id": execution_id,
        "elapsed": None,
    }


def round_of(
    pending: PendingElicitationRound, record: ManagedInputRecord | None, arguments: str | None
) -> dict[str, Any]:
    """The plan of one pending round. ``index`` counts from 1; the limit is worth saying from the second round on."""
    index = record.round_index + 1 if record else 1
    return {
        "round_id": pending.round_id,
        "index": index,
        "limit": record.round_limit if record and index > 1 else None,
        "deadline": pending.deadline.isoformat() if pending.deadline else None,
        "requests": [_plan(request) for request in pending.requests.values()],
        "arguments": arguments,
    }


def arguments_of(store: SQLiteExecutionStore, record: ManagedInputRecord) -> str | None:
    """What the waiting operation was called with, as JSON text without secrets.

    None without parameters, and where it is not known what has to be hidden: after a restart of the kernel.
    """
    secrets = store.hides_secrets_of(record.pending.execution_id)
    if secrets is None or not record.operation_parameters:
        return None
    text = json.dumps(redact_value(record.operation_parameters, secrets), ensure_ascii=False, indent=2)
    return text if len(text) <= MAX_ARGUMENTS else f"{text[: MAX_ARGUMENTS - 1]}…"


def fields_now(request: ElicitationRequest | None, values: Any) -> dict[str, Any] | None:
    """``fields`` and ``blocked`` of a form for what is typed so far; None for what is no form."""
    from m3nb.forms import fields_for

    if not isinstance(request, FormElicitationRequest):
        return None
    fields, blocked = fields_for(request, values if isinstance(values, Mapping) else {})
    return {"fields": fields, "blocked": blocked}


def _plan(request: ElicitationRequest) -> dict[str, Any]:
    from m3nb.forms import compile_form

    return dict(compile_form(request))


def summary_of(store: SQLiteExecutionStore, execution_id: str) -> list[dict[str, Any]]:
    """The answered rounds of an execution, redacted, oldest first."""
    managed = store.managed_input_store
    rounds = []
    for record in managed.list_rounds(execution_id):
        redacted = managed.redacted_responses(execution_id, record.round_id)
        if redacted is not None:
            rounds.append(_answered(record, redacted))
    return rounds


def _answered(record: ManagedInputRecord, redacted: Mapping[str, Any]) -> dict[str, Any]:
    from m3nb.forms import told

    items: list[dict[str, str]] = []
    actions = []
    for key, request in record.pending.requests.items():
        response = redacted.get(key) or {}
        action = str(response.get("action"))
        actions.append(action)
        content = response.get("content") or {}
        if isinstance(request, FormElicitationRequest) and content:
            items += told(request, content)
        elif isinstance(request, UrlElicitationRequest):
            # The host only: the rest of an address may well be a secret.
            items.append({"label": request.message or key, "text": f"{action}: {_host(request)}"})
        elif len(redacted) > 1:
            items.append({"label": request.message or key, "text": action})
    at = record.response_validated_at
    return {
        "round_id": record.round_id,
        "action": actions[0] if len(set(actions)) == 1 else "mixed",
        "items": items,
        "at": at.isoformat() if at else None,
    }


def _host(request: UrlElicitationRequest) -> str:
    url: dict[str, str] = _plan(request)["url"]
    return url["host"] or f"an address that starts with {request.url[:12]!r}"
