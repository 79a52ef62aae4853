"""What a schema asks of a value, in words and as attributes of a control."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from m3nb.forms.choices import json_text
from m3nb.forms.schemas import text_of
from m3nb.forms.shapes import Shape

_MAX_PATTERN = 120


def sentence(parts: list[str]) -> str | None:
    """The parts in one line."""
    text = " · ".join(parts)
    return text[:1].upper() + text[1:] if text else None


def attributes_of(shape: Shape) -> dict[str, str]:
    """HTML attributes of the control: what is expected, and an example of it."""
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


def bounds_of(shape: Shape) -> list[str]:
    """What the schema asks of a value, in words (JSON Schema validation keywords)."""
    schema, parts = shape.schema, []
    if shape.control in ("text", "email", "uri", "password", "textarea"):
        parts += _range(schema, "minLength", "maxLength", "character")
        pattern = text_of(schema, "pattern")
        if pattern and len(pattern) <= _MAX_PATTERN:
            parts.append(f"pattern {pattern}")
    elif shape.control in ("number", "integer"):
        parts += ["whole number"] if shape.control == "integer" else []
        parts += _limits(schema)
        step = _number(schema.get("multipleOf"))
        parts += [f"a multiple of {_short(step)}"] if step is not None else []
    elif shape.control == "multi":
        parts += [f"choose {part}" for part in _range(schema, "minItems", "maxItems", "")]
    elif shape.control == "list":
        parts += _range(schema, "minItems", "maxItems", "item")
        parts += ["no item twice"] if schema.get("uniqueItems") is True else []
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
