"""The drawable shape of each property: references followed, ``allOf`` merged, null set apart, choices listed.

Source: JSON Schema 2020-12 and draft-07 keywords, and the spellings of MCP forms (SEP-1330). Drawing only: whether an
answer is valid is decided by `m3nb.validity` against the schema as it was sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

from m3nb.redaction import is_secret_name

Control = Literal[
    "text",
    "email",
    "uri",
    "date",
    "datetime",
    "time",
    "password",
    "textarea",
    "number",
    "integer",
    "boolean",
    "choice",
    "multi",
    "json",
]

LONG_TEXT = 200
"""A string whose ``maxLength`` is over this many characters is drawn as a text area."""

MAX_STEPS = 500
"""References and subschemas followed for one property. Fan-out beyond it is written as JSON."""

MAX_HOPS = 24
"""References and subschemas followed in one line."""

MAX_TITLE_WORDS = 3
"""A title of more words describes a field; it does not name a secret."""

_FORMATS: dict[str, Control] = {
    "email": "email",
    "idn-email": "email",
    "uri": "uri",
    "iri": "uri",
    "url": "uri",
    "date": "date",
    "date-time": "datetime",
    "time": "time",
    "password": "password",
    "textarea": "textarea",
    "multiline": "textarea",
    "markdown": "textarea",
}

_TYPE_OF_KEYWORD = {
    "minLength": "string",
    "maxLength": "string",
    "pattern": "string",
    "format": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
    "properties": "object",
    "items": "array",
}

_UNIONS = ("anyOf", "oneOf")


@dataclass(frozen=True, slots=True)
class Choice:
    """One value that can be chosen. ``value`` keeps its JSON type."""

    value: Any
    label: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """One property as it can be drawn. ``schema`` is the flattened property schema (annotations and bounds)."""

    name: str
    pointer: str
    control: Control
    required: bool = False
    nullable: bool = False
    possible: bool = True
    schema: Mapping[str, Any] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()

    @property
    def label(self) -> str:
        return text_of(self.schema, "title") or self.name


def text_of(schema: Mapping[str, Any], keyword: str) -> str | None:
    """The text under ``keyword``; ``None`` when it is missing, blank or no text."""
    value = schema.get(keyword)
    return value if isinstance(value, str) and value.strip() else None


def pointer_to(name: str) -> str:
    """The JSON Pointer (RFC 6901) of a property of the content."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


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


def form_of(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Shape]]:
    """The root with its own annotations, and one shape per property, in property order.

    Required names without a schema come last, and any JSON answers them.
    """
    root = _Resolver(schema).flat(schema)
    if not isinstance(root, Mapping):
        root = schema
    properties = root.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    listed = root.get("required")
    required = [name for name in listed if isinstance(name, str)] if isinstance(listed, (list, tuple)) else []
    undescribed = dict.fromkeys(required, root.get("additionalProperties", True))
    shapes = [_shape(schema, name, sub, name in undescribed) for name, sub in properties.items()]
    shapes += [_shape(schema, name, sub, True) for name, sub in undescribed.items() if name not in properties]
    return root, shapes


