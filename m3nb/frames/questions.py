"""What people were asked and what they answered: rounds, requests, answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from m3nb.frames.table import DURATION, TIME, Columns, Source, frame, joined
from m3nb.storage import read_rows

if TYPE_CHECKING:
    import pandas as pd

STATUSES = ("pending", "response_validated", "delivery_started", "delivered", "resolved", "failed")

_WHO: Columns = {"server": "string", "operation_kind": "string", "operation_name": "string"}
_IDS: Columns = {"round_index": "Int64", "round_id": "string", "execution_id": "string"}

_ROUNDS: Columns = {
    **_WHO,
    "status": STATUSES,
    "actions": "string",
    "n_requests": "Int64",
    "waited": DURATION,
    "created_at": TIME,
    "answered_at": TIME,
    "delivered_at": TIME,
    "resolved_at": TIME,
    "failed_at": TIME,
    "deadline": TIME,
    "failure_code": "string",
    "failure_message": "string",
    "delivery_attempts": "Int64",
    "refused_attempts": "Int64",
    **_IDS,
}
_REQUESTS: Columns = {
    **_WHO,
    "request_key": "string",
    "mode": "string",
    "message": "string",
    "fields": "string",
    "n_fields": "Int64",
    "url": "string",
    "status": STATUSES,
    "action": "string",
    "waited": DURATION,
    "created_at": TIME,
    "answered_at": TIME,
    "completed_at": TIME,
    "deadline": TIME,
    "elicitation_id": "string",
    **_IDS,
}
_ANSWERS: Columns = {
    **_WHO,
    "request_key": "string",
    "mode": "string",
    "action": "string",
    "field": "string",
    "value": "string",
    "masked": "boolean",
    "answered_at": TIME,
    **_IDS,
}


def rounds(source: Source) -> pd.DataFrame:
    """Every round of a store, oldest first, one row each.

    - ``server``, ``operation_kind`` (tool, prompt, resource), ``operation_name`` (the tool's or prompt's name, the
      resource's URI; string): who asked, during what
    - ``status`` (ordered category: pending, response_validated, delivery_started, delivered, resolved, failed)
    - ``actions`` (string): accept, decline or cancel of each request in the order asked, joined by ", "; ``<NA>``
      before the answer; ``n_requests`` (Int64)
    - ``waited`` (timedelta64[us]): from the question to the answer, or to its failure when none came
    - ``created_at``, ``answered_at`` (the answer was committed), ``delivered_at``, ``resolved_at``, ``failed_at``,
      ``deadline`` (datetime64[us, UTC])
    - ``failure_code``, ``failure_message`` (string)
    - ``delivery_attempts``, ``refused_attempts`` (Int64): the latter counts answers and steps that the store refused
    - ``round_index`` (Int64, from 0 in each execution), ``round_id``, ``execution_id`` (string)

    Raises `m3nb.errors.StorageError` for a path that is no database of ours. A missing file has no rounds.
    """
    return frame(_ROUNDS, [_round(row) for row in read_rows(source, "rounds")])


def requests(source: Source) -> pd.DataFrame:
    """Every request of every round of a store, oldest round first, one row each, in the order asked.

    - ``server``, ``operation_kind``, ``operation_name`` (string): as in `rounds`
    - ``request_key`` (string): its name in the round; ``mode`` (string: form, url); ``message`` (string)
    - ``fields`` (string): the properties that a form's schema lists, joined by ", "; ``n_fields`` (Int64); both
      ``<NA>`` for a URL
    - ``url`` (string): as the server sent it; ``<NA>`` for a form
    - ``status`` (ordered category): the round's
    - ``action`` (string: accept, decline, cancel); ``<NA>`` before the answer
    - ``waited`` (timedelta64[us]): the round's, the same for each of its requests
    - ``created_at``, ``answered_at``, ``deadline``: the round's; ``completed_at``: when the server first said that what
      was begun at the URL is complete (an accepted URL is consent only), lost in a purge (datetime64[us, UTC])
    - ``elicitation_id`` (string): the server's id of a URL request
    - ``round_index`` (Int64), ``round_id``, ``execution_id`` (string)

    A question that no person was asked (a plan answered it, ``human_input="fail"``) is no round: see `events`. Raises
    as `rounds` does.
    """
    return frame(_REQUESTS, [line for row in read_rows(source, "requests") for line in _requests(row)])


def answers(source: Source, redacted: bool = True) -> pd.DataFrame:
    """Every answer of a store, oldest round first, one row for each field of each request.

    An accepted form has a row for each property that its schema lists and for each further one in the answer; every
    other response, and a form without fields, has one row without a field.

    - ``server``, ``operation_kind``, ``operation_name`` (string): as in `rounds`
    - ``request_key``, ``mode`` (form, url), ``action`` (accept, decline, cancel; string)
    - ``field`` (string): the property's name
    - ``value`` (string): JSON text, so ``"0012"``, ``12``, ``[]`` and ``null`` stay apart; ``<NA>`` where a field was
      left out, and after a purge. ``frame["value"].map(json.loads, na_action="ignore")`` gives Python values
    - ``masked`` (boolean): the value shown is not the one given; ``<NA>`` without a value
    - ``answered_at`` (datetime64[us, UTC]): when the answer was committed
    - ``round_index`` (Int64), ``round_id``, ``execution_id`` (string)

    By default values are shown as they were redacted when they were committed. ``redacted=False`` shows what was typed,
    secrets included; ``frame.attrs["redacted"]`` says which one this is. Raises as `rounds` does.
    """
    table = frame(_ANSWERS, [line for row in read_rows(source, "answers") for line in _answer(row, redacted)])
    table.attrs["redacted"] = redacted
    return table


def _round(row: Mapping[str, Any]) -> dict[str, Any]:
    actions = _actions(row)
    return {
        **row,
        **_wait(row),
        "actions": None if actions is None else ", ".join(actions.values()),
        "n_requests": len(json.loads(row["requests"])),
    }


def _requests(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    actions = _actions(row) or {}
    # Of two times for one request the first counts, so it comes last here.
    completed = dict(sorted(json.loads(row["completed"] or "[]"), key=lambda pair: -pair[1]))
    for key, request in json.loads(row["requests"]).items():
        fields = _fields(request)
        yield {
            **row,
            **request,
            **_wait(row),
            "request_key": key,
            "fields": joined(fields),
            "n_fields": None if fields is None else len(fields),
            "action": actions.get(key),
            "completed_at": completed.get(key),
            # The round's: a request may repeat them as context.
            **{name: row[name] for name in _WHO},
        }


def _fields(request: Mapping[str, Any]) -> list[str] | None:
    if request["mode"] != "form":
        return None
    properties = request["requested_schema"].get("properties")
    return list(properties) if isinstance(properties, dict) else []


def _answer(row: Mapping[str, Any], redacted: bool) -> Iterator[dict[str, Any]]:
    given, hidden, asked = (json.loads(row[name]) for name in ("responses", "redacted", "requests"))
    shown = hidden if redacted else given
    for key, response in shown.items():
        line = {**row, **_wait(row), "request_key": key, "mode": asked[key]["mode"], "action": response["action"]}
        content = response["content"]
        if isinstance(content, str):  # what could not be inspected was masked as a whole
            yield line | {"value": _json(content), "masked": True}
            continue
        fields = () if content is None else dict.fromkeys((*(_fields(asked[key]) or ()), *content))
        for field in fields:
            yield line | _value(field, content, given[key]["content"])
        if not fields:
            yield line


def _value(field: str, shown: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    if field not in shown:
        return {"field": field}
    value = _json(shown[field])
    return {"field": field, "value": value, "masked": field not in given or _json(given[field]) != value}


def _actions(row: Mapping[str, Any]) -> dict[str, str] | None:
    if row["redacted"] is None:
        return None
    return {key: response["action"] for key, response in json.loads(row["redacted"]).items()}


def _wait(row: Mapping[str, Any]) -> dict[str, Any]:
    answered = row["response_validated_at"]
    ended = row["failed_at"] if answered is None else answered
    return {"answered_at": answered, "waited": None if ended is None else ended - row["created_at"]}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
