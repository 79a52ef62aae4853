"""Hands requests on to another server when they carry the right key, else answers 401: ``key_door.py PORT URL KEY``."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, URL, KEY = int(sys.argv[1]), sys.argv[2], sys.argv[3]


class Door(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("authorization") != KEY:
            self.reply(401, "text/plain", b"")
            return
        kept = {n: v for n, v in self.headers.items() if n.lower() not in ("host", "content-length", "connection")}
        request = urllib.request.Request(URL, data=body, headers=kept, method=self.command)
        try:
            with urllib.request.urlopen(request) as answer:
                self.reply(answer.status, answer.headers["content-type"], answer.read())
        except urllib.error.HTTPError as error:
            self.reply(error.code, error.headers.get("content-type", "text/plain"), error.read())

    do_GET = do_DELETE = do_POST  # noqa: N815 - the names that http.server looks for

    def reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind or "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Door).serve_forever()
