"""Does an answer fit what was asked? The one place that decides.

Source: spec "Response validation and idempotency"; JSON Schema in the dialect that ``$schema`` declares, else 2020-12,
formats asserted, patterns as ECMA-262, nothing fetched. All checking of one answer together takes at most
`BUDGET_SECONDS`.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from m3nb.elicitation import (
    ElicitationResponse,
    FormElicitationRequest,
    PendingElicitationRound,
    UrlElicitationRequest,
)
from m3nb.errors import InvalidSchemaError, ManagedInputValidationError
from m3nb.frozen import FrozenDict, freeze

if TYPE_CHECKING:
    from m3nb.validity.wording import Finding

BUDGET_SECONDS = 1.0
"""Time for checking one answer, in seconds: patterns, ``$ref`` fan-out, ``uniqueItems`` and all else together."""

_CACHE_SIZE = 512
_LOOK_DOWN = 16


class FieldError(TypedDict):
    """One thing that is wrong with an answer.

    ``pointer`` is a JSON Pointer (RFC 6901) into the content, ``""`` for the content itself; a missing or unexpected
    property is pointed at itself. ``keyword`` is the JSON Schema keyword that refused, ``message`` is for a person.
    """

    request_key: str
    pointer: str
    keyword: str
    message: str


@dataclass(frozen=True, slots=True)
class _Compiled:
    schema: FrozenDict
    validator: Any
    unchecked: tuple[tuple[str, str], ...]
    order: Mapping[str, int]
    problem: tuple[str, str] | None = None


class _Cache:
    """Compiled schemas: by identity of the frozen schema, else by its JSON text. Least recently used go first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_id: OrderedDict[int, tuple[Any, _Compiled]] = OrderedDict()
        self.by_text: OrderedDict[str, _Compiled] = OrderedDict()

    def get(self, schema: Any) -> _Compiled:
        key = id(schema)
        with self.lock:
            # The entry holds the schema, so its id can't have become another object's.
            if (found := self.by_id.get(key)) is not None and found[0] is schema:
                self.by_id.move_to_end(key)
                return found[1]
        frozen = _frozen_schema(schema)
        text = json.dumps(frozen, separators=(",", ":"))
        with self.lock:
            entry = self.by_text.get(text)
        if entry is None:
            entry = _compile(frozen)
        with self.lock:
            self.by_text[text] = entry
            self.by_text.move_to_end(text)
            if frozen is schema:
                self.by_id[key] = (schema, entry)
            while len(self.by_text) > _CACHE_SIZE:
                self.by_text.popitem(last=False)
            while len(self.by_id) > _CACHE_SIZE:
                self.by_id.popitem(last=False)
        return entry


_cache = _Cache()


def _frozen_schema(schema: Any) -> FrozenDict:
    try:
        frozen = freeze(schema)
    except ValueError as error:
        raise InvalidSchemaError(f"the schema is no JSON: {error}", details={"reason": str(error)}) from None
    if not isinstance(frozen, FrozenDict):
        raise InvalidSchemaError("the schema is no JSON object", details={"reason": "no JSON object"})
    return frozen


def _compile(schema: FrozenDict) -> _Compiled:
    from m3nb.validity.keywords import build
    from m3nb.validity.patterns import translate
    from m3nb.validity.references import check_references
    from m3nb.validity.schemas import SchemaProblem, inspect

    try:
        report = inspect(schema)
        if report.refers:
            check_references(schema, report)
        unchecked = tuple(found for found in report.patterns if translate(found[1]).source is None)
        order = {name: index for index, name in enumerate(schema.get("properties", {}))}
        return _Compiled(schema, build(schema, refers=report.refers), unchecked, order)
    except SchemaProblem as problem:
        return _Compiled(schema, None, (), {}, (problem.reason, problem.pointer))
    except RecursionError:
        return _Compiled(schema, None, (), {}, ("it is nested too deeply", ""))


def _usable(schema: Any, request_key: str | None = None) -> _Compiled:
    entry = _cache.get(schema)
    if entry.problem is not None:
        reason, pointer = entry.problem
        place = f" (at {pointer})" if pointer else ""
        whose, key = ("", {}) if request_key is None else (f" of request {request_key!r}", {"request_key": request_key})
        raise InvalidSchemaError(
            f"no answer can be checked against the schema{whose}: {reason}{place}. The server has to correct it.",
            details={"reason": reason, "pointer": pointer, **key},
        )
    return entry


def check_schema(request: FormElicitationRequest) -> None:
    """Raise `InvalidSchemaError` for a schema no answer can be checked against.

    That is: not a valid schema of its dialect, a ``$ref`` that leads outside, nowhere or in a circle, an unknown type,
    an invalid pattern, too deep. ``details`` holds ``request_key``, ``reason`` and ``pointer`` (into the schema).
    Unknown keywords and formats are annotations. The outcome is cached.
    """
    _usable(request.requested_schema, request.request_key)


def unchecked_patterns(schema: Mapping[str, Any]) -> list[dict[str, str]]:
    """The patterns only the server can check: ``[{"pointer": …, "pattern": …}]``, pointers into the schema.

    Raises `InvalidSchemaError`.
    """
    return [{"pointer": pointer, "pattern": pattern} for pointer, pattern in _usable(schema).unchecked]


