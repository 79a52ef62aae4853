"""A server on the SDK that asks during tools, prompts and resources alike, in the way of the era it is spoken to.

``wide_server.py`` speaks stdio, ``wide_server.py PORT`` streamable HTTP; `make` gives it in process. What is asked is
in the name of the tool or prompt, or in ``wide://NAME``. ``WIDE_LOG`` names a file that gets a JSON line per answer;
``WIDE_STATE_SECONDS`` is the lifetime of the states the server makes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError

NAMES = ("one", "two", "mixed", "idle", "visit", "visit_two", "visit_silent", "url", "url_early", "plain", "slow")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
YES = {"type": "object", "properties": {"yes": {"type": "boolean"}}}


class Wide:
    def __init__(self, log: str | None) -> None:
        self.log = log
        self.visited: set[str] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def note(self, **line: Any) -> None:
        if self.log:
            with open(self.log, "a") as file:
                file.write(json.dumps(line) + "\n")

    async def perform(self, context: Any, kind: str, name: str, params: Any) -> str | types.InputRequiredResult:
        """The text of the result, or what is asked."""
        if name == "plain":
            return "plain"
        if name == "slow":
            await asyncio.sleep(float(params.arguments["seconds"]))
            return "slow"
        if name.startswith("visit"):
            return await self.visit(context, name)
        if name == "url":
            answer = await context.session.elicit_url("Pay.", "https://pay.example.com/1", "pay-1", context.request_id)
            self.note(kind=kind, name=name, answers={"elicitation": dumped(answer)})
            await context.session.send_elicit_complete("pay-1")
            await context.session.send_elicit_complete("unknown")
            return answer.action
        if name == "url_early":
            asking = asyncio.ensure_future(
                context.session.elicit_url("Pay.", "https://pay.example.com/2", "pay-2", context.request_id)
            )
            await asyncio.sleep(0)
            await context.session.send_elicit_complete("pay-2")
            return (await asking).action
        if context.protocol_version < "2026":
            return await self.classic(context, kind, name)
        return self.modern(kind, name, params)

    async def classic(self, context: Any, kind: str, name: str) -> str:
        texts = []
        for _ in range(2 if name == "two" else 1):
            answer = await context.session.elicit_form("Where?", CITY, context.request_id)
            self.note(kind=kind, name=name, answers={"elicitation": dumped(answer)})
            texts.append((answer.content or {}).get("city", answer.action))
        return ", ".join(texts)

    def modern(self, kind: str, name: str, params: Any) -> str | types.InputRequiredResult:
        state = params.request_state
        given = None if params.input_responses is None else {k: dumped(v) for k, v in params.input_responses.items()}
        if given is not None or state is not None:
            self.note(kind=kind, name=name, answers=given, state=state)
        if name == "idle":
            return "idle" if state == "2" else types.InputRequiredResult(request_state=str(int(state or 0) + 1))
        if name == "mixed":
            return json.dumps(given) if given else asked("m", q=form(CITY), roots=ROOTS, sample=SAMPLE)
        if given is None:
            return asked("1", city=form(CITY)) if name == "one" else asked("1", a=form(CITY), b=form(YES))
        if name == "two" and "c" not in given:
            return asked("2", c=form(CITY))
        return json.dumps(given)

    async def visit(self, context: Any, name: str) -> str:
        ids = [f"{name}-{number}" for number in range(2 if name == "visit_two" else 1)]
        missing = [id_ for id_ in ids if id_ not in self.visited]
        self.note(kind="tool", name=name, missing=missing)
        if not missing:
            return "visited"
        task = asyncio.ensure_future(self.done_later(context.session, ids, name != "visit_silent"))
        self.tasks.add(task)
        urls = [
            types.ElicitRequestURLParams(message=f"Open {id_}.", url=f"https://example.com/{id_}", elicitation_id=id_)
            for id_ in missing
        ]
        raise UrlElicitationRequiredError(urls, "Not yet.")

    async def done_later(self, session: Any, ids: list[str], tell: bool) -> None:
        await asyncio.sleep(0.3)
        self.visited.update(ids)
        for id_ in ids if tell else ():
            await session.send_elicit_complete(id_)


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def form(schema: dict[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message="Where?", requested_schema=schema))


def asked(state: str, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


ROOTS = types.ListRootsRequest()
SAMPLE = types.CreateMessageRequest(
    params=types.CreateMessageRequestParams(
        messages=[types.SamplingMessage(role="user", content=types.TextContent(text="Capital of France?"))],
        max_tokens=10,
    )
)


def make(log: str | None = None, *, state_seconds: float = 600.0) -> Server[Any]:
    """The server. ``log`` gets the answers, ``state_seconds`` is how long a state lives."""
    wide = Wide(log)
    schema: dict[str, Any] = {"type": "object"}

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in NAMES])

    async def call_tool(context: Any, params: Any) -> Any:
        found = await wide.perform(context, "tool", params.name, params)
        if isinstance(found, str):
            return types.CallToolResult(content=[types.TextContent(text=found)])
        return found

    async def list_prompts(_context: Any, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name=name) for name in NAMES])

    async def get_prompt(context: Any, params: Any) -> Any:
        found = await wide.perform(context, "prompt", params.name, params)
        if isinstance(found, str):
            message = types.PromptMessage(role="user", content=types.TextContent(text=found))
            return types.GetPromptResult(messages=[message])
        return found

    async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name=name, uri=f"wide://{name}") for name in NAMES])

    async def list_templates(_context: Any, _params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(name="any", uri_template="wide://{name}")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(context: Any, params: Any) -> Any:
        name = params.uri.removeprefix("wide://")
        if name not in NAMES:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri}")
        found = await wide.perform(context, "resource", name, params)
        if isinstance(found, str):
            return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=found)])
        return found

    server: Server[Any] = Server(
        "wide",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )
    security = RequestStateSecurity.ephemeral(ttl=state_seconds)
    server.middleware.append(RequestStateBoundary(security, default_audience="wide"))
    return server


async def main() -> None:
    server = make(os.environ.get("WIDE_LOG"), state_seconds=float(os.environ.get("WIDE_STATE_SECONDS", "600")))
    if len(sys.argv) > 1:
        import uvicorn

        config = uvicorn.Config(server.streamable_http_app(), port=int(sys.argv[1]), log_level="warning")
        await uvicorn.Server(config).serve()
        return
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
