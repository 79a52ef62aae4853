"""A schema → the tree of its shapes: null set apart, unions split, choices listed, all within bounds.

Source: JSON Schema 2020-12 and draft-07 keywords, and the spellings of MCP forms (SEP-1330). Drawing only: whether an
answer is valid is decided by `m3nb.validity` against the schema as it was sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from m3nb.elicitation import FormElicitationRequest
from m3nb.forms.choices import Choice, choices_of, value_label
from m3nb.forms.placing import raw_of
from m3nb.forms.schemas import MAX_HOPS, STATIC, Resolver, list_of, mapping_of, text_of, types_of, without
from m3nb.forms.shapes import Branch, Control, Shape, pointer_to
from m3nb.redaction import is_secret_name
from m3nb.validity import fits

LONG_TEXT = 200
"""A string whose ``maxLength`` is over this many characters is drawn as a text area."""

MAX_DEPTH = 8
"""Objects and lists in one another; deeper ones are written as JSON."""

MAX_RECURSION = 4
"""The same below a schema that contains itself."""

MAX_NESTED = 800
"""Fields drawn within one property of the content; what is beyond is written as JSON."""

MAX_ALL_NESTED = 2_000
"""The same within all properties of the content."""

MAX_BRANCHES = 40
"""Branches of a union that can be chosen from."""

MAX_TITLE_WORDS = 3
"""A title of more words describes a field; it does not name a secret."""

_FORMATS: dict[str, Control] = {
    "email": "email",
    "idn-email": "email",
    "uri": "uri",
    "iri": "uri",
    "url": "uri",
    "date": "date",
    "date-time": "datetime",
    "time": "time",
    "password": "password",
    "textarea": "textarea",
    "multiline": "textarea",
    "markdown": "textarea",
}
_UNIONS = ("anyOf", "oneOf")
_OF_THE_WHOLE = ("title", "description", "default", "examples", "deprecated", "readOnly")
_KINDS = {
    "string": "Text",
    "integer": "Whole number",
    "number": "Number",
    "boolean": "Yes or no",
    "object": "Object",
    "array": "List",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema is met: what is answered there, how deep, and by which references."""

    value: Any
    depth: int = 0
    seen: frozenset[str] = frozenset()
    deepest: int = MAX_DEPTH

    def after(self, followed: list[str]) -> _Place:
        """The same place, reached by these references."""
        news = frozenset(followed)
        deepest = MAX_RECURSION if news & self.seen else self.deepest
        return replace(self, seen=self.seen | news, deepest=deepest) if news else self