class _Resolver:
    """Follows what a property schema refers to, within bounds, never over the network."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.steps = 0

    def flat(self, schema: Any, hops: int = 0) -> Any:
        """The schema with local references and ``allOf`` merged into it: a mapping, or a boolean schema.

        The schema's own keywords win over those it refers to. What cannot be followed becomes ``{}``: any JSON.
        """
        if not isinstance(schema, Mapping):
            return schema if isinstance(schema, bool) else {}
        self.steps += 1
        if hops > MAX_HOPS or self.steps > MAX_STEPS:
            return {}
        parts: list[Any] = []
        if isinstance(schema.get("$ref"), str):
            parts.append(self.flat(self._target(schema["$ref"]), hops + 1))
        if isinstance(schema.get("allOf"), (list, tuple)):
            parts.extend(self.flat(part, hops + 1) for part in schema["allOf"])
        if not parts:
            return schema
        if False in parts:
            return False
        merged: dict[str, Any] = {}
        for part in (*parts, {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}):
            if isinstance(part, Mapping):
                _merge(merged, part)
        return merged

    def _target(self, ref: str) -> Any:
        if ref == "#":
            return self.root
        if not ref.startswith("#/"):
            return {}
        here: Any = self.root
        for token in unquote(ref[2:]).split("/"):
            key = token.replace("~1", "/").replace("~0", "~")
            if isinstance(here, Mapping) and key in here:
                here = here[key]
            elif isinstance(here, (list, tuple)) and key.isdecimal() and int(key) < len(here):
                here = here[int(key)]
            else:
                return {}
        return here

    def members(self, schema: Mapping[str, Any], keyword: str) -> list[Any] | None:
        """The branches of a union that can hold at all, flattened; ``None`` when there is no such union."""
        branches = schema.get(keyword)
        if not isinstance(branches, (list, tuple)) or not branches:
            return None
        return [branch for branch in (self.flat(part, 1) for part in branches) if branch is not False]


def _merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        held = into.get(key)
        if key == "properties" and isinstance(held, Mapping) and isinstance(value, Mapping):
            into[key] = {**held, **value}
        elif key == "required" and isinstance(held, (list, tuple)) and isinstance(value, (list, tuple)):
            into[key] = [*held, *value]
        else:
            into[key] = value


def _shape(root: Mapping[str, Any], name: str, schema: Any, required: bool) -> Shape:
    resolver = _Resolver(root)
    pointer = pointer_to(name)
    flat = resolver.flat(schema)
    if flat is False:
        return Shape(name, pointer, "json", required, possible=False)
    flat, nullable = _without_null(resolver, flat if isinstance(flat, Mapping) else {})
    if flat is False:
        return Shape(name, pointer, "json", required, possible=False)
    types = _types(flat)
    nullable = nullable or (len(types) > 1 and "null" in types)
    types = types - {"null"} if nullable else types
    choices = _choices(resolver, flat, types)
    if choices is not None:
        if len(choices) > 1 and any(choice.value is None for choice in choices):
            choices, nullable = tuple(choice for choice in choices if choice.value is not None), True
        return Shape(name, pointer, "choice", required, nullable, bool(choices) or nullable, flat, choices)
    control = _control(resolver, flat, types, name)
    if control == "multi":
        items = resolver.flat(flat.get("items"))
        options = _choices(resolver, items, _types(items)) or ()
        return Shape(name, pointer, control, required, nullable, True, flat, options)
    return Shape(name, pointer, control, required, nullable, True, flat)


def _without_null(resolver: _Resolver, schema: Mapping[str, Any]) -> tuple[Any, bool]:
    """The schema beside ``null``: ``anyOf: [T, null]`` is a T that may be null. A union of one is that one."""
    nullable = False
    for _ in range(MAX_HOPS):
        for keyword in _UNIONS:
            members = resolver.members(schema, keyword)
            if members is None:
                continue
            rest = [member for member in members if not _is_null(member)]
            if not members:
                return False, False
            if not rest:
                return {**{key: value for key, value in schema.items() if key != keyword}, "type": "null"}, False
            if len(rest) == 1 and isinstance(rest[0], Mapping):
                nullable = nullable or len(members) > 1
                own = {key: value for key, value in schema.items() if key != keyword}
                schema = {**rest[0], **own}
                break
            if rest and len(rest) < len(members):
                nullable = True
                schema = {**schema, keyword: rest}
                break
        else:
            return schema, nullable
    return schema, nullable


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (
        schema.get("type") == "null"
        or ("const" in schema and schema["const"] is None)
        or (isinstance(schema.get("enum"), (list, tuple)) and list(schema["enum"]) == [None])
    )


def _types(schema: Any) -> set[str]:
    """The JSON types a value may have; empty when nothing says so."""
    if not isinstance(schema, Mapping):
        return set()
    declared = schema.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, (list, tuple)):
        return {name for name in declared if isinstance(name, str)}
    implied = {kind for keyword, kind in _TYPE_OF_KEYWORD.items() if keyword in schema}
    return implied if len(implied) == 1 else set()


def _choices(resolver: _Resolver, schema: Any, types: set[str]) -> tuple[Choice, ...] | None:
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
    kept: list[Choice] = []
    declared = types if "type" in schema else set()
    for choice in found:
        kind = json_kind(choice.value)
        fits = not declared or kind in declared or kind == "null" or (kind == "integer" and "number" in declared)
        if fits and not any(same(choice.value, other.value) for other in kept):
            kept.append(choice)
    return tuple(kept)


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


def _control(resolver: _Resolver, schema: Mapping[str, Any], types: set[str], name: str) -> Control:
    if not types or any(keyword in schema for keyword in _UNIONS):
        types = _common_types(resolver, schema) or types
    if types == {"string"}:
        return _text_control(schema, name)
    if types == {"boolean"}:
        return "boolean"
    if types == {"integer"}:
        return "integer"
    if types in ({"number"}, {"number", "integer"}):
        return "number"
    if types == {"array"} and isinstance(schema.get("items"), Mapping):
        items = resolver.flat(schema["items"])
        if _choices(resolver, items, _types(items)):
            return "multi"
    return "json"


def _common_types(resolver: _Resolver, schema: Mapping[str, Any]) -> set[str]:
    """The one type of all branches of a union: such a union is typed like a plain value and checked by Python."""
    found: set[str] = set()
    for keyword in _UNIONS:
        for member in resolver.members(schema, keyword) or ():
            kinds = _types(member)
            if len(kinds) != 1 or kinds <= {"array", "object"}:
                return set()
            found |= kinds
    return found


def _text_control(schema: Mapping[str, Any], name: str) -> Control:
    if schema.get("writeOnly") is True:
        return "password"
    known = _FORMATS.get(text_of(schema, "format") or "")
    if known:
        return known
    longest, media, default = schema.get("maxLength"), text_of(schema, "contentMediaType"), schema.get("default")
    title = text_of(schema, "title") or ""
    if is_secret_name(name) or (len(title.split()) <= MAX_TITLE_WORDS and is_secret_name(title)):
        return "password"
    if (
        (isinstance(longest, (int, float)) and longest > LONG_TEXT)
        or (media or "").startswith("text/")
        or (isinstance(default, str) and "\n" in default)
    ):
        return "textarea"
    return "text"
