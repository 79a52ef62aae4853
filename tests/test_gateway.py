"""The door agents come through: loopback, token, Host and Origin, selected tools only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from runs import classic

from m3nb.harness import Endpoint
from m3nb.runtime import gateway, upstream
from m3nb.runtime.doorbell import Doorbell
from m3nb.runtime.execution import Execution, Job
from m3nb.runtime.journal import Journal
from m3nb.runtime.launch import resolve
from m3nb.storage import InMemoryExecutionStore
from m3nb.types import AgentSpec, Scripted, ServerBinding


@asynccontextmanager
async def door(tools: tuple[str, ...] | None = None) -> AsyncIterator[tuple[Endpoint, InMemoryExecutionStore]]:
    store = InMemoryExecutionStore()
    spec = AgentSpec(harness=Scripted(), message="go", servers=(ServerBinding(server=classic()),), tools=tools)
    store.create_execution("e", spec={}, worker_id="w", managed=False, labels={})
    job = Job("e", spec, resolve(spec), "fail")
    bell = Doorbell(store.data_version)
    execution = Execution(job, store=store, rounds=None, bell=bell, announce=lambda: None)
    journal = Journal(store, "e", lambda: None)
    async with upstream.connect(job.launches[0], execution.coordinator) as server:
        async with gateway.serve([server], tools=tools, journal=journal) as endpoints:
            yield endpoints[0], store
    store.close()


async def status(endpoint: Endpoint, *, path: str | None = None, **headers: str) -> int:
    url = urlsplit(endpoint.url)
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accepts = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    async with httpx2.AsyncClient(trust_env=False) as http:
        target = f"http://127.0.0.1:{url.port}{path or url.path}"
        reply = await http.post(target, json=body, headers={**accepts, **headers})
    return reply.status_code


def test_who_may_come_in() -> None:
    async def knock() -> dict[str, int]:
        async with door() as (endpoint, _):
            right = {"Authorization": f"Bearer {endpoint.token}"}
            return {
                "no token": await status(endpoint),
                "wrong token": await status(endpoint, Authorization="Bearer " + "x" * len(endpoint.token)),
                "token twice": await status(endpoint, Authorization=f"Bearer {endpoint.token}{endpoint.token}"),
                "wrong path": await status(endpoint, path="/", **right),
                "foreign host": await status(endpoint, Host="evil.example:80", **right),
                "foreign origin": await status(endpoint, Origin="http://evil.example", **right),
            }

    assert asyncio.run(knock()) == {
        "no token": 401,
        "wrong token": 401,
        "token twice": 401,
        "wrong path": 404,
        "foreign host": 421,
        "foreign origin": 403,
    }


def test_it_listens_on_loopback_only_and_closes_its_port() -> None:
    async def look() -> int:
        async with door() as (endpoint, _):
            port = urlsplit(endpoint.url).port
            assert port is not None
            with socket.socket() as outside, pytest.raises(ConnectionRefusedError):
                outside.connect((_address(), port))
            assert endpoint.token not in repr(endpoint)
            return port

    port = asyncio.run(look())
    with socket.socket() as late, pytest.raises(ConnectionRefusedError):
        late.connect(("127.0.0.1", port))


def _address() -> str:
    """An address of this machine that is not 127.0.0.1; a connection to it must be refused."""
    found = socket.gethostbyname(socket.gethostname())
    return found if not found.startswith("127.0.0.1") else "127.0.0.2"


async def talk(endpoint: Endpoint, do: Any) -> Any:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {endpoint.token}"}, trust_env=False) as http:
        async with Client(streamable_http_client(endpoint.url, http_client=http)) as client:
            return await do(client)


def test_tools_that_were_not_selected_do_not_exist() -> None:
    async def do(client: Client) -> list[str]:
        with pytest.raises(MCPError, match="no tool 'slow'"):
            await client.call_tool("slow", {"seconds": 0})
        return [tool.name for tool in (await client.list_tools()).tools]

    async def look() -> Any:
        async with door(("classic:plain",)) as (endpoint, store):
            shown = await talk(endpoint, do)
            return shown, [event.kind for event in store.events("e")]

    shown, kinds = asyncio.run(look())
    assert shown == ["plain"]
    assert "tool.call" not in kinds


def test_a_large_result_reaches_the_agent_whole_and_the_history_in_part() -> None:
    big = "x" * 200_000

    async def look() -> Any:
        async with door() as (endpoint, store):
            result = await talk(endpoint, lambda client: client.call_tool("plain", {"text": big}))
            return result.content[0].text, store.events("e")

    text, events = asyncio.run(look())
    assert big in text
    recorded = {event.kind: event.payload for event in events}
    assert recorded["tool.call"]["arguments"]["truncated"] is True
    assert len(str(recorded["tool.result"])) < 30_000
