"""Content → what would have to be typed for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from m3nb.forms.choices import json_text, same
from m3nb.forms.shapes import Branch, Shape


class RawValue(TypedDict, total=False):
    """What the page sends for one field: exactly one of these; ``branch`` comes with ``fields`` or ``field``.

    A field that is absent is omitted from the content. An item of a list that is not filled in is ``{"absent": true}``.
    """

    text: str
    bool: bool
    choice: int
    choices: list[int]
    json: str
    null: bool
    fields: dict[str, Any]
    items: list[Any]
    branch: int
    field: Any


def raw_of(shape: Shape, value: Any) -> RawValue | None:
    """What would have to be typed for ``value``; ``None`` when the control has no place for it, or for a part of it."""
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
    if shape.control == "object":
        fields = fields_of(shape.fields, value)
        return None if fields is None else {"fields": fields}
    if shape.control == "list":
        return _list_raw(shape, value)
    if shape.control == "union":
        return _union_raw(shape, value)
    if shape.control == "json":
        return {"json": json_text(value, indent=2)}
    if shape.control == "boolean":
        return {"bool": value} if isinstance(value, bool) else None
    if shape.control in ("number", "integer"):
        return _number_raw(shape, value)
    return {"text": value} if isinstance(value, str) else None


def fields_of(shapes: tuple[Shape, ...], value: Any) -> dict[str, RawValue] | None:
    """What would have to be typed for an object; ``None`` when some of it has no place."""
    if not isinstance(value, Mapping):
        return None
    raws = {shape.name: raw_of(shape, value[shape.name]) for shape in shapes if shape.name in value}
    found = {name: raw for name, raw in raws.items() if raw is not None}
    return found if len(found) == len(value) else None


def _list_raw(shape: Shape, value: Any) -> RawValue | None:
    if not isinstance(value, (list, tuple)) or shape.item is None:
        return None
    items = [raw_of(shape.item, item) for item in value]
    return None if None in items else {"items": items}


def _union_raw(shape: Shape, value: Any) -> RawValue | None:
    """By the first branch that has a place for the value, of those that miss no required field if there are any."""
    found: RawValue | None = None
    for at, branch in enumerate(shape.branches):
        raw = _branch_raw(branch, value)
        if raw is None:
            continue
        raw["branch"] = at
        if all(each.name in value for each in branch.shape.fields if each.required):
            return raw
        found = found or raw
    return found


def _branch_raw(branch: Branch, value: Any) -> RawValue | None:
    if not branch.drawn_as_fields:
        raw = raw_of(branch.shape, value)
        return None if raw is None else {"field": raw}
    if not isinstance(value, Mapping):
        return None
    if not all(name in value and same(value[name], tag) for name, tag in branch.tags.items()):
        return None
    rest = {name: item for name, item in value.items() if name not in branch.tags}
    fields = fields_of(branch.shape.fields, rest)
    return None if fields is None else {"fields": fields}


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
