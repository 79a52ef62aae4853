"""What ran and what happened meanwhile: executions, events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from m3nb.frames.questions import STATUSES
from m3nb.frames.table import DURATION, TIME, Columns, Source, frame, joined, text
from m3nb.storage import read_rows
from m3nb.types import ExecutionOutcome, ExecutionStatus

if TYPE_CHECKING:
    import pandas as pd

_EXECUTIONS: Columns = {
    "harness": "string",
    "model": "string",
    "servers": "string",
    "prompt": "string",
    "lifecycle": tuple(status.value for status in ExecutionStatus),
    "outcome": tuple(outcome.value for outcome in ExecutionOutcome),
    "took": DURATION,
    "waited": DURATION,
    "active": DURATION,
    "n_rounds": "Int64",
    "tool_call_count": "Int64",
    "final_text": "string",
    "error_code": "string",
    "error_message": "string",
    "tools": "string",
    "name": "string",
    "trial": "Int64",
    "managed": "boolean",
    "created_at": TIME,
    "started_at": TIME,
    "finished_at": TIME,
    "cancel_requested_at": TIME,
    "case_id": "string",
    "suite_name": "string",
    "run_id": "string",
    "project_id": "string",
    "worker_id": "string",
    "execution_id": "string",
}
_LABELS = ("harness", "model", "name", "case_id", "suite_name", "run_id", "project_id")

_EVENTS: Columns = {
    "at": TIME,
    "source": ("execution", "round"),
    "kind": "string",
    "server": "string",
    "operation_kind": "string",
    "operation_name": "string",
    "is_error": "boolean",
    "from_status": STATUSES,
    "to_status": STATUSES,
    "payload": "string",
    "sequence": "Int64",
    "owner_id": "string",
    "round_id": "string",
    "execution_id": "string",
}
_WHO = ("server", "operation_kind", "operation_name")
_KINDS = ("tool", "prompt", "resource")


def executions(source: Source) -> pd.DataFrame:
    """Every execution of a store, oldest first, one row each.

    - ``harness``, ``model``, ``servers`` (string; several joined by ", "): who ran, against what
    - ``prompt`` (string): what it was told; ``<NA>`` before it started and after a purge
    - ``lifecycle`` (ordered category: created, queued, starting, idle, running_turn, waiting_for_input, closing,
      finished)
    - ``outcome`` (ordered category: completed, failed, timed_out, cancelled, interrupted); missing until it is finished
    - ``took`` (timedelta64[us]): ``finished_at - created_at``; ``waited``: the time that people took, summed over the
      rounds, each from its creation to its answer or, without one, to its failure (an open round counts nothing yet);
      ``active``: ``took - waited``, the rest: queue, agent, servers
    - ``n_rounds``, ``tool_call_count`` (Int64)
    - ``final_text`` (string): the agent's last word; ``<NA>`` after a purge
    - ``error_code``, ``error_message`` (string)
    - ``tools`` (string): the selected ``server:tool`` names, joined by ", "; ``<NA>`` when all were allowed
    - ``name`` (string): the selection's, if it was given one; ``trial`` (Int64, from 1)
    - ``managed`` (boolean): a person answers
    - ``created_at``, ``started_at``, ``finished_at``, ``cancel_requested_at`` (datetime64[us, UTC])
    - ``case_id``, ``suite_name``, ``run_id``, ``project_id``, ``worker_id``, ``execution_id`` (string)

    Prompt, final text and error are shown as they are stored: the execution's own secrets are hidden, all else is in
    clear. Raises `m3nb.errors.StorageError` for a path that is no database of ours. A missing file has no executions.
    """
    return frame(_EXECUTIONS, [_execution(row) for row in read_rows(source, "executions")])


def events(source: Source) -> pd.DataFrame:
    """Everything that happened in a store in the order of time: what executions report, and each step of each round.

    - ``at`` (datetime64[us, UTC])
    - ``source`` (category: execution, round): whose history this is from
    - ``kind`` (string): of an execution what happened (prompt, lifecycle, tool.call, tool.result, tool.error and the
      same of prompt and resource, elicitation.request, elicitation.response, elicitation.complete, message, usage,
      finished), of a round the method of the store
      (create_round, submit_responses, start_delivery, mark_delivered, resolve, fail, …)
    - ``server``, ``operation_kind`` (tool, prompt, resource), ``operation_name`` (string): whom it concerns, if anyone
    - ``from_status``, ``to_status`` (ordered category, as in `rounds`): of a round; an attempt that the store refused
      has no ``to_status``
    - ``is_error`` (boolean): of a ``tool.result``, whether the tool itself reports a failure; ``<NA>`` elsewhere
    - ``payload`` (string): JSON text; of a round the detail (why an attempt was refused), often ``<NA>``
    - ``sequence`` (Int64): the place in its own history, from 0. Some things are reported a moment after they happened,
      so it is not always the order of time
    - ``owner_id`` (string): who held the round; ``round_id``, ``execution_id`` (string)

    Answers inside payloads are redacted as in `answers`; arguments and results of calls are as they were sent, except
    that the execution's own secrets are hidden (and what is longer than 20,000 characters is cut). Raises as
    `executions` does.
    """
    return frame(_EVENTS, _events(read_rows(source, "events")))


def _execution(row: Mapping[str, Any]) -> dict[str, Any]:
    labels, prompt, result, error = (json.loads(row[name] or "{}") for name in ("labels", "prompt", "result", "error"))
    trial = labels.get("trial")
    took = None if row["finished_at"] is None else row["finished_at"] - row["created_at"]
    return {
        **row,
        **{name: text(labels.get(name)) for name in _LABELS},
        "servers": joined(labels.get("servers")),
        "tools": joined(labels.get("tools")),
        "trial": 1 if trial is None else _whole(trial),  # a first trial is not labelled
        "prompt": text(prompt.get("text")),
        "final_text": text(result.get("final_text")),
        "error_code": text(error.get("code")),
        "error_message": text(error.get("message")),
        "managed": bool(row["managed"]),
        "took": took,
        "active": None if took is None else took - row["waited"],
    }


def _whole(value: Any) -> int | None:
    """A number for a column of whole numbers; metadata may hold any JSON."""
    return value if type(value) is int and abs(value) < 2**63 else None


def _events(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    asked = {
        (row["execution_id"], row["round_id"]): {name: row[name] for name in _WHO}
        for row in rows
        if row["source"] == "round"
    }
    for row in rows:
        # Most events concern nobody in particular, and parsing is most of the work.
        if row["source"] == "execution" and ('"server":' in row["payload"] or '"round_id":' in row["payload"]):
            payload = json.loads(row["payload"])
            row["round_id"] = text(payload.get("round_id"))
            failed = payload.get("is_error")
            row["is_error"] = failed if isinstance(failed, bool) else None
            who = _concerned(payload)
            # What a plan answered has no round: there the event of the question says who asked.
            row.update(asked.setdefault((row["execution_id"], row["round_id"]), who) if row["round_id"] else who)
    return rows


def _concerned(payload: Mapping[str, Any]) -> dict[str, Any]:
    who = {name: text(payload.get(name)) for name in _WHO}
    for kind in _KINDS:  # the event of a call has the name of what was called under its kind
        if isinstance(payload.get(kind), str):
            who |= {"operation_kind": kind, "operation_name": payload[kind]}
    return who
