"""Schemas: which ones an answer can be checked against, compared with jsonschema's own metaschemas and validators."""

from __future__ import annotations

from typing import Any

import pytest
from asking import CASES, form
from hypothesis import HealthCheck, given, settings, strategies as st

from m3nb.elicitation import FormElicitationRequest
from m3nb.errors import InvalidSchemaError, ManagedInputValidationError
from m3nb.frozen import freeze
from m3nb.validity import check_content, check_schema, unchecked_patterns

URIS = {
    "Draft4Validator": "http://json-schema.org/draft-04/schema#",
    "Draft6Validator": "http://json-schema.org/draft-06/schema#",
    "Draft7Validator": "http://json-schema.org/draft-07/schema#",
    "Draft201909Validator": "https://json-schema.org/draft/2019-09/schema",
    "Draft202012Validator": "https://json-schema.org/draft/2020-12/schema",
}


def refused(schema: Any) -> dict[str, Any]:
    with pytest.raises(InvalidSchemaError) as caught:
        check_schema(form(schema, "the key"))
    assert caught.value.details["request_key"] == "the key"
    assert caught.value.details["reason"] in caught.value.message
    return caught.value.details


# --- broken ones say what is wrong and where ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "reason", "pointer"),
    [
        ({"properties": {"a": {"type": "strnig"}}}, "there is no type 'strnig'", "/properties/a/type"),
        ({"type": []}, "'type' must name each type once, and at least one", "/type"),
        ({"required": "a"}, "'required' must be a list of names", "/required"),
        ({"properties": []}, "'properties' must be an object", "/properties"),
        ({"properties": {"a/b": 5}}, "a schema must be an object or true or false", "/properties/a~1b"),
        ({"minLength": -1}, "'minLength' must be a whole number, 0 or more", "/minLength"),
        ({"items": {"multipleOf": 0}}, "'multipleOf' must be a number above 0", "/items/multipleOf"),
        ({"anyOf": []}, "'anyOf' must be a list of at least one schema", "/anyOf"),
        ({"$defs": {"d": {"pattern": "("}}}, "'(' is no pattern: a group is not closed", "/$defs/d/pattern"),
        ({"patternProperties": {"[": {}}}, "'[' is no pattern: a class is not closed", "/patternProperties/["),
        ({"$ref": "#/$defs/a"}, "$ref '#/$defs/a' leads nowhere in this schema", "/$ref"),
        ({"$ref": "#anchor"}, "$ref '#anchor' leads nowhere in this schema", "/$ref"),
        (
            {"$ref": "https://example.com/a.json"},
            "$ref 'https://example.com/a.json' leads outside of this schema, and nothing is fetched",
            "/$ref",
        ),
        ({"$ref": "#/x-text", "x-text": "y"}, "$ref '#/x-text' leads to something that is no schema", "/$ref"),
        ({"$ref": "#/x-defs/a", "x-defs": {"a": {"type": "x"}}}, "there is no type 'x'", "/$ref/type"),
        ({"$ref": 5}, "'$ref' must be text", "/$ref"),
    ],
)
def test_a_broken_schema_says_what_is_wrong_and_where(schema: Any, reason: str, pointer: str) -> None:
    details = refused(schema)
    assert (details["reason"], details["pointer"]) == (reason, pointer)


@pytest.mark.parametrize("length", range(1, 6))
@pytest.mark.parametrize("around", [lambda ref: ref, lambda ref: {"allOf": [ref]}, lambda ref: {"anyOf": [{}, ref]}])
def test_a_reference_that_comes_back_to_itself_is_named(length: int, around: Any) -> None:
    defs = {f"d{n}": around({"$ref": f"#/$defs/d{(n + 1) % length}"}) for n in range(length)}
    schema = {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}
    assert "'#/$defs/d" in refused(schema)["reason"]
    assert "comes back to itself" in refused(schema)["reason"]


def test_circles_through_other_references_are_found() -> None:
    assert "comes back" in refused({"$ref": "#"})["reason"]
    assert "comes back" in refused({"$dynamicRef": "#n", "$dynamicAnchor": "n"})["reason"]
    assert "comes back" in refused({"$schema": URIS["Draft201909Validator"], "$recursiveRef": "#"})["reason"]
    assert "comes back" in refused({"$id": "https://example.com/a", "not": {"$ref": "a"}})["reason"]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"child": {"$ref": "#"}}},
        {"properties": {"children": {"items": {"$ref": "#/properties/children"}}}},
        {"$defs": {"a": {"$anchor": "x", "properties": {"b": {"$ref": "#x"}}}}, "$ref": "#x"},
        {"$id": "https://example.com/a", "$defs": {"b": {"$id": "b", "type": "object"}}, "$ref": "b"},
        {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {}}},
        {"properties": {"s": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}},
        {
            "$schema": URIS["Draft7Validator"],
            "$ref": "#/definitions/a",
            "allOf": [{"$ref": "#"}],
            "definitions": {"a": {}},
        },
    ],
)
def test_a_reference_that_goes_deeper_is_fine(schema: Any) -> None:
    check_schema(form(schema))
    assert check_content(form(schema), {}) == []


