"""Servers that behave badly, one way each: ``odd_server.py MODE``. Hand-written JSON-RPC over stdio, 2025-06-18."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

MODE = sys.argv[1]
FORM = {"type": "object", "properties": {}}
TOOL = {"name": "go", "inputSchema": {"type": "object"}}


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(key: str, **params: Any) -> None:
    write({"id": key, "method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORM, **params}})


def done(request: Any, text: str) -> None:
    write({"id": request, "result": {"content": [{"type": "text", "text": text}]}})


def refuse(request: Any) -> None:
    # -32000 is the first code that JSON-RPC leaves to servers; the SDK uses it for a closed connection too.
    write({"id": request, "error": {"code": -32000, "message": "stock is empty"}})


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def initialize(request: Any) -> None:
    if MODE == "dies at initialize":
        os._exit(3)
    info = {"name": "odd", "version": "1"}
    result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    write({"id": request, "result": result})
    if MODE == "prints":
        print("Starting up...\n{broken", flush=True)
    if MODE == "asks outside a call":
        ask("outside")


def list_tools(request: Any) -> None:
    if MODE == "dies at tools/list":
        os._exit(3)
    if MODE == "cannot list":
        write({"id": request, "error": {"code": -32603, "message": "no list today"}})
    elif MODE == "lists in a circle":
        write({"id": request, "result": {"tools": [], "nextCursor": "same"}})
    else:
        more = [{**TOOL, "name": f"other{number}"} for number in range(1000 if MODE == "many tools" else 0)]
        write({"id": request, "result": {"tools": [TOOL, *more]}})


def call(request: Any) -> bool:
    """Returns whether answers must come before the call ends."""
    if MODE == "asks two at once":
        ask("one")
        ask("two")
        return True
    if MODE == "asks at length":
        ask("one", message="x" * 5_000_000)
        return True
    if MODE == "asks too deeply":
        ask("one", requestedSchema=deep(400))
        return True
    if MODE == "asks deeply":
        ask("one", requestedSchema=deep(80))
        return True
    if MODE == "asks without a schema":
        write({"id": "one", "method": "elicitation/create", "params": {"message": "?", "schema": FORM}})
        return True
    if MODE == "asks in another mode":
        ask("one", mode="hologram")
        return True
    if MODE == "asks with a list":
        ask("one", requestedSchema=[1, 2])
        return True
    if MODE == "asks, then refuses":
        ask("one")
        return True
    if MODE == "refuses":
        refuse(request)
        return False
    if MODE == "answers null":
        write({"id": request, "result": None})
        return False
    if MODE == "asks and goes on":
        ask("one")
    if MODE == "answers twice":
        done(request, "fine")
    if MODE == "floods":
        for _ in range(5_000):
            write({"method": "notifications/message", "params": {"level": "info", "data": "x" * 100}})
    done(request, "fine")
    return False


def main() -> None:
    if MODE == "does not end":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    running: Any = None
    wanted = 2 if MODE == "asks two at once" else 1
    for line in sys.stdin:
        message = json.loads(line)
        method, request = message.get("method"), message.get("id")
        if method == "initialize":
            initialize(request)
        elif method == "tools/list":
            list_tools(request)
        elif method == "tools/call":
            running = request if call(request) else None
        elif method is None and running is not None:
            wanted -= 1
            if wanted == 0:
                refuse(running) if MODE == "asks, then refuses" else done(running, "fine")
        elif request is not None and method is not None:
            write({"id": request, "error": {"code": -32601, "message": f"unknown: {method}"}})
    while MODE == "does not end":
        time.sleep(1)


if __name__ == "__main__":
    main()
