"""Is this a schema that an answer can be checked against?

Source: the JSON Schema metaschemas of draft-04, -06, -07, 2019-09 and 2020-12. Their rules are few, so they are spelled
out here: the metaschema itself, run through jsonschema, takes many times longer and says less about what is wrong.
Beyond the metaschema: every ``$ref`` leads somewhere without the network, no ``$ref`` leads back to where it started
without going deeper into the answer, every pattern is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from m3nb.validity.patterns import PatternSyntaxError, translate

DEFAULT_DIALECT = "2020-12"
_DIALECT = re.compile(r"https?://json-schema\.org/(?:draft-(0[467])|draft/(2019-09|2020-12))/schema#?")
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_ANCHOR = {
    "2019-09": re.compile(r"[A-Za-z][-A-Za-z0-9.:_]*"),
    "2020-12": re.compile(r"[A-Za-z_][-A-Za-z0-9._]*"),
}


class SchemaProblem(Exception):  # noqa: N818 - it becomes an InvalidSchemaError with the request's key
    """Why no answer can be checked against a schema; ``pointer`` leads into the schema."""

    def __init__(self, reason: str, pointer: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.pointer = pointer


def dialect_of(schema: Any, default: str = DEFAULT_DIALECT) -> str:
    """The dialect that ``$schema`` declares (04, 06, 07, 2019-09 or 2020-12), else the default."""
    declared = schema.get("$schema") if isinstance(schema, dict) else None
    match = _DIALECT.fullmatch(declared) if isinstance(declared, str) else None
    return (match[1] or match[2]) if match else default


def escape(name: str | int) -> str:
    """One step of a JSON Pointer (RFC 6901)."""
    return str(name).replace("~", "~0").replace("/", "~1")


Step = tuple[str, Any]
"""A pointer and the value there."""

Check = Callable[[Any, str, str], Iterator[Step]]
"""Checks a keyword's value (value, pointer, dialect); yields the subschemas in it; raises `SchemaProblem`."""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: Any, dialect: str) -> bool:
    if isinstance(value, float):
        return dialect != "04" and value.is_integer()
    return _is_number(value)


def _simple(accepts: Callable[[Any, str], bool], wanted: str) -> Check:
    def check(value: Any, pointer: str, dialect: str) -> Iterator[Step]:
        if not accepts(value, dialect):
            raise SchemaProblem(f"{pointer.rpartition('/')[2]!r} must be {wanted}", pointer)
        return iter(())

    return check


_text = _simple(lambda value, _: isinstance(value, str), "text")
_boolean = _simple(lambda value, _: isinstance(value, bool), "true or false")
_number = _simple(lambda value, _: _is_number(value), "a number")
_factor = _simple(lambda value, _: _is_number(value) and value > 0, "a number above 0")
_count = _simple(lambda value, dialect: _is_integer(value, dialect) and value >= 0, "a whole number, 0 or more")
_array = _simple(lambda value, _: isinstance(value, list), "a list")
_anchor = _simple(
    lambda value, dialect: isinstance(value, str) and _ANCHOR[dialect].fullmatch(value) is not None,
    "a name of an anchor",
)
_identifier = _simple(lambda value, _: isinstance(value, str) and "#" not in value[:-1], "a URI without a fragment")
_vocabulary = _simple(
    lambda value, _: isinstance(value, dict) and all(isinstance(item, bool) for item in value.values()),
    "an object of true or false",
)


def _names(value: Any, pointer: str, dialect: str) -> Iterator[Step]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise SchemaProblem(f"{pointer.rpartition('/')[2]!r} must be a list of names", pointer)
    if len(set(value)) < len(value):
        raise SchemaProblem(f"{pointer.rpartition('/')[2]!r} says a name twice", pointer)
    if dialect == "04" and not value:
        raise SchemaProblem(f"{pointer.rpartition('/')[2]!r} must not be empty in draft-04", pointer)
    return iter(())


def _name_lists(value: Any, pointer: str, dialect: str) -> Iterator[Step]:
    for at, item in _entries(value, pointer):
        yield from _names(item, at, dialect)


