"""A hand-written MCP server over stdio, protocol 2025-06-18: it asks with `elicitation/create` during `tools/call`.

No SDK, so that what m3nb understands is the wire and not one library. Tools:

- ``book``    asks once for an address, then books
- ``twice``   asks for a name, then for a colour
- ``plain``   asks nothing
- ``slow``    sleeps ``seconds`` (default 1), asks nothing
- ``crash``   ends the process during the call; with ``{"after_question": true}`` once an answer has arrived
- ``ask``     asks with the ``message`` and ``schema`` it is given

With SHIPPING_LOG set, each answer that arrives is appended to that file as one JSON line. A question carries no key on
this protocol.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

ADDRESS = {
    "type": "object",
    "title": "Address",
    "properties": {
        "street": {"type": "string", "title": "Street", "minLength": 3},
        "city": {"type": "string", "title": "City"},
        "gift": {"type": "boolean", "title": "Gift"},
    },
    "required": ["street", "city"],
}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
COLOUR = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "green"]}},
    "required": ["colour"],
}
ANY = {"type": "object", "properties": {}}
TOOLS = {
    "book": "Book a shipment; asks for the address.",
    "twice": "Asks for a name, then for a colour.",
    "plain": "Asks nothing.",
    "slow": "Sleeps.",
    "crash": "Ends the server.",
    "ask": "Asks what it is told to ask.",
}


class Server:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: dict[str, queue.Queue[dict[str, Any]]] = {}
        self.count = 0
        self.can_ask = False

    def write(self, message: dict[str, Any]) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def ask(self, message: str, schema: dict[str, Any]) -> dict[str, Any]:
        if not self.can_ask:
            raise RuntimeError("the client did not say that it can be asked")
        with self.lock:
            self.count += 1
            key = f"ask-{self.count}"
            box = self.answers[key] = queue.Queue()
        params = {"message": message, "requestedSchema": schema}
        self.write({"id": key, "method": "elicitation/create", "params": params})
        reply = box.get()
        if "error" in reply:
            raise RuntimeError(reply["error"]["message"])
        log(reply["result"])
        return dict(reply["result"])

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        if name == "book":
            answer = self.ask("Where should it go?", ADDRESS)
            if answer["action"] != "accept":
                return f"not booked ({answer['action']})"
            return f"booked to {answer['content']['city']}"
        if name == "twice":
            first = self.ask("Your name?", NAME)
            second = self.ask("Your colour?", COLOUR)
            return f"{first['action']} {second['action']} {(second.get('content') or {}).get('colour')}"
        if name == "slow":
            time.sleep(float(arguments.get("seconds", 1)))
            return "slept"
        if name == "crash":
            if arguments.get("after_question"):
                self.ask("Any last words?", ANY)
            os._exit(3)
        if name == "ask":
            return json.dumps(self.ask(arguments["message"], arguments["schema"]))
        return f"plain {json.dumps(arguments, sort_keys=True)}"

    def answer_call(self, request: dict[str, Any]) -> None:
        params = request["params"]
        error = False
        try:
            text = self.call(params["name"], params.get("arguments") or {})
        except RuntimeError as failure:
            text, error = f"could not ask: {failure}", True
        result = {"content": [{"type": "text", "text": text}], "isError": error}
        self.write({"id": request["id"], "result": result})

    def handle(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            box = self.answers.pop(str(message.get("id")), None)
            if box is not None:
                box.put(message)
        elif method == "initialize":
            self.can_ask = "elicitation" in message["params"]["capabilities"]
            info = {"name": "classic", "version": "1.0.0"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            self.write({"id": message["id"], "result": result})
        elif method == "tools/list":
            tools = [
                {"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in TOOLS.items()
            ]
            self.write({"id": message["id"], "result": {"tools": tools}})
        elif method == "tools/call" and message["params"].get("name") in TOOLS:
            threading.Thread(target=self.answer_call, args=(message,), daemon=True).start()
        elif method == "ping":
            self.write({"id": message["id"], "result": {}})
        elif "id" in message:
            error = {"code": -32601, "message": f"unknown: {method} {message.get('params', {}).get('name', '')}"}
            self.write({"id": message["id"], "error": error})


def log(answer: dict[str, Any]) -> None:
    path = os.environ.get("SHIPPING_LOG")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"action": answer["action"], "content": answer.get("content") or {}}) + "\n")
            file.flush()
            os.fsync(file.fileno())


def main() -> None:
    server = Server()
    for line in sys.stdin:
        if line.strip():
            server.handle(json.loads(line))


if __name__ == "__main__":
    main()
