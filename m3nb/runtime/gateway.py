"""What an agent sees: an MCP server on loopback for each server of its execution.

Only the selected tools are shown and callable. Every request carries the execution's token, and the SDK's guard against
DNS rebinding checks Host and Origin (DESIGN "The gateway pauses, not the agent"; agents.md section 10).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import anyio
import mcp_types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError as ProtocolError
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from m3nb._version import __version__
from m3nb.errors import MCPError, ModelValidationError
from m3nb.harness import Endpoint
from m3nb.runtime.coordinator import Operation
from m3nb.runtime.journal import Journal
from m3nb.runtime.upstream import Upstream
from m3nb.runtime.wire import Final

PAYLOAD_LIMIT = 20_000
"""Characters of a result that an event keeps: the history stays small, the agent gets the whole."""

BEAT_SECONDS = 15.0
"""How often a call that lasts reports progress to its agent."""

CLOSE_SECONDS = 1.0
"""How long requests that are still open may take to end when the gateway closes."""

_GUARD = TransportSecuritySettings(
    enable_dns_rebinding_protection=True,
    allowed_hosts=["127.0.0.1:*"],
    allowed_origins=["http://127.0.0.1:*"],
)


@asynccontextmanager
async def serve(
    upstreams: Sequence[Upstream], *, tools: Sequence[str] | None, journal: Journal
) -> AsyncIterator[tuple[Endpoint, ...]]:
    """Serve the upstreams to one agent; yields where each is found. The port is closed on leaving.

    Raises `ModelValidationError` when a selected tool does not exist.
    """
    token = secrets.token_urlsafe(32)
    async with AsyncExitStack() as stack:
        routes: dict[str, ASGIApp] = {}
        for index, upstream in enumerate(upstreams):
            allowed = _allowed(upstream, tools)
            manager = StreamableHTTPSessionManager(
                _server(upstream, allowed, journal), security_settings=_GUARD, session_idle_timeout=None
            )
            await stack.enter_async_context(manager.run())
            routes[f"/{index}/mcp"] = StreamableHTTPASGIApp(manager)
        port = await stack.enter_async_context(_listen(_Door(routes, token)))
        yield tuple(
            Endpoint(upstream.name, f"http://127.0.0.1:{port}/{index}/mcp", token)
            for index, upstream in enumerate(upstreams)
        )


def _allowed(upstream: Upstream, tools: Sequence[str] | None) -> Callable[[str], bool]:
    if tools is None:
        return lambda _name: True
    prefix = f"{upstream.name}:"
    selected = {tool.removeprefix(prefix) for tool in tools if tool.startswith(prefix)}
    missing = selected - {tool.name for tool in upstream.tools}
    if missing:
        there = ", ".join(sorted(tool.name for tool in upstream.tools)) or "none"
        raise ModelValidationError(
            f"{upstream.name} has no tool {sorted(missing)[0]!r}: it has {there}",
            details={"operation": "execution.submit", "server": upstream.name, "missing": sorted(missing)},
        )
    return selected.__contains__


def _server(upstream: Upstream, allowed: Callable[[str], bool], journal: Journal) -> Server[Any]:
    """What an agent sees of one server: a capability is declared only where the server has it."""

    async def list_tools(_context: Any, _params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[tool for tool in upstream.tools if allowed(tool.name)])

    async def call_tool(context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        if not allowed(params.name) or all(tool.name != params.name for tool in upstream.tools):
            offered = ", ".join(tool.name for tool in upstream.tools if allowed(tool.name)) or "none"
            raise ProtocolError(
                mcp_types.INVALID_PARAMS,
                f"{upstream.name} has no tool {params.name!r} for this agent: it has {offered}",
            )
        operation = Operation(upstream.name, "tool", params.name, params.arguments or {})
        return cast(mcp_types.CallToolResult, await _perform(upstream, operation, context, journal))

    async def list_prompts(_context: Any, _params: Any) -> mcp_types.ListPromptsResult:
        return mcp_types.ListPromptsResult(prompts=await upstream.list_prompts())

    async def get_prompt(context: Any, params: mcp_types.GetPromptRequestParams) -> mcp_types.GetPromptResult:
        operation = Operation(upstream.name, "prompt", params.name, params.arguments or {})
        return cast(mcp_types.GetPromptResult, await _perform(upstream, operation, context, journal))

    async def list_resources(_context: Any, _params: Any) -> mcp_types.ListResourcesResult:
        return mcp_types.ListResourcesResult(resources=await upstream.list_resources())

    async def list_templates(_context: Any, _params: Any) -> mcp_types.ListResourceTemplatesResult:
        return mcp_types.ListResourceTemplatesResult(resource_templates=await upstream.list_templates())

    async def read_resource(context: Any, params: mcp_types.ReadResourceRequestParams) -> mcp_types.ReadResourceResult:
        operation = Operation(upstream.name, "resource", params.uri, {})
        return cast(mcp_types.ReadResourceResult, await _perform(upstream, operation, context, journal))

    prompts: dict[str, Any] = {"on_list_prompts": list_prompts, "on_get_prompt": get_prompt}
    resources: dict[str, Any] = {
        "on_list_resources": list_resources,
        "on_list_resource_templates": list_templates,
        "on_read_resource": read_resource,
    }
    return Server(
        f"m3nb: {upstream.name}",
        version=__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        **(prompts if upstream.has_prompts else {}),
        **(resources if upstream.has_resources else {}),
    )


async def _perform(upstream: Upstream, operation: Operation, context: Any, journal: Journal) -> Final:
    """One operation for an agent: on the record, with a sign of life while it lasts."""
    about = {"server": upstream.name, operation.kind: operation.name}
    call = about if operation.kind == "resource" else {**about, "arguments": capped(operation.parameters)}
    journal.emit(f"{operation.kind}.call", call)
    beat = asyncio.create_task(_beat(context.session))
    try:
        result = await upstream.perform(operation)
    except (MCPError, ProtocolError) as error:
        failure = {**about, "message": error.message}
        journal.emit(f"{operation.kind}.error", failure)
        if isinstance(error, ProtocolError):
            raise
        # The execution ends with this error; the agent only needs to stop waiting.
        raise ProtocolError(mcp_types.INTERNAL_ERROR, error.message) from None
    except asyncio.CancelledError:
        journal.emit(f"{operation.kind}.error", {**about, "message": "cancelled"})
        raise
    finally:
        beat.cancel()
    journal.emit(f"{operation.kind}.result", {**about, **_summary(result)})
    return result


async def _beat(session: ServerSession) -> None:
    """Tell an agent that asked for progress that its call is alive: agents give up on a silent one (agents.md 4.3)."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        seconds = round(time.monotonic() - began, 1)
        # An agent that has gone is noticed elsewhere.
        with contextlib.suppress(ProtocolError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await session.report_progress(seconds, message=f"still running, {seconds:.0f} s so far")


def _summary(result: Final) -> dict[str, Any]:
    if isinstance(result, mcp_types.GetPromptResult):
        return {"messages": capped(_dumped(result.messages))}
    if isinstance(result, mcp_types.ReadResourceResult):
        return {"contents": capped(_dumped(result.contents))}
    summary = {"is_error": bool(result.is_error), "content": capped(_dumped(result.content))}
    if result.structured_content is not None:
        summary["structured_content"] = capped(result.structured_content)
    return summary


def _dumped(items: Sequence[BaseModel]) -> list[Any]:
    return [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items]


def capped(value: Any) -> Any:
    """The value, or the beginning of its JSON text when that is longer than `PAYLOAD_LIMIT` characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= PAYLOAD_LIMIT:
        return json.loads(text)
    return {"truncated": True, "characters": len(text), "beginning": text[:PAYLOAD_LIMIT]}


class _Door:
    """The one ASGI app of a gateway: checks the token in constant time, then hands on by path."""

    def __init__(self, routes: Mapping[str, ASGIApp], token: str) -> None:
        self._routes = routes
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        given = b"".join(value for name, value in scope["headers"] if name == b"authorization")
        if not hmac.compare_digest(given, self._expected):
            await _refuse(send, 401)
        elif scope["path"] not in self._routes:
            await _refuse(send, 404)
        else:
            await self._routes[scope["path"]](scope, receive, send)


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


class _Server(uvicorn.Server):
    """Stops when it is told to: uvicorn looks ten times a second, and then waits for clients that have gone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Through asyncio first: a socket closed under its event loop leaves a number behind that stays deaf when the
        # next socket gets it.
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.close()
        # Two turns of the loop: the requests learn that nobody listens any more, and end in silence.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks = set(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)


def _ending_silently(app: ASGIApp) -> ASGIApp:
    """The app; a request that is cancelled ends without an error: uvicorn would log its traceback."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return run


@asynccontextmanager
async def _listen(app: ASGIApp) -> AsyncIterator[int]:
    """Serve an app on a free loopback port; yields the port."""
    # asyncio sets TCP_NODELAY only on a socket that says it speaks TCP; without it a call costs 48 ms instead of 2.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(_ending_silently(app), lifespan="off", log_config=None, access_log=False, ws="none")
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn offers nothing to wait for
                await asyncio.sleep(0.001)
            yield listener.getsockname()[1]
        finally:
            server.stop()
            # Cancellation comes again and again from anyio's scopes, and the server must get to its end.
            with anyio.CancelScope(shield=True):
                await task
    finally:
        listener.close()
