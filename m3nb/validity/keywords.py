"""jsonschema's validators, one class per dialect, with m3nb's patterns, formats, time limit and error paths.

Only imported when something is validated: jsonschema takes a while to load. Some keywords are replaced, for three
reasons: Python's ``re`` is neither ECMA-262 nor bounded in time, comparing all pairs of ``uniqueItems`` is quadratic,
and a form wants an error at the field, not at the object around it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any

from m3nb.validity.formats import conforms
from m3nb.validity.loading import grammar_later
from m3nb.validity.patterns import search
from m3nb.validity.references import crawled_resolver, inside, root_resolver
from m3nb.validity.schemas import dialect_of, json_key

with grammar_later():
    from jsonschema import validators
    from jsonschema.exceptions import ValidationError

Errors = Iterator[ValidationError]
Keyword = Callable[[Any, Any, Any, Any], Any]


class BudgetExceeded(Exception):  # noqa: N818 - caught inside m3nb and reported as a typed error
    """The time for checking one answer is over."""


class _Clock(threading.local):
    deadline = float("inf")


_clock = _Clock()


class budget:  # noqa: N801 - used like contextlib's managers
    """Within ``with budget(seconds)``, validation in this thread raises `BudgetExceeded` when the time is over.

    Inside another budget, the outer one goes on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        self.outer = _clock.deadline
        if self.outer == float("inf"):
            _clock.deadline = time.monotonic() + self.seconds

    def __exit__(self, *_: object) -> None:
        _clock.deadline = self.outer


def _remaining() -> float:
    seconds = _clock.deadline - time.monotonic()
    if seconds <= 0:
        raise BudgetExceeded
    return min(seconds, 3600.0)


def _matches(pattern: str, text: str) -> bool:
    try:
        return search(pattern, text, seconds=_remaining())
    except TimeoutError:
        raise BudgetExceeded from None


def _pattern(validator: Any, pattern: Any, instance: Any, _schema: Any) -> Errors:
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield ValidationError("pattern")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Errors:
    if validator.is_type(instance, "object"):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional(instance: dict[str, Any], schema: Any) -> Iterator[str]:
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name in instance:
        if name not in properties and not any(_matches(pattern, name) for pattern in patterns):
            yield name


def _additional_properties(validator: Any, subschema: Any, instance: Any, schema: Any) -> Errors:
    if validator.is_type(instance, "object"):
        for name in _additional(instance, schema):
            if subschema is False:
                yield ValidationError("additional", path=[name])
            else:
                yield from validator.descend(instance[name], subschema, path=name)


def _property_names(validator: Any, subschema: Any, instance: Any, _schema: Any) -> Errors:
    if validator.is_type(instance, "object"):
        for name in instance:
            context = list(validator.descend(name, subschema))
            if context:
                yield ValidationError("name", path=[name], context=context)


def _required(validator: Any, names: Any, instance: Any, _schema: Any) -> Errors:
    if validator.is_type(instance, "object"):
        for name in names:
            if name not in instance:
                yield ValidationError("required", path=[name])


def _dependent_required(validator: Any, dependencies: Any, instance: Any, _schema: Any) -> Errors:
    if validator.is_type(instance, "object"):
        for name, needed in dependencies.items():
            if name in instance:
                for other in needed:
                    if other not in instance:
                        yield ValidationError("dependent", path=[other], validator_value=name)


def _dependencies(validator: Any, dependencies: Any, instance: Any, schema: Any) -> Errors:
    for name, dependency in dependencies.items():
        if isinstance(dependency, list):
            for error in _dependent_required(validator, {name: dependency}, instance, schema):
                error._set(validator="dependentRequired")  # type: ignore[attr-defined]
                yield error
        elif validator.is_type(instance, "object") and name in instance:
            yield from validator.descend(instance, dependency, schema_path=name)


def _format(validator: Any, name: Any, instance: Any, _schema: Any) -> Errors:
    if validator.is_type(instance, "string") and not conforms(name, instance):
        yield ValidationError("format")


def _multiple_of(validator: Any, factor: Any, instance: Any, _schema: Any) -> Errors:
    # By the decimal text, as a person reads it: 0.15 is a multiple of 0.05, though its binary value is not.
    if validator.is_type(instance, "number") and _exact(instance) % _exact(factor):
        yield ValidationError("multipleOf")


