"""Forms beyond the handed cases: everything that a plan can hold, as schemas."""

from __future__ import annotations

from typing import Any

ADDRESS = {
    "type": "object",
    "title": "Address",
    "description": "Where the parcel goes.",
    "properties": {
        "street": {"type": "string", "title": "Street", "minLength": 3},
        "city": {"type": "string", "title": "City", "default": "Pune"},
        "geo": {
            "type": "object",
            "title": "Position",
            "properties": {
                "lat": {"type": "number", "title": "Latitude"},
                "lon": {"type": "number", "title": "Longitude"},
            },
            "required": ["lat"],
        },
    },
    "required": ["street"],
}
LINES = {
    "type": "array",
    "title": "Lines",
    "minItems": 1,
    "maxItems": 4,
    "items": {
        "type": "object",
        "properties": {
            "article": {"type": "string", "title": "Article"},
            "count": {"type": "integer", "title": "Count", "minimum": 1},
        },
        "required": ["article"],
    },
    "default": [{"article": "Lamp", "count": 2}, {"article": "Rug"}],
}
PAYMENT = {
    "title": "Payment",
    "oneOf": [
        {
            "type": "object",
            "title": "By card",
            "properties": {"kind": {"const": "card"}, "holder": {"type": "string", "title": "Holder"}},
            "required": ["kind", "holder"],
        },
        {
            "type": "object",
            "title": "By invoice",
            "properties": {"kind": {"const": "invoice"}, "due": {"type": "string", "format": "date", "title": "Due"}},
            "required": ["kind"],
        },
    ],
}
COLOURS = ["amber", "blue", "coral", "denim", "ecru", "fawn", "green", "henna"]


def _form(message: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"schema": {"type": "object", "properties": properties, **more}, "message": message}


FORMS = {
    "nested": _form("Where does the parcel go?", {"address": ADDRESS}, required=["address"]),
    "list": _form("What is in the order?", {"lines": LINES, "tags": {"type": "array", "items": {"type": "string"}}}),
    "union": _form("How do you pay?", {"pay": PAYMENT, "note": {"anyOf": [{"type": "string"}, {"type": "number"}]}}),
    "choices": _form(
        "Which one?",
        {
            "size": {"type": "string", "title": "Size", "enum": ["S", "M", "L"], "default": "M"},
            "colour": {"type": "string", "title": "Colour", "enum": COLOURS},
            "extras": {"type": "array", "title": "Extras", "items": {"enum": ["gift wrap", "card", "ribbon"]}},
            "sure": {"type": "boolean", "title": "Are you sure?"},
            "maybe": {"type": ["string", "null"], "title": "Remark"},
        },
        required=["size", "sure"],
    ),
    "live": _form(
        "Do you want it delivered?",
        {"delivery": {"type": "boolean", "title": "Deliver it"}},
        **{"if": {"properties": {"delivery": {"const": True}}, "required": ["delivery"]}},
        then={"properties": {"street": {"type": "string", "title": "Street"}}, "required": ["street"]},
    ),
    "shown only": _form(
        "Please check this",
        {
            "id": {"type": "string", "title": "Order", "readOnly": True, "default": "A-17"},
            "fax": {"type": "string", "title": "Fax", "deprecated": True},
            "when": {"type": "string", "title": "When", "format": "date-time"},
            "pin": {"type": "string", "title": "PIN", "format": "password"},
        },
    ),
    "long": _form(
        "Every one of these, please. " * 60,
        {
            f"field{nth}": {"type": ("string", "integer", "boolean")[nth % 3], "title": f"Field {nth}"}
            for nth in range(45)
        },
    ),
    "other scripts": _form(
        "שלום! מה שמך? 👩‍👩‍👧",
        {
            "name": {"type": "string", "title": "الاسم", "description": "كما في جواز السفر 🛂"},
            "z": {"type": "string", "title": "日本語"},
        },
        required=["name"],
    ),
    "url": {
        "url": "https://login.bank.example.accounts.very-long.evil.example/oauth?state=" + "x" * 200,
        "message": "Log in",
    },
}

HUGE = _form(
    "Every one of these, please. " * 740,
    {f"field{nth}": {"type": ("string", "integer", "boolean")[nth % 3], "title": f"Field {nth}"} for nth in range(300)},
)
"""A message of 20 kilobytes and 300 fields."""