class Builder:
    """Makes the shapes of one form for what is answered; ``live`` when they depend on it."""

    def __init__(self, request: FormElicitationRequest) -> None:
        self._resolver = Resolver(request)
        self._left = MAX_ALL_NESTED
        self._until = 0

    @property
    def live(self) -> bool:
        """Whether other answers may have another form."""
        return self._resolver.live

    def form(self, content: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Shape]]:
        """The root with its own annotations, and one shape per property, in property order.

        A root that is a union of objects is one shape with the pointer ``""``.
        """
        root = self._resolver.root
        flat = self._resolver.flat(root)
        if not isinstance(flat, Mapping):
            return root, []
        place = _Place(content).after(self._resolver.followed)
        branches = self._branches(flat, root, "", {"object"}, place)
        if branches:
            schema = {"title": "Answer", "type": "object"}
            possible = any(branch.shape.possible for branch in branches)
            return flat, [Shape("", "", "union", True, False, possible, schema, source=root, branches=branches)]
        return flat, list(self._properties(flat, "", place, top=True))

    def _properties(self, flat: Mapping[str, Any], at: str, place: _Place, *, top: bool = False) -> tuple[Shape, ...]:
        """One shape per property. Required names without a schema come last, and any JSON answers them."""
        flat = self._resolver.ruled(flat, place.value)
        required = {name for name in list_of(flat, "required") if isinstance(name, str)}
        schemas = dict(mapping_of(flat, "properties"))
        for name in list_of(flat, "required"):
            if isinstance(name, str):
                schemas.setdefault(name, flat.get("additionalProperties", True))
        if not top:
            if len(schemas) > self._left - self._until:
                return ()
            self._left -= len(schemas)
        shapes, until = [], self._until
        for index, (name, schema) in enumerate(schemas.items()):
            if top:
                self._resolver.next_property()
                self._until = max(self._left - MAX_NESTED, 0)
            else:
                self._share(until, len(schemas) - index)
            value = STATIC if place.value is STATIC else place.value.get(name)
            inner = replace(place, value=value, depth=place.depth + (not top))
            shapes.append(self._shape(name, at + pointer_to(name), schema, name in required, inner))
        self._until = until
        return tuple(shapes)

    def _share(self, until: int, among: int) -> None:
        """The next of so many has an equal part of what is left, or the first would take it all."""
        self._until = self._left - (self._left - until) // among

    def _shape(self, name: str, pointer: str, schema: Any, required: bool, place: _Place) -> Shape:
        mark = len(self._resolver.followed)
        plain = Shape(name, pointer, "json", required, source=schema)
        flat = self._resolver.flat(schema)
        if flat is False:
            return replace(plain, possible=False)
        flat, nullable = self._without_null(flat if isinstance(flat, Mapping) else {})
        if flat is False:
            return replace(plain, possible=False)
        types = types_of(flat)
        nullable = nullable or (len(types) > 1 and "null" in types)
        types = types - {"null"} if nullable else types
        choices = choices_of(self._resolver, flat, types)
        if choices is not None:
            if len(choices) > 1 and any(choice.value is None for choice in choices):
                choices, nullable = tuple(choice for choice in choices if choice.value is not None), True
            possible = bool(choices) or nullable
            return Shape(name, pointer, "choice", required, nullable, possible, flat, choices, schema)
        plain = replace(plain, schema=flat, nullable=nullable)
        return self._typed(plain, types, place.after(self._resolver.followed[mark:]))

    def _typed(self, plain: Shape, types: set[str], place: _Place) -> Shape:
        flat = plain.schema
        if not types or any(keyword in flat for keyword in _UNIONS):
            types = self._common_types(flat) or types
        control = _scalar(flat, types, plain.name)
        if control is not None:
            return replace(plain, control=control)
        options = self._options(flat) if types == {"array"} else ()
        if options:
            return replace(plain, control="multi", choices=options)
        if place.depth >= place.deepest or self._left <= self._until:
            return plain
        self._left -= 1
        branches = self._branches(flat, plain.source, plain.pointer, types, place)
        if branches:
            possible = plain.nullable or any(branch.shape.possible for branch in branches)
            return self._placed(replace(plain, control="union", possible=possible, branches=branches), plain)
        if types == {"object"}:
            return self._object(plain, place)
        return self._list(plain, place) if types == {"array"} else plain

    def _object(self, plain: Shape, place: _Place) -> Shape:
        value = place.value if place.value is STATIC or isinstance(place.value, Mapping) else {}
        fields = self._properties(plain.schema, plain.pointer, replace(place, value=value))
        if not fields:
            return plain
        possible = plain.nullable or all(each.possible for each in fields if each.required)
        return self._placed(replace(plain, control="object", fields=fields, possible=possible), plain)

    def _list(self, plain: Shape, place: _Place) -> Shape:
        items = plain.schema.get("items")
        if not isinstance(items, Mapping) or "prefixItems" in plain.schema:
            return plain
        item = self._shape("", "", items, True, replace(place, value=STATIC, depth=place.depth + 1))
        if item.control == "json" or not item.possible:
            return plain
        item = replace(item, schema={**item.schema, "title": text_of(item.schema, "title") or "Item"})
        return self._placed(replace(plain, control="list", item=item), plain)

    def _placed(self, shape: Shape, plain: Shape) -> Shape:
        """The shape, or the one written as JSON when the valid default of the schema has no place in the former."""
        default = shape.schema.get("default", ())
        if not isinstance(default, (Mapping, list)) or raw_of(shape, default) is not None:
            return shape
        return plain if fits(self._resolver.request, shape.source, default) else shape

    def _options(self, flat: Mapping[str, Any]) -> tuple[Choice, ...]:
        if not isinstance(flat.get("items"), Mapping):
            return ()
        items = self._resolver.flat(flat["items"])
        return choices_of(self._resolver, items, types_of(items)) or ()

    def _branches(
        self, flat: Mapping[str, Any], source: Any, pointer: str, types: set[str], place: _Place
    ) -> tuple[Branch, ...]:
        """What can be chosen between: objects with fields, or values of differing types. Empty for no such union."""
        mark = len(self._resolver.followed)
        keyword, parts = self._split(flat, types)
        if not 1 < len(parts) <= MAX_BRANCHES:
            return ()
        base = without(flat, *_OF_THE_WHOLE, keyword)
        place = replace(place.after(self._resolver.followed[mark:]), value=STATIC)
        found, until = [], self._until
        for at, part in enumerate(parts):
            self._share(until, len(parts) - at)
            merged = self._resolver.flat({"allOf": [base, part]})
            shape = self._shape("", pointer, merged, True, place)
            if shape.possible:
                found.append(replace(shape, source={"allOf": [source, part]}))
        self._until = until
        if all(shape.control == "json" for shape in found):
            return ()
        return _branches_of(found)

    def _split(self, flat: Mapping[str, Any], types: set[str]) -> tuple[str, list[Any]]:
        """The keyword that makes the union, and its parts."""
        for keyword in _UNIONS:
            members = self._resolver.members(flat, keyword) or []
            if not members or not all(isinstance(member, Mapping) for member in members):
                continue
            if all(mapping_of(member, "properties") for member in members) or (
                not mapping_of(flat, "properties")
                and all(types_of(member) or "enum" in member or "const" in member for member in members)
            ):
                return keyword, members
        kinds = [kind for kind in _KINDS if kind in types]
        return "type", [{"type": kind} for kind in kinds]

    def _without_null(self, schema: Mapping[str, Any]) -> tuple[Any, bool]:
        """The schema beside ``null``: ``anyOf: [T, null]`` is a T that may be null. A union of one is that one."""
        nullable = False
        for _ in range(MAX_HOPS):
            for keyword in _UNIONS:
                members = self._resolver.members(schema, keyword)
                if members is None:
                    continue
                rest = [member for member in members if not _is_null(member)]
                if not members:
                    return False, False
                if not rest:
                    return {**without(schema, keyword), "type": "null"}, False
                if len(rest) == 1 and isinstance(rest[0], Mapping):
                    nullable = nullable or len(members) > 1
                    schema = {**rest[0], **without(schema, keyword)}
                    break
                if rest and len(rest) < len(members):
                    nullable = True
                    schema = {**schema, keyword: rest}
                    break
            else:
                return schema, nullable
        return schema, nullable

    def _common_types(self, schema: Mapping[str, Any]) -> set[str]:
        """The one type of all branches of a union: such a union is typed like a plain value and checked by Python."""
        found: set[str] = set()
        for keyword in _UNIONS:
            for member in self._resolver.members(schema, keyword) or ():
                kinds = types_of(member)
                if len(kinds) != 1 or kinds <= {"array", "object"}:
                    return set()
                found |= kinds
        return found


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (
        schema.get("type") == "null"
        or ("const" in schema and schema["const"] is None)
        or (isinstance(schema.get("enum"), (list, tuple)) and list(schema["enum"]) == [None])
    )