def _exact(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def _unique_items(validator: Any, unique: Any, instance: Any, _schema: Any) -> Errors:
    if unique and validator.is_type(instance, "array"):
        seen = set()
        for item in instance:
            _remaining()
            key = json_key(item)
            if key in seen:
                yield ValidationError("uniqueItems")
                return
            seen.add(key)


def _unevaluated_properties(validator: Any, subschema: Any, instance: Any, schema: Any) -> Errors:
    if validator.is_type(instance, "object"):
        evaluated = _evaluated(validator, instance, schema, top=True)
        for name in instance:
            if name not in evaluated:
                if subschema is False:
                    yield ValidationError("additional", path=[name])
                else:
                    yield from validator.descend(instance[name], subschema, path=name)


def _evaluated(validator: Any, instance: dict[str, Any], schema: Any, *, top: bool = False) -> set[str]:
    """The names that ``schema`` and its in-place subschemas look at (JSON Schema 2020-12 core section 11.3)."""
    _remaining()
    if not isinstance(schema, dict):
        return set()
    names = {name for name in schema.get("properties", {}) if name in instance}
    if "additionalProperties" in schema:
        names |= set(_additional(instance, schema))
    if "unevaluatedProperties" in schema and not top:
        return set(instance)
    for pattern in schema.get("patternProperties", {}):
        names |= {name for name in instance if _matches(pattern, name)}
    for within, part in _in_place(validator, instance, schema):
        names |= _evaluated(within, instance, part)
    return names


def _in_place(validator: Any, instance: Any, schema: Any) -> Iterator[tuple[Any, Any]]:
    """The in-place subschemas that hold for the instance, each with a validator that resolves its references."""
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema and keyword in validator.VALIDATORS:
            target = validator._resolver.lookup(schema[keyword])
            yield validator.evolve(schema=target.contents, _resolver=target.resolver), target.contents
    if "$recursiveRef" in schema and "$recursiveRef" in validator.VALIDATORS:
        from referencing.jsonschema import lookup_recursive_ref

        target = lookup_recursive_ref(validator._resolver)
        yield validator.evolve(schema=target.contents, _resolver=target.resolver), target.contents
    parts = [part for keyword in ("allOf", "anyOf", "oneOf") for part in schema.get(keyword, ())]
    if "if" in schema:
        holds = validator.evolve(schema=schema["if"]).is_valid(instance)
        parts += [schema["if"]] * holds + [schema.get("then" if holds else "else", True)]
    parts += [part for name, part in schema.get("dependentSchemas", {}).items() if name in instance]
    for part in parts:
        within = validator.evolve(schema=part)
        if within.is_valid(instance):
            yield within, part


_OWN: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "required": _required,
    "dependentRequired": _dependent_required,
    "dependencies": _dependencies,
    "format": _format,
    "multipleOf": _multiple_of,
    "uniqueItems": _unique_items,
    "unevaluatedProperties": _unevaluated_properties,
}
_BASES: dict[str, Any] = {
    "04": validators.Draft4Validator,
    "06": validators.Draft6Validator,
    "07": validators.Draft7Validator,
    "2019-09": validators.Draft201909Validator,
    "2020-12": validators.Draft202012Validator,
}


def _timed(keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _remaining()
        return keyword(validator, value, instance, schema)

    return check


@cache
def _validator_class(dialect: str) -> Any:
    base = _BASES[dialect]
    keywords = {name: _timed(_OWN.get(name, keyword)) for name, keyword in base.VALIDATORS.items()}
    extend: Any = validators.extend
    cls = extend(base, validators=keywords)

    def evolve(self: Any, **changes: Any) -> Any:
        # jsonschema's own takes a stock class where a subschema says $schema, and forgets the $id of an "if".
        schema = changes.get("schema", self.schema)
        own = _validator_class(dialect_of(schema, dialect)) if isinstance(schema, dict) and "$schema" in schema else cls
        return own(schema, _resolver=changes.get("_resolver") or inside(self._resolver, schema, dialect))

    def descend(
        self: Any, instance: Any, schema: Any, path: Any = None, schema_path: Any = None, resolver: Any = None
    ) -> Errors:
        # jsonschema's own loses both paths where the subschema is false.
        if schema is False:
            error = ValidationError("false", validator="false", schema=False)
            error.path.extend(() if path is None else (path,))
            error.schema_path.extend(() if schema_path is None else (schema_path,))
            return iter([error])
        within = resolver or inside(self._resolver, schema, dialect)
        errors: Errors = base.descend(self, instance, schema, path, schema_path, within)
        return errors

    cls.evolve, cls.descend = evolve, descend
    return cls


def build(schema: dict[str, Any], *, refers: bool) -> Any:
    """A validator for a schema that `schemas.inspect` and `references.check_references` let through."""
    dialect = dialect_of(schema)
    resolver = crawled_resolver(schema, dialect) if refers else root_resolver(schema, dialect)
    return _validator_class(dialect)(schema, _resolver=resolver)
