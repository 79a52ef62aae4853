"""Properties: no schema breaks a form, and content → form → content is the identity."""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from typing import Any

from form_cases import form
from hypothesis import HealthCheck, event, given, settings, strategies as st

from m3nb.errors import InvalidSchemaError
from m3nb.forms import compile_form, read_values, to_values
from m3nb.validity import check_content, check_schema

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = (
    SCALARS
    | st.lists(SCALARS, max_size=2)
    | st.dictionaries(TEXT, SCALARS, max_size=2)
    | st.sampled_from([[], {}, [[1.0, {"a": None}]], {"street": "", "tags": ["x"]}])
)
TYPES = ["string", "number", "integer", "boolean", "array", "object", "null"]
TITLED = st.fixed_dictionaries({"const": JSON}, optional={"title": TEXT, "description": TEXT})
KEYWORDS = {
    "type": st.sampled_from(TYPES[:5] * 3 + TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
    "title": TEXT,
    "description": TEXT,
    "enum": st.lists(JSON, max_size=4),
    "const": JSON,
    "minLength": st.integers(0, 300),
    "maxLength": st.integers(0, 300),
    "pattern": st.sampled_from(["^a", "[0-9]{5}", "^\\p{L}+$"]),
    "format": st.sampled_from(["email", "uri", "date", "date-time", "time", "password", "int32", "x"]),
    "minimum": st.integers() | st.floats(-1e6, 1e6),
    "maximum": st.integers() | st.floats(-1e6, 1e6),
    "exclusiveMinimum": st.integers(),
    "multipleOf": st.sampled_from([1, 0.5, 10**30]),
    "minItems": st.integers(0, 3),
    "maxItems": st.integers(0, 3),
    "contentMediaType": st.sampled_from(["text/plain", "image/png"]),
    "default": JSON,
    "examples": st.lists(JSON, max_size=2),
    "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]),
}


NAMES = st.sampled_from(["x", "y", "", "a/b~", "__proto__"]) | TEXT


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner | st.just({"type": "null"}), min_size=1, max_size=3) | st.lists(
        TITLED, min_size=1, max_size=4
    )
    nested = {
        "anyOf": some,
        "oneOf": some,
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "items": inner,
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "not": inner,
    }
    return st.booleans() | some_of(nested, most=2).flatmap(lambda part: FLAT.map(lambda flat: flat | part))


def some_of(keywords: dict[str, st.SearchStrategy[Any]], most: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    """A few of the keywords: with many at once, hardly any schema is about one kind of value."""
    names = st.lists(st.sampled_from(sorted(keywords)), max_size=most, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in chosen}))


FLAT = some_of(KEYWORDS)
SCHEMA = FLAT | schemas(FLAT) | schemas(schemas(FLAT))
ROOT = st.fixed_dictionaries(
    {
        "properties": st.dictionaries(NAMES, SCHEMA, min_size=1, max_size=4),
        "$defs": st.fixed_dictionaries({"a": FLAT, "b": FLAT}),
    },
    optional={
        "type": st.just("object"),
        "required": st.lists(NAMES, max_size=3, unique=True),
        "title": TEXT,
        "description": TEXT,
        "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]),
        "allOf": st.lists(schemas(FLAT), min_size=1, max_size=2),
        "anyOf": st.lists(schemas(FLAT), min_size=1, max_size=2),
        "additionalProperties": FLAT,
        "minProperties": st.integers(0, 2),
    },
)
NOISE = st.dictionaries(
    st.sampled_from(["enumNames", "x-order", "default", "examples", "deprecated"]) | TEXT, JSON, max_size=2
)
FLAT_RAW = st.one_of(
    st.fixed_dictionaries({"text": TEXT | st.sampled_from(["1", "1.5", "1e999", "--"])}),
    st.fixed_dictionaries({"bool": st.booleans()}),
    st.fixed_dictionaries({"choice": st.integers(-1, 4)}),
    st.fixed_dictionaries({"choices": st.lists(st.integers(-1, 4), max_size=3)}),
    st.fixed_dictionaries({"json": JSON.map(json.dumps) | TEXT}),
    st.just({"null": True}),
    JSON,
)
INNER_RAW = st.dictionaries(NAMES, FLAT_RAW, max_size=2)
RAW = st.one_of(
    FLAT_RAW,
    st.fixed_dictionaries({"fields": INNER_RAW}),
    st.fixed_dictionaries({"items": st.lists(FLAT_RAW | st.just({"absent": True}), max_size=3)}),
    st.fixed_dictionaries({"branch": st.integers(-1, 3)}, optional={"fields": INNER_RAW, "field": FLAT_RAW}),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ROOT, NOISE, st.data())
