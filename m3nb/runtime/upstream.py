"""The MCP client of one real server: reaches it, makes its calls one at a time, carries questions and answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import mcp_types
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError as ProtocolError
from pydantic import ValidationError

from m3nb.errors import InvalidSchemaError, MCPError, OperationTimeout, ServerError, UnsafeUrlError
from m3nb.runtime import wire
from m3nb.runtime.asking import CLASSIC_KEY, question
from m3nb.runtime.calls import Call, Completions
from m3nb.runtime.coordinator import Coordinator, Operation
from m3nb.runtime.launch import Launch, StdioLaunch
from m3nb.runtime.transports import Line, line_to

START_SECONDS = 30.0
"""How long a server may take to answer the first message."""

TELL_SECONDS = 1.0
"""How long an execution that ends goes on so that the server hears why its question has no answer."""

T = TypeVar("T")

for _noisy in ("mcp", "client", "uvicorn.error", "httpx2", "httpcore2"):
    _logger = logging.getLogger(_noisy)
    # Without a handler Python prints warnings to stderr, which a notebook shows under whatever cell runs.
    _logger.addHandler(logging.NullHandler())
    if _logger.level == logging.NOTSET:
        # A program that logs at INFO wants to hear of itself, not of each of our requests on loopback.
        _logger.setLevel(logging.WARNING)


class Upstream:
    """A connected server. Made by `connect`."""

    def __init__(self, launch: Launch, coordinator: Coordinator, line: Line) -> None:
        self.name = launch.selector
        self.tools: Sequence[mcp_types.Tool] = ()
        self.has_prompts = False
        self.has_resources = False
        self._protocol = launch.protocol
        self._coordinator = coordinator
        self._line = line
        line.on_answer_lost = self._on_answer_lost
        self._exact = wire.ExactForms(self._on_end)
        self._completions = Completions()
        self._client: Client | None = None
        # A classic question does not say which call caused it: one call at a time makes that certain.
        self._turn = asyncio.Lock()
        self._call: Call | None = None

    async def perform(self, operation: Operation) -> wire.Final:
        """Call a tool, get a prompt or read a resource; questions on the way are answered by the person.

        Raises the coordinator's typed errors, `ServerError` when the server is gone, and the SDK's ``MCPError`` for a
        protocol error that the agent should see.
        """
        assert self._client is not None
        session = self._client.session

        async def send(answers: wire.Answers | None, state: str | None) -> wire.Reply:
            request = wire.request(operation.kind, operation.name, operation.parameters, answers, state)
            return await session.send_request(request, wire.REPLY[operation.kind])

        async with self._turn:
            call = self._call = Call(operation, self._coordinator, self._exact, self._completions)
            try:
                return await call.run(send, self._explain, self._ended)
            except BaseException as error:
                call.lose(_as_typed(error, self._coordinator.ending))
                raise
            finally:
                call.take_back()
                self._call = None

    async def list_prompts(self) -> list[mcp_types.Prompt]:
        """The server's prompts, asked for anew."""
        client = self._connected()
        return await self._listed("prompts", lambda cursor: client.list_prompts(cursor=cursor), lambda p: p.prompts)

    async def list_resources(self) -> list[mcp_types.Resource]:
        """The server's resources, asked for anew."""
        client = self._connected()
        return await self._listed(
            "resources", lambda cursor: client.list_resources(cursor=cursor), lambda page: page.resources
        )

    async def list_templates(self) -> list[mcp_types.ResourceTemplate]:
        """The server's resource templates, asked for anew."""
        client = self._connected()
        return await self._listed(
            "resource templates",
            lambda cursor: client.list_resource_templates(cursor=cursor),
            lambda page: page.resource_templates,
        )

    async def _list_tools(self) -> list[mcp_types.Tool]:
        client = self._connected()
        try:
            return await self._listed("tools", lambda cursor: client.list_tools(cursor=cursor), lambda page: page.tools)
        except ServerError as error:
            unknown = isinstance(error.__cause__, ProtocolError) and error.__cause__.code == mcp_types.METHOD_NOT_FOUND
            if unknown and client.server_capabilities.tools is None:
                return []
            raise

    async def _listed(
        self, what: str, page_at: Callable[[str | None], Awaitable[Any]], items: Callable[[Any], list[T]]
    ) -> list[T]:
        found: list[T] = []
        cursor: str | None = None
        seen: set[str | None] = set()
        while cursor not in seen:
            seen.add(cursor)
            try:
                page = await page_at(cursor)
            except (ProtocolError, ValidationError) as error:
                raise ServerError(
                    f"{self.name} could not list its {what}: {_innermost(error)}{self._line.last_words()}",
                    details={"server": self.name},
                ) from error
            found.extend(items(page))
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ServerError(
            f"{self.name} lists its {what} in a circle: the cursor {cursor!r} came twice",
            details={"server": self.name},
        )

    def _connected(self) -> Client:
        assert self._client is not None
        return self._client

    async def begin(self, client: Client) -> None:
        """Learn what the server offers, once its client is connected."""
        self._client = client
        declared = client.server_capabilities
        self.tools = await self._list_tools()
        # A server pinned to a version was not asked what it declares: whether it lists them says as much.
        pinned = self._protocol not in ("auto", "legacy")
        self.has_prompts = declared.prompts is not None or (pinned and await _goes_well(self.list_prompts()))
        self.has_resources = declared.resources is not None or (pinned and await _goes_well(self.list_resources()))

    async def on_elicitation(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        """Answer an ``elicitation/create`` request: the SDK's client calls this."""
        call = self._call
        if call is None:
            return mcp_types.ErrorData(
                code=mcp_types.INVALID_REQUEST, message="a question is answered during a call only, and none is running"
            )
        try:
            request = question(call.operation, CLASSIC_KEY, params, self._exact)
            answered = await call.ask_during(CLASSIC_KEY, request)
        except Exception as failure:
            # The call's own task raises it; the server only learns that there is no answer.
            error = failure if isinstance(failure, MCPError) else _unforeseen(failure)
            call.error = error
            self._abort_when_told(context.request_id, error)
            if isinstance(error, OperationTimeout):
                # The protocol's word for a question that nobody decided; the round says that time ran out.
                return mcp_types.ElicitResult(action="cancel")
            bad = isinstance(error, InvalidSchemaError | UnsafeUrlError)
            code = mcp_types.INVALID_PARAMS if bad else mcp_types.INTERNAL_ERROR
            return mcp_types.ErrorData(code=code, message="the question was not answered")
        if answered is None:
            return mcp_types.ErrorData(code=mcp_types.INTERNAL_ERROR, message="the call that asked has ended")
        return self._exact.answer(context.request_id, answered.responses[CLASSIC_KEY])

    def _abort_when_told(self, request_id: mcp_types.RequestId, error: MCPError) -> None:
        """End the execution, which closes the connection, once the server has been told: or soon, if it can't be."""

        def abort() -> None:
            self._coordinator.abort(error)

        self._exact.when_answered(request_id, abort)
        asyncio.get_running_loop().call_later(TELL_SECONDS, abort)

    async def on_message(self, message: object) -> None:
        """Notice a visited URL, and a message that could not be read: the SDK's client calls this.

        A line that is no message at all is only somebody's ``print``.
        """
        if isinstance(message, mcp_types.ElicitCompleteNotification):
            elicitation_id = message.params.elicitation_id
            if self._completions.complete(elicitation_id):
                await self._coordinator.completed(self.name, elicitation_id)
            return
        if not isinstance(message, ValidationError):
            return
        problem = message.errors(include_url=False)[0]
        if "jsonrpc" not in str(problem.get("input"))[:200]:
            return
        kind: type[MCPError] = ServerError
        why = f"cannot be read: {problem['msg']}"
        if "recursion limit" in problem["msg"]:
            kind, why = InvalidSchemaError, "is nested too deeply to be read (some 200 levels are)"
        self._coordinator.abort(kind(f"{self.name} sent a message that {why}", details={"server": self.name}))

    def _on_end(self) -> None:
        # With an InputRequiredResult nothing is in flight while the person thinks: nobody else would notice.
        if self._call is None or self._coordinator.ending is not None:
            return
        if self._call.error is not None:
            self._coordinator.abort(self._call.error)
        else:
            self._ended(self._call.operation, "ended during {}", self._line.last_words())

    def _on_answer_lost(self) -> None:
        # The SDK does not look at what becomes of an answer, and a result may still come: it would seem delivered.
        if self._call is not None:
            self._ended(
                self._call.operation, "did not take the answer to its question during {}", self._line.last_words()
            )

    async def _explain(self, call: Call, error: Exception) -> Exception:
        """The error to raise for a failed call: the question's own, or that the server is gone, or the server's."""
        if call.error is not None:
            return call.error
        if isinstance(error, MCPError):
            return error
        if isinstance(error, ProtocolError) and not self._is_lost(error):
            # The server reacted, if only by refusing: the answer has reached it.
            await call.settle()
            return self._with_era_hint(error)
        if isinstance(error, ProtocolError | OSError) or type(error).__module__.startswith("anyio"):
            return self._ended(call.operation, "ended during {}", self._line.last_words())
        await call.settle()
        if isinstance(error, ValidationError):
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, problem["loc"]))
            return ProtocolError(
                mcp_types.INTERNAL_ERROR, f"{self.name} sent a result that cannot be read: {where}: {problem['msg']}"
            )
        return error

    def _is_lost(self, error: ProtocolError) -> bool:
        # The code alone says nothing: -32000 is the first one that JSON-RPC leaves to servers.
        cut = error.code == mcp_types.CONNECTION_CLOSED and error.message.startswith("SSE stream ")
        return self._exact.ended or self._line.lost or cut

    def _ended(self, operation: Operation, what: str, more: str = "") -> ServerError:
        """End the execution because of what the server did; ``{}`` in ``what`` is the operation."""
        error = ServerError(
            f"{self.name} {what.format(f'{operation.kind} {operation.name}')}{more}",
            details={"server": self.name, "operation": operation.name},
        )
        self._coordinator.abort(error)
        return error

    def _with_era_hint(self, error: ProtocolError) -> ProtocolError:
        """The same error; where the protocol's era is to blame it names the option that helps."""
        if error.code == mcp_types.INVALID_REQUEST and "no back-channel" in error.message:
            wanted = "legacy"
        elif error.code == mcp_types.INTERNAL_ERROR and "invalid result" in error.message and self._protocol != "auto":
            wanted = "auto"
        else:
            return error
        # Never tried again here: the tool may have acted before it asked.
        hint = f'{self.name} asks in the way of another protocol era: give this server protocol="{wanted}"'
        return ProtocolError(error.code, f"{error.message} ({hint})", error.data)


