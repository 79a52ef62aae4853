"""The drawing plan of a request: what the page needs to know, as JSON, and no answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from m3nb.elicitation import FormElicitationRequest, UrlElicitationRequest
from m3nb.forms.hints import attributes_of, bounds_of, sentence
from m3nb.forms.layout import Layout, refused, settled
from m3nb.forms.placing import RawValue, fields_of, raw_of
from m3nb.forms.schemas import text_of
from m3nb.forms.shapes import Branch, Control, Shape
from m3nb.forms.values import layout_of_values
from m3nb.validity import BUDGET_SECONDS, fits, unchecked_patterns
from m3nb.validity.urls import UrlParts, take_apart


class Option(TypedDict):
    """One entry of a choice; the page sends its place in the list."""

    label: str
    description: str | None


class Field(TypedDict):
    """One control. ``pointer`` is a JSON Pointer into the content; errors name it or something below it.

    ``empty`` says that an empty text or list may be sent on purpose; ``initial`` is what is sent when nobody touches
    the field. ``fields`` come with an object, ``branches`` with a union, ``item``, ``min`` and ``max`` with a list.
    Pointers in ``item`` lead from the item, whose own is ``""``. Fields within a container that has an ``initial``
    start from that; where it has none (and is opened, added or chosen), from their own.
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
    fields: NotRequired[list[Field]]
    item: NotRequired[Field]
    min: NotRequired[int]
    max: NotRequired[int | None]
    branches: NotRequired[list[BranchPlan]]
    readonly: NotRequired[Literal[True]]
    deprecated: NotRequired[Literal[True]]


class BranchPlan(TypedDict):
    """One branch of a union: ``fields`` of an object, or the one ``field`` of a value."""

    label: str
    description: str | None
    fields: list[Field] | None
    field: Field | None


class FormPlan(TypedDict):
    """A form. ``blocked`` says why accept cannot be offered; ``live``: other answers may have other fields."""

    key: str
    mode: Literal["form"]
    title: str | None
    message: str
    description: str | None
    fields: list[Field]
    hints: list[str]
    blocked: str | None
    live: bool


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
_TEXTS = ("text", "textarea", "password", "email", "uri")
_NOTHING: Any = object()


def compile_form(request: FormElicitationRequest | UrlElicitationRequest) -> FormPlan | UrlPlan:
    """The plan of a request whose schema passed `m3nb.validity.check_schema`. Never raises for such a request."""
    from m3nb.validity.keywords import budget

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
    with budget(BUDGET_SECONDS):
        found = settled(request, lambda found: _drawn(request, found)[1])
        fields, _ = _drawn(request, found)
    return {
        "key": request.request_key,
        "mode": "form",
        "title": _heading(found.root, fields),
        "message": request.message,
        "description": text_of(found.root, "description"),
        "fields": fields,
        "hints": _hints(request, found),
        "blocked": _blocked(found.shapes),
        "live": found.live,
    }


def fields_for(request: FormElicitationRequest, values: Mapping[str, RawValue]) -> tuple[list[Field], str | None]:
    """The fields and ``blocked`` of a form once ``values`` are typed; nothing of them is kept. Never raises."""
    from m3nb.validity.keywords import budget

    with budget(BUDGET_SECONDS):
        found = layout_of_values(request, values)
        return _drawn(request, found)[0], _blocked(found.shapes)


def _drawn(request: FormElicitationRequest, found: Layout) -> tuple[list[Field], dict[str, Any]]:
    """The fields of a layout, and the content that is sent when nobody touches them."""
    drawn = [(shape, *_field(request, shape)) for shape in found.shapes if shape.possible]
    content = {shape.name: value for shape, _, value in drawn if value is not _NOTHING}
    whole = _whole_default(request, found)
    if whole is not None:
        content = dict(found.root["default"])
        for shape, field, _ in drawn:
            field["initial"] = whole.get(shape.name)
    elif found.whole is None:
        bad = refused(request, content)
        for shape, field, _ in drawn:
            # Refused by the schema around it, or the time was over before all could be checked.
            name = shape.name
            if name in bad and name in content and content[name] is shape.schema.get("default", _NOTHING):
                del content[name]
                field["initial"] = None
                field["hint"] = _hint(shape, left_out=True)
    fields = [field for _, field, _ in drawn]
    question = question_of(request, [shape for shape, _, _ in drawn])
    if question is not None:
        fields[0]["label"] = question
    return fields, content


