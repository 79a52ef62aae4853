"""Hands requests on to another server when they carry the right key, else answers 401: ``key_door.py PORT URL KEY``.

With the word ``refuses-answers`` it answers 500 to whoever answers a question.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, URL, KEY = int(sys.argv[1]), sys.argv[2], sys.argv[3]
REFUSES_ANSWERS = sys.argv[4:] == ["refuses-answers"]


class Door(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("authorization") != KEY:
            self.reply(401, "text/plain", b"")
            return
        if REFUSES_ANSWERS and body and "result" in json.loads(body):
            self.reply(500, "text/plain", b"")
            return
        kept = {n: v for n, v in self.headers.items() if n.lower() not in ("host", "content-length", "connection")}
        request = urllib.request.Request(URL, data=body, headers=kept, method=self.command)
        try:
            with urllib.request.urlopen(request) as answer:
                self.pass_on(answer)
        except urllib.error.HTTPError as error:
            self.reply(error.code, error.headers.get("content-type", "text/plain"), error.read())

    do_GET = do_DELETE = do_POST  # noqa: N815 - the names that http.server looks for

    def pass_on(self, answer: HTTPResponse) -> None:
        """Hand an answer on as it comes: an event stream asks before it ends."""
        self.send_response(answer.status)
        for name in ("content-type", "mcp-session-id"):
            if answer.headers[name]:
                self.send_header(name, answer.headers[name])
        self.send_header("connection", "close")
        self.end_headers()
        while part := answer.read1(65536):
            self.wfile.write(part)
            self.wfile.flush()

    def reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind or "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Door).serve_forever()
