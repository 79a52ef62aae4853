"""Answers: the handed cases, words and pointers, whole response maps, and the limits of time, depth and size."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from typing import Any

import pytest
from asking import CASES, form, pending, url
from need import need

from m3nb.elicitation import ElicitationResponse, FormElicitationRequest
from m3nb.errors import InvalidSchemaError, ManagedInputValidationError
from m3nb.validity import BUDGET_SECONDS, check_content, check_responses, check_schema, unchecked_patterns

SLACK = 1.5
"""Seconds of processor time that may be added to the budget; how long that takes is up to whatever else runs."""


def told(schema: Any, content: Any) -> list[tuple[str, str, str]]:
    return [(e["pointer"], e["keyword"], e["message"]) for e in check_content(form(schema), content)]


def one_field(schema: Any, value: Any) -> list[str]:
    errors = told({"type": "object", "properties": {"x": schema}}, {"x": value})
    assert all(pointer == "/x" for pointer, _, _ in errors)
    return [message for _, _, message in errors]


def refused_schema(schema: Any) -> dict[str, Any]:
    with pytest.raises(InvalidSchemaError) as caught:
        check_schema(form(schema, "the key"))
    assert caught.value.details["request_key"] == "the key"
    assert caught.value.details["reason"] in caught.value.message
    return caught.value.details


# --- the handed cases ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_case_is_decided_as_its_server_decides(case: dict[str, Any]) -> None:
    request = form(case["requestedSchema"])
    check_schema(request)
    for content in case["valid"]:
        assert check_content(request, content) == [], content
    for content in case["invalid"]:
        errors = check_content(request, content)
        assert errors, content
        assert all(error["pointer"] == "" or error["pointer"].startswith("/") for error in errors)
    for disputed in case.get("disputed", ()):
        if "content" in disputed:
            assert (check_content(request, disputed["content"]) == []) is disputed["python_jsonschema"], disputed


def test_a_case_with_a_pattern_python_cannot_read_is_checked_or_handed_on_with_a_hint() -> None:
    for case in CASES:
        if case.get("python_pattern_error"):
            request = form(case["requestedSchema"])
            name = next(iter(case["requestedSchema"]["properties"]))
            assert check_content(request, {name: "Łukasiewicz"}) == []
            assert check_content(request, {name: "1"})[0]["keyword"] == "pattern"
            assert unchecked_patterns(case["requestedSchema"]) == []


def test_numbers_that_are_no_json_are_refused_at_the_field() -> None:
    schema = {"type": "object", "properties": {"Score": {"type": "number"}, "deep": {}}}
    for bad in (float("nan"), float("inf"), -float("inf"), 10**5000):
        assert [e[:2] for e in told(schema, {"Score": bad})] == [("/Score", "json")]
        assert [e[:2] for e in told(schema, {"deep": {"a": [1, {"b/c": bad}]}})] == [("/deep/a/1/b~1c", "json")]
    assert [e[:2] for e in told(schema, {"Score": b"1"})] == [("/Score", "json")]
    assert [e[:2] for e in told(schema, {"deep": "\ud800"})] == [("/deep", "json")]
    assert [e[:2] for e in told(schema, {1: 2})] == [("", "json")]


@pytest.mark.parametrize("content", ["x", [], None, 3, True])
def test_content_is_a_mapping_even_where_the_schema_would_take_more(content: Any) -> None:
    assert [e[:2] for e in told({}, content)] == [("", "type")]


# --- words and pointers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "string", "minLength": 3}, "ab", "must be at least 3 characters"),
        ({"type": "string", "minLength": 1}, "", "must not be empty"),
        ({"type": "string", "maxLength": 1}, "ab", "must be at most 1 character"),
        ({"type": "integer"}, "5", "must be a whole number"),
        ({"type": "integer"}, 5.5, "must be a whole number"),
        ({"type": "integer"}, True, "must be a whole number"),
        ({"type": ["string", "null"]}, 5, "must be text or null"),
        ({"enum": ["low", "high"]}, "Low", "choose one of: low, high"),
        ({"type": "integer", "enum": [1, 2]}, "1", "choose one of: 1, 2"),
        ({"oneOf": [{"const": "l", "title": "Low"}, {"const": 2}]}, "x", "choose one of: l (Low), 2"),
        ({"const": True}, False, "must be true"),
        ({"minimum": 18}, 17, "must be at least 18"),
        ({"maximum": 5.0}, 6, "must be at most 5"),
        ({"exclusiveMinimum": 0}, 0, "must be more than 0"),
        ({"multipleOf": 0.05}, 0.51, "must be a multiple of 0.05"),
        ({"format": "email"}, "a", "must be an email address, such as name@example.com"),
        ({"format": "date"}, "2026-02-30", "must be a date, such as 2026-12-31"),
        ({"pattern": "^[0-9]{5}$"}, "1", "must match the pattern ^[0-9]{5}$"),
        ({"type": "array", "minItems": 2}, [1], "must have at least 2 items"),
        ({"uniqueItems": True}, [1, 1.0], "must not hold the same item twice"),
        ({"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}]}, "a", "must be at least 2 characters"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a", "must be a whole number or null"),
        (
            {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
            "a",
            "must be an IPv4 address, such as 192.0.2.1, or must be an IPv6 address, such as 2001:db8::1",
        ),
        (
            {"oneOf": [{"minimum": 0}, {"maximum": 9}]},
            5,
            "fits more than one of the alternatives, and exactly one is allowed",
        ),
        ({"not": {"const": 1}}, 1, "must not be a value of the excluded kind"),
        (False, 1, "is not allowed"),
    ],
)
def test_a_message_is_for_a_person(schema: Any, value: Any, message: str) -> None:
    assert one_field(schema, value) == [message]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1.0),
        ({"multipleOf": 0.05}, 0.15),
        ({"multipleOf": 0.01}, 1e300),
        ({"uniqueItems": True}, [1, True, "1", None, [1], [True], {"a": 1}, {"a": True}, [], {}, 0, False]),
        ({"enum": [1]}, 1.0),
        ({"type": "array", "items": {"type": "object", "required": ["a"]}}, [{"a": [1]}]),
        ({"format": "int32"}, "x"),
        ({"format": "x-unheard-of", "x-also": {"$ref": 5}}, "x"),
    ],
)
def test_what_json_schema_allows_is_allowed(schema: Any, value: Any) -> None:
    assert one_field(schema, value) == []


def test_pointers_lead_to_the_field_itself_and_errors_come_in_field_order() -> None:
    schema = {
        "type": "object",
        "required": ["street", "city", "a/b~c"],
        "additionalProperties": False,
        "properties": {
            "street": {"type": "string"},
            "people": {
                "type": "array",
                "items": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["name"]},
            },
            "city": {"type": "string"},
        },
    }
    errors = told(schema, {"people": [{"age": "x"}], "extra": 1, "city": 5})
    assert errors == [
        ("/street", "required", "is required"),
        ("/people/0/age", "type", "must be a whole number"),
        ("/people/0/name", "required", "is required"),
        ("/city", "type", "must be text"),
        ("/a~1b~0c", "required", "is required"),
        ("/extra", "additionalProperties", "is not one of the expected fields"),
    ]


def test_names_and_dependencies_point_at_the_field_too() -> None:
    assert told({"propertyNames": {"pattern": "^[a-z]+$"}}, {"A": 1}) == [
        ("/A", "propertyNames", "this name is not allowed: it must match the pattern ^[a-z]+$")
    ]
    assert told({"dependentRequired": {"card": ["cvc"]}}, {"card": 1})[0][0] == "/cvc"
    draft7 = {"$schema": "http://json-schema.org/draft-07/schema", "dependencies": {"card": ["cvc"]}}
    assert told(draft7, {"card": 1}) == [("/cvc", "dependentRequired", "is required when card is given")]
    assert told(
        {"patternProperties": {"^a": {"type": "integer"}}, "unevaluatedProperties": False}, {"a1": "", "b": 1}
    ) == [
        ("/a1", "type", "must be a whole number"),
        ("/b", "unevaluatedProperties", "is not one of the expected fields"),
    ]


def test_a_branch_told_apart_by_a_constant_explains_itself() -> None:
    schema = {
        "oneOf": [
            {"properties": {"kind": {"const": "card"}, "number": {"minLength": 12}}, "required": ["kind", "number"]},
            {"properties": {"kind": {"const": "iban"}, "iban": {"type": "string"}}, "required": ["kind", "iban"]},
        ]
    }
    assert told(schema, {"kind": "iban"}) == [("/iban", "required", "is required")]


def test_a_message_never_repeats_what_was_typed() -> None:
    typed = "hunter2-hunter2"
    for schema in (
        {"type": "integer"},
        {"enum": ["a"]},
        {"pattern": "^x"},
        {"format": "date"},
        {"not": {}},
        {"maxLength": 1},
    ):
        errors = check_content(form({"properties": {"x": schema}}), {"x": typed})
        assert errors
        assert typed not in json.dumps(errors)


# --- dialects -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "integer_1_0"),
    [
        ("http://json-schema.org/draft-04/schema#", False),
        ("http://json-schema.org/draft-06/schema#", True),
        ("https://json-schema.org/draft-07/schema", True),
        ("https://json-schema.org/draft/2019-09/schema#", True),
        ("http://json-schema.org/draft/2020-12/schema", True),
        ("https://example.com/unheard-of", True),
    ],
)
def test_the_declared_dialect_decides(declared: str, integer_1_0: bool) -> None:
    assert (told({"$schema": declared, "properties": {"x": {"type": "integer"}}}, {"x": 1.0}) == []) is integer_1_0


def test_dialects_differ_where_they_must() -> None:
    draft4 = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"x": {"minimum": 5, "exclusiveMinimum": True}},
    }
    assert told(draft4, {"x": 5}) == [("/x", "minimum", "must be more than 5")]
    assert (
        "exclusiveMinimum" in refused_schema(draft4 | {"$schema": "http://json-schema.org/draft-07/schema#"})["reason"]
    )
    siblings = {
        "properties": {"x": {"$ref": "#/definitions/s", "minLength": 3}},
        "definitions": {"s": {"type": "string"}},
    }
    assert told(siblings, {"x": "a"})
    assert not told(siblings | {"$schema": "http://json-schema.org/draft-07/schema#"}, {"x": "a"})


def test_a_subschema_that_declares_its_dialect_still_has_our_patterns() -> None:
    nested = {
        "$id": "https://example.com/x",
        "$schema": "http://json-schema.org/draft-07/schema#",
        "pattern": r"^\p{L}$",
    }
    assert one_field(nested, "é") == []
    assert one_field(nested, "1") == [r"must match the pattern ^\p{L}$"]


# --- response maps ------------------------------------------------------------------------------------------------


def accept(**content: Any) -> ElicitationResponse:
    return ElicitationResponse(action="accept", content=content)


def test_a_whole_map_is_returned_in_the_order_of_the_requests() -> None:
    round_ = pending(form({"required": ["a"]}, "one"), url("two"), form({}, "three"))
    answers = {
        "three": ElicitationResponse(action="decline"),
        "two": ElicitationResponse(action="accept"),
        "one": accept(a=[1, {"b": 2.0}]),
    }
    checked = check_responses(round_, answers)
    assert list(checked) == ["one", "two", "three"]
    assert checked["one"].content == {"a": [1, {"b": 2.0}]}
    assert isinstance(checked["one"].content["a"][1]["b"], float)


def test_all_errors_of_all_requests_are_listed() -> None:
    round_ = pending(form({"required": ["a", "b"]}, "one"), url("two"), form({}, "three"), form({}, "four"))
    answers: Any = {"one": accept(), "two": accept(x=1), "four": {"action": "accept"}, "five": accept()}
    with pytest.raises(ManagedInputValidationError) as caught:
        check_responses(round_, answers)
    assert caught.value.message == (
        "the answer to round 'r1': five is no request of this round; one/a is required; one/b is required; "
        "two carries content, and consent to a URL carries none; three has no response; and 1 more"
    )
    assert [(e["request_key"], e["pointer"], e["keyword"]) for e in caught.value.details["errors"]] == [
        ("five", "", "additionalProperties"),
        ("one", "/a", "required"),
        ("one", "/b", "required"),
        ("two", "", "content"),
        ("three", "", "required"),
        ("four", "", "type"),
    ]
    json.dumps(caught.value.details)


@pytest.mark.parametrize(
    "responses", [None, [], "x", {}, {"form": None}, {"form": ElicitationResponse(action="accept")}, {5: 5}]
)
def test_a_map_of_the_wrong_shape_is_a_typed_error(responses: Any) -> None:
    with pytest.raises(ManagedInputValidationError) as caught:
        check_responses(pending(form({})), responses)
    assert caught.value.details["errors"]


def test_a_round_with_a_broken_schema_can_be_declined_but_not_accepted() -> None:
    round_ = pending(form({"type": "strnig"}))
    check_responses(round_, {"form": ElicitationResponse(action="cancel")})
    with pytest.raises(ManagedInputValidationError, match="strnig"):
        check_responses(round_, {"form": accept()})


# --- limits -------------------------------------------------------------------------------------------------------


def assert_out_of_budget(schema: Any, content: Any) -> None:
    check_schema(form(schema))
    begin = time.process_time()
    with pytest.raises(ManagedInputValidationError, match="could not be checked within 1 s"):
        check_content(form(schema), content)
    assert time.process_time() - begin < BUDGET_SECONDS + SLACK


@pytest.mark.parametrize("pattern", ["^(a|aa)+$", "(a+a+)+b", "^(a|a?)+$"])
def test_a_pattern_that_runs_wild_ends_with_the_budget(pattern: str) -> None:
    assert_out_of_budget({"properties": {"x": {"pattern": pattern}}}, {"x": "a" * 5000 + "!"})


def test_nested_quantifiers_are_decided_or_refused_in_time() -> None:
    begin = time.process_time()
    assert one_field({"pattern": "^(a+)+$"}, "a" * 40 + "!") == ["must match the pattern ^(a+)+$"]
    assert time.process_time() - begin < BUDGET_SECONDS + SLACK


def test_patterns_of_names_run_out_of_the_budget_too() -> None:
    for keyword in ({"patternProperties": {"^(a|aa)+$": {}}}, {"propertyNames": {"pattern": "^(a|aa)+$"}}):
        assert_out_of_budget(keyword, {"a" * 5000 + "!": 1})


def test_a_fan_out_of_references_ends_with_the_budget() -> None:
    doubled: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(30)
    }
    doubled["d30"] = {"type": "string"}
    assert_out_of_budget({"$defs": doubled, "properties": {"x": {"$ref": "#/$defs/d0"}}}, {"x": "a"})


def test_many_answers_share_one_budget() -> None:
    schema = {"properties": {"x": {"pattern": "^(a|aa)+$"}}}
    round_ = pending(*(form(schema, f"k{n}") for n in range(4)))
    begin = time.process_time()
    with pytest.raises(ManagedInputValidationError):
        check_responses(round_, {f"k{n}": accept(x="a" * 5000 + "!") for n in range(4)})
    assert time.process_time() - begin < BUDGET_SECONDS + SLACK


def test_thousands_of_items_are_compared_at_once() -> None:
    items: list[Any] = [{"n": n, "t": [n]} for n in range(5_000)]
    assert one_field({"uniqueItems": True}, items) == []
    assert one_field({"uniqueItems": True}, [*items, {"t": [7.0], "n": 7}]) == ["must not hold the same item twice"]


def test_another_thread_runs_while_a_pattern_runs_wild() -> None:
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            time.sleep(0.01)
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        assert_out_of_budget({"properties": {"x": {"pattern": "^(b|bb)+$"}}}, {"x": "b" * 5000 + "!"})
    finally:
        done.set()
        thread.join()
    assert ticks > 20


def test_a_tree_type_checks_finite_trees_and_too_deep_ones_are_a_typed_error() -> None:
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {"node": {"required": ["v"], "properties": {"next": {"$ref": "#/$defs/node"}}}},
    }
    nested: dict[str, Any] = {"v": 1}
    for _ in range(20):
        nested = {"v": 1, "next": nested}
    assert told(tree, nested) == []
    nested["next"]["next"]["next"].pop("v")
    assert [e[0] for e in told(tree, nested)] == ["/next/next/next/v"]
    deep: dict[str, Any] = {"v": 1}
    for _ in range(250):
        deep = {"v": 1, "next": deep}
    with pytest.raises(ManagedInputValidationError, match="nested too deeply"):
        check_content(form(tree), deep)
    for _ in range(5000):
        deep = {"v": 1, "next": deep}
    assert told(tree, deep)[0][1] == "json"


def test_a_schema_of_depth_5000_is_a_typed_error() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"properties": {"x": deep}}
    with pytest.raises(InvalidSchemaError):
        check_schema(FormElicitationRequest.model_construct(request_key="k", message="", requested_schema=deep))


def test_nothing_is_fetched() -> None:
    hits: list[str] = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hits.append(self.path)
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        where = f"http://127.0.0.1:{server.server_address[1]}/schema.json"
        for schema in (
            {"properties": {"x": {"$ref": where}}},
            {"$id": where, "properties": {"x": {"$ref": "other.json"}}},
            {"properties": {"x": {"$dynamicRef": where}}},
        ):
            assert "nothing is fetched" in refused_schema(schema)["reason"]
        assert (
            told({"$schema": where, "$id": where, "properties": {"x": {"$ref": "#/$defs/s"}}, "$defs": {"s": {}}}, {})
            == []
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert hits == []


def test_importing_it_loads_neither_jsonschema_nor_regex() -> None:
    code = "import sys, m3nb.validity, m3nb.redaction; print({'jsonschema', 'regex', 'referencing'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_no_grammar_is_built_before_somebody_asks_about_an_iri() -> None:
    """JupyterLab brings a package whose import takes seconds; jsonschema's own check of IRIs stays what it was."""
    need(find_spec("rfc3987_syntax"), "rfc3987-syntax is not installed", "pip install 'm3nb[lab]'")
    code = """
import sys
import m3nb.validity.keywords
print("lark" in sys.modules, "rfc3987_syntax" in sys.modules)
from jsonschema import Draft202012Validator
checks = Draft202012Validator.FORMAT_CHECKER
print([checks.conforms(text, "iri") for text in ("http://example.com/ä", "no iri")], "lark" in sys.modules)
"""
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["False False", "[True, False] True"]