def test_values_that_look_like_schemas_are_values() -> None:
    schema = {
        "default": {"$ref": "nowhere"},
        "enum": [{"$ref": "nowhere", "type": 5}],
        "examples": [{"pattern": "("}],
        "properties": {
            "$ref": {"type": "string"},
            "pattern": {"type": "integer"},
            "$id": {},
            "const": {"const": {"$ref": 1}},
        },
        "x-unknown": {"type": 5, "$ref": "nowhere"},
    }
    content = {"$ref": "nowhere", "type": 5}
    check_schema(form(schema))
    assert check_content(form(schema | {"properties": {}}), content) == []


def test_patterns_left_to_the_server_are_listed() -> None:
    schema = {
        "properties": {"a": {"pattern": r"\p{RGI_Emoji}"}, "b": {"pattern": "^(?i:x)$"}, "c": {"pattern": "x"}},
        "patternProperties": {r"^\A/": {}},
    }
    assert sorted(unchecked_patterns(schema), key=lambda found: found["pointer"]) == [
        {"pointer": r"/patternProperties/^\A~1", "pattern": r"^\A/"},
        {"pointer": "/properties/a/pattern", "pattern": r"\p{RGI_Emoji}"},
        {"pointer": "/properties/b/pattern", "pattern": "^(?i:x)$"},
    ]
    assert check_content(form(schema), {"a": "anything", "b": "y", "c": "x"}) == []


def test_a_schema_is_compiled_once_also_when_it_is_read_back() -> None:
    import m3nb.validity.keywords

    built = []
    real = m3nb.validity.keywords.build

    def counting(schema: Any, **options: Any) -> Any:
        built.append(schema)
        return real(schema, **options)

    schema = {"title": "compiled once", "properties": {"a": {"type": "string"}}}
    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.setattr(m3nb.validity.keywords, "build", counting)
        for _ in range(5):
            request = form(schema)
            check_schema(request)
            check_content(request, {"a": "x"})
            check_content(FormElicitationRequest.model_validate_json(request.model_dump_json()), {"a": 1})
        check_content(form(schema | {"title": "another"}), {})
    assert len(built) == 2


# --- the same as jsonschema ----------------------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.sampled_from(["", "a", "ab", "b", "string", "integer", 0.5, 1.0, 2.5])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
COUNTS = st.integers(0, 3)


def schemas(dialect: str) -> st.SearchStrategy[Any]:
    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some = st.lists(inner, min_size=1, max_size=3)
        named = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        names = st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True)
        keywords: dict[str, st.SearchStrategy[Any]] = {
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "properties": named,
            "required": names,
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "[bc]"]), inner, max_size=2),
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=repr),
            "minLength": COUNTS,
            "maxLength": COUNTS,
            "minItems": COUNTS,
            "maxItems": COUNTS,
            "minProperties": COUNTS,
            "maxProperties": COUNTS,
            "minimum": st.integers(-2, 5),
            "maximum": st.integers(-2, 5),
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "uniqueItems": st.booleans(),
            "pattern": st.sampled_from(["^a", "b$", "."]),
            "items": inner,
            "dependencies": st.dictionaries(st.sampled_from("abc"), names | inner, max_size=2),
            "title": st.just("t"),
            "x-unknown": VALUES,
        }
        if dialect != "Draft4Validator":
            keywords |= {
                "const": VALUES,
                "contains": inner,
                "propertyNames": inner,
                "exclusiveMinimum": st.integers(-2, 5),
            }
        if dialect not in ("Draft4Validator", "Draft6Validator"):
            keywords |= {"if": inner, "then": inner, "else": inner}
        if dialect.startswith("Draft20"):
            keywords |= {
                "unevaluatedItems": inner,
                "dependentSchemas": named,
                "dependentRequired": st.dictionaries(st.sampled_from("abc"), names, max_size=2),
                "minContains": COUNTS,
            }
        if dialect == "Draft202012Validator":
            keywords |= {"prefixItems": some, "unevaluatedProperties": inner}
        return st.dictionaries(st.sampled_from(sorted(keywords)), st.none(), max_size=4).flatmap(
            lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in chosen})
        )

    leaves = st.fixed_dictionaries({"type": TYPES}) if dialect == "Draft4Validator" else st.booleans() | st.just({})
    return st.recursive(leaves, extend, max_leaves=8).filter(lambda schema: isinstance(schema, dict))


