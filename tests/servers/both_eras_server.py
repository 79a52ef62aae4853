"""A server on the SDK with one tool for each way of asking; each works in its own protocol era only."""

from __future__ import annotations

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, ElicitRequest, ElicitRequestFormParams, InputRequiredResult, TextContent
from pydantic import BaseModel

server = MCPServer("eras")


class Place(BaseModel):
    city: str


@server.tool()
async def older(ctx: Context) -> str:
    """Asks with ``elicitation/create`` during the call."""
    answer = await ctx.elicit("Where?", Place)
    return answer.action


@server.tool()
async def newer(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Asks by returning an ``InputRequiredResult``."""
    answer = (ctx.input_responses or {}).get("place")
    if answer is None:
        form = ElicitRequestFormParams(message="Where?", requested_schema=Place.model_json_schema())
        return InputRequiredResult(input_requests={"place": ElicitRequest(params=form)})
    return CallToolResult(content=[TextContent(text=answer.action)])


@server.tool()
async def circles(ctx: Context) -> InputRequiredResult:
    """Wants to be called again for ever, and asks nothing."""
    return InputRequiredResult(request_state="again")


if __name__ == "__main__":
    server.run()
