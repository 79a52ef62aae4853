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
import wide
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from runs import classic

import m3nb.runtime.gateway as gateway_module
from m3nb.harness import Endpoint
from m3nb.runtime import gateway, upstream
from m3nb.runtime.doorbell import Doorbell
from m3nb.runtime.execution import Execution, Job
from m3nb.runtime.journal import Journal
from m3nb.runtime.launch import resolve
from m3nb.storage import InMemoryExecutionStore
from m3nb.types import AgentSpec, Scripted, Server, ServerBinding


@asynccontextmanager
async def door(
    tools: tuple[str, ...] | None = None, server: Server | None = None
) -> AsyncIterator[tuple[Endpoint, InMemoryExecutionStore]]:
    store = InMemoryExecutionStore()
    binding = ServerBinding(server=server or classic())
    spec = AgentSpec(harness=Scripted(), message="go", servers=(binding,), tools=tools)
    store.create_execution("e", spec={}, worker_id="w", managed=False, labels={})
    job = Job("e", spec, tuple(launch.located() for launch in resolve(spec)), "fail")
    bell = Doorbell(store.data_version)
    execution = Execution(job, store=store, rounds=None, bell=bell, announce=lambda: None)
    journal = Journal(store, "e", lambda: None)
    async with upstream.connect(job.launches[0], execution.coordinator) as connected:
        async with gateway.serve([connected], tools=tools, journal=journal) as endpoints:
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


def bearer(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.token}"}


async def talk(endpoint: Endpoint, do: Any) -> Any:
    async with httpx2.AsyncClient(headers=bearer(endpoint), trust_env=False) as http:
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


@pytest.mark.parametrize(("server", "has"), [(classic(), False), (wide.in_process(), True)])
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
def test_a_capability_is_declared_only_where_the_server_has_it(server, has, protocol) -> None:
    async def look() -> Any:
        async with door(server=server) as (endpoint, _):
            async with httpx2.AsyncClient(headers=bearer(endpoint), trust_env=False) as http:
                async with Client(streamable_http_client(endpoint.url, http_client=http), mode=protocol) as client:
                    return client.server_capabilities

    declared = asyncio.run(look())
    assert declared.tools is not None
    assert ((declared.prompts is not None), (declared.resources is not None)) == (has, has)
    assert declared.completions is declared.logging is None


def test_prompts_and_resources_are_listed_as_the_server_lists_them() -> None:
    async def do(client: Client) -> Any:
        prompts = (await client.list_prompts()).prompts
        resources = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        with pytest.raises(MCPError, match="there is no resource wide://none"):
            await client.read_resource("wide://none")
        return [p.name for p in prompts], [r.uri for r in resources], [t.uri_template for t in templates]

    async def look() -> Any:
        async with door(server=wide.in_process()) as (endpoint, _):
            return await talk(endpoint, do)

    prompts, resources, templates = asyncio.run(look())
    assert prompts == list(wide.wide_server.NAMES)
    assert resources == [f"wide://{name}" for name in prompts]
    assert templates == ["wide://{name}"]


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
def test_a_call_that_lasts_reports_progress_to_its_agent(monkeypatch, protocol) -> None:
    assert 15 <= gateway_module.BEAT_SECONDS <= 20
    monkeypatch.setattr(gateway_module, "BEAT_SECONDS", 0.1)
    beats: list[tuple[float, str | None]] = []

    async def beat(progress: float, _total: float | None, message: str | None) -> None:
        beats.append((progress, message))

    async def look() -> None:
        async with door(server=wide.in_process()) as (endpoint, _):
            async with httpx2.AsyncClient(headers=bearer(endpoint), trust_env=False) as http:
                async with Client(streamable_http_client(endpoint.url, http_client=http), mode=protocol) as client:
                    await client.call_tool("slow", {"seconds": 1}, progress_callback=beat)

    asyncio.run(look())
    assert len(beats) >= 3
    seconds = [progress for progress, _ in beats]
    assert seconds == sorted(set(seconds))
    assert beats[0][1] is not None
