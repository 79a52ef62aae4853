"""A server in this process, on a thread and an event loop of its own: one that blocks or exits holds up nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._memory import SERVER_SHUTDOWN_GRACE, InMemoryTransport
from mcp.client._transport import TransportStreams
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from m3nb.errors import ServerError
from m3nb.runtime.launch import InProcessLaunch

logger = logging.getLogger(__name__)

LEAVE_SECONDS = SERVER_SHUTDOWN_GRACE + 0.5
"""How long a server may take to end once its client has gone. Then its thread is left to itself."""

T = TypeVar("T")


class InProcessLine:
    """The way to a server that ``launch.factory`` makes (`m3nb.runtime.transports.Line`)."""

    lost = False

    def __init__(self, launch: InProcessLaunch) -> None:
        self.on_answer_lost: Callable[[], None] = lambda: None
        self._launch = launch
        self._home: _Home | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[TransportStreams]:
        """Raises `ServerError` when the factory fails or returns no server."""
        home = self._home = _Home(self._launch)
        home.start()
        try:
            await home.ready
            yield home.for_client, home.to_server
        finally:
            await home.leave()

    def last_words(self) -> str:
        """What ended the server, when it was not asked to end."""
        died = self._home.died if self._home is not None else None
        return f". It raised {_told(died)}" if died is not None else ""


class _Home:
    """The thread of one server. What is public belongs to the client's event loop, which makes it."""

    def __init__(self, launch: InProcessLaunch) -> None:
        self._launch = launch
        self._here = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._here.create_future()
        self._ended = asyncio.Event()
        self._there: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self.died: BaseException | None = None
        self._to_client: MemoryObjectSendStream[SessionMessage | Exception]
        self.for_client: MemoryObjectReceiveStream[SessionMessage | Exception]
        self._to_client, self.for_client = anyio.create_memory_object_stream(1)
        self.to_server: MemoryObjectSendStream[SessionMessage]
        self._for_server: MemoryObjectReceiveStream[SessionMessage]
        self.to_server, self._for_server = anyio.create_memory_object_stream(1)

    def start(self) -> None:
        # A daemon: a server that blocks for ever must not keep the interpreter.
        name = f"m3nb-{self._launch.selector}"
        threading.Thread(target=self._main, name=name, daemon=True).start()

    async def leave(self) -> None:
        """Let the server go; one that does not end in time is told once more and left."""
        self.to_server.close()
        with anyio.CancelScope(shield=True), anyio.move_on_after(LEAVE_SECONDS):
            await self._ended.wait()
        if not self._ended.is_set() and self._there is not None and self._task is not None:
            logger.debug("%s did not end in time", self._launch.selector)
            with contextlib.suppress(RuntimeError):  # it has ended just now
                self._there.call_soon_threadsafe(self._task.cancel)
        for stream in (self.for_client, self._to_client, self._for_server):
            stream.close()

    def _main(self) -> None:
        try:
            with asyncio.Runner() as runner:
                try:
                    runner.run(self._serve())
                except BaseException as error:  # sys.exit() in a tool ends this loop, and no other
                    self.died = error
                finally:
                    # Before the runner ends what is left in its loop, which may well block.
                    self._tell(self._end)
        except BaseException:
            logger.debug("%s left something behind", self._launch.selector, exc_info=True)

    def _begin(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def _end(self) -> None:
        self._ended.set()
        self._to_client.close()
        if not self.ready.done():
            died = self.died
            failed = died if isinstance(died, ServerError) else self._failed(f"its thread ended: {_told(died)}")
            self.ready.set_exception(failed)
            self.ready.exception()  # whoever waited may have gone

    async def _serve(self) -> None:
        self._there, self._task = asyncio.get_running_loop(), asyncio.current_task()
        server = await self._made()
        async with InMemoryTransport(server) as (read, write):
            self._tell(self._begin)
            async with anyio.create_task_group() as group:
                group.start_soon(self._carry_out, read)
                with contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                    while True:
                        await write.send(await self._over_there(self._for_server.receive))
                group.cancel_scope.cancel()

    async def _carry_out(self, read: Any) -> None:
        """The server's messages to the client, until the server has ended."""
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async for message in read:
                await self._over_there(self._to_client.send, message)
        self._tell(self._to_client.close)

    async def _made(self) -> Server[Any] | MCPServer:
        try:
            server = self._launch.factory()
            if inspect.isawaitable(server):
                server = await server
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise self._failed(f"its factory raised {_told(error)}") from error
        if not isinstance(server, Server | MCPServer):
            kind = type(server).__name__
            raise self._failed(f"its factory returned a {kind}, not a server of the mcp package (MCPServer or Server)")
        return server

    def _failed(self, why: str) -> ServerError:
        name = self._launch.selector
        return ServerError(f"{name} could not be started: {why}", details={"server": name})

    def _tell(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the client's loop is closed: nobody is left to be told
            self._here.call_soon_threadsafe(call)

    async def _over_there(self, what: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Await ``what`` in the client's loop."""

        async def call() -> T:
            return await what(*arguments)

        calling = call()
        try:
            future = asyncio.run_coroutine_threadsafe(calling, self._here)
        except RuntimeError:
            calling.close()
            raise anyio.BrokenResourceError from None
        return await asyncio.wrap_future(future)


def _told(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"
