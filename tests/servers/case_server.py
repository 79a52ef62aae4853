"""A hand-written MCP server that asks what the files of a folder say, in both protocol eras, over stdio and HTTP.

No SDK: one would rewrite the schemas. ``case_server.py FOLDER legacy|2026-07-28`` speaks over its standard streams;
``case_server.py FOLDER http`` listens on 127.0.0.1, prints its port and serves ``/legacy/RUN`` and ``/2026-07-28/RUN``
for any RUN.

Every case is the tool ``<id>``, the prompt ``<id>`` and the resource ``case://<id>``; the template ``any://{id}`` reads
each of them too. Two members that no file of the cases has: ``for_ever`` asks the first round again and again,
``early`` says that a URL is done before it was consented to.

With CASE_LOG set, what arrives is appended to that file, one JSON object a line, members as they were received:

- ``{"event": "hello", "capabilities"}``: a legacy client has introduced itself
- ``{"event": "call", "case", "message"}``: a call or the retry of one, the whole JSON-RPC request
- ``{"event": "answer", "case", "asked", "message"}``: the whole reply to an ``elicitation/create`` of the legacy era
- ``{"event": "complete", "case", "id"}``: ``notifications/elicitation/complete`` goes out

Each has ``run`` (None over stdio), ``at`` (seconds of a monotonic clock).
"""

from __future__ import annotations

import base64
import json
import os
import queue
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LEGACY, MODERN = "legacy", "2026-07-28"
VERSIONS = {LEGACY: "2025-11-25", MODERN: MODERN}
META = "io.modelcontextprotocol/"
INFO = {"name": "cases", "version": "1.0.0"}
KEY = "ask"
NAMES = {"tools/call": ("tool", "name"), "prompts/get": ("prompt", "name"), "resources/read": ("resource", "uri")}
COMPLETE = "notifications/elicitation/complete"

Message = dict[str, Any]
Send = Callable[[Message], None]


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A JSON-RPC error to send."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}


def log(run: str | None, event: str, **about: Any) -> None:
    path = os.environ.get("CASE_LOG")
    if path:
        line = json.dumps({"event": event, "run": run, "at": time.monotonic(), **about}) + "\n"
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line)


def load(folder: str) -> dict[str, Message]:
    cases = (json.loads(path.read_text("utf-8")) for path in sorted(Path(folder).glob("*.json")))
    return {case["id"]: case for case in cases}


def params_of(case: Message) -> Message:
    """The one ``elicitation/create`` request of a form or a URL case."""
    if case.get("kind") == "url":
        return dict(case["request"]["params"])
    return {"mode": "form", "message": case["message"], "requestedSchema": case["requestedSchema"]}


def results_of(case: Message) -> list[Message]:
    """The ``InputRequiredResult`` of each round of a case in the newer era."""
    if case.get("kind") == "mrtr":
        return list(case["results"]) if "results" in case else [case["result"]]
    request = {"method": "elicitation/create", "params": params_of(case)}
    return [
        {"resultType": "input_required", "inputRequests": {KEY: request}, "requestState": f"the state of {case['id']}"}
    ]


