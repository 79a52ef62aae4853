"""How each agent is started, told about the gateway, and read: one file each.

A harness follows one small protocol: it gets an `AgentTask`, talks to the gateway's endpoints, reports what the agent
says through ``emit`` and returns an `AgentOutcome`. Cancelling ``run`` stops the agent. What the agent calls is
recorded by the gateway, the same way for every agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from m3nb.errors import UnsupportedFeature


@dataclass(frozen=True)
class Endpoint:
    """Where an agent finds one server of its execution: an MCP server over streamable HTTP on loopback."""

    server: str
    url: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class AgentTask:
    """What an agent is asked to do. ``tools`` are ``server:tool`` texts, or None for every tool."""

    execution_id: str
    prompt: str
    model: str | None
    endpoints: tuple[Endpoint, ...]
    tools: tuple[str, ...] | None
    emit: Callable[[str, Mapping[str, Any]], None] = field(repr=False)


@dataclass(frozen=True)
class AgentOutcome:
    """What the agent left: its last words, and what it used (tokens and the like)."""

    final_text: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)


class Harness(Protocol):
    """One kind of agent."""

    async def run(self, task: AgentTask) -> AgentOutcome:
        """Run the agent to its end.

        Raises `m3nb.errors.AgentError` when it fails. Cancelled: the agent is stopped, with every process it started.
        """


def find(kind: str) -> Harness:
    """The harness for a kind of `m3nb.types.Harness`. Raises `UnsupportedFeature` for one that is not built."""
    if kind == "scripted":
        from m3nb.harness.scripted import ScriptedHarness

        return ScriptedHarness()
    raise UnsupportedFeature(
        f'the harness "{kind}" is not built into this version of m3nb: use harness="scripted"',
        details={"harness": kind, "available": ["scripted"]},
    )