def _type(value: Any, pointer: str, _dialect: str) -> Iterator[Step]:
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            raise SchemaProblem(f"there is no type {name!r}", pointer)
    if not names or len(set(names)) < len(names):
        raise SchemaProblem("'type' must name each type once, and at least one", pointer)
    return iter(())


def _enum(value: Any, pointer: str, dialect: str) -> Iterator[Step]:
    _array(value, pointer, dialect)
    if dialect == "04" and (not value or len({json_key(item) for item in value}) < len(value)):
        raise SchemaProblem("'enum' must list each value once, and at least one", pointer)
    return iter(())


def _pattern(value: Any, pointer: str, dialect: str) -> Iterator[Step]:
    _text(value, pointer, dialect)
    try:
        translate(value)
    except PatternSyntaxError as error:
        raise SchemaProblem(f"{value!r} is no pattern: {error}", pointer) from None
    return iter(())


def _schema(value: Any, pointer: str, _dialect: str) -> Iterator[Step]:
    yield pointer, value


def _schemas(value: Any, pointer: str, _dialect: str) -> Iterator[Step]:
    if not isinstance(value, list) or not value:
        raise SchemaProblem(f"{pointer.rpartition('/')[2]!r} must be a list of at least one schema", pointer)
    for index, item in enumerate(value):
        yield f"{pointer}/{index}", item


def _entries(value: Any, pointer: str) -> Iterator[Step]:
    if not isinstance(value, dict):
        raise SchemaProblem(f"{pointer.rpartition('/')[2]!r} must be an object", pointer)
    for name, item in value.items():
        yield f"{pointer}/{escape(name)}", item


def _schema_map(value: Any, pointer: str, _dialect: str) -> Iterator[Step]:
    return _entries(value, pointer)


def _pattern_map(value: Any, pointer: str, dialect: str) -> Iterator[Step]:
    yield from _entries(value, pointer)
    for name in value:
        _pattern(name, f"{pointer}/{escape(name)}", dialect)


def _schema_or_schemas(value: Any, pointer: str, dialect: str) -> Iterator[Step]:
    return _schemas(value, pointer, dialect) if isinstance(value, list) else _schema(value, pointer, dialect)


def _schema_or_boolean(value: Any, pointer: str, dialect: str) -> Iterator[Step]:
    return iter(()) if isinstance(value, bool) else _schema(value, pointer, dialect)


def _dependencies(value: Any, pointer: str, dialect: str) -> Iterator[Step]:
    for at, item in _entries(value, pointer):
        yield from _names(item, at, dialect) if isinstance(item, list) else _schema(item, at, dialect)


