"""The wide server in its three kinds, and a person who answers everything it asks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runs import HERE
from servers import wide_server

from m3nb import (
    ElicitationResponse,
    ExecutionHandle,
    ExecutionResult,
    HTTPServer,
    InProcessServer,
    MCPTestKit,
    PendingElicitationRound,
    StdioServer,
)

SCRIPT = HERE / "servers" / "wide_server.py"

Answer = Callable[[PendingElicitationRound], dict[str, ElicitationResponse]]


def stdio(log: Path | None = None, *, protocol: str = "auto", **environment: str) -> StdioServer:
    """The server as a subprocess; environment without the prefix WIDE_."""
    wide = {f"WIDE_{name.upper()}": value for name, value in environment.items()}
    logged = {} if log is None else {"WIDE_LOG": str(log)}
    return StdioServer(
        name="wide", command=sys.executable, args=(str(SCRIPT),), environment={**logged, **wide}, protocol=protocol
    )


def in_process(log: Path | None = None, *, protocol: str = "auto", **options: Any) -> InProcessServer:
    """The server in the worker's loop."""
    text = None if log is None else str(log)
    return InProcessServer(name="wide", factory=lambda: wide_server.make(text, **options), protocol=protocol)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def over_http(log: Path | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A process that serves over HTTP: its URL, and the process."""
    port = free_port()
    environment = {**os.environ, **({} if log is None else {"WIDE_LOG": str(log)})}
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(port)], env=environment)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the server did not come up"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait()


def http(url: str, *, protocol: str = "auto", **fields: Any) -> HTTPServer:
    return HTTPServer(name="wide", url=url, protocol=protocol, **fields)


def yes(pending: PendingElicitationRound) -> dict[str, ElicitationResponse]:
    """Accept every request of a round."""

    def content(request: Any) -> dict[str, Any] | None:
        if request.mode == "url":
            return None
        return {"city": "Pune"} if "city" in request.requested_schema["properties"] else {"yes": True}

    return {key: ElicitationResponse(action="accept", content=content(r)) for key, r in pending.requests.items()}


def submit(kit: MCPTestKit, server: Any, *lines: str, **options: Any) -> ExecutionHandle:
    agent = kit.agents([{"harness": "scripted"}])[0]
    options.setdefault("human_input", "managed")
    return agent.submit("\n".join(lines), server=server, **options)


def see_through(
    handle: ExecutionHandle, answer: Answer = yes, seconds: float = 60
) -> tuple[ExecutionResult, list[PendingElicitationRound]]:
    """Answer every round until the execution ends; what was asked comes with the result."""
    asked: dict[str, PendingElicitationRound] = {}
    deadline = time.monotonic() + seconds
    while True:
        result = handle.finished_result()
        if result is not None:
            return result, list(asked.values())
        pending = handle.pending_elicitation()
        if pending is not None and pending.round_id not in asked:
            asked[pending.round_id] = pending
            handle.respond_elicitation(pending.round_id, answer(pending), idempotency_key=pending.round_id)
        assert time.monotonic() < deadline, f"not finished: {handle.snapshot()}"
        time.sleep(0.005)
