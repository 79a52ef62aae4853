"""Real servers and small waits for tests that run executions."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from m3nb import ElicitationResponse, ExecutionHandle, PendingElicitationRound, StdioServer

HERE = Path(__file__).parent
CLASSIC = HERE / "servers" / "classic_server.py"
SHIPPING = HERE.parent / "notebooks" / "shipping_server.py"
ADDRESS = {"street": "1 Main Street", "city": "Pune"}

T = TypeVar("T")


def classic(log: Path | None = None, **fields: Any) -> StdioServer:
    """The hand-written server that asks with ``elicitation/create``."""
    return _server("classic", CLASSIC, log, fields)


def shipping(log: Path | None = None, **fields: Any) -> StdioServer:
    """The quickstart's server, which asks with an ``InputRequiredResult``."""
    return _server("shipping", SHIPPING, log, fields)


def _server(name: str, script: Path, log: Path | None, fields: dict[str, Any]) -> StdioServer:
    environment = {**({} if log is None else {"SHIPPING_LOG": str(log)}), **fields.pop("environment", {})}
    fields.setdefault("args", (str(script),))
    return StdioServer(name=name, **{"command": sys.executable, "environment": environment, **fields})


def accept(content: dict[str, Any] | None = None) -> ElicitationResponse:
    return ElicitationResponse(action="accept", content=ADDRESS if content is None else content)


def until(look: Callable[[], T | None], seconds: float = 20.0) -> T:
    """What ``look`` returns, as soon as that is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"nothing within {seconds} s")


def wait_for_round(handle: ExecutionHandle, *, after: str | None = None) -> PendingElicitationRound:
    """The pending round (another one than ``after``)."""

    def look() -> PendingElicitationRound | None:
        pending = handle.pending_elicitation()
        if pending is None:
            snapshot = handle.snapshot()
            assert snapshot.outcome is None, handle.result(timeout=1).error
            return None
        return None if pending.round_id == after else pending

    return until(look)


def deliveries(log: Path) -> list[dict[str, Any]]:
    """The answers that arrived at a server, from its own log."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