_DRAFT_04: dict[str, Check] = {
    "id": _text,
    "$schema": _text,
    "$ref": _text,
    "title": _text,
    "description": _text,
    "multipleOf": _factor,
    "maximum": _number,
    "exclusiveMaximum": _boolean,
    "minimum": _number,
    "exclusiveMinimum": _boolean,
    "maxLength": _count,
    "minLength": _count,
    "pattern": _pattern,
    "additionalItems": _schema_or_boolean,
    "items": _schema_or_schemas,
    "maxItems": _count,
    "minItems": _count,
    "uniqueItems": _boolean,
    "maxProperties": _count,
    "minProperties": _count,
    "required": _names,
    "additionalProperties": _schema_or_boolean,
    "definitions": _schema_map,
    "properties": _schema_map,
    "patternProperties": _pattern_map,
    "dependencies": _dependencies,
    "enum": _enum,
    "type": _type,
    "format": _text,
    "allOf": _schemas,
    "anyOf": _schemas,
    "oneOf": _schemas,
    "not": _schema,
}
_DRAFT_06 = {name: check for name, check in _DRAFT_04.items() if name != "id"} | {
    "$id": _text,
    "examples": _array,
    "exclusiveMaximum": _number,
    "exclusiveMinimum": _number,
    "additionalItems": _schema,
    "additionalProperties": _schema,
    "contains": _schema,
    "propertyNames": _schema,
}
_DRAFT_07 = _DRAFT_06 | {
    "$comment": _text,
    "readOnly": _boolean,
    "contentMediaType": _text,
    "contentEncoding": _text,
    "if": _schema,
    "then": _schema,
    "else": _schema,
}
_DRAFT_2019_09 = _DRAFT_07 | {
    "$id": _identifier,
    "$anchor": _anchor,
    "$recursiveRef": _text,
    "$recursiveAnchor": _boolean,
    "$vocabulary": _vocabulary,
    "$defs": _schema_map,
    "unevaluatedItems": _schema,
    "unevaluatedProperties": _schema,
    "dependentSchemas": _schema_map,
    "dependentRequired": _name_lists,
    "maxContains": _count,
    "minContains": _count,
    "contentSchema": _schema,
    "deprecated": _boolean,
    "writeOnly": _boolean,
}
_DRAFT_2020_12 = {name: check for name, check in _DRAFT_2019_09.items() if name != "additionalItems"} | {
    "$recursiveAnchor": _anchor,
    "$dynamicRef": _text,
    "$dynamicAnchor": _anchor,
    "prefixItems": _schemas,
    "items": _schema,
}
_KEYWORDS: dict[str, dict[str, Check]] = {
    "04": _DRAFT_04,
    "06": _DRAFT_06,
    "07": _DRAFT_07,
    "2019-09": _DRAFT_2019_09,
    "2020-12": _DRAFT_2020_12,
}
_REFERRING = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "id"})
IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Keywords whose subschemas look at the same value as the schema they stand in."""


def json_key(value: Any) -> Any:
    """A hashable key that is equal exactly for values equal in JSON Schema (1 is 1.0, true is not 1)."""
    if isinstance(value, bool) or value is None:
        return (value,)
    if isinstance(value, dict):
        return frozenset((name, json_key(item)) for name, item in value.items())
    if isinstance(value, list):
        return (list, *map(json_key, value))
    return value


@dataclass(slots=True)
class SchemaReport:
    """What a walk through a valid schema found: patterns with their pointers into the schema, whether it refers."""

    patterns: list[Step] = field(default_factory=list)
    refers: bool = False
    seen: set[int] = field(default_factory=set)

    def add(self, node: dict[str, Any], pointer: str) -> None:
        self.seen.add(id(node))
        self.refers = self.refers or not _REFERRING.isdisjoint(node)
        if "pattern" in node:
            self.patterns.append((f"{pointer}/pattern", node["pattern"]))
        for name in node.get("patternProperties", ()):
            self.patterns.append((f"{pointer}/patternProperties/{escape(name)}", name))


def inspect(schema: Any) -> SchemaReport:
    """Walk through a schema and all its subschemas. Raises `SchemaProblem` where one is not valid in its dialect."""
    report = SchemaReport()
    stack = [("", schema, dialect_of(schema))]
    while stack:
        pointer, node, inherited = stack.pop()
        for step, child, _keyword, dialect in children(node, pointer, inherited):
            stack.append((step, child, dialect))
        if isinstance(node, dict):
            report.add(node, pointer)
    return report


def children(node: Any, pointer: str, inherited: str) -> Iterator[tuple[str, Any, str, str]]:
    """The direct subschemas of one schema, each with its pointer, keyword and dialect. Raises `SchemaProblem`."""
    dialect = dialect_of(node, inherited)
    if isinstance(node, bool) and dialect != "04":
        return
    if not isinstance(node, dict):
        raise SchemaProblem("a schema must be an object" + (" or true or false" if dialect != "04" else ""), pointer)
    known = _KEYWORDS[dialect]
    for keyword, value in node.items():
        check = known.get(keyword)
        if check is not None:
            for at, child in check(value, f"{pointer}/{escape(keyword)}", dialect):
                yield at, child, keyword, dialect
    if dialect == "04":
        for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if exclusive in node and limit not in node:
                raise SchemaProblem(f"{exclusive!r} needs {limit!r} beside it in draft-04", pointer)
