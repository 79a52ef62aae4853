"""2,000 drawable schemas: content → form → content is the identity, untouched sends the valid defaults only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from form_cases import form
from hypothesis import HealthCheck, event, given, settings, strategies as st

from m3nb.forms import compile_form, read_values, to_values
from m3nb.forms.telling import told
from m3nb.validity import check_content, check_schema

NAMES = ["a", "b", "street", "qty", "a/b~", "", "größe", "__proto__"]


@dataclass(frozen=True)
class Drawable:
    """A schema and a value of it."""

    schema: dict[str, Any]
    value: Any


def leaf(schema: dict[str, Any], *values: Any) -> list[Drawable]:
    return [Drawable(schema, value) for value in values]


TEXT = {"type": "string"}
LISTED: list[list[Any]] = [["a", "", "b c"], [0, 1, -5], ["0", 0, False, 1.5, {"a": [1]}], [True, "yes"]]
SPELLINGS: list[Any] = [
    lambda values: {"enum": values},
    lambda values: {"enum": values, "enumNames": [f"name {at}" for at in range(len(values))]},
    lambda values: {"oneOf": [{"const": value, "title": f"title {at}"} for at, value in enumerate(values)]},
    lambda values: {"anyOf": [{"const": value} for value in values]},
]
LEAVES = [
    *leaf(TEXT, "", "two\nlines", " é \U0001f600 ", "1e999"),
    *leaf(TEXT | {"maxLength": 1000}, "", "long" * 80),
    *leaf(TEXT | {"format": "email"}, "a@example.org"),
    *leaf(TEXT | {"format": "uri"}, "https://example.org/ä"),
    *leaf(TEXT | {"format": "date"}, "2026-02-28"),
    *leaf(TEXT | {"format": "date-time"}, "2026-01-02T03:04:05.678+05:30"),
    *leaf(TEXT | {"format": "time"}, "03:04:05Z"),
    *leaf(TEXT | {"format": "password"}, "hidden"),
    *leaf({"type": "integer"}, 0, -7, 10**40),
    *leaf({"type": "number", "minimum": -1e300}, 0, 0.1, 5e-324, 12345678901234567890),
    *leaf({"type": "boolean"}, True, False),
    *leaf({"type": "object"}, {}, {"a": [1, 2.5, None]}),
    *leaf({"type": ["string", "integer"]}, "5", 5),
    *leaf({"type": ["number", "null"]}, None, 1.5),
    *leaf({}, None, [1.0, "a"]),
    *(Drawable(spell(values), values[-1]) for spell in SPELLINGS for values in LISTED),
    *(Drawable({"type": "array", "items": SPELLINGS[at % 4](values)}, values[:at]) for at, values in enumerate(LISTED)),
]
OTHERS = [None, "x", 5, -1.5, True, [], {}, ["a"], {"a": "b"}, {"street": "", "more": [1]}]


def drawn(draw: st.DrawFn, depth: int) -> Drawable:
    """A leaf, or something that holds others."""
    kind = draw(st.sampled_from(["leaf"] if depth == 0 else ["object", "list", "union", "tagged", "leaf"]))
    if kind == "leaf":
        found = draw(st.sampled_from(LEAVES))
    elif kind == "object":
        found = an_object(draw, depth)
    elif kind == "list":
        item = drawn(draw, depth - 1)
        found = Drawable({"type": "array", "items": item.schema}, [item.value] * draw(st.integers(0, 3)))
    else:
        tags = ["one", "two"] if kind == "tagged" else [None, None]
        parts = [an_object(draw, depth, tag) if tag else drawn(draw, depth - 1) for tag in tags]
        keyword = draw(st.sampled_from(["anyOf", "oneOf"]))
        found = Drawable({keyword: [part.schema for part in parts]}, draw(st.sampled_from(parts)).value)
    beside = draw(st.sampled_from(["alone", "alone", "null", "is null"]))
    if beside != "alone":
        found = Drawable({"anyOf": [found.schema, {"type": "null"}]}, None if beside == "is null" else found.value)
    default = draw(st.sampled_from([(), (), (found.value,), "other"]))
    if default == "other":
        default = (draw(st.sampled_from(OTHERS)),)
    return Drawable(found.schema | {"default": default[0]}, found.value) if default else found


def an_object(draw: st.DrawFn, depth: int, tag: str | None = None) -> Drawable:
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    value: dict[str, Any] = {}
    if tag is not None:
        schema["properties"]["kind tag"] = {"const": tag}
        schema["required"].append("kind tag")
        value["kind tag"] = tag
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)):
        one, role = drawn(draw, depth - 1), draw(st.sampled_from(["required", "sent", "omitted"]))
        schema["properties"][name] = one.schema
        if role == "required":
            schema["required"].append(name)
        if role != "omitted":
            value[name] = one.value
    return Drawable(schema, value)


@st.composite
def forms(draw: st.DrawFn) -> Drawable:
    return an_object(draw, draw(st.integers(1, 3)))


def valid(schema: Any, value: Any) -> bool:
    return check_content(form({"properties": {"x": schema}}), {"x": value}) == []


def expected(schema: dict[str, Any], required: bool) -> tuple[Any, ...]:
    """What an untouched field sends, told from the schema alone: one value or none."""
    if "default" in schema and valid(schema, schema["default"]):
        return (schema["default"],)
    members = schema.get("anyOf", [])
    plain = members[0] if len(members) == 2 and members[1] == {"type": "null"} else schema
    if plain is not schema and "default" not in schema and "default" in plain and valid(schema, plain["default"]):
        return (plain["default"],)
    if "properties" not in plain:
        return ()
    inner = {}
    for name, sub in plain["properties"].items():
        for value in expected(sub, name in plain["required"]):
            inner[name] = value
    return (inner,) if required or (inner and valid(schema, inner)) else ()


def controls(fields: list[Any]) -> set[str]:
    found = {field["control"] for field in fields}
    for field in fields:
        below = [*field.get("fields", []), *([field["item"]] if "item" in field else [])]
        for branch in field.get("branches", []):
            below += branch["fields"] if branch["fields"] is not None else [branch["field"]]
        found |= controls(below)
    return found


def same_json(left: Any, right: Any) -> bool:
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


@settings(max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(forms())
def test_drawable_schemas(one: Drawable) -> None:
    request = form(one.schema)
    check_schema(request)
    plan = compile_form(request)
    assert json.loads(json.dumps(plan, allow_nan=False)) == plan
    for control in controls(plan["fields"]):
        event(control)

    values, left = to_values(request, one.value)
    assert left == []
    back, errors = read_values(request, json.loads(json.dumps(values)))
    assert errors == []
    assert same_json(back, one.value)
    assert all(line["label"] for line in told(request, one.value))

    untouched = {field["name"]: field["initial"] for field in plan["fields"] if field["initial"] is not None}
    content, errors = read_values(request, untouched)
    assert errors == []
    wanted = {
        name: value
        for name, sub in one.schema["properties"].items()
        for value in expected(sub, name in one.schema["required"])
    }
    assert same_json(content, wanted)
