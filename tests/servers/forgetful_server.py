"""Forgets the state it made, and asks something else the second time. Hand-written JSON-RPC over stdio, 2026-07-28."""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
REFUSAL = {"code": -32602, "message": "Invalid or expired requestState", "data": {"reason": "invalid_request_state"}}


def ask(message: str, state: str) -> dict[str, Any]:
    params = {"mode": "form", "message": message, "requestedSchema": SCHEMA}
    requests = {"q": {"method": "elicitation/create", "params": params}}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


def main() -> None:
    calls = 0
    for line in sys.stdin:
        message = json.loads(line)
        method, request, params = message.get("method"), message.get("id"), message.get("params", {})
        reply: dict[str, Any]
        if method == "server/discover":
            reply = {
                "result": {
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "ttlMs": 0,
                    "cacheScope": "public",
                }
            }
        elif method == "tools/list":
            tools = [{"name": "go", "inputSchema": {"type": "object"}}]
            reply = {"result": {"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "public"}}
        elif params.get("requestState") == "one":
            reply = {"error": REFUSAL}
        elif params.get("requestState") == "two":
            reply = {"result": {"resultType": "complete", "content": [{"type": "text", "text": "fine"}]}}
        else:
            calls += 1
            reply = {"result": ask("First?", "one") if calls == 1 else ask("Second?", "two")}
        if request is not None:
            print(json.dumps({"jsonrpc": "2.0", "id": request, **reply}), flush=True)


if __name__ == "__main__":
    main()
