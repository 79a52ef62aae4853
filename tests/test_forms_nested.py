"""Forms as trees: objects, lists, unions, rules, and what of them is sent, told and blocked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from form_cases import form

from m3nb.forms import compile_form, fields_for, read_values, to_values
from m3nb.forms.telling import told
from m3nb.validity import check_content, check_schema

TEXT = {"type": "string"}
ADDRESS = {
    "type": "object",
    "title": "Address",
    "properties": {"street": TEXT, "city": {"type": "string", "title": "City"}, "country": TEXT | {"default": "DE"}},
    "required": ["street"],
}
NODE = {"type": "object", "properties": {"v": TEXT, "next": {"$ref": "#/$defs/Node"}}}
PAY = {
    "oneOf": [
        {
            "title": "Card",
            "type": "object",
            "properties": {"kind": {"const": "card"}, "number": TEXT},
            "required": ["kind", "number"],
        },
        {"type": "object", "properties": {"kind": {"const": "cash"}}, "required": ["kind"]},
    ]
}


def plan(schema: dict[str, Any]) -> dict[str, Any]:
    request = form(schema)
    check_schema(request)
    found = dict(compile_form(request))
    json.dumps(found, allow_nan=False)
    return found


def only(schema: Any, *, required: bool = False, **root: Any) -> dict[str, Any]:
    found = plan({"properties": {"x": schema}, "required": ["x"] if required else [], **root})
    return {field["name"]: field for field in found["fields"]}["x"]


def read(schema: Any, raw: Any, **root: Any) -> Any:
    content, errors = read_values(form({"properties": {"x": schema}, **root}), {"x": raw})
    return [(error["pointer"], error["message"]) for error in errors] or content.get("x", "omitted")


def untouched(schema: dict[str, Any]) -> dict[str, Any]:
    fields = plan(schema)["fields"]
    content, errors = read_values(
        form(schema), {field["name"]: field["initial"] for field in fields if field["initial"] is not None}
    )
    assert errors == []
    return content


def there_and_back(schema: dict[str, Any], content: dict[str, Any]) -> None:
    request = form(schema)
    values, left = to_values(request, content)
    assert left == []
    back, errors = read_values(request, json.loads(json.dumps(values)))
    assert errors == []
    assert json.dumps(back, sort_keys=True) == json.dumps(content, sort_keys=True)


class TestObjects:
    def test_fields_have_their_own_place(self) -> None:
        field = only(ADDRESS)
        assert [(each["pointer"], each["control"], each["required"]) for each in field["fields"]] == [
            ("/x/street", "text", True),
            ("/x/city", "text", False),
            ("/x/country", "text", False),
        ]

    def test_an_optional_one_whose_defaults_are_not_enough_is_not_sent_untouched(self) -> None:
        assert only(ADDRESS)["initial"] is None
        assert untouched({"properties": {"x": ADDRESS}}) == {}
        assert only(ADDRESS)["fields"][2]["initial"] == {"text": "DE"}

    def test_an_optional_one_with_defaults_that_are_enough_is_sent(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer", "default": 3}, "b": TEXT}}
        assert untouched({"properties": {"x": schema}}) == {"x": {"a": 3}}

    def test_a_required_one_is_always_sent(self) -> None:
        assert only(NODE, required=True, **{"$defs": {"Node": NODE}})["initial"] == {"fields": {}}
        assert untouched({"properties": {"x": ADDRESS}, "required": ["x"]}) == {"x": {"country": "DE"}}

    def test_its_own_default_counts_as_a_whole(self) -> None:
        schema = {
            "type": "object",
            "properties": {"a": TEXT | {"default": "inner"}, "b": TEXT | {"default": "b"}},
            "default": {"a": "own"},
        }
        assert untouched({"properties": {"x": schema}}) == {"x": {"a": "own"}}

    def test_where_its_own_default_is_invalid_those_in_it_count(self) -> None:
        schema = {"type": "object", "properties": {"a": TEXT | {"default": "inner"}}, "default": {"a": 5}}
        assert untouched({"properties": {"x": schema}}) == {"x": {"a": "inner"}}
        assert "default" in only(schema)["hint"]
        wrong = {"type": "object", "properties": {"a": {"type": "integer", "default": "5"}}}
        assert untouched({"properties": {"x": wrong}}) == {}
        assert "default" in only(wrong)["fields"][0]["hint"]

    def test_a_required_one_is_sent_where_its_default_is_invalid_and_it_lacks_a_field(self) -> None:
        schema = ADDRESS | {"default": None}
        assert untouched({"properties": {"x": schema}, "required": ["x"]}) == {"x": {"country": "DE"}}

    def test_a_default_with_parts_that_have_no_field_is_written_as_json(self) -> None:
        schema = {"type": "object", "properties": {"a": TEXT}, "default": {"a": "x", "more": [1]}}
        assert only(schema)["control"] == "json"
        assert untouched({"properties": {"x": schema}}) == {"x": {"a": "x", "more": [1]}}

    def test_errors_name_the_deepest_field(self) -> None:
        schema = {"type": "object", "properties": {"in": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
        raw = {"fields": {"in": {"fields": {"n": {"text": "--"}}}}}
        assert read(schema, raw) == [("/x/in/n", "must be a whole number")]
        assert read(schema, {"fields": {"nope": {"text": "1"}}})[0][0] == "/x"
        assert read(schema, {"fields": {"in": {"fields": 5}}})[0][0] == "/x/in"

    def test_content_with_parts_that_have_no_field_has_no_place(self) -> None:
        assert to_values(form({"properties": {"x": ADDRESS}}), {"x": {"street": "a", "zip": "1"}}) == ({}, ["x"])

    @pytest.mark.parametrize(
        "nullable", [{"anyOf": [ADDRESS, {"type": "null"}]}, ADDRESS | {"type": ["object", "null"]}]
    )
    def test_null_stands_beside_the_fields(self, nullable: dict[str, Any]) -> None:
        assert (only(nullable)["control"], only(nullable)["nullable"]) == ("object", True)
        assert read(nullable, {"null": True}) is None
        there_and_back({"properties": {"x": nullable}}, {"x": {"street": "a"}})

    def test_one_that_contains_itself_is_drawn_four_deep(self) -> None:
        field, depth = only({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": NODE}}), 0
        while field["control"] == "object":
            field, depth = field["fields"][1], depth + 1
        assert (depth, field["control"]) == (4, "json")

    def test_seven_different_ones_in_one_another_are_drawn(self) -> None:
        schema: dict[str, Any] = TEXT
        for _ in range(7):
            schema = {"type": "object", "properties": {"x": schema}}
        assert '"json"' not in json.dumps(only(schema))

    def test_writing_protected_and_deprecated(self) -> None:
        schema = {"type": "object", "properties": {"a": TEXT | {"readOnly": True, "default": "v"}}, "deprecated": True}
        assert only(schema)["deprecated"] is True
        assert only(schema)["fields"][0]["readonly"] is True
        assert "readonly" not in only(schema)
        assert untouched({"properties": {"x": schema}}) == {"x": {"a": "v"}}
        assert "readonly" not in only(TEXT | {"readOnly": True}, required=True)


class TestLists:
    def test_an_item_has_pointers_of_its_own(self) -> None:
        field = only({"type": "array", "items": ADDRESS, "minItems": 1, "maxItems": 3})
        assert (field["control"], field["min"], field["max"], field["item"]["pointer"]) == ("list", 1, 3, "")
        assert [each["pointer"] for each in field["item"]["fields"]] == ["/street", "/city", "/country"]
        assert field["item"]["initial"] == {"fields": {"country": {"text": "DE"}}}
        assert field["hint"] == "At most 3 items"

    def test_items_keep_their_type_and_order(self) -> None:
        schema = {"type": "array", "items": {"type": ["number", "string", "null"]}}
        there_and_back({"properties": {"x": schema}}, {"x": [2, "2", None, 1.5, 10**30]})
        there_and_back(
            {"properties": {"x": {"type": "array", "items": {"type": "array", "items": TEXT}}}}, {"x": [["a"], []]}
        )

    def test_errors_name_the_item_that_was_typed(self) -> None:
        schema = {"type": "array", "items": {"type": "integer", "minimum": 5}}
        raw = {"items": [{"text": "x"}, {"absent": True}, {"text": ""}, {"text": "1"}]}
        missing = "must be filled in or removed"
        assert read(schema, raw) == [("/x/0", "must be a whole number"), ("/x/1", missing), ("/x/2", missing)]
        request = form({"properties": {"x": schema}})
        content, _ = read_values(request, {"x": raw})
        assert "/x/3" in [error["pointer"] for error in check_content(request, content)]

    def test_an_empty_one_is_sent_on_purpose_only(self) -> None:
        assert only({"type": "array", "items": TEXT})["empty"] is True
        assert only({"type": "array", "items": TEXT, "minItems": 1})["empty"] is False
        assert read({"type": "array", "items": TEXT}, {"items": []}) == []
        assert untouched({"properties": {"x": {"type": "array", "items": TEXT}}, "required": ["x"]}) == {}

    def test_its_default(self) -> None:
        schema = {"type": "array", "items": ADDRESS, "default": [{"street": "a"}, {"street": "b", "country": "FR"}]}
        assert untouched({"properties": {"x": schema}}) == {"x": schema["default"]}


class TestUnions:
    def test_a_constant_that_tells_branches_apart_is_sent_and_not_drawn(self) -> None:
        card, cash = only(PAY)["branches"]
        assert (card["label"], [each["pointer"] for each in card["fields"]]) == ("Card", ["/x/number"])
        assert (cash["label"], cash["fields"]) == ("cash", [])
        assert read(PAY, {"branch": 0, "fields": {"number": {"text": "1"}}}) == {"kind": "card", "number": "1"}
        assert read(PAY, {"branch": 1, "fields": {}}) == {"kind": "cash"}
        there_and_back({"properties": {"x": PAY}}, {"x": {"kind": "cash"}})

    def test_values_of_differing_types(self) -> None:
        schema = {"anyOf": [{"type": "integer"}, TEXT, {"type": "boolean"}, ADDRESS]}
        field = only(schema)
        assert [branch["label"] for branch in field["branches"]] == ["Whole number", "Text", "Yes or no", "Address"]
        assert field["branches"][0]["field"]["pointer"] == "/x"
        for value in (5, "5", False, {"street": "a"}):
            there_and_back({"properties": {"x": schema}}, {"x": value})
        assert read(schema, {"branch": 0, "field": {"text": "q"}}) == [("/x", "must be a whole number")]
        assert read(schema, {"branch": 0}) == "omitted"

    def test_fields_around_a_union_are_in_each_branch(self) -> None:
        schema = {
            "type": "object",
            "properties": {"all": TEXT},
            "required": ["all"],
            "oneOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}, "required": ["b"]}],
        }
        names = [[each["name"] for each in branch["fields"]] for branch in only(schema)["branches"]]
        assert names == [["all", "a"], ["all", "b"]]
        there_and_back({"properties": {"x": schema}}, {"x": {"all": "1", "b": "2"}})

    def test_mere_conditions_are_no_branches(self) -> None:
        schema = ADDRESS | {"anyOf": [{"required": ["city"]}, {"required": ["country"]}]}
        assert only(schema)["control"] == "object"

    def test_a_root_that_is_a_union_is_one_field(self) -> None:
        (field,) = plan(PAY)["fields"]
        assert (field["name"], field["pointer"], field["control"]) == ("", "", "union")
        assert field["branches"][0]["fields"][0]["pointer"] == "/number"
        there_and_back(PAY, {"kind": "card", "number": "4"})
        raw = {"": {"branch": 0, "fields": {"number": {"bool": True}}}}
        assert read_values(form(PAY), raw)[1][0]["pointer"] == "/number"

    @pytest.mark.parametrize(
        "raw", [{}, {"branch": True}, {"branch": 2}, {"branch": -1}, {"branch": 0, "field": {}}, {"fields": {}}, []]
    )
    def test_what_does_not_belong_to_it_is_an_error(self, raw: Any) -> None:
        assert read(PAY, raw)[0][0] == "/x"


STREET = {"properties": {"street": TEXT}}
RULED = {
    "properties": {"kind": {"enum": ["shop", "home"]}, "tip": TEXT},
    "if": {"properties": {"kind": {"const": "home"}}, "required": ["kind"]},
    "then": {"properties": {"street": TEXT | {"default": "s"}}, "required": ["street"]},
    "else": {"properties": {"shop": TEXT}},
    "dependentRequired": {"tip": ["kind"]},
}


class TestRules:
    def names(self, schema: dict[str, Any], values: dict[str, Any]) -> dict[str, bool]:
        fields, blocked = fields_for(form(schema), values)
        assert blocked is None
        return {field["name"]: field["required"] for field in fields}

    def test_fields_come_and_go(self) -> None:
        assert plan(RULED)["live"] is True
        assert plan({"properties": {"x": TEXT}})["live"] is False
        assert [field["name"] for field in plan(RULED)["fields"]] == ["kind", "tip", "shop"]
        home = self.names(RULED, {"kind": {"choice": 1}})
        assert home == {"kind": False, "tip": False, "street": True}
        assert self.names(RULED, {"tip": {"text": "1"}}) == {"kind": True, "tip": False, "shop": False}

    def test_values_are_read_by_the_fields_they_have(self) -> None:
        values = {"kind": {"choice": 1}, "street": {"text": "Main"}, "shop": {"text": "gone"}}
        assert read_values(form(RULED), values) == ({"kind": "home", "street": "Main"}, [])
        there_and_back(RULED, {"kind": "home", "street": "x"})
        there_and_back(RULED, {"kind": "shop", "shop": "x"})

    def test_defaults_bring_their_fields(self) -> None:
        schema = RULED | {"properties": {"kind": {"enum": ["shop", "home"], "default": "home"}}}
        assert untouched(schema) == {"kind": "home", "street": "s"}

    def test_rules_that_depend_on_one_another(self) -> None:
        chain = {
            "properties": {"a": TEXT},
            "dependentSchemas": {
                "a": {"properties": {"b": TEXT}, "dependentSchemas": {"b": {"properties": {"c": TEXT}}}},
            },
        }
        assert list(self.names(chain, {})) == ["a"]
        assert list(self.names(chain, {n: {"text": n} for n in "ab"})) == ["a", "b", "c"]
        assert read_values(form(chain), {n: {"text": n} for n in "abc"})[0] == {"a": "a", "b": "b", "c": "c"}

    @pytest.mark.parametrize(
        "rule",
        [
            {"allOf": [{k: RULED[k] for k in ("if", "then", "else")}, {"if": {"required": ["tip"]}, "then": {}}]},
            {"$ref": "#/$defs/R", "$defs": {"R": {k: RULED[k] for k in ("if", "then", "else")}}},
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "dependencies": {"kind": STREET},
            },
        ],
    )
    def test_wherever_they_stand(self, rule: dict[str, Any]) -> None:
        schema = {"properties": RULED["properties"], **rule}
        assert plan(schema)["live"]
        assert "street" in self.names(schema, {"kind": {"choice": 1}})

    def test_in_an_object(self) -> None:
        schema = {"properties": {"x": {"type": "object", **RULED}}}
        assert plan(schema)["live"]
        fields, _ = fields_for(form(schema), {"x": {"fields": {"kind": {"choice": 1}}}})
        assert [each["name"] for each in fields[0]["fields"]] == ["kind", "tip", "street"]

    def test_in_a_list_all_fields_are_drawn_and_none_is_required_by_a_rule(self) -> None:
        schema = {"properties": {"x": {"type": "array", "items": {"type": "object", **RULED}}}}
        assert not plan(schema)["live"]
        item = plan(schema)["fields"][0]["item"]
        assert [(each["name"], each["required"]) for each in item["fields"]] == [
            ("kind", False), ("tip", False), ("street", False), ("shop", False),
        ]  # fmt: skip

    @pytest.mark.parametrize("values", [{"kind": 5}, {"kind": {"choice": 99}}, {"no": {"text": "x"}}, {"kind": None}])
    def test_nothing_that_is_typed_breaks_the_fields(self, values: dict[str, Any]) -> None:
        assert len(fields_for(form(RULED), values)[0]) == 3


class TestBlocked:
    @pytest.mark.parametrize(
        ("schema", "way"),
        [
            ({"type": "object", "title": "Box", "properties": {"a": {"enum": []}}, "required": ["a"]}, "“Box · a”"),
            ({"oneOf": [{"enum": []}, False]}, "“x”"),
            ({"type": "object", "properties": {"a": TEXT, "b": False}, "required": ["b"]}, "“x · b”"),
        ],
    )
    def test_by_a_required_field_at_any_depth(self, schema: dict[str, Any], way: str) -> None:
        assert plan({"properties": {"x": schema}, "required": ["x"]})["blocked"].startswith(way)
        optional = plan({"properties": {"x": schema, "y": TEXT}})
        assert (optional["blocked"], [field["name"] for field in optional["fields"]]) == (None, ["y"])


def test_answers_are_told_by_their_labels() -> None:
    schema = {
        "properties": {
            "address": ADDRESS,
            "lines": {
                "type": "array",
                "title": "Lines",
                "items": {"type": "object", "properties": {"qty": {"type": "integer", "title": "Quantity"}}},
            },
            "tags": {"type": "array", "items": TEXT},
            "pay": PAY,
            "size": {"oneOf": [{"const": 1, "title": "Small"}, {"const": 2, "title": "Big"}]},
        }
    }
    content = {
        "address": {"street": "Main 1", "city": "Pune"},
        "lines": [{"qty": 1}, {"qty": 2}],
        "tags": ["a", "b"],
        "pay": {"kind": "card", "number": "[REDACTED]"},
        "size": 2,
        "extra": {"a": True},
    }
    assert [(line["label"], line["text"]) for line in told(form(schema), content)] == [
        ("Address · street", "Main 1"),
        ("Address · City", "Pune"),
        ("Lines 1 · Quantity", "1"),
        ("Lines 2 · Quantity", "2"),
        ("tags", "a, b"),
        ("pay · Card · number", "[REDACTED]"),
        ("size", "Big"),
        ("extra", '{"a": true}'),
    ]
    assert len(told(form({"properties": {}}), {f"n{i}": i for i in range(1000)})) == 201


class TestBounds:
    def test_a_wide_object_within_the_form_is_written_as_json(self) -> None:
        wide = {"type": "object", "properties": {f"f{i}": TEXT for i in range(5000)}}
        assert only(wide)["control"] == "json"

    def test_recursion_that_fans_out_is_cut_off_and_its_neighbour_is_drawn(self) -> None:
        tree = {"type": "object", "properties": {f"c{i}": {"$ref": "#/$defs/T"} for i in range(9)}}
        schema = {"properties": {"x": {"$ref": "#/$defs/T"}, "y": ADDRESS}, "$defs": {"T": tree}}
        found = plan(schema)
        assert [field["control"] for field in found["fields"]] == ["object", "object"]
        assert json.dumps(found).count('"control"') < 2_500

    def test_rules_that_fan_out_end(self) -> None:
        rule = lambda i: {"$ref": f"#/$defs/d{i + 1}"}  # noqa: E731
        doubling = {f"d{i}": {"if": rule(i), "then": rule(i), "else": rule(i)} for i in range(40)}
        schema = {"$ref": "#/$defs/d0", "properties": {"x": TEXT}, "$defs": {**doubling, "d40": {"type": "object"}}}
        assert [field["name"] for field in plan(schema)["fields"]] == ["x"]
        assert read_values(form(schema), {"x": {"text": "1"}}) == ({"x": "1"}, [])


@pytest.mark.parametrize(
    ("default", "sent", "hints"),
    [
        ({"b": 3, "c": {"d": True}}, {"b": 3, "c": {"d": True}}, 0),
        ({}, {}, 0),
        ({"b": "three"}, {"a": "x"}, 1),
        ({"unknown": 1}, {"a": "x"}, 1),
        (5, {"a": "x"}, 1),
    ],
)
def test_the_default_of_the_root_counts_as_a_whole_where_it_is_valid(default: Any, sent: Any, hints: int) -> None:
    flag = {"type": "object", "properties": {"d": {"type": "boolean"}}}
    schema = {"properties": {"a": TEXT | {"default": "x"}, "b": {"type": "integer"}, "c": flag}, "default": default}
    found = plan(schema)
    untouched = {field["name"]: field["initial"] for field in found["fields"] if field["initial"] is not None}
    assert read_values(form(schema), untouched) == (sent, [])
    assert len(found["hints"]) == hints