class Session:
    """One client. ``push`` sends what belongs to no running call."""

    def __init__(self, cases: dict[str, Message], era: str, run: str | None, push: Send) -> None:
        self.cases = cases
        self.era = era
        self.run = run
        self.push = push
        self.refused: set[str] = set()
        self.waiting: dict[str, queue.Queue[Message]] = {}

    def handle(self, message: Message, send: Send) -> None:
        """Handle one message; ``send`` reaches the client while this runs."""
        if "method" not in message:
            self.waiting[message["id"]].put(message)
        elif "id" in message:
            try:
                reply: Message = {"result": self.reply(message, send)}
            except Refusal as refusal:
                reply = {"error": refusal.error}
            send({"jsonrpc": "2.0", "id": message["id"], **reply})

    def reply(self, message: Message, send: Send) -> Message:
        method, params = message["method"], message.get("params") or {}
        if method in NAMES:
            return self.call(message, send)
        if method == "ping" and self.era == LEGACY:
            return {}
        if method == "initialize":
            return self.initialize(params)
        offers = {"tools": {}, "prompts": {}, "resources": {}}
        if method == "server/discover" and self.era == MODERN:
            about = {"supportedVersions": [MODERN], "capabilities": offers, "_meta": {f"{META}serverInfo": INFO}}
            return self.complete(about, cacheable=True)
        listed = self.listed().get(method)
        if listed is None:
            raise Refusal(-32601, f"unknown method: {method}")
        return self.complete(listed, cacheable=True)

    def initialize(self, params: Message) -> Message:
        if self.era == MODERN:
            data = {"supported": [MODERN], "requested": params.get("protocolVersion")}
            raise Refusal(-32022, "this server speaks 2026-07-28", data)
        log(self.run, "hello", capabilities=params["capabilities"])
        offers = {"tools": {}, "prompts": {}, "resources": {}}
        return {"protocolVersion": VERSIONS[LEGACY], "capabilities": offers, "serverInfo": INFO}

    def listed(self) -> dict[str, Message]:
        return {
            "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.cases]},
            "prompts/list": {"prompts": [{"name": name, "arguments": [{"name": "note"}]} for name in self.cases]},
            "resources/list": {"resources": [{"name": name, "uri": f"case://{name}"} for name in self.cases]},
            "resources/templates/list": {"resourceTemplates": [{"name": "any case", "uriTemplate": "any://{id}"}]},
        }

    def complete(self, result: Message, *, cacheable: bool = False) -> Message:
        if self.era == MODERN:
            result = {"resultType": "complete", **result}
            if cacheable:
                result = {**result, "ttlMs": 0, "cacheScope": "private"}
        return result

    def call(self, message: Message, send: Send) -> Message:
        kind, member = NAMES[message["method"]]
        params = message["params"]
        name = params[member]
        case = self.cases.get(name.partition("://")[2] if kind == "resource" else name)
        if case is None:
            raise Refusal(-32602, f"unknown {kind}: {name}")
        log(self.run, "call", case=case["id"], message=message)
        asks = self.ask_again if self.era == MODERN else self.ask_during
        return asks(case, params, send) or self.ended(case, kind, name)

    def ended(self, case: Message, kind: str, name: str) -> Message:
        text = f"{case['id']} ended"
        if kind == "tool":
            return self.complete({"content": [{"type": "text", "text": text}]})
        if kind == "prompt":
            return self.complete({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
        return self.complete({"contents": [{"uri": name, "text": text}]}, cacheable=True)

    def ask_again(self, case: Message, params: Message, _send: Send) -> Message | None:
        """The newer era: the next ``InputRequiredResult``, found by the state alone; None when nothing is left."""
        if f"{META}clientCapabilities" not in params.get("_meta", {}):
            raise Refusal(-32602, "a request says what its client is capable of")
        if "elicitation" not in params["_meta"][f"{META}clientCapabilities"]:
            raise Refusal(-32021, "elicitation is needed", {"requiredCapabilities": {"elicitation": {}}})
        results = results_of(case)
        if "inputResponses" not in params and "requestState" not in params:
            return results[0]
        states = [result.get("requestState") for result in results]
        if params.get("requestState") not in states:
            raise Refusal(-32602, "this is not the state that was sent")
        if case.get("for_ever"):
            return results[0]
        return dict(enumerate(results)).get(states.index(params.get("requestState")) + 1)

    def ask_during(self, case: Message, _params: Message, send: Send) -> None:
        """The older era: a request while the call runs, or the error that lists addresses to visit first."""
        if case.get("kind") == "error":
            return self.refuse_once(case)
        params = params_of(case)
        if params["mode"] == "form":
            # As older servers do: the member is newer than the request.
            del params["mode"]
        asked = f"ask-{uuid.uuid4().hex}"
        box = self.waiting[asked] = queue.Queue()
        send({"jsonrpc": "2.0", "id": asked, "method": "elicitation/create", "params": params})
        if case.get("early"):
            self.follow_up(case, send)
        reply = box.get()
        log(self.run, "answer", case=case["id"], asked=asked, message=reply)
        if "error" in reply:
            raise Refusal(-32603, f"could not ask: {reply['error']['message']}")
        if not case.get("early"):
            self.follow_up(case, send)
        return None

    def follow_up(self, case: Message, send: Send) -> None:
        """Say what a case says afterwards, say it again, and of an id that nobody knows."""
        for followup in case.get("followups", ()):
            known = followup["params"]["elicitationId"]
            for elicitation in (known, known, "an id that nobody knows"):
                self.say_complete(case["id"], elicitation, send)

    def refuse_once(self, case: Message) -> None:
        if case["id"] in self.refused:
            return
        self.refused.add(case["id"])
        error = case["error"]

        def visited() -> None:
            for elicitation in error["data"]["elicitations"]:
                self.say_complete(case["id"], elicitation["elicitationId"], self.push)

        threading.Timer(0.05, visited).start()
        raise Refusal(error["code"], error["message"], error["data"])

    def say_complete(self, case: str, elicitation: str, send: Send) -> None:
        log(self.run, "complete", case=case, id=elicitation)
        send({"jsonrpc": "2.0", "method": COMPLETE, "params": {"elicitationId": elicitation}})


def speak(cases: dict[str, Message], era: str) -> None:
    """Speak over the standard streams until stdin ends."""
    lock = threading.Lock()

    def write(message: Message) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    session = Session(cases, era, None, write)
    for line in sys.stdin:
        # A call waits for its answer, which comes in by the same door.
        threading.Thread(target=session.handle, args=(json.loads(line), write), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    """Streamable HTTP: a session with SSE streams in the older era, one JSON reply per POST in the newer one."""

    protocol_version = "HTTP/1.1"
    cases: dict[str, Message]
    sessions: dict[str, tuple[Session, queue.Queue[Message]]]

    def log_message(self, *_about: Any) -> None:
        """Say nothing on stderr."""

    def setup(self) -> None:
        super().setup()
        # Headers and body are two writes; Nagle would hold the second back for 40 ms.
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        _, era, run = self.path.split("/")
        if era == MODERN:
            self.answer_at_once(message, Session(self.cases, era, run, lambda _: None))
        else:
            self.answer_in_session(message, run)

    def answer_at_once(self, message: Message, session: Session) -> None:
        wrong = self.wrong_header(message)
        if wrong is not None:
            error = {"code": -32020, "message": f"the header {wrong} does not say what the body says"}
            self.write_json(400, {"jsonrpc": "2.0", "id": message.get("id"), "error": error})
            return
        replies: list[Message] = []
        session.handle(message, replies.append)
        error = replies[0].get("error", {})
        self.write_json({-32601: 404, -32602: 400, -32021: 400, -32022: 400}.get(error.get("code"), 200), replies[0])

    def wrong_header(self, message: Message) -> str | None:
        """Which header of the 2026-07-28 transport contradicts the body, if any."""
        if message["method"] == "initialize":
            return None
        params = message.get("params", {})
        expected = {
            "Mcp-Method": message["method"],
            "MCP-Protocol-Version": params.get("_meta", {}).get(f"{META}protocolVersion"),
        }
        if message["method"] in NAMES:
            expected["Mcp-Name"] = params[NAMES[message["method"]][1]]
        return next((name for name, value in expected.items() if decoded(self.headers.get(name)) != value), None)

    def answer_in_session(self, message: Message, run: str) -> None:
        if message.get("method") == "initialize":
            key, pushed = uuid.uuid4().hex, queue.Queue[Message]()
            self.sessions[key] = Session(self.cases, LEGACY, run, pushed.put), pushed
        else:
            key = self.headers.get("Mcp-Session-Id", "")
        if key not in self.sessions:
            # Also what tells a client that probes for the newer era to shake hands.
            error = {"code": -32000, "message": "initialize first"}
            self.write_json(400, {"jsonrpc": "2.0", "id": message.get("id"), "error": error})
            return
        session, _ = self.sessions[key]
        if "method" in message and "id" in message:
            self.start_stream(key)
            session.handle(message, self.write_event)
            self.wfile.write(b"0\r\n\r\n")
        else:
            session.handle(message, self.write_event)
            self.write_json(202, None)

    def do_GET(self) -> None:
        """The stream for what belongs to no call."""
        key = self.headers.get("Mcp-Session-Id", "")
        if key not in self.sessions:
            self.write_json(405, None)
            return
        _, pushed = self.sessions[key]
        self.start_stream(key)
        while key in self.sessions:
            try:
                self.write_event(pushed.get(timeout=0.1))
            except queue.Empty:
                continue
        self.wfile.write(b"0\r\n\r\n")

    def do_DELETE(self) -> None:
        self.sessions.pop(self.headers.get("Mcp-Session-Id", ""), None)
        self.write_json(200, None)

    def start_stream(self, key: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Mcp-Session-Id", key)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def write_event(self, message: Message) -> None:
        event = f"event: message\ndata: {json.dumps(message)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))

    def write_json(self, status: int, message: Message | None) -> None:
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def decoded(value: str | None) -> str | None:
    """A header's text; what is no plain ASCII travels as ``=?base64?…?=``."""
    if value is None or not value.startswith("=?base64?"):
        return value
    return base64.b64decode(value.removeprefix("=?base64?").removesuffix("?=")).decode("utf-8")


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_about: Any) -> None:
        """A client that hangs up while a stream is open is no news."""


def listen(cases: dict[str, Message]) -> None:
    """Listen until the process is ended."""
    Handler.cases, Handler.sessions = cases, {}
    with Listener(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    found = load(sys.argv[1])
    if sys.argv[2] == "http":
        listen(found)
    else:
        speak(found, sys.argv[2])
