"""What can be drawn: a tree of shapes, each the field of one schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from m3nb.forms.choices import Choice
from m3nb.forms.schemas import text_of

Control = Literal[
    "text",
    "email",
    "uri",
    "date",
    "datetime",
    "time",
    "password",
    "textarea",
    "number",
    "integer",
    "boolean",
    "choice",
    "multi",
    "object",
    "list",
    "union",
    "json",
]


@dataclass(frozen=True, slots=True)
class Shape:
    """One field as it can be drawn.

    ``source`` is its schema as it was sent, ``schema`` the same flattened (annotations and bounds). ``pointer`` leads
    from the content, within a list from its item. ``fields`` are those of an object; ``item`` is one of a list.
    """

    name: str
    pointer: str
    control: Control
    required: bool = False
    nullable: bool = False
    possible: bool = True
    schema: Mapping[str, Any] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    source: Any = True
    fields: tuple[Shape, ...] = ()
    item: Shape | None = None
    branches: tuple[Branch, ...] = ()

    @property
    def label(self) -> str:
        return text_of(self.schema, "title") or self.name


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of a union. ``shape`` has the union's own place; ``tags`` are sent with it and not drawn."""

    label: str
    description: str | None
    shape: Shape
    tags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def drawn_as_fields(self) -> bool:
        """Whether its fields stand below the choice; else one field does."""
        return self.shape.control == "object" and not self.shape.nullable


def pointer_to(name: str) -> str:
    """The JSON Pointer (RFC 6901) of a property of the content."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
