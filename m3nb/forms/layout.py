"""Which fields a request is drawn with, for what is answered so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from m3nb.elicitation import FormElicitationRequest
from m3nb.errors import ManagedInputValidationError
from m3nb.forms.building import Builder
from m3nb.forms.shapes import Shape
from m3nb.validity import check_content

WHOLE = Shape("", "", "json", required=True, schema={"title": "Answer", "type": "object"})
"""The content as one JSON object, for a schema that lists no property and does not accept ``{}``."""

MAX_ROUNDS = 4
"""Layouts in a row when rules depend on fields that depend on rules."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The root schema's own keywords, and the shapes in property order; none when accepting is all there is to do.

    ``live``: other content may have another layout.
    """

    root: Mapping[str, Any]
    shapes: tuple[Shape, ...]
    live: bool

    @property
    def whole(self) -> Shape | None:
        """The one shape that stands for the content itself, not for a property of it."""
        return self.shapes[0] if self.shapes and not self.shapes[0].pointer else None


def layout(request: FormElicitationRequest, content: Mapping[str, Any]) -> Layout:
    """The layout for content that is given. Never raises for a schema that passed `m3nb.validity.check_schema`."""
    builder = Builder(request)
    root, shapes = builder.form(content)
    if not shapes and refused(request, {}):
        shapes = [WHOLE]
    return Layout(root, tuple(shapes), builder.live)


def settled(request: FormElicitationRequest, content_of: Callable[[Layout], Mapping[str, Any]]) -> Layout:
    """The layout for the content that is read from it: rules are followed until nothing changes any more."""
    found = layout(request, {})
    content: Mapping[str, Any] = {}
    for _ in range(MAX_ROUNDS if found.live else 0):
        new = content_of(found)
        if new == content:
            break
        content, found = new, layout(request, new)
    return found


def refused(request: FormElicitationRequest, content: dict[str, Any]) -> set[str]:
    """The names in ``content`` whose value is not valid for the property alone; ``""`` for the content as a whole."""
    try:
        errors = check_content(request, content)
    except ManagedInputValidationError:  # the check took too long: nothing is known to be valid
        return {"", *content}
    tokens = (error["pointer"].split("/") for error in errors)
    return {token[1].replace("~1", "/").replace("~0", "~") if len(token) > 1 else "" for token in tokens}
