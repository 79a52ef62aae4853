"""Content in words: what a person answered, by the labels that the person saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from m3nb.elicitation import FormElicitationRequest
from m3nb.forms.choices import json_text, same, value_label
from m3nb.forms.layout import layout
from m3nb.forms.placing import raw_of
from m3nb.forms.plan import question_of
from m3nb.forms.shapes import Shape
from m3nb.validity import BUDGET_SECONDS

MAX_TOLD = 200
"""Lines told of one answer."""


def told(request: FormElicitationRequest, content: Mapping[str, Any]) -> list[dict[str, str]]:
    """The answered fields as ``{"label": …, "text": …}``, in the order of the content, which may be redacted.

    A label leads to its field: "Address · City", "Lines 2 · Quantity". At most `MAX_TOLD`. Never raises.
    """
    from m3nb.validity.keywords import budget

    with budget(BUDGET_SECONDS):
        found = layout(request, content)
    if found.whole is not None:
        lines = _lines(found.whole, content, ())
    else:
        shapes = {shape.name: shape for shape in found.shapes}
        question = question_of(request, found.shapes)
        lines = (
            line
            for name, value in content.items()
            for line in _lines(shapes.get(name), value, (question or _label(shapes.get(name), name),))
        )
    kept: list[dict[str, str]] = []
    for path, text in lines:
        if len(kept) == MAX_TOLD:
            kept.append({"label": "…", "text": "and more"})
            break
        kept.append({"label": " · ".join(path) or "Answer", "text": text})
    return kept


def _label(shape: Shape | None, name: str) -> str:
    return shape.label if shape is not None else name


def _lines(shape: Shape | None, value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The value field by field. What its shape does not draw, or redaction replaced, is told as it is."""
    if shape is not None and shape.control == "union":
        shape, value, path = _chosen(shape, value, path)
    if shape is not None and shape.control == "object" and isinstance(value, Mapping) and value:
        fields = {each.name: each for each in shape.fields}
        for name, item in value.items():
            yield from _lines(fields.get(name), item, (*path, _label(fields.get(name), name)))
        return
    if shape is not None and shape.item is not None and isinstance(value, (list, tuple)) and value:
        if shape.item.control in ("object", "list", "union"):
            for at, item in enumerate(value):
                counted = f"{path[-1]} {at + 1}" if path else str(at + 1)
                yield from _lines(shape.item, item, (*path[:-1], counted))
        else:
            yield path, ", ".join(_text(shape.item, item) for item in value)
        return
    yield path, _text(shape, value)


def _chosen(shape: Shape, value: Any, path: tuple[str, ...]) -> tuple[Shape | None, Any, tuple[str, ...]]:
    """The branch of a union that has a place for the value."""
    raw = raw_of(shape, value)
    if raw is None or "branch" not in raw:
        return None, value, path
    branch = shape.branches[raw["branch"]]
    rest = {n: v for n, v in value.items() if n not in branch.tags} if branch.drawn_as_fields else value
    if branch.drawn_as_fields and not rest:
        return None, branch.label, path
    return branch.shape, rest, (*path, branch.label) if branch.drawn_as_fields else path


def _text(shape: Shape | None, value: Any) -> str:
    """A value as a person chose it: the label of a choice, yes or no, else the value itself."""
    if shape is not None and shape.choices:
        chosen = value if shape.control == "multi" and isinstance(value, (list, tuple)) else [value]
        return ", ".join(_of_choice(shape, item) for item in chosen)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return value if isinstance(value, str) else json_text(value)


def _of_choice(shape: Shape, value: Any) -> str:
    found = next((choice.label for choice in shape.choices if same(choice.value, value)), None)
    return found if found is not None else value if isinstance(value, str) else value_label(value)