def test_no_schema_that_can_be_checked_breaks_a_form(schema: dict[str, Any], noise: Any, data: st.DataObject) -> None:
    request = form(noise | schema)
    try:
        check_schema(request)
    except InvalidSchemaError:
        event("refused as a schema")
        return
    plan = compile_form(request)
    for control in {field["control"] for field in plan["fields"]}:
        event(control)
    assert json.loads(json.dumps(plan, allow_nan=False)) == plan
    names = [field["name"] for field in plan["fields"]]
    assert len(set(names)) == len(names)
    values = {field["name"]: field["initial"] for field in plan["fields"] if field["initial"] is not None}
    content, errors = read_values(request, values)
    assert errors == []
    wrong = {error["pointer"].split("/")[1] for error in check_content(request, content) if "/" in error["pointer"]}
    assert not wrong & {name.replace("~", "~0").replace("/", "~1") for name in values}
    typed = data.draw(st.fixed_dictionaries(dict.fromkeys(names, RAW))) | data.draw(NOISE)
    content, errors = read_values(request, typed)
    json.dumps(content, allow_nan=False)
    assert all(set(error) == {"request_key", "pointer", "keyword", "message"} for error in errors)


def optional(schema: st.SearchStrategy[Any], value: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """A schema and a value of it, also in the spellings that allow null."""

    def spell(pair: tuple[dict[str, Any], Any]) -> st.SearchStrategy[tuple[Any, Any]]:
        plain, given_value = pair
        spellings = [st.just((plain, given_value))]
        spellings += [st.just(({"anyOf": [plain, {"type": "null"}]}, v)) for v in (given_value, None)]
        if isinstance(plain.get("type"), str) and "enum" not in plain:
            spellings += [st.just((plain | {"type": [plain["type"], "null"]}, v)) for v in (given_value, None)]
        return st.one_of(spellings)

    return st.tuples(schema, value).flatmap(spell)


def chosen(values: list[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    spellings = st.sampled_from(
        [
            {"enum": values},
            {"enum": values, "enumNames": [f"name {at}" for at in range(len(values))]},
            {"oneOf": [{"const": value, "title": f"title {at}"} for at, value in enumerate(values)]},
            {"anyOf": [{"const": value} for value in values]},
        ]
    )
    single = optional(spellings, st.sampled_from(values))
    several = optional(
        spellings.map(lambda items: {"type": "array", "items": items}), st.lists(st.sampled_from(values), max_size=5)
    )
    return single | several


LINES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
DRAWABLE = st.one_of(
    optional(st.just({"type": "string"}), LINES),
    optional(st.just({"type": "string", "maxLength": 1000}), LINES),
    optional(st.just({"type": "string", "format": "date"}), st.dates().map(str)),
    optional(
        st.just({"type": "string", "format": "date-time"}),
        st.datetimes(timezones=st.integers(-720, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))).map(
            lambda at: at.isoformat()
        ),
    ),
    optional(st.just({"type": "integer"}), st.integers()),
    optional(st.just({"type": "number"}), st.integers() | st.floats(allow_nan=False, allow_infinity=False)),
    optional(st.just({"type": "boolean"}), st.booleans()),
    optional(st.just({"type": "object"}), st.dictionaries(TEXT, JSON, max_size=3)),
    optional(st.just({"type": "array", "items": {"type": "string"}}), st.lists(LINES, max_size=3)),
    st.lists(LINES, min_size=1, max_size=8, unique=True).flatmap(chosen),
    st.lists(st.integers(-5, 5), min_size=1, max_size=8, unique=True).flatmap(chosen),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(TEXT, st.tuples(DRAWABLE, st.booleans(), st.booleans()), min_size=1, max_size=5))
def test_content_to_form_to_content_is_the_identity(fields: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": {name: spelled for name, ((spelled, _), _, _) in fields.items()},
        "required": [name for name, (_, required, _) in fields.items() if required],
    }
    content = {name: value for name, ((_, value), required, given_too) in fields.items() if required or given_too}
    request = form(schema)
    check_schema(request)
    plan = compile_form(request)
    for field in plan["fields"]:
        if field["control"] == "json":
            assert field["hint"] in ("A JSON object", "A JSON list", "JSON")
    values, left = to_values(request, content)
    assert left == []
    over_the_wire = json.loads(json.dumps(values))
    back, errors = read_values(request, over_the_wire)
    assert errors == []
    assert json.dumps(back, sort_keys=True) == json.dumps(content, sort_keys=True)
    assert check_content(request, back) == check_content(request, content)
