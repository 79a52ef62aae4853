"""What was typed → content, and content → what would have been typed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from m3nb.elicitation import FormElicitationRequest
from m3nb.forms.layout import WHOLE, Layout, layout, settled
from m3nb.forms.placing import RawValue, raw_of
from m3nb.forms.shapes import Shape, pointer_to
from m3nb.frozen import freeze, thaw
from m3nb.validity import BUDGET_SECONDS, FieldError

MAX_DIGITS = 4000
"""Characters a number may have: Python refuses to print integers of more than 4,300 digits."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")


class _Unreadable(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, keyword: str, message: str) -> None:
        super().__init__(message)
        self.keyword = keyword
        self.message = message


def read_values(
    request: FormElicitationRequest, values: Mapping[str, RawValue]
) -> tuple[dict[str, Any], list[FieldError]]:
    """The content that ``values`` stand for, in property order, and one error per field that cannot be read.

    Read by the layout that the form has for these very values. Whether the content fits the schema is for
    `m3nb.validity.check_content` to say. Never raises for JSON values.
    """
    from m3nb.validity.keywords import budget

    with budget(BUDGET_SECONDS):
        return read_by(request, layout_of_values(request, values), values)


def layout_of_values(request: FormElicitationRequest, values: Mapping[str, RawValue]) -> Layout:
    """The layout that the form has once ``values`` are typed."""
    return settled(request, lambda found: read_by(request, found, values)[0])


def read_by(
    request: FormElicitationRequest, found: Layout, values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[FieldError]]:
    """What ``values`` stand for in one layout. In a live form, a field that the layout does not have is not sent."""
    reader = _Reader(request.request_key, found.live)
    if found.whole is not None:
        content = reader.value(found.whole, values.get("", {}), "") if "" in values else {}
        content = content if isinstance(content, dict) else {}
    else:
        content = reader.fields(found.shapes, values, "")
    reader.unknown(values, found.shapes, "")
    return content, reader.errors


def to_values(request: FormElicitationRequest, content: Mapping[str, Any]) -> tuple[dict[str, RawValue], list[str]]:
    """What would have to be typed for ``content``, and the names that the form has no exact place for."""
    from m3nb.validity.keywords import budget

    with budget(BUDGET_SECONDS):
        found = layout(request, content)
    if found.whole is not None:
        raw = raw_of(found.whole, content)
        return ({}, list(content)) if raw is None else ({"": raw}, [])
    values: dict[str, RawValue] = {}
    for shape in found.shapes:
        if shape.name in content:
            raw = raw_of(shape, content[shape.name])
            if raw is not None:
                values[shape.name] = raw
    return values, [name for name in content if name not in values]


_OMITTED: Any = object()


class _Reader:
    """Reads the values of one form and notes what cannot be read, each at its pointer."""

    def __init__(self, request_key: str, live: bool) -> None:
        self.request_key = request_key
        self.live = live
        self.errors: list[FieldError] = []

    def error(self, pointer: str, keyword: str, message: str) -> None:
        self.errors.append(
            {"request_key": self.request_key, "pointer": pointer, "keyword": keyword, "message": message}
        )

    def unknown(self, values: Mapping[str, Any], shapes: Iterable[Shape], pointer: str) -> None:
        for name in () if self.live else values.keys() - {shape.name for shape in shapes}:
            self.error(pointer, "properties", f"has no field {name!r}: reload the page")

    def fields(self, shapes: Iterable[Shape], values: Mapping[str, Any], pointer: str) -> dict[str, Any]:
        content = {}
        for shape in shapes:
            raw = values.get(shape.name)
            if raw is None:
                continue
            value = self.value(shape, raw, pointer + pointer_to(shape.name))
            if value is not _OMITTED:
                content[shape.name] = value
        return content

    def value(self, shape: Shape, raw: Any, pointer: str) -> Any:
        """The value of one field; omitted when it is empty or cannot be read."""
        try:
            return self._value(shape, raw, pointer)
        except _Unreadable as error:
            self.error(pointer, error.keyword, error.message)
            return _OMITTED

    def _value(self, shape: Shape, raw: Any, pointer: str) -> Any:
        if not isinstance(raw, Mapping):
            _misread()
        if shape.nullable and raw.keys() == {"null"} and raw["null"] is True:
            return None
        if shape.control == "object":
            return self._object(shape.fields, _part(raw, {"fields"}, "fields", Mapping), pointer)
        if shape.control == "list" and shape.item is not None:
            return self._list(shape.item, _part(raw, {"items"}, "items", (list, tuple)), pointer)
        if shape.control == "union":
            return self._union(shape, raw, pointer)
        return _read(shape, raw)

    def _object(self, shapes: tuple[Shape, ...], values: Mapping[str, Any], pointer: str) -> dict[str, Any]:
        content = self.fields(shapes, values, pointer)
        self.unknown(values, shapes, pointer)
        return content

    def _list(self, item: Shape, raws: Any, pointer: str) -> list[Any]:
        content = []
        for at, raw in enumerate(raws):
            before = len(self.errors)
            value = _OMITTED if raw == {"absent": True} else self.value(item, raw, f"{pointer}/{at}")
            if value is _OMITTED and len(self.errors) == before:
                self.error(f"{pointer}/{at}", "required", "must be filled in or removed")
            # Something stands in the place of what is missing, or else the errors of later items would move up.
            content.append(None if value is _OMITTED else value)
        return content

    def _union(self, shape: Shape, raw: Mapping[str, Any], pointer: str) -> Any:
        at = raw.get("branch")
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < len(shape.branches):
            _misread()
        branch = shape.branches[at]
        if not branch.drawn_as_fields:
            if raw.keys() - {"field"} != {"branch"}:
                _misread()
            return self._value(branch.shape, raw["field"], pointer) if "field" in raw else _OMITTED
        values = _part(raw, {"branch", "fields"}, "fields", Mapping)
        typed = self._object(branch.shape.fields, values, pointer)
        return {name: thaw(tag) for name, tag in branch.tags.items()} | typed


def _part(raw: Mapping[str, Any], keys: set[str], key: str, kind: Any) -> Any:
    if raw.keys() != keys or not isinstance(raw[key], kind):
        _misread()
    return raw[key]


def _read(shape: Shape, raw: Mapping[str, Any]) -> Any:
    if len(raw) != 1:
        _misread()
    kind, value = next(iter(raw.items()))
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
