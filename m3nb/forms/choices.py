"""The values that a schema lists, in all spellings of MCP forms (SEP-1330), and how a value reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from m3nb.forms.schemas import Resolver, text_of


@dataclass(frozen=True, slots=True)
class Choice:
    """One value that can be chosen. ``value`` keeps its JSON type."""

    value: Any
    label: str
    description: str | None = None


def choices_of(resolver: Resolver, schema: Any, types: set[str]) -> tuple[Choice, ...] | None:
    """The values that can be chosen, each once; ``None`` when the schema does not list its values."""
    if not isinstance(schema, Mapping):
        return None
    found: list[Choice] | None = None
    for keyword in ("oneOf", "anyOf"):
        members = resolver.members(schema, keyword)
        listed = [list(_listed(member)) for member in members] if members else []
        if listed and all(listed):
            found = [choice for part in listed for choice in part]
            break
    else:
        if types == {"null"}:
            found = [Choice(None, "null")]
        elif "const" in schema or isinstance(schema.get("enum"), (list, tuple)):
            found = list(_listed(schema, titled=False))
    if found is None:
        return None
    kept: dict[Any, Choice] = {}
    declared = types if "type" in schema else set()
    for choice in found:
        kind = json_kind(choice.value)
        fits = not declared or kind in declared or kind == "null" or (kind == "integer" and "number" in declared)
        if fits:
            kept.setdefault(_identity(choice.value), choice)
    return tuple(kept.values())


def _identity(value: Any) -> Any:
    """A key that is equal for values that are the `same`."""
    if isinstance(value, Mapping):
        return "object", frozenset((key, _identity(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "array", tuple(map(_identity, value))
    return isinstance(value, bool), value


def _listed(schema: Any, *, titled: bool = True) -> Iterator[Choice]:
    """The values a schema lists by ``const`` or ``enum``; a branch's ``title`` names its value."""
    if not isinstance(schema, Mapping):
        return
    title, description = (text_of(schema, "title"), text_of(schema, "description")) if titled else (None, None)
    if "const" in schema:
        yield Choice(schema["const"], title or value_label(schema["const"]), description)
        return
    values = schema.get("enum")
    if not isinstance(values, (list, tuple)):
        return
    names = schema.get("enumNames")
    names = names if isinstance(names, (list, tuple)) and len(names) == len(values) else [None] * len(values)
    for value, name in zip(values, names, strict=True):
        label = name if isinstance(name, str) and name.strip() else (title if len(values) == 1 else None)
        yield Choice(value, label or value_label(value), description)


def json_kind(value: Any) -> str:
    """The JSON type of a value; whole numbers are ``integer`` whether written 2 or 2.0."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, (list, tuple)):
        return "array"
    return "integer" if value == value // 1 else "number"


def same(left: Any, right: Any) -> bool:
    """Equality as JSON Schema has it: 1 equals 1.0, and neither equals ``true``, at any depth."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def value_label(value: Any) -> str:
    """How a JSON value reads where it has no title of its own."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, str):
        return value if value.strip() else f"“{value}” (empty)"
    return json_text(value)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON. Integers beyond Python's limit of printable digits read as "…"."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except ValueError:
        return "…"