def _branches_of(shapes: list[Shape]) -> tuple[Branch, ...]:
    """The branches with their names; a name that several would have is counted."""
    tag = _tag_of(shapes)
    found = []
    for at, shape in enumerate(shapes):
        title, tags = text_of(shape.schema, "title"), {}
        if tag is not None and shape.control == "object" and not shape.nullable:
            mark = next(each for each in shape.fields if each.name == tag)
            tags = {tag: mark.choices[0].value}
            title = title or mark.choices[0].label
            shape = replace(shape, fields=tuple(each for each in shape.fields if each is not mark))
        label = title or _kind_label(shape) or f"Option {at + 1}"
        found.append(Branch(label, text_of(shape.schema, "description"), shape, tags))
    uses = Counter(branch.label for branch in found)
    return tuple(
        replace(branch, label=f"{branch.label} ({at + 1})") if uses[branch.label] > 1 else branch
        for at, branch in enumerate(found)
    )


def _kind_label(shape: Shape) -> str | None:
    if shape.control == "choice":
        return ", ".join(choice.label for choice in shape.choices[:3]) + ("…" if len(shape.choices) > 3 else "")
    kinds = types_of(shape.schema)
    return _KINDS.get(next(iter(kinds))) if len(kinds) == 1 and shape.control != "object" else None


def _tag_of(shapes: list[Shape]) -> str | None:
    """The property that tells the objects among the shapes apart: in each another constant."""
    objects = [{each.name: each for each in shape.fields} for shape in shapes if shape.control == "object"]
    if len(objects) < 2:
        return None
    for name in objects[0]:
        marks = [fields[name] for fields in objects if name in fields]
        values = [value_label(mark.choices[0].value) for mark in marks if len(mark.choices) == 1 and not mark.nullable]
        if len(values) == len(objects) == len(set(values)) and all(mark.control == "choice" for mark in marks):
            return name
    return None


def _scalar(schema: Mapping[str, Any], types: set[str], name: str) -> Control | None:
    if types == {"string"}:
        return _text_control(schema, name)
    if types == {"boolean"}:
        return "boolean"
    if types == {"integer"}:
        return "integer"
    return "number" if types in ({"number"}, {"number", "integer"}) else None


def _text_control(schema: Mapping[str, Any], name: str) -> Control:
    if schema.get("writeOnly") is True:
        return "password"
    known = _FORMATS.get(text_of(schema, "format") or "")
    if known:
        return known
    longest, media, default = schema.get("maxLength"), text_of(schema, "contentMediaType"), schema.get("default")
    title = text_of(schema, "title") or ""
    if is_secret_name(name) or (len(title.split()) <= MAX_TITLE_WORDS and is_secret_name(title)):
        return "password"
    if (
        (isinstance(longest, (int, float)) and longest > LONG_TEXT)
        or (media or "").startswith("text/")
        or (isinstance(default, str) and "\n" in default)
    ):
        return "textarea"
    return "text"
