"""The built-in agent: it makes the calls that the prompt spells out. It needs no model and no account.

Three kinds of line are calls, made in order; any other line is prose::

    shipping:book_shipment {"weight_kg": 2}     a tool
    prompt shipping:label {"to": "Pune"}        a prompt; its arguments are text
    resource shipping:rates://2026              a resource, by its URI

A line that is formed like a call but names no server of the run is an error, not prose. When no line is a call, each
selected tool is called once with ``{}``. A tool's own error is read like any result; a
call that cannot be made ends the run. Like every agent it talks to the gateway only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from m3nb.elicitation import OperationKind
from m3nb.errors import AgentError
from m3nb.frozen import freeze
from m3nb.harness import AgentOutcome, AgentTask, Endpoint

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client

_CALL = re.compile(r"\s*(?:(?P<kind>prompt)\s+)?(?P<server>[^\s:{}]+):(?P<name>[^\s{}]+)\s*(?P<arguments>\{.*\})?\s*")

_READ = re.compile(r"\s*resource\s+(?P<server>[^\s:{}]+):(?P<name>\S+)\s*")

_BEGUN = re.compile(r"\s*(?:prompt\s+)?(?P<server>[^\s:{}]+):(?P<name>[^\s{}]+)\s*\{")

_NO_SERVER = re.compile(r"\s*(?P<tool>[^\s:{}]+)\s*\{.*\}\s*")


@dataclass(frozen=True)
class Call:
    """One call of the script. ``name`` is a tool's or prompt's name, or a resource's URI."""

    server: str
    name: str
    arguments: Mapping[str, Any]
    kind: OperationKind = "tool"


class ScriptedHarness:
    """Runs the script of a prompt."""

    async def run(self, task: AgentTask) -> AgentOutcome:
        """Make the calls in order; the last result's text is the final text."""
        calls = script(task.prompt, servers=[endpoint.server for endpoint in task.endpoints], tools=task.tools)
        text = None
        async with AsyncExitStack() as stack:
            wanted = {call.server for call in calls}
            clients = {
                endpoint.server: await _connect(stack, endpoint)
                for endpoint in task.endpoints
                if endpoint.server in wanted
            }
            for call in calls:
                text = await _make(clients[call.server], call)
        if text is not None:
            task.emit("message", {"text": text})
        return AgentOutcome(final_text=text)


def script(prompt: str, *, servers: Iterable[str], tools: Iterable[str] | None) -> list[Call]:
    """The calls of a prompt.

    Raises `AgentError` when a call's arguments are no JSON object, and when there is nothing to call.
    """
    names = set(servers)
    calls = []
    for number, line in enumerate(prompt.split("\n"), start=1):
        call = _call(line, number, names)
        if call is None:
            _refuse_half_a_call(line, number, names)
        else:
            calls.append(call)
    if not calls and tools is not None:
        calls = [Call(server, tool, {}) for server, _, tool in (selector.partition(":") for selector in tools)]
    if not calls:
        raise AgentError(
            'the scripted harness found nothing to call: write a line such as server:tool {"argument": 1}, '
            "prompt server:name or resource server:uri into the prompt, or select tools=[…]"
        )
    return calls


def _call(line: str, number: int, servers: set[str]) -> Call | None:
    read = _READ.fullmatch(line)
    if read is not None and read["server"] in servers:
        # A server that is called like the scheme of its resources: "resource clinic://beds" is meant whole.
        uri = f"{read['server']}:{read['name']}" if read["name"].startswith("//") else read["name"]
        return Call(read["server"], uri, {}, "resource")
    match = _CALL.fullmatch(line)
    if match is None or match["server"] not in servers:
        return None
    arguments = _arguments(match["arguments"], number)
    if match["kind"] is None:
        return Call(match["server"], match["name"], arguments)
    for name, value in arguments.items():
        if not isinstance(value, str):
            raise AgentError(f'line {number} of the prompt: {name} must be text ("{value}"), as in every MCP prompt')
    return Call(match["server"], match["name"], arguments, "prompt")


def _refuse_half_a_call(line: str, number: int, servers: set[str]) -> None:
    """What is formed like a call is meant as one: to take it for prose would drop it without a word."""
    known = ", ".join(sorted(servers))
    match = _NO_SERVER.fullmatch(line)
    if match is not None:
        first = min(servers, default="server")
        raise AgentError(
            f"line {number} of the prompt is a call without its server: write {first}:{match['tool']} {{…}} "
            f"(this run has {known})"
        )
    begun = _BEGUN.match(line)
    if begun is not None and begun["server"] in servers:
        raise AgentError(
            f"line {number} of the prompt: the arguments of {begun['server']}:{begun['name']} are no JSON object "
            "that ends on the same line"
        )
    meant = _READ.fullmatch(line) or _CALL.fullmatch(line)
    if meant is not None and not meant["name"].startswith("//"):
        raise AgentError(
            f"line {number} of the prompt calls {meant['name']} of {meant['server']}, which is no server of this run: "
            f"it has {known}"
        )


def _arguments(text: str | None, line: int) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AgentError(f"line {line} of the prompt: the arguments are no JSON object ({error})") from None
    if not isinstance(arguments, dict):
        raise AgentError(f"line {line} of the prompt: the arguments are no JSON object")
    try:
        freeze(arguments)
    except ValueError as error:
        raise AgentError(f"line {line} of the prompt: the arguments can't be sent ({error})") from None
    return arguments


async def _connect(stack: AsyncExitStack, endpoint: Endpoint) -> Client:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    # No read timeout: a call takes as long as the person who answers.
    http = await stack.enter_async_context(
        httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {endpoint.token}"},
            timeout=httpx2.Timeout(30, read=None),
            trust_env=False,
        )
    )
    transport = streamable_http_client(endpoint.url, http_client=http, max_sse_event_size=None)
    return await stack.enter_async_context(Client(transport, cache=None))


async def _make(client: Client, call: Call) -> str:
    from mcp.shared.exceptions import MCPError as ProtocolError

    session = client.session
    try:
        if call.kind == "prompt":
            return _prompt_text(await session.get_prompt(call.name, dict(call.arguments)))
        if call.kind == "resource":
            return _resource_text(await session.read_resource(call.name))
        return _tool_text(await session.call_tool(call.name, dict(call.arguments)))
    except ProtocolError as error:
        about = {"server": call.server, call.kind: call.name}
        kind = "" if call.kind == "tool" else f"{call.kind} "
        raise AgentError(f"{kind}{call.server}:{call.name} failed: {error.message}", details=about) from None


def _tool_text(result: mcp_types.CallToolResult) -> str:
    texts = [block.text for block in result.content if block.type == "text"]
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return "\n".join(texts)


def _prompt_text(result: mcp_types.GetPromptResult) -> str:
    return "\n".join(message.content.text for message in result.messages if message.content.type == "text")


def _resource_text(result: mcp_types.ReadResourceResult) -> str:
    texts = (getattr(item, "text", None) for item in result.contents)
    return "\n".join(text for text in texts if text is not None)