@pytest.mark.parametrize("dialect", URIS)
@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_valid_is_what_jsonschema_calls_valid(dialect: str, data: st.DataObject) -> None:
    import jsonschema

    schema = {**data.draw(schemas(dialect)), "$schema": URIS[dialect]}
    content = data.draw(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3))
    errors = check_content(form(schema), content)
    assert (errors == []) is getattr(jsonschema, dialect)(schema).is_valid(content)
    assert all(error["message"] and (error["pointer"] == "" or error["pointer"][0] == "/") for error in errors)


ANNOTATIONS = ("title", "description", "$comment", "examples", "readOnly", "$anchor", "definitions", "$defs", "id")
BROKEN = SCALARS | st.lists(SCALARS, max_size=2) | st.just({}) | st.just({"a": 5})


@pytest.mark.parametrize("dialect", URIS)
@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_schema_is_refused_when_its_metaschema_refuses_it(dialect: str, data: st.DataObject) -> None:
    import jsonschema

    cls = getattr(jsonschema, dialect)
    keyword = data.draw(
        st.sampled_from(sorted({*cls.VALIDATORS, *ANNOTATIONS} - {"$ref", "$dynamicRef", "$recursiveRef"}))
    )
    schema = {"$schema": URIS[dialect], "properties": {"a": {keyword: data.draw(BROKEN)}}}
    try:
        cls.check_schema(schema, format_checker=jsonschema.FormatChecker(formats=()))
    except jsonschema.SchemaError:
        refused(schema)
    else:
        check_schema(form(schema))


# --- whatever a server sends ---------------------------------------------------------------------------------------

KEYWORDS = st.sampled_from(
    [
        *(
            "$schema",
            "$id",
            "id",
            "$ref",
            "$dynamicRef",
            "$recursiveRef",
            "$anchor",
            "$dynamicAnchor",
            "$defs",
            "definitions",
        ),
        *(
            "type",
            "properties",
            "items",
            "prefixItems",
            "required",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "if",
            "then",
            "else",
        ),
        *(
            "const",
            "enum",
            "pattern",
            "patternProperties",
            "format",
            "minimum",
            "multipleOf",
            "uniqueItems",
            "contains",
        ),
        *("propertyNames", "dependencies", "dependentSchemas", "additionalProperties", "unevaluatedProperties"),
        *("unevaluatedItems", "a", "b"),
    ]
)
REFERENCES = ["#", "#/", "#a", "#/$defs/a", "#/properties/b", "a", "http://[bad", "https://example.com/x"]
TEXTS = st.sampled_from([*REFERENCES, "object", "^a+$", "(", "\\p{L}", *URIS.values()]) | st.text(max_size=4)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | TEXTS, inner, max_size=4),
    max_leaves=25,
)


@given(schema=st.dictionaries(KEYWORDS, ANYTHING, max_size=5), content=ANYTHING)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_json_as_a_schema_is_served_or_refused_with_a_typed_error(schema: Any, content: Any) -> None:
    request = form(freeze(schema))
    try:
        check_schema(request)
        errors = check_content(request, content)
        errors += check_content(request, {"a": content, "b": content})
        unchecked_patterns(schema)
    except (InvalidSchemaError, ManagedInputValidationError):
        return
    for error in errors:
        assert all(isinstance(text, str) for text in error.values())


@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_annotations_and_unknown_keywords_change_nothing(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    extra = data.draw(
        st.dictionaries(
            st.sampled_from(
                ["x-order", "enumValues", "ui:widget", "title", "description", "propertyOrdering", "nullable"]
            ),
            st.text(max_size=5),
            max_size=4,
        )
    )
    schema = case["requestedSchema"]
    fields = {name: extra | field for name, field in schema["properties"].items()} if "properties" in schema else {}
    changed = extra | schema | ({"properties": fields} if fields else {})
    for content in (*case["valid"], *case["invalid"]):
        assert [e["pointer"] for e in check_content(form(changed), content)] == [
            e["pointer"] for e in check_content(form(schema), content)
        ]
