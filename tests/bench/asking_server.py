"""What the benchmarks call: hand-written JSON-RPC over stdio, so that the server's own cost is next to nothing.

``echo`` answers at once; ``ask`` puts ``count`` questions one after another. ``ASKING_LOG`` names a file that gets the
time of each answer's arrival (nanoseconds of the system's monotonic clock, which all processes share).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO

FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(number: int) -> None:
    write({"id": f"q{number}", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORM}})


def main() -> None:
    path = os.environ.get("ASKING_LOG", os.devnull)
    with open(path, "a", buffering=1) as log:
        serve(log)


def serve(log: TextIO) -> None:
    call: Any = None
    left = 0
    for line in sys.stdin:
        arrived = time.monotonic_ns()
        message = json.loads(line)
        method, request = message.get("method"), message.get("id")
        if method == "initialize":
            info = {"name": "asking", "version": "1"}
            write(
                {
                    "id": request,
                    "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info},
                }
            )
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "ask")]
            write({"id": request, "result": {"tools": tools}})
        elif method == "tools/call" and message["params"]["name"] == "ask":
            call, left = request, int(message["params"].get("arguments", {}).get("count", 1))
            ask(left)
        elif method == "tools/call":
            write({"id": request, "result": {"content": [{"type": "text", "text": "echo"}]}})
        elif method is None:
            log.write(f"{arrived}\n")
            left -= 1
            if left:
                ask(left)
            else:
                write({"id": call, "result": {"content": [{"type": "text", "text": "done"}]}})
        elif request is not None:
            write({"id": request, "error": {"code": -32601, "message": method}})


if __name__ == "__main__":
    main()
