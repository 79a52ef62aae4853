"""jsonschema's errors in words a person understands, each at the field it is about.

A message never repeats what was typed: it may end up in a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from m3nb.validity.schemas import escape, json_key

_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object with named fields",
    "null": "null",
}
_FORMATS = {
    "email": "an email address, such as name@example.com",
    "idn-email": "an email address, such as name@example.com",
    "date": "a date, such as 2026-12-31",
    "date-time": "a date and time with a time zone, such as 2026-12-31T18:00:00Z",
    "time": "a time with a time zone, such as 18:00:00Z",
    "duration": "a duration, such as P3DT12H",
    "uri": "a complete URL, such as https://example.com",
    "uri-reference": "a URL or a path",
    "hostname": "a host name, such as www.example.com",
    "ipv4": "an IPv4 address, such as 192.0.2.1",
    "ipv6": "an IPv6 address, such as 2001:db8::1",
    "uuid": "a UUID, such as 123e4567-e89b-12d3-a456-426614174000",
    "json-pointer": "a JSON Pointer, such as /a/0",
    "relative-json-pointer": "a relative JSON Pointer, such as 1/a",
    "regex": "a regular expression",
}
_CHOOSE = "choose one of: "
_MAX_CHOICES = 12
_MAX_ALTERNATIVES = 4
_MAX_TEXT = 60


class Finding(NamedTuple):
    """One thing that is wrong: JSON Pointer into the content, keyword, words."""

    pointer: str
    keyword: str
    message: str


def findings(errors: Iterable[Any], at: tuple[str | int, ...] = ()) -> list[Finding]:
    """jsonschema's errors (paths relative to ``at``) as findings, each once.

    Where the choices are listed, the type is not named too.
    """
    found = list(dict.fromkeys(finding for error in errors for finding in _explain(error, (*at, *error.path))))
    listed = {finding.pointer for finding in found if finding.message.startswith(_CHOOSE)}
    return [finding for finding in found if finding.keyword != "type" or finding.pointer not in listed]


def _explain(error: Any, path: tuple[str | int, ...]) -> Iterator[Finding]:
    keyword = error.validator
    if keyword in ("anyOf", "oneOf") and error.context:
        yield from _alternatives(error, path)
        return
    message = _message(keyword, error)
    yield Finding("".join(f"/{escape(step)}" for step in path), keyword, message)


def _message(keyword: str, error: Any) -> str:
    value, schema = error.validator_value, error.schema
    schema = schema if isinstance(schema, dict) else {}
    match keyword:
        case "required":
            return "is required"
        case "dependentRequired":
            return f"is required when {value} is given"
        case "type":
            return f"must be {_one_of(_TYPES.get(name, str(name)) for name in _listed(value))}"
        case "enum":
            return f"{_CHOOSE}{_choices((item, None) for item in value)}"
        case "const":
            return f"must be {_shown(value)}"
        case "format":
            return f"must be {_FORMATS.get(value, value)}"
        case "pattern":
            return f"must match the pattern {_cut(value)}"
        case "multipleOf":
            return f"must be a multiple of {_shown(value)}"
        case "minLength":
            return "must not be empty" if value == 1 else f"must be at least {_counted(value, 'character')}"
        case "maxLength":
            return f"must be at most {_counted(value, 'character')}"
        case "minItems":
            return f"must have at least {_counted(value, 'item')}"
        case "maxItems":
            return f"must have at most {_counted(value, 'item')}"
        case "minProperties":
            return f"must have at least {_counted(value, 'field')}"
        case "maxProperties":
            return f"must have at most {_counted(value, 'field')}"
        case "uniqueItems":
            return "must not hold the same item twice"
        case "minimum":
            return f"must be {'more than' if schema.get('exclusiveMinimum') is True else 'at least'} {_shown(value)}"
        case "maximum":
            return f"must be {'less than' if schema.get('exclusiveMaximum') is True else 'at most'} {_shown(value)}"
        case "exclusiveMinimum":
            return f"must be more than {_shown(value)}"
        case "exclusiveMaximum":
            return f"must be less than {_shown(value)}"
        case "additionalProperties" | "unevaluatedProperties":
            return "is not one of the expected fields"
        case "propertyNames":
            return f"this name is not allowed: it {findings(error.context)[0].message}"
        case "contains" | "minContains":
            return f"must hold at least {_counted(schema.get('minContains', 1), 'item')} of the required kind"
        case "maxContains":
            return f"must hold at most {_counted(value, 'item')} of one kind"
        case "items" | "additionalItems" | "unevaluatedItems":
            return "has more items than allowed"
        case "oneOf":
            return "fits more than one of the alternatives, and exactly one is allowed"
        case "not":
            return "must not be a value of the excluded kind"
    return "is not allowed"


def _alternatives(error: Any, path: tuple[str | int, ...]) -> Iterator[Finding]:
    """``anyOf``/``oneOf`` without a match: the choices, the types, or what is wrong with the likeliest branch."""
    pointer, keyword = "".join(f"/{escape(step)}" for step in path), error.validator
    options = [list(_options(branch)) for branch in error.validator_value]
    if all(options):
        yield Finding(pointer, keyword, f"{_CHOOSE}{_choices(option for each in options for option in each)}")
        return
    branches: dict[Any, list[Any]] = {}
    for problem in error.context:
        branches.setdefault(problem.schema_path[0], []).append(problem)
    fitting = [problems for problems in branches.values() if not any(_is_mistyped(p) for p in problems)]
    if not fitting:
        names = dict.fromkeys(name for p in error.context if _is_mistyped(p) for name in _listed(p.validator_value))
        yield Finding(pointer, "type", f"must be {_one_of(_TYPES.get(name, str(name)) for name in names)}")
        return
    # Constants tell the kinds of an object apart: a branch with a wrong one was not meant.
    meant = [problems for problems in fitting if not any(p.validator in ("const", "enum") for p in problems)]
    explained = [list(findings(problems, path)) for problems in (meant if len(meant) == 1 else fitting)]
    if len(explained) == 1:
        yield from explained[0]
    elif len(explained) <= _MAX_ALTERNATIVES and all(len(e) == 1 and e[0].pointer == pointer for e in explained):
        yield Finding(pointer, keyword, ", or ".join(dict.fromkeys(e[0].message for e in explained)))
    else:
        yield Finding(pointer, keyword, "fits none of the allowed alternatives")


def _is_mistyped(problem: Any) -> bool:
    return problem.validator == "type" and not problem.path


def _options(branch: Any) -> Iterator[tuple[Any, str | None]]:
    if isinstance(branch, dict):
        title = branch.get("title")
        if "const" in branch:
            yield branch["const"], title if isinstance(title, str) else None
        elif isinstance(branch.get("enum"), list):
            yield from ((item, None) for item in branch["enum"])
        elif branch.get("type") == "null":
            yield None, None


def _choices(options: Iterable[tuple[Any, str | None]]) -> str:
    unique = {json_key(value): (value, title) for value, title in options}
    shown = [
        _shown(value) + (f" ({_cut(title)})" if title and title != value else "")
        for value, title in list(unique.values())[:_MAX_CHOICES]
    ]
    more = len(unique) - len(shown)
    return ", ".join(shown) + (f", … ({more} more)" if more else "")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _one_of(names: Iterable[str]) -> str:
    *most, last = list(names)
    return f"{', '.join(most)} or {last}" if most else last


def _counted(number: Any, noun: str) -> str:
    return f"{_shown(number)} {noun}{'' if number == 1 else 's'}"


def _shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, str) and value and value.strip() == value and "," not in value:
        return _cut(value)
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
