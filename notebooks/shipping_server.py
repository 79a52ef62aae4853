"""A small MCP server for the quickstart: it books a shipment, and asks a person where it should go.

Run over stdio. `book_shipment` answers its first call with an `InputRequiredResult`; the client asks the person and
calls again with the answer. When the environment variable SHIPPING_LOG names a file, each answer that arrives is
appended to it as one JSON line, so that deliveries can be counted where they land.
"""

from __future__ import annotations

import json
import os
import secrets
from datetime import date
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
)

ADDRESS = {
    "type": "object",
    "properties": {
        "street": {"type": "string", "title": "Street", "description": "With the house number", "minLength": 3},
        "city": {"type": "string", "title": "City", "minLength": 2},
        "postal_code": {"type": "string", "title": "Postal code", "minLength": 3, "maxLength": 10},
        "deliver_on": {"type": "string", "format": "date", "title": "Deliver on"},
        "speed": {
            "type": "string",
            "title": "Speed",
            "oneOf": [
                {"const": "standard", "title": "Standard, 3 to 5 days"},
                {"const": "express", "title": "Express, next day"},
            ],
            "default": "standard",
        },
        "gift": {"type": "boolean", "title": "Wrap it as a gift", "default": False},
    },
    "required": ["street", "city"],
}

server = MCPServer("shipping", version="1.0.0")


@server.tool()
async def book_shipment(ctx: Context, weight_kg: float = 1.0) -> CallToolResult | InputRequiredResult:
    """Book a shipment. The delivery address is asked of the person."""
    answer = (ctx.input_responses or {}).get("shipping_address")
    if not isinstance(answer, ElicitResult):
        message = f"Where should the parcel of {weight_kg:g} kg go?"
        form = ElicitRequestFormParams(message=message, requested_schema=ADDRESS)
        return InputRequiredResult(input_requests={"shipping_address": ElicitRequest(params=form)})
    content: dict[str, Any] = dict(answer.content or {})
    log(answer.action, content)
    if answer.action != "accept":
        return said(f"No shipment was booked: the address was not given ({answer.action}).", {"booked": False})
    booking = f"SHIP-{secrets.token_hex(3).upper()}"
    speed = content.get("speed", "standard")
    day = content.get("deliver_on")
    when = f", on {date.fromisoformat(day):%d %B %Y}" if isinstance(day, str) else ""
    text = f"Booked {booking}: {weight_kg:g} kg to {content['city']}, {speed}{when}."
    return said(text, {"booked": True, "booking": booking, "city": content["city"], "speed": speed})


def said(text: str, data: dict[str, Any]) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], structured_content=data)


def log(action: str, content: dict[str, Any]) -> None:
    path = os.environ.get("SHIPPING_LOG")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"action": action, "content": content}) + "\n")
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    server.run("stdio")