def _whole_default(request: FormElicitationRequest, found: Layout) -> dict[str, RawValue] | None:
    """The root schema's own default, field by field; None without one that is valid and has a place in the fields."""
    default = found.root.get("default")
    if found.whole is not None or not isinstance(default, Mapping) or refused(request, dict(default)):
        return None
    return fields_of(tuple(shape for shape in found.shapes if shape.possible), default)


def _field(request: FormElicitationRequest, shape: Shape) -> tuple[Field, Any]:
    """The plan of one field, and the value that is sent when nobody touches it."""
    schema = shape.schema
    inner = [(each, *_field(request, each)) for each in shape.fields if each.possible]
    value, initial = _NOTHING, None
    if "default" in schema and fits(request, shape.source, schema["default"]):
        initial = raw_of(shape, schema["default"])
    left_out = "default" in schema and initial is None
    if initial is not None:
        value = schema["default"]
    elif shape.control == "object":
        value = _of_fields(request, shape, {each.name: value for each, _, value in inner if value is not _NOTHING})
        initial = None if value is _NOTHING else raw_of(shape, value)
    empty: Any = "" if shape.control in _TEXTS else [] if shape.control in ("multi", "list") else None
    plan: Field = {
        "name": shape.name,
        "pointer": shape.pointer,
        "control": shape.control,
        "label": shape.label,
        "description": text_of(schema, "description"),
        "required": shape.required,
        "nullable": shape.nullable,
        "empty": empty is not None and fits(request, shape.source, empty),
        "initial": initial,
        "options": [{"label": choice.label, "description": choice.description} for choice in shape.choices],
        "hint": _hint(shape, left_out=left_out),
        "attributes": attributes_of(shape),
    }
    if shape.control == "object":
        plan["fields"] = [field for _, field, _ in inner]
    if shape.item is not None:
        plan |= {"item": _field(request, shape.item)[0], "min": _count(schema, "minItems") or 0}
        plan["max"] = _count(schema, "maxItems")
    if shape.control == "union":
        plan["branches"] = [_branch(request, branch) for branch in shape.branches]
    if schema.get("readOnly") is True and (initial is not None or not shape.required):
        plan["readonly"] = True
    if schema.get("deprecated") is True:
        plan["deprecated"] = True
    return plan, value


def _of_fields(request: FormElicitationRequest, shape: Shape, inner: dict[str, Any]) -> Any:
    """What an untouched object is: the defaults in it. An optional one is left out where these alone are not valid."""
    return inner if shape.required or (inner and fits(request, shape.source, inner)) else _NOTHING


def _branch(request: FormElicitationRequest, branch: Branch) -> BranchPlan:
    if branch.drawn_as_fields:
        fields = [_field(request, each)[0] for each in branch.shape.fields if each.possible]
        return {"label": branch.label, "description": branch.description, "fields": fields, "field": None}
    field = _field(request, branch.shape)[0]
    field |= {"label": branch.label, "description": None}
    return {"label": branch.label, "description": branch.description, "fields": None, "field": field}


def _count(schema: Mapping[str, Any], keyword: str) -> int | None:
    value = schema.get(keyword)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _hint(shape: Shape, *, left_out: bool) -> str | None:
    extra = ["the server's default is not valid here and was left out"] if left_out else []
    return sentence([*bounds_of(shape), *extra])


def _blocked(shapes: Iterable[Shape]) -> str | None:
    """Why the form cannot be accepted: the way to the first required field that no value would be valid for."""
    labels: list[str] = []
    stuck = next((shape for shape in shapes if shape.required and not shape.possible), None)
    while stuck is not None:
        labels.append(stuck.label)
        stuck = next((shape for shape in stuck.fields if shape.required and not shape.possible), None)
    return f"“{' · '.join(labels)}” is required, but no value of it would be valid." if labels else None


def question_of(request: FormElicitationRequest, shapes: Sequence[Shape]) -> str | None:
    """The name of a wrapped scalar (``{"value": T}``, as FastMCP sends it): the question itself, if it is short."""
    if [(shape.name, shape.label.lower()) for shape in shapes] != [("value", "value")]:
        return None
    message = request.message.strip()
    return message if message and len(message) <= _MAX_LABEL and "\n" not in message else None


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


def _hints(request: FormElicitationRequest, found: Layout) -> list[str]:
    lost = found.whole is None and "default" in found.root and _whole_default(request, found) is None
    return ["The server's default for the whole form is not valid here and was left out."] * lost + [
        f"The pattern {found['pattern']} cannot be checked here; the server checks it."
        for found in unchecked_patterns(request.requested_schema)
    ]
