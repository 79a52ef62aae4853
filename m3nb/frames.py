"""Histories as DataFrames: what was asked, what was answered, how long it took.

Columns and dtypes are always the same, also for an empty store. Nothing is inferred: ids and answers stay text, whole
numbers are ``Int64``, times are ``datetime64[us, UTC]``, durations ``timedelta64[us]``; what is missing is ``<NA>`` or
``NaT``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from m3nb.storage import InMemoryExecutionStore, SQLiteExecutionStore, read_rows

if TYPE_CHECKING:
    import pandas as pd

Source = SQLiteExecutionStore | InMemoryExecutionStore | str | PathLike[str]
"""A store, or the path of its database file. An in-memory store has no rounds."""

_STATUSES = ("pending", "response_validated", "delivery_started", "delivered", "resolved", "failed")

_TIME, _DURATION = "datetime64[us, UTC]", "timedelta64[us]"

_ROUNDS = {
    "execution_id": "string",
    "round_id": "string",
    "round_index": "Int64",
    "server": "string",
    "operation_kind": "string",
    "operation_name": "string",
    "status": "category",
    "actions": "string",
    "n_requests": "Int64",
    "created_at": _TIME,
    "answered_at": _TIME,
    "delivered_at": _TIME,
    "resolved_at": _TIME,
    "failed_at": _TIME,
    "deadline": _TIME,
    "waited": _DURATION,
    "failure_code": "string",
    "failure_message": "string",
    "delivery_attempts": "Int64",
    "refused_attempts": "Int64",
}
_ANSWERS = {
    "execution_id": "string",
    "round_id": "string",
    "round_index": "Int64",
    "request_key": "string",
    "server": "string",
    "operation_kind": "string",
    "operation_name": "string",
    "mode": "string",
    "action": "string",
    "field": "string",
    "value": "string",
    "masked": "boolean",
    "answered_at": _TIME,
}


def rounds(source: Source) -> pd.DataFrame:
    """Every round of a store, oldest first, one row each.

    - ``execution_id``, ``round_id`` (string), ``round_index`` (Int64, from 0 in each execution)
    - ``server``, ``operation_kind`` (tool, prompt, resource), ``operation_name`` (string): who asked, during what
    - ``status`` (ordered category: pending, response_validated, delivery_started, delivered, resolved, failed)
    - ``actions`` (string): accept, decline or cancel of each request in the order asked, joined by ", "; ``<NA>``
      before the answer; ``n_requests`` (Int64)
    - ``created_at``, ``answered_at`` (the answer was committed), ``delivered_at``, ``resolved_at``, ``failed_at``,
      ``deadline`` (datetime64[us, UTC]); ``waited`` (timedelta64[us]): ``answered_at - created_at``
    - ``failure_code``, ``failure_message`` (string)
    - ``delivery_attempts``, ``refused_attempts`` (Int64): the latter counts answers and steps that the store refused

    Raises `m3nb.errors.StorageError` for a path that is no database of ours. A missing file has no rounds.
    """
    return _frame(_ROUNDS, [_round(row) for row in _rows(source, "rounds")])


def answers(source: Source, redacted: bool = True) -> pd.DataFrame:
    """Every answer of a store, oldest first, one row for each field of each request.

    An accepted form has a row for each property that its schema lists and for each further one in the answer; every
    other response, and a form without fields, has one row without a field.

    - ``execution_id``, ``round_id`` (string), ``round_index`` (Int64), ``request_key`` (string)
    - ``server``, ``operation_kind``, ``operation_name`` (string), ``mode`` (string: form, url)
    - ``action`` (string: accept, decline, cancel)
    - ``field`` (string): the property's name
    - ``value`` (string): JSON text, so ``"0012"``, ``12``, ``[]`` and ``null`` stay apart; ``<NA>`` where a field was
      left out, and after a purge. ``frame["value"].map(json.loads, na_action="ignore")`` gives Python values
    - ``masked`` (boolean): the value shown is not the one given; ``<NA>`` without a value
    - ``answered_at`` (datetime64[us, UTC]): when the answer was committed

    By default values are shown as they were redacted when they were committed. ``redacted=False`` shows what was typed,
    secrets included; ``frame.attrs["redacted"]`` says which one this is. Raises as `rounds` does.
    """
    frame = _frame(_ANSWERS, [line for row in _rows(source, "answers") for line in _answer(row, redacted)])
    frame.attrs["redacted"] = redacted
    return frame


def _rows(source: Source, name: str) -> list[dict[str, Any]]:
    return [] if isinstance(source, InMemoryExecutionStore) else read_rows(source, name)


def _round(row: Mapping[str, Any]) -> dict[str, Any]:
    created, answered = row["created_at"], row["response_validated_at"]
    actions = None if row["redacted"] is None else json.loads(row["redacted"])
    return {
        **row,
        "actions": None if actions is None else ", ".join(response["action"] for response in actions.values()),
        "n_requests": len(json.loads(row["requests"])),
        "answered_at": answered,
        "waited": None if answered is None else answered - created,
    }


def _answer(row: Mapping[str, Any], redacted: bool) -> Iterator[dict[str, Any]]:
    given, hidden, requests = (json.loads(row[name]) for name in ("responses", "redacted", "requests"))
    shown = hidden if redacted else given
    for key, response in shown.items():
        line = {
            **row,
            "request_key": key,
            "mode": requests[key]["mode"],
            "action": response["action"],
            "answered_at": row["response_validated_at"],
        }
        content = response["content"]
        if isinstance(content, str):  # what could not be inspected was masked as a whole
            yield line | {"value": _text(content), "masked": True}
            continue
        asked = requests[key].get("requested_schema", {}).get("properties", {})
        fields = {} if content is None else {**asked, **content}
        for field in fields:
            yield line | _value(field, content, given[key]["content"])
        if not fields:
            yield line


def _value(field: str, shown: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    if field not in shown:
        return {"field": field}
    value = _text(shown[field])
    return {"field": field, "value": value, "masked": field not in given or _text(given[field]) != value}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _frame(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: _column([row.get(name) for row in rows], dtype) for name, dtype in columns.items()})


def _column(values: list[Any], dtype: Any) -> Any:
    import numpy as np
    import pandas as pd

    if dtype == "category":
        return pd.Categorical(values, categories=_STATUSES, ordered=True)
    if dtype in (_TIME, _DURATION):
        missing = np.iinfo(np.int64).min  # NaT
        whole = np.array([missing if value is None else value for value in values], dtype=np.int64)
        if dtype == _DURATION:
            return pd.Series(whole.view("m8[us]"))
        return pd.Series(whole.view("M8[us]")).dt.tz_localize("UTC")
    return pd.array(values, dtype=dtype)
