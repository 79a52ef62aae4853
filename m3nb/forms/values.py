"""What was typed → content, and content → what would have been typed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn, TypedDict

from m3nb.elicitation import FormElicitationRequest
from m3nb.forms.layout import WHOLE, layout
from m3nb.forms.shapes import Shape, json_text, same
from m3nb.frozen import freeze, thaw
from m3nb.validity import FieldError

MAX_DIGITS = 4000
"""Characters a number may have: Python refuses to print integers of more than 4,300 digits."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")


class RawValue(TypedDict, total=False):
    """What the page sends for one field: exactly one of these. A field that is absent is omitted from the content."""

    text: str
    bool: bool
    choice: int
    choices: list[int]
    json: str
    null: bool


class _Unreadable(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, keyword: str, message: str) -> None:
        super().__init__(message)
        self.keyword = keyword
        self.message = message


def read_values(
    request: FormElicitationRequest, values: Mapping[str, RawValue]
) -> tuple[dict[str, Any], list[FieldError]]:
    """The content that ``values`` stand for, in property order, and one error per field that cannot be read.

    Whether the content fits the schema is for `m3nb.validity.check_content` to say. Never raises for JSON values.
    """
    _, shapes = layout(request)
    content: dict[str, Any] = {}
    errors: list[FieldError] = []
    for shape in shapes:
        raw = values.get(shape.name)
        if raw is None:
            continue
        try:
            value = _read(shape, raw)
        except _Unreadable as error:
            errors.append(_error(request, shape.pointer, error.keyword, error.message))
            continue
        if value is _OMITTED:
            continue
        if shape is WHOLE:
            content = value
        else:
            content[shape.name] = value
    for name in values.keys() - {shape.name for shape in shapes}:
        errors.append(_error(request, "", "properties", f"has no field {name!r}: reload the page"))
    return content, errors


def to_values(request: FormElicitationRequest, content: Mapping[str, Any]) -> tuple[dict[str, RawValue], list[str]]:
    """What would have to be typed for ``content``, and the names that the form has no place for."""
    _, shapes = layout(request)
    if shapes == [WHOLE]:
        return {"": {"json": json_text(content, indent=2)}}, []
    values: dict[str, RawValue] = {}
    for shape in shapes:
        if shape.name in content:
            raw = raw_of(shape, content[shape.name])
            if raw is not None:
                values[shape.name] = raw
    return values, [name for name in content if name not in values]


def raw_of(shape: Shape, value: Any) -> RawValue | None:
    """What would have to be typed for ``value``; ``None`` when the control has no place for it."""
    if value is None and shape.nullable:
        return {"null": True}
    if shape.control == "choice":
        found = _place(shape, value)
        return None if found is None else {"choice": found}
    if shape.control == "multi":
        if not isinstance(value, (list, tuple)):
            return None
        places = [_place(shape, item) for item in value]
        return None if None in places else {"choices": [place for place in places if place is not None]}
    if shape.control == "json":
        return {"json": json_text(value, indent=2)}
    if shape.control == "boolean":
        return {"bool": value} if isinstance(value, bool) else None
    if shape.control in ("number", "integer"):
        return _number_raw(shape, value)
    return {"text": value} if isinstance(value, str) else None


def _number_raw(shape: Shape, value: Any) -> RawValue | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if shape.control == "integer" and isinstance(value, float):
        return {"text": str(int(value))} if value.is_integer() else None
    try:
        return {"text": str(value)}
    except ValueError:  # an int beyond Python's limit of printable digits
        return None


def _place(shape: Shape, value: Any) -> int | None:
    return next((at for at, choice in enumerate(shape.choices) if same(choice.value, value)), None)


_OMITTED: Any = object()


def _read(shape: Shape, raw: Any) -> Any:
    if not isinstance(raw, Mapping) or len(raw) != 1:
        _misread()
    kind, value = next(iter(raw.items()))
    if kind == "null" and value is True and shape.nullable:
        return None
    if kind == "choice" and shape.control == "choice":
        return _chosen(shape, value)
    if kind == "choices" and shape.control == "multi" and isinstance(value, (list, tuple)):
        return [_chosen(shape, place) for place in value]
    if kind == "bool" and shape.control == "boolean" and isinstance(value, bool):
        return value
    if not isinstance(value, str):
        _misread()
    if kind == "json" and shape.control == "json":
        return _read_json(shape, value)
    if kind != "text" or shape.control in ("json", "choice", "multi", "boolean"):
        _misread()
    if shape.control in ("number", "integer"):
        return _read_number(value.strip(), whole=shape.control == "integer")
    try:
        return freeze(value)
    except ValueError as error:
        raise _Unreadable("type", f"cannot be sent: {error}") from None


def _misread() -> NoReturn:
    raise _Unreadable("type", "was not understood: reload the page")


def _chosen(shape: Shape, place: Any) -> Any:
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(shape.choices):
        _misread()
    return thaw(shape.choices[place].value)


def _read_number(text: str, *, whole: bool) -> Any:
    if not text:
        return _OMITTED
    if not _NUMBER.fullmatch(text):
        if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", text):
            raise _Unreadable("type", f"must be a number with a decimal point, such as {text.replace(',', '.')}")
        raise _Unreadable("type", "must be a whole number" if whole else "must be a number")
    if len(text) > MAX_DIGITS:
        raise _Unreadable("type", f"must have at most {MAX_DIGITS} digits")
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(text)
    try:
        exact, double = Decimal(text), float(text)
    except (InvalidOperation, ValueError, OverflowError):
        raise _Unreadable("type", "must be a number") from None
    if not math.isfinite(double):
        raise _Unreadable("type", "must be a smaller number: this one is too large to be sent")
    if whole:
        if exact != exact.to_integral_value():
            raise _Unreadable("type", "must be a whole number")
        return int(exact)
    if Decimal(repr(double)) != exact:
        raise _Unreadable("type", f"must have fewer digits: the nearest number that can be sent is {double!r}")
    return double


def _read_json(shape: Shape, text: str) -> Any:
    if not text.strip():
        return _OMITTED
    try:
        value = thaw(freeze(json.loads(text, parse_constant=_no_constant)))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _Unreadable("type", f"must be JSON: {error.msg.lower()} ({where})") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise _Unreadable("type", f"must be JSON: {reason}") from None
    if shape is WHOLE and not isinstance(value, dict):
        raise _Unreadable("type", "must be a JSON object, such as {}")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _error(request: FormElicitationRequest, pointer: str, keyword: str, message: str) -> FieldError:
    return {"request_key": request.request_key, "pointer": pointer, "keyword": keyword, "message": message}
