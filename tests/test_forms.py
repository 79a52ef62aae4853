"""Schemas compiled to plans, and what is typed turned into content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from form_cases import form, form_cases, form_of_case

from m3nb.forms import compile_form, read_values, to_values
from m3nb.validity import check_content, check_schema

CASES = form_cases()


def fields(schema: dict[str, Any], message: str = "Please fill in") -> dict[str, Any]:
    return {field["name"]: field for field in compile_form(form(schema, message))["fields"]}


def only(schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return fields({"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []})["x"]


def untouched(schema: dict[str, Any]) -> dict[str, Any]:
    """What is sent when nothing is typed."""
    values = {name: field["initial"] for name, field in fields(schema).items() if field["initial"] is not None}
    content, errors = read_values(form(schema), values)
    assert errors == []
    return content


def read(schema: dict[str, Any], raw: Any) -> Any:
    """The one value of a field called x, or its error."""
    content, errors = read_values(form({"type": "object", "properties": {"x": schema}}), {"x": raw})
    if errors:
        assert [error["pointer"] for error in errors] == ["/x"]
        return errors[0]["message"]
    return content.get("x", "omitted")


def identical(left: Any, right: Any) -> bool:
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
class TestCases:
    def test_plan(self, case: dict[str, Any]) -> None:
        request = form_of_case(case)
        check_schema(request)
        plan = compile_form(request)
        json.dumps(plan, allow_nan=False)
        assert [field["name"] for field in plan["fields"]] == list(case["requestedSchema"].get("properties", {}))
        assert plan["blocked"] is None
        controls = {field["control"] for field in plan["fields"]}
        assert ("json" in controls) <= (case["expect"] == "render-fallback")
        assert (not controls) == (case["expect"] == "confirm-only")

    def test_untouched_form_sends_the_valid_defaults(self, case: dict[str, Any]) -> None:
        assert identical(untouched(case["requestedSchema"]), case.get("prefill", {}))

    def test_valid_content_goes_in_and_comes_back(self, case: dict[str, Any]) -> None:
        request = form_of_case(case)
        for content in case["valid"]:
            values, left = to_values(request, content)
            assert [name for name in left if name in case["requestedSchema"].get("properties", {})] == []
            back, errors = read_values(request, values)
            assert errors == []
            assert identical(back, {name: value for name, value in content.items() if name not in left})
            assert check_content(request, back) == []

    def test_what_can_be_typed_of_invalid_content_is_refused_at_its_field(self, case: dict[str, Any]) -> None:
        request = form_of_case(case)
        for content in case["invalid"]:
            if not isinstance(content, dict):
                continue
            values, left = to_values(request, content)
            back, errors = read_values(request, values)
            errors = errors or check_content(request, back)
            if left:  # what has no place in the form cannot be typed at all
                assert not (set(back) & set(left))
                continue
            wanted = {error["pointer"] for error in check_content(request, content)}
            assert {error["pointer"] for error in errors} == wanted
            assert wanted - {""}


def without(schema: Any, keyword: str, where: Any = lambda _: True) -> Any:
    """The schema without a keyword, at every depth where ``where(subschema)`` holds."""
    if isinstance(schema, dict):
        return {k: without(v, keyword, where) for k, v in schema.items() if k != keyword or not where(schema)}
    return [without(item, keyword, where) for item in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_titles_and_types_of_choices_may_be_missing(case: dict[str, Any]) -> None:
    before = compile_form(form_of_case(case))["fields"]
    schema = case["requestedSchema"]
    untitled = fields(without(schema, "title", lambda part: isinstance(part["title"], str)))
    assert [field["label"] for field in untitled.values()] == list(schema.get("properties", {})) or len(untitled) == 1
    untyped = fields(without(schema, "type", lambda part: "enum" in part or "const" in part or "oneOf" in part))
    assert [field["control"] for field in untyped.values()] == [field["control"] for field in before]


class TestDrawing:
    @pytest.mark.parametrize(
        ("schema", "control"),
        [
            ({"type": "string"}, "text"),
            ({"type": "string", "format": "email"}, "email"),
            ({"type": "string", "format": "uri"}, "uri"),
            ({"type": "string", "format": "date"}, "date"),
            ({"type": "string", "format": "date-time"}, "datetime"),
            ({"type": "string", "format": "time"}, "time"),
            ({"type": "string", "format": "password"}, "password"),
            ({"type": "string", "writeOnly": True}, "password"),
            ({"type": "string", "title": "API key"}, "password"),
            ({"type": "string", "format": "x-unknown"}, "text"),
            ({"type": "string", "maxLength": 200}, "text"),
            ({"type": "string", "maxLength": 201}, "textarea"),
            ({"type": "string", "default": "two\nlines"}, "textarea"),
            ({"type": "string", "contentMediaType": "text/markdown"}, "textarea"),
            ({"type": "number"}, "number"),
            ({"type": "integer", "format": "int32"}, "integer"),
            ({"type": ["integer", "number"]}, "number"),
            ({"type": ["string", "null"]}, "text"),
            ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
            ({"anyOf": [{"type": "string", "format": "email"}, {"type": "string", "format": "uri"}]}, "text"),
            ({"minLength": 3}, "text"),
            ({"type": "boolean"}, "boolean"),
            ({"type": "boolean", "const": True}, "choice"),
            ({"enum": ["a", 1, None]}, "choice"),
            ({"const": "only"}, "choice"),
            ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, "choice"),
            ({"anyOf": [{"enum": ["a", "b"]}, {"const": "c"}, {"type": "null"}]}, "choice"),
            ({"type": "array", "items": {"enum": ["a"]}}, "multi"),
            ({"type": "array", "items": {"oneOf": [{"const": "a"}]}}, "multi"),
            ({"allOf": [{"$ref": "#/$defs/Color"}], "description": "Which?"}, "choice"),
            ({"$ref": "#/$defs/Color", "default": "red"}, "choice"),
            ({"$ref": "#/$defs/Colors"}, "multi"),
            ({"type": "array", "items": {"type": "string"}}, "list"),
            ({"type": "array"}, "json"),
            ({"type": "array", "items": {}}, "json"),
            ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}, "json"),
            ({"type": "object", "properties": {"a": {"type": "string"}}}, "object"),
            ({"type": "object"}, "json"),
            ({"type": "object", "additionalProperties": {"type": "string"}}, "json"),
            ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "union"),
            ({"type": ["string", "integer"]}, "union"),
            ({"anyOf": [{"type": "object"}, {"type": "array"}]}, "json"),
            ({"anyOf": [{"type": "string"}, {}]}, "json"),
            ({}, "json"),
            (True, "json"),
        ],
    )
    def test_control(self, schema: Any, control: str) -> None:
        color = {"type": "string", "enum": ["red", "blue"]}
        root = {
            "type": "object",
            "properties": {"x": schema},
            "$defs": {"Color": color, "Colors": {"type": "array", "items": {"$ref": "#/$defs/Color"}}},
        }
        check_schema(form(root))
        assert fields(root)["x"]["control"] == control

    def test_spellings_of_one_choice_are_drawn_alike(self) -> None:
        options = [{"label": "Low", "description": None}, {"label": "High", "description": None}]
        titled = [{"const": "l", "title": "Low"}, {"const": "h", "title": "High"}]
        for schema in (
            {"type": "string", "enum": ["l", "h"], "enumNames": ["Low", "High"]},
            {"enum": ["l", "h"], "enumNames": ["Low", "High"]},
            {"type": "string", "oneOf": titled},
            {"anyOf": titled},
            {"anyOf": [{"oneOf": titled}, {"type": "null"}]},
        ):
            assert only(schema)["options"] == options
            assert read(schema, {"choice": 1}) == "h"

    def test_choices_keep_their_json_type(self) -> None:
        schema = {"enum": [0, "0", False, 1.5, {"a": [1]}]}
        assert [option["label"] for option in only(schema)["options"]] == ["0", "0", "No", "1.5", '{"a": [1]}']
        assert [read(schema, {"choice": at}) for at in range(5)] == [0, "0", False, 1.5, {"a": [1]}]
        assert read({"type": "integer", "enum": [1, "1", 1.0, 2]}, {"choice": 1}) == 2

    def test_nothing_is_chosen_at_first(self) -> None:
        assert only({"enum": [0, 1]}, required=True)["initial"] is None
        assert only({"type": "string", "const": "production"}, required=True)["initial"] is None

    def test_labels(self) -> None:
        assert only({"type": "string", "title": "Name"})["label"] == "Name"
        assert only({"type": "string", "title": "  "})["label"] == "x"
        assert only({"type": "string"})["label"] == "x"

    def test_a_wrapped_scalar_is_named_by_the_question(self) -> None:
        schema = {"properties": {"value": {"title": "Value", "type": "string"}}, "title": "ScalarElicitationType"}
        plan = compile_form(form(schema, "What is your name?"))
        assert plan["title"] is None
        assert plan["fields"][0]["label"] == "What is your name?"
        assert fields(schema, "x" * 500)["value"]["label"] == "Value"

    @pytest.mark.parametrize(
        ("title", "properties", "heading"),
        [
            ("BookingPreferences", ("a", "b"), None),
            ("booking_details", ("a", "b"), None),
            ("Scope", ("full", "sku"), "Scope"),
            ("Scope", ("full",), None),
            ("Delivery address", ("a",), "Delivery address"),
        ],
    )
    def test_a_class_name_is_no_heading(self, title: str, properties: tuple[str, ...], heading: str | None) -> None:
        schema = {"title": title, "properties": {name: {"type": "string"} for name in properties}}
        assert compile_form(form(schema))["title"] == heading

    def test_titles_made_by_pydantic_tell_a_class_name(self) -> None:
        schema = {"title": "Scope", "properties": {n: {"type": "string", "title": n.title()} for n in ("full", "sku")}}
        assert compile_form(form(schema))["title"] is None

    def test_root_reference_and_all_of(self) -> None:
        schema = {
            "allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
            "$defs": {"Base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
        }
        found = fields(schema)
        assert {name: (field["control"], field["required"]) for name, field in found.items()} == {
            "a": ("text", True),
            "b": ("integer", True),
        }

    def test_bounds_in_words(self) -> None:
        assert only({"type": "string", "minLength": 1})["hint"] is None
        assert only({"type": "string", "minLength": 2, "maxLength": 5})["hint"] == "2 to 5 characters"
        assert only({"type": "string", "maxLength": 1})["hint"] == "At most 1 character"
        assert only({"type": "integer", "minimum": 0})["hint"] == "Whole number · at least 0"
        assert only({"type": "number", "exclusiveMinimum": 0, "maximum": 1})["hint"] == "More than 0 · at most 1"
        assert only({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1})["hint"] == "Choose at least 1"

    def test_confirm_only_and_the_whole_answer_as_json(self) -> None:
        assert compile_form(form({"type": "object"}))["fields"] == []
        whole = {"type": "object", "minProperties": 1}
        (field,) = compile_form(form(whole))["fields"]
        assert (field["control"], field["pointer"]) == ("json", "")
        assert read_values(form(whole), {"": {"json": '{"a": 1}'}}) == ({"a": 1}, [])
        assert to_values(form(whole), {"a": 1})[1] == []
        assert read_values(form(whole), {"": {"json": "[1]"}})[1][0]["pointer"] == ""

    def test_a_required_name_without_a_schema_can_be_answered(self) -> None:
        field = fields({"type": "object", "required": ["x"]})["x"]
        assert (field["control"], field["required"]) == ("json", True)

    def test_accept_is_blocked_while_a_required_field_has_no_value(self) -> None:
        for impossible in (False, {"enum": []}, {"type": "string", "enum": [1]}, {"anyOf": [False, False]}):
            required = form({"properties": {"x": impossible, "y": {"type": "string"}}, "required": ["x"]})
            assert "“x” is required" in compile_form(required)["blocked"]
            optional = compile_form(form({"properties": {"x": impossible, "y": {"type": "string"}}}))
            assert optional["blocked"] is None
            assert [field["name"] for field in optional["fields"]] == ["y"]
        closed = form({"properties": {}, "required": ["x"], "additionalProperties": False})
        assert compile_form(closed)["blocked"]

    def test_pointers_are_escaped(self) -> None:
        schema = {"properties": {"a/b~c": {"type": "integer", "default": 1}, "": {"type": "string", "default": "d"}}}
        found = fields(schema)
        assert found["a/b~c"]["pointer"] == "/a~1b~0c"
        assert untouched(schema) == {"a/b~c": 1, "": "d"}

    def test_references_that_fan_out_are_cut_off(self) -> None:
        doubling = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
        schema = {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {**doubling, "d40": {"type": "string"}}}
        assert len(compile_form(form(schema))["fields"]) == 1

    def test_300_fields(self) -> None:
        schema = {"properties": {f"f{i}": {"type": "string", "default": "d"} for i in range(300)}}
        assert len(untouched(schema)) == 300


class TestDefaults:
    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "string", "default": 5},
            {"type": "string", "maxLength": 1, "default": "long"},
            {"type": "string", "format": "date", "default": "tomorrow"},
            {"type": "integer", "default": "1"},
            {"enum": ["a"], "default": "b"},
            {"type": "array", "items": {"enum": ["a"]}, "default": "a"},
            {"type": "object", "required": ["street"], "default": {}},
            {"type": "string", "default": None},
        ],
    )
    def test_an_invalid_default_is_no_default_and_says_so(self, schema: dict[str, Any]) -> None:
        field = only(schema)
        assert field["initial"] is None
        assert "default" in field["hint"]

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "string", "default": ""},
            {"type": "boolean", "default": False},
            {"type": "integer", "default": 0},
            {"enum": [0, 1], "default": 0},
            {"type": "array", "items": {"enum": ["a"]}, "default": []},
            {"type": ["string", "null"], "default": None},
            {"type": "string", "format": "date-time", "default": "2026-01-02T03:04:05.678Z"},
            {"type": "object", "default": {"a": [1, 2.5, None]}},
            {"type": "number", "default": 12345678901234567890},
        ],
    )
    def test_a_valid_default_is_sent_untouched(self, schema: dict[str, Any]) -> None:
        assert identical(untouched({"properties": {"x": schema}}), {"x": schema["default"]})

    def test_a_missing_required_neighbour_does_not_spoil_a_default(self) -> None:
        schema = {
            "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "string"}},
            "required": ["b"],
            "minProperties": 2,
        }
        assert untouched(schema) == {"a": "x"}


class TestReading:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("1", 1),
            ("-1", -1),
            (" 7 ", 7),
            ("1.5", 1.5),
            ("1.0", 1.0),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("3.14", 3.14),
            ("0.1", 0.1),
            ("123456789012345678901234567890", 123456789012345678901234567890),
            ("", "omitted"),
            ("  ", "omitted"),
        ],
    )
    def test_numbers(self, text: str, value: Any) -> None:
        assert identical(read({"type": "number"}, {"text": text}), value)

    @pytest.mark.parametrize(("text", "value"), [("1.0", 1), ("1e3", 1000), ("-0", 0), ("9" * 40, int("9" * 40))])
    def test_integers_are_ints(self, text: str, value: int) -> None:
        assert identical(read({"type": "integer"}, {"text": text}), value)

    @pytest.mark.parametrize("control", ["number", "integer"])
    @pytest.mark.parametrize(
        "text",
        [
            "1e999",
            "-1e999",
            "1,5",
            "--",
            "1e",
            "1e+",
            "+",
            ".",
            "e5",
            "NaN",
            "Infinity",
            "-inf",
            "0x10",
            "1_000",
            "٣",
            "１",
            "1e9999999",
            "1.2.3",
            "1/2",
            "1 000",
            "9" * 5000,
            "0." + "1" * 5000,
        ],
    )
    def test_what_is_no_number_is_an_error_at_the_field(self, control: str, text: str) -> None:
        assert str(read({"type": control}, {"text": text})).startswith("must ")

    def test_a_number_that_would_be_rounded_is_refused(self) -> None:
        message = read({"type": "number"}, {"text": "0.10000000000000000001"})
        assert message == "must have fewer digits: the nearest number that can be sent is 0.1"
        assert "whole number" in read({"type": "integer"}, {"text": "1.5"})

    @pytest.mark.parametrize("text", ["{", "NaN", "[1e999]", '{"a": Infinity}', "[" * 100_000, '"\\ud800"', "9" * 5000])
    def test_what_is_no_json_is_an_error_at_the_field(self, text: str) -> None:
        assert "JSON" in read({}, {"json": text})

    def test_json(self) -> None:
        assert read({}, {"json": " "}) == "omitted"
        assert identical(read({}, {"json": '{"a": [1, 1.0, null]}'}), {"a": [1, 1.0, None]})

    @pytest.mark.parametrize(
        ("schema", "raw"),
        [
            ({"type": "string"}, {"bool": True}),
            ({"type": "string"}, {"text": 5}),
            ({"type": "string"}, {"null": True}),
            ({"type": "string"}, {"text": "\ud800"}),
            ({"type": "string"}, {"text": "a", "json": "1"}),
            ({"type": "string"}, {}),
            ({"type": "string"}, "text"),
            ({"type": "boolean"}, {"bool": 1}),
            ({"enum": ["a"]}, {"choice": 1}),
            ({"enum": ["a"]}, {"choice": -1}),
            ({"enum": ["a"]}, {"choice": True}),
            ({"enum": ["a"]}, {"choice": 0.0}),
            ({"enum": ["a"]}, {"text": "a"}),
            ({"type": "array", "items": {"enum": ["a"]}}, {"choices": 0}),
            ({"type": "array", "items": {"enum": ["a"]}}, {"choices": [None]}),
            ({"type": "integer"}, {"json": "1"}),
            ({"type": "object"}, {"text": "{}"}),
        ],
    )
    def test_what_does_not_belong_to_the_field_is_an_error_there(self, schema: dict[str, Any], raw: Any) -> None:
        assert isinstance(read(schema, raw), str)

    def test_a_name_the_form_does_not_have(self) -> None:
        content, errors = read_values(form({"properties": {"x": {"type": "string"}}}), {"y": {"text": "1"}})
        assert content == {}
        assert [(error["pointer"], error["request_key"]) for error in errors] == [("", "ask")]

    def test_every_unreadable_field_is_told_and_the_rest_is_read(self) -> None:
        schema = {"properties": {n: {"type": "integer"} for n in "abc"}}
        content, errors = read_values(form(schema), {"c": {"text": "3"}, "b": {"text": "x"}, "a": {"text": "-"}})
        assert content == {"c": 3}
        assert [error["pointer"] for error in errors] == ["/a", "/b"]

    def test_content_comes_in_property_order_and_empty_text_only_on_purpose(self) -> None:
        schema = {"properties": {n: {"type": "string"} for n in "ab"}}
        content, _ = read_values(form(schema), {"b": {"text": "2"}, "a": {"text": ""}})
        assert list(content.items()) == [("a", ""), ("b", "2")]

    @pytest.mark.parametrize(
        ("schema", "empty"),
        [
            ({"type": "string"}, True),
            ({"type": "string", "minLength": 1}, False),
            ({"type": "string", "format": "email"}, False),
            ({"type": "string", "pattern": "^a"}, False),
            ({"type": "string", "pattern": "^a?$"}, True),
            ({"type": "array", "items": {"enum": ["a"]}}, True),
            ({"type": "array", "items": {"enum": ["a"]}, "minItems": 1}, False),
            ({"type": "integer"}, False),
        ],
    )
    def test_empty_is_offered_where_it_is_valid(self, schema: dict[str, Any], empty: bool) -> None:
        assert only(schema)["empty"] is empty