def check_content(request: FormElicitationRequest, content: Any) -> list[FieldError]:
    """Every error of ``content``, in field order; ``[]`` when it is valid.

    Content is a mapping, whatever the schema says. Raises `InvalidSchemaError`, and `ManagedInputValidationError` when
    checking takes longer than `BUDGET_SECONDS` or the content is nested too deeply to be checked.
    """
    from m3nb.validity.keywords import BudgetExceeded, budget

    key = request.request_key
    entry = _usable(request.requested_schema, key)
    if not isinstance(content, Mapping):
        return [_error(key, "", "type", "must be an object with named fields")]
    try:
        frozen = freeze(content)
    except ValueError as error:
        return [_error(key, *_unfit(content, str(error)))]
    try:
        with budget(BUDGET_SECONDS):
            return [_error(key, *finding) for finding in _findings(entry, frozen)]
    except BudgetExceeded:
        reason = f"could not be checked within {BUDGET_SECONDS:g} s: the schema is too costly for this answer"
        raise _refusal("an answer", [_error(key, "", "budget", reason)]) from None
    except RecursionError:
        raise _refusal("an answer", [_error(key, "", "depth", "is nested too deeply to be checked")]) from None


def fits(request: FormElicitationRequest, part: Any, value: Any) -> bool:
    """Whether a JSON value is valid for a part of the request's schema, whose references lead from the root.

    False when that cannot be said within `BUDGET_SECONDS`. Raises `InvalidSchemaError` for the schema as a whole.
    """
    from m3nb.validity.keywords import BudgetExceeded, budget

    if isinstance(part, bool):
        return part
    validator = _usable(request.requested_schema, request.request_key).validator
    try:
        with budget(BUDGET_SECONDS):
            return bool(validator.evolve(schema=part).is_valid(value))
    except (BudgetExceeded, RecursionError):
        return False


def _findings(entry: _Compiled, content: FrozenDict) -> list[Finding]:
    errors = list(entry.validator.iter_errors(content))
    if not errors:
        return []
    from m3nb.validity.wording import findings

    last = len(entry.order)
    steps = ((entry.order.get(error.path[0], last) if error.path else -1, error) for error in errors)
    return list(findings(error for _, error in sorted(steps, key=lambda step: step[0])))


def _unfit(value: Any, reason: str) -> tuple[str, str, str]:
    """Where in a value the part is that JSON has no form for, as far down as a person would look."""
    pointer = ""
    for _ in range(_LOOK_DOWN):
        for name, item in _entries(value):
            try:
                freeze(item)
            except ValueError as error:
                value, reason = item, str(error)
                pointer += "/" + _shown(name).replace("~", "~0").replace("/", "~1")
                break
        else:
            break
    return pointer, "json", reason


def _shown(key: Any) -> str:
    """A key in an error: one that is no text, or has no UTF-8 form, must not break whoever prints or stores it."""
    text = key if isinstance(key, str) else type(key).__name__
    return text.encode("utf-8", "backslashreplace").decode()


def _entries(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return ((str(index), item) for index, item in enumerate(value)) if isinstance(value, (list, tuple)) else ()


def _error(request_key: str, pointer: str, keyword: str, message: str) -> FieldError:
    return {"request_key": request_key, "pointer": pointer, "keyword": keyword, "message": message}


def _refusal(where: str, errors: list[FieldError]) -> ManagedInputValidationError:
    shown = "; ".join(f"{e['request_key']}{e['pointer']} {e['message']}".strip() for e in errors[:5])
    more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
    return ManagedInputValidationError(f"{where}: {shown}{more}", details={"errors": errors})


def check_responses(
    pending: PendingElicitationRound, responses: Mapping[str, ElicitationResponse]
) -> dict[str, ElicitationResponse]:
    """Check a whole response map; return it in the order of ``pending.requests``.

    It has exactly the round's request keys; every value is an `ElicitationResponse`; an accepted form has valid
    content, every other response none. Raises `ManagedInputValidationError` with all errors of all requests in
    ``details["errors"]``; the whole map shares one time budget.
    """
    from m3nb.validity.keywords import budget

    where = f"the answer to round {pending.round_id!r}"
    if not isinstance(responses, Mapping):
        raise _refusal(where, [_error("", "", "type", "must be a mapping of request key to ElicitationResponse")])
    errors = [
        _error(_shown(key), "", "additionalProperties", "is no request of this round")
        for key in responses
        if key not in pending.requests
    ]
    checked: dict[str, ElicitationResponse] = {}
    with budget(BUDGET_SECONDS):
        for key, request in pending.requests.items():
            if key not in responses:
                errors.append(_error(key, "", "required", "has no response"))
                continue
            response = responses[key]
            errors.extend(_response_errors(request, response))
            checked[key] = response
    if errors:
        raise _refusal(where, errors)
    return checked


def _response_errors(request: FormElicitationRequest | UrlElicitationRequest, response: Any) -> list[FieldError]:
    key = request.request_key
    if not isinstance(response, ElicitationResponse):
        return [_error(key, "", "type", f"must be an ElicitationResponse, not {type(response).__name__}")]
    if response.action != "accept" or isinstance(request, UrlElicitationRequest):
        if response.content is None:
            return []
        what = response.action if response.action != "accept" else "consent to a URL"
        return [_error(key, "", "content", f"carries content, and {what} carries none")]
    if response.content is None:
        return [_error(key, "", "content", "accepts a form and needs content ({} for no field)")]
    try:
        return check_content(request, response.content)
    except InvalidSchemaError as error:
        return [_error(key, "", "schema", f"cannot be checked: {error.details['reason']}")]
    except ManagedInputValidationError as error:
        errors: list[FieldError] = error.details["errors"]
        return errors
