"""What the gateway adds to a tool call.

    python tests/bench/gateway.py [--calls 300] [--check]

Three ways take turns in one event loop: a call of a server over stdio, directly; a call of an SDK server's echo over
streamable HTTP on loopback; and a call through the gateway, which is both, plus two rows of history in SQLite. The
limit is 1.5 times the sum of the first two. ``--check`` exits with 1 above it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import mcp_types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager

from m3nb.runtime import gateway, upstream
from m3nb.runtime.doorbell import Doorbell
from m3nb.runtime.execution import Execution, Job
from m3nb.runtime.journal import Journal
from m3nb.runtime.launch import resolve
from m3nb.storage import SQLiteExecutionStore
from m3nb.types import AgentSpec, Scripted, ServerBinding, StdioServer

SERVER = Path(__file__).with_name("asking_server.py")
LIMIT = 1.5


async def direct(stack: AsyncExitStack) -> Client:
    """A client of the server itself."""
    parameters = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
    return await stack.enter_async_context(Client(stdio_client(parameters), cache=None))


async def over_http(stack: AsyncExitStack, url: str, token: str = "none") -> Client:
    """A client of an HTTP server, set up like the scripted agent's."""
    headers = {"Authorization": f"Bearer {token}"}
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False))
    transport = streamable_http_client(url, http_client=http, max_sse_event_size=None)
    return await stack.enter_async_context(Client(transport, cache=None))


async def echo(stack: AsyncExitStack) -> Client:
    """A client of an SDK server that answers at once."""

    async def list_tools(_context: Any, _params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="echo", input_schema={"type": "object"})])

    async def call_tool(_context: Any, _params: Any) -> mcp_types.CallToolResult:
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text="echo")])

    server: Server[Any] = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)
    manager = StreamableHTTPSessionManager(server)
    await stack.enter_async_context(manager.run())
    port = await stack.enter_async_context(gateway._listen(StreamableHTTPASGIApp(manager)))
    return await over_http(stack, f"http://127.0.0.1:{port}/mcp")


async def through(stack: AsyncExitStack, store: SQLiteExecutionStore) -> Client:
    """A client of the gateway before the same stdio server."""
    server = StdioServer(name="asking", command=sys.executable, args=(str(SERVER),))
    spec = AgentSpec(harness=Scripted(), message="go", servers=(ServerBinding(server=server),))
    store.register_worker(
        worker_id="w", kind="embedded", pid=os.getpid(), version="0", prefix=sys.prefix, lease_seconds=600
    )
    store.create_execution("e", spec={}, worker_id="w", managed=False, labels={})
    job = Job("e", spec, tuple(launch.located() for launch in resolve(spec)), "fail")
    bell = Doorbell(store.data_version)
    execution = Execution(job, store=store, rounds=None, bell=bell, announce=lambda: None)
    connected = await stack.enter_async_context(upstream.connect(job.launches[0], execution.coordinator))
    journal = Journal(store, "e", lambda: None)
    endpoints = await stack.enter_async_context(gateway.serve([connected], tools=None, journal=journal))
    return await over_http(stack, endpoints[0].url, endpoints[0].token)


async def measure(calls: int, path: Path) -> dict[str, float]:
    """Median milliseconds of a call, for each way."""
    store = SQLiteExecutionStore(path)
    async with AsyncExitStack() as stack:
        ways = {"stdio": await direct(stack), "HTTP": await echo(stack), "gateway": await through(stack, store)}
        took: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(calls + 20):
            for way, client in ways.items():
                began = time.perf_counter()
                await client.session.call_tool("echo", {})
                if number >= 20:
                    took[way].append((time.perf_counter() - began) * 1000)
    store.close()
    return {way: statistics.median(times) for way, times in took.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        medians = asyncio.run(measure(options.calls, Path(folder) / "bench.sqlite"))
    ratio = medians["gateway"] / (medians["stdio"] + medians["HTTP"])
    for way, milliseconds in medians.items():
        print(f"{way:8} {milliseconds:6.2f} ms")
    print(f"gateway to stdio plus HTTP: {ratio:.2f} (limit {LIMIT:g})")
    return 1 if options.check and ratio > LIMIT else 0


if __name__ == "__main__":
    raise SystemExit(main())