@asynccontextmanager
async def connect(launch: Launch, coordinator: Coordinator) -> AsyncIterator[Upstream]:
    """Reach a server and shake hands; on leaving, let it go (a process: stdin closed, SIGTERM, SIGKILL to its group).

    Raises `ServerError` when it cannot be reached or does not answer within `START_SECONDS`.
    """
    with line_to(launch, coordinator.execution_id) as line:
        upstream = Upstream(launch, coordinator, line)
        client = Client(
            upstream._exact.over(line.open()),
            mode=launch.protocol,
            elicitation_callback=upstream.on_elicitation,
            message_handler=upstream.on_message,
            cache=None,
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                await client.__aenter__()
        except TimeoutError:
            raise _not_started(launch, line, f"it did not answer within {START_SECONDS:.0f} s") from None
        except (ProtocolError, OSError, ValueError, RuntimeError, ExceptionGroup) as error:
            raise _not_started(launch, line, _innermost(error)) from error
        try:
            await upstream.begin(client)
            yield upstream
        finally:
            await client.__aexit__(None, None, None)


def _not_started(launch: Launch, line: Line, reason: str) -> ServerError:
    verb = "started" if isinstance(launch, StdioLaunch) else "reached"
    return ServerError(
        f"{launch.selector} could not be {verb}: {reason}{line.last_words()}", details={"server": launch.selector}
    )


async def _goes_well(listing: Awaitable[object]) -> bool:
    try:
        await listing
    except ServerError:
        return False
    return True


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _unforeseen(error: Exception) -> ServerError:
    return ServerError(f"the question could not be put: {type(error).__name__}: {error}")


def _as_typed(error: BaseException, ending: MCPError | None) -> MCPError:
    if isinstance(error, MCPError):
        return error
    return ending or ServerError(f"the answer may not have reached the server: {_innermost(error)}")
