"""The way to one server, for each kind of server: how it is reached, and its last words when it is lost."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

import httpx2
import mcp_types
from mcp.client._transport import TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from m3nb.redaction import REDACTED
from m3nb.runtime.inprocess import InProcessLine
from m3nb.runtime.launch import HTTPLaunch, InProcessLaunch, Launch, StdioLaunch, is_loopback

MARK = "M3NB_EXECUTION"
"""Environment variable that marks a server process as one of this execution."""

STDERR_TAIL = 2_000
"""How many bytes of a failed server's last words an error quotes."""

CONNECT_SECONDS = 30.0
"""How long connecting to a server over HTTP, and sending to it, may take."""


class Line(Protocol):
    """The way to one server."""

    lost: bool
    """Whether the way is known to be cut. (A server process that ends is noticed by its streams.)"""

    on_answer_lost: Callable[[], None]
    """Called when an answer to one of the server's questions is known not to have been taken."""

    def open(self) -> AbstractAsyncContextManager[TransportStreams]:
        """The transport that the SDK's client enters."""

    def last_words(self) -> str:
        """What is known about the end of it, for an error message; known secrets are hidden."""


@contextmanager
def line_to(launch: Launch, execution_id: str) -> Iterator[Line]:
    """The way to a server, and what it needs for as long as it is in use."""
    if isinstance(launch, StdioLaunch):
        with tempfile.TemporaryFile() as stderr:
            yield _StdioLine(launch, execution_id, stderr)
    elif isinstance(launch, HTTPLaunch):
        yield _HTTPLine(launch)
    else:
        assert isinstance(launch, InProcessLaunch)
        yield InProcessLine(launch)


class _StdioLine:
    lost = False

    def __init__(self, launch: StdioLaunch, execution_id: str, stderr: IO[bytes]) -> None:
        self.on_answer_lost = _nothing
        self._launch = launch
        self._execution_id = execution_id
        self._stderr = stderr

    def open(self) -> AbstractAsyncContextManager[TransportStreams]:
        launch = self._launch
        parameters = StdioServerParameters(
            command=launch.command,
            args=list(launch.args),
            env={**launch.environment, MARK: self._execution_id},
            cwd=launch.cwd,
        )
        # Any file with a descriptor takes the server's stderr.
        return stdio_client(parameters, errlog=self._stderr)  # type: ignore[arg-type]

    def last_words(self) -> str:
        size = self._stderr.seek(0, 2)
        # A little more than is quoted, so that no secret is cut in two before it is looked for.
        margin = max((len(secret.encode()) for secret in self._launch.secrets), default=0)
        self._stderr.seek(max(0, size - STDERR_TAIL - margin))
        text = _hidden(self._stderr.read().decode("utf-8", "replace").strip(), self._launch.secrets)[-STDERR_TAIL:]
        return f". It last wrote:\n{text}" if text else ""


class _HTTPLine:
    def __init__(self, launch: HTTPLaunch) -> None:
        self.on_answer_lost = _nothing
        self._launch = launch
        self._problem = ""
        self.lost = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[TransportStreams]:
        launch = self._launch
        local = is_loopback(urlsplit(launch.url).hostname or "")
        client = _Client(
            self,
            headers=launch.headers,
            # No read timeout: a call takes as long as the person who answers.
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
            # A proxy is for the world outside.
            trust_env=not local,
        )
        async with client:
            async with streamable_http_client(launch.url, http_client=client, max_sse_event_size=None) as streams:
                yield streams

    def note(self, response: httpx2.Response) -> None:
        """Remember a status that may explain what follows."""
        if response.status_code in (401, 403, 404, 407) or response.status_code >= 500:
            self._problem = f"it answered {response.status_code} {response.reason_phrase}".rstrip()

    def cut(self, error: Exception) -> str:
        """Remember that the way is cut; returns why."""
        self.lost = True
        self._problem = str(error) or type(error).__name__
        return "the connection failed"

    def last_words(self) -> str:
        about = f": {_hidden(self._problem, self._launch.secrets)}" if self._problem else ""
        return f" ({self._launch.url.partition('?')[0]}{about})"


class _Client(httpx2.AsyncClient):
    """Turns a connection that fails into an answer that says so: the SDK's client would end all its calls at once."""

    def __init__(self, line: _HTTPLine, **options: Any) -> None:
        super().__init__(**options)
        self._line = line

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            failure = {"code": mcp_types.CONNECTION_CLOSED, "message": self._line.cut(error)}
            if _is_answer(request):
                self._line.on_answer_lost()
            body = json.dumps({"jsonrpc": "2.0", "id": None, "error": failure}).encode()
            return httpx2.Response(502, headers={"content-type": "application/json"}, content=body, request=request)
        self._line.note(response)
        if response.status_code >= 400 and _is_answer(request):
            self._line.on_answer_lost()
        return response


def _is_answer(request: httpx2.Request) -> bool:
    """Whether a request carries the answer to a question: the SDK does not look at what becomes of it."""
    if request.method != "POST":
        return False
    try:
        message = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return False
    return isinstance(message, dict) and "result" in message


def _nothing() -> None:
    """Where nobody has asked to be told."""


def _hidden(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text
