"""The drawing plan of a request: what the page needs to know, as JSON, and no answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from m3nb.elicitation import FormElicitationRequest, UrlElicitationRequest
from m3nb.forms.layout import layout, refused
from m3nb.forms.shapes import Control, Shape, json_text, text_of
from m3nb.forms.values import RawValue, raw_of
from m3nb.validity import unchecked_patterns
from m3nb.validity.urls import UrlParts, take_apart


class Option(TypedDict):
    """One entry of a choice; the page sends its place in the list."""

    label: str
    description: str | None


class Field(TypedDict):
    """One control. ``pointer`` is a JSON Pointer into the content; errors name it or something below it.

    ``empty`` says that an empty text or list may be sent on purpose; ``initial`` is the valid default.
    """

    name: str
    pointer: str
    control: Control
    label: str
    description: str | None
    required: bool
    nullable: bool
    empty: bool
    initial: RawValue | None
    options: list[Option]
    hint: str | None
    attributes: dict[str, str]


class FormPlan(TypedDict):
    """A form. ``blocked`` says why accept cannot be offered."""

    key: str
    mode: Literal["form"]
    title: str | None
    message: str
    description: str | None
    fields: list[Field]
    hints: list[str]
    blocked: str | None


class UrlPlan(TypedDict):
    """A request to visit a URL. It is a link only when ``openable``."""

    key: str
    mode: Literal["url"]
    message: str
    url: UrlParts
    openable: bool
    warnings: list[str]
    blocked: str | None


_MAX_LABEL = 120


def compile_form(request: FormElicitationRequest | UrlElicitationRequest) -> FormPlan | UrlPlan:
    """The plan of a request whose schema passed `m3nb.validity.check_schema`. Never raises for such a request."""
    if isinstance(request, UrlElicitationRequest):
        parts, warnings, refusal = take_apart(request.url)
        return {
            "key": request.request_key,
            "mode": "url",
            "message": request.message,
            "url": parts,
            "openable": refusal is None,
            "warnings": warnings,
            "blocked": refusal,
        }
    root, shapes = layout(request)
    drawn = [shape for shape in shapes if shape.possible]
    stuck = next((shape for shape in shapes if shape.required and not shape.possible), None)
    defaults = {shape.name: shape.schema["default"] for shape in drawn if "default" in shape.schema}
    bad_defaults = refused(request, defaults)
    empties: dict[str, Any] = {shape.name: _empty_of(shape) for shape in drawn if _empty_of(shape) is not None}
    bad_empties = refused(request, empties)
    fields = [
        _field(
            shape,
            default_fits=shape.name in defaults and shape.name not in bad_defaults,
            empty=shape.name in empties and shape.name not in bad_empties,
        )
        for shape in drawn
    ]
    _name_by_message(request, fields)
    return {
        "key": request.request_key,
        "mode": "form",
        "title": _heading(root, fields),
        "message": request.message,
        "description": text_of(root, "description"),
        "fields": fields,
        "hints": _hints(request),
        "blocked": f"“{stuck.label}” is required, but no value of it would be valid." if stuck else None,
    }


def _empty_of(shape: Shape) -> Any:
    if shape.control in ("text", "textarea", "password", "email", "uri"):
        return ""
    return [] if shape.control == "multi" else None


def _field(shape: Shape, *, default_fits: bool, empty: bool) -> Field:
    schema = shape.schema
    initial = raw_of(shape, schema["default"]) if default_fits else None
    hints = _bounds(shape)
    if "default" in schema and initial is None:
        hints.append("the server's default is not valid here and was left out")
    return {
        "name": shape.name,
        "pointer": shape.pointer,
        "control": shape.control,
        "label": shape.label,
        "description": text_of(schema, "description"),
        "required": shape.required,
        "nullable": shape.nullable,
        "empty": empty,
        "initial": initial,
        "options": [{"label": choice.label, "description": choice.description} for choice in shape.choices],
        "hint": _sentence(hints),
        "attributes": _attributes(shape),
    }


def _sentence(parts: list[str]) -> str | None:
    text = " · ".join(parts)
    return text[:1].upper() + text[1:] if text else None


def _attributes(shape: Shape) -> dict[str, str]:
    examples = shape.schema.get("examples")
    example = examples[0] if isinstance(examples, (list, tuple)) and examples else None
    if shape.control == "json":
        return {"placeholder": json_text(example) if example is not None else _json_example(shape)}
    attributes = {"inputmode": _INPUT_MODES[shape.control]} if shape.control in _INPUT_MODES else {}
    if isinstance(example, (str, int, float)) and not isinstance(example, bool):
        attributes["placeholder"] = example if isinstance(example, str) else json_text(example)
    return attributes


_INPUT_MODES: dict[str, str] = {"email": "email", "uri": "url", "number": "decimal", "integer": "numeric"}


def _json_example(shape: Shape) -> str:
    kind = shape.schema.get("type")
    properties = shape.schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        return "{" + ", ".join(f"{json_text(name)}: …" for name in list(properties)[:6]) + "}"
    return {"object": "{…}", "array": "[…]"}.get(kind, "JSON") if isinstance(kind, str) else "JSON"


def _bounds(shape: Shape) -> list[str]:
    """What the schema asks of a value, in words (JSON Schema validation keywords)."""
    schema, parts = shape.schema, []
    if shape.control in ("text", "email", "uri", "password", "textarea"):
        parts += _range(schema, "minLength", "maxLength", "character")
        pattern = text_of(schema, "pattern")
        if pattern and len(pattern) <= _MAX_LABEL:
            parts.append(f"pattern {pattern}")
    elif shape.control in ("number", "integer"):
        parts += ["whole number"] if shape.control == "integer" else []
        parts += _limits(schema)
        step = _number(schema.get("multipleOf"))
        parts += [f"a multiple of {_short(step)}"] if step is not None else []
    elif shape.control == "multi":
        parts += [f"choose {part}" for part in _range(schema, "minItems", "maxItems", "")]
    elif shape.control == "json":
        kind = schema.get("type")
        parts.append(
            {"object": "a JSON object", "array": "a JSON list"}.get(kind if isinstance(kind, str) else "", "JSON")
        )
    return parts


def _range(schema: Mapping[str, Any], lowest: str, highest: str, unit: str) -> list[str]:
    low, high = _number(schema.get(lowest)), _number(schema.get(highest))
    if low is not None and low <= (1 if unit else 0):
        low = None  # that something must be typed goes without saying
    last = high if high is not None else low
    unit = unit if last is None or last == 1 or not unit else f"{unit}s"
    if low is not None and high is not None:
        return [_counted("exactly", low, unit) if low == high else _counted(f"{_short(low)} to", high, unit)]
    if low is not None:
        return [_counted("at least", low, unit)]
    return [_counted("at most", high, unit)] if high is not None else []


def _counted(words: str, number: int | float, unit: str) -> str:
    return f"{words} {_short(number)} {unit}".rstrip()


def _limits(schema: Mapping[str, Any]) -> list[str]:
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    low, high = _number(schema.get("minimum")), _number(schema.get("maximum"))
    # In draft-04 the exclusive keywords are booleans that sharpen the plain ones.
    over, low = (low, None) if above is True else (_number(above), low)
    under, high = (high, None) if below is True else (_number(below), high)
    if low is not None and high is not None:
        return [f"{_short(low)} to {_short(high)}"]
    words = (("more than", over), ("at least", low), ("less than", under), ("at most", high))
    return [f"{word} {_short(bound)}" for word, bound in words if bound is not None]


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _short(number: int | float) -> str:
    return json_text(int(number) if isinstance(number, float) and number.is_integer() else number)


def _name_by_message(request: FormElicitationRequest, fields: list[Field]) -> None:
    """A wrapped scalar (``{"value": T}``, as FastMCP sends it) is named by the question itself."""
    if len(fields) != 1 or fields[0]["name"] != "value" or fields[0]["label"].lower() != "value":
        return
    message = request.message.strip()
    if message and len(message) <= _MAX_LABEL and "\n" not in message:
        fields[0]["label"] = message


def _heading(root: Mapping[str, Any], fields: list[Field]) -> str | None:
    """The root title, unless it is the name of a class.

    One word is a class name when it has a hump or an underscore (``BookingPreferences``), when it stands above a
    single field, or when all field titles are made from their keys, as Pydantic does.
    """
    title = text_of(root, "title")
    if title is None or not re.fullmatch(r"[A-Za-z_]\w*", title):
        return title
    generated = all(field["label"] == field["name"].replace("_", " ").title() for field in fields)
    return None if generated or len(fields) == 1 or re.search(r"[a-z0-9][A-Z]|_", title) else title


def _hints(request: FormElicitationRequest) -> list[str]:
    return [
        f"The pattern {found['pattern']} cannot be checked here; the server checks it."
        for found in unchecked_patterns(request.requested_schema)
    ]
