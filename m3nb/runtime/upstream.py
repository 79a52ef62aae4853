"""The MCP client of one real server: starts it, makes its calls one at a time, carries questions and answers.

Both wire forms of a question end in `Coordinator.await_round`: the older ``elicitation/create`` request during a call
(MCP revisions up to 2025-11-25) and the newer ``InputRequiredResult`` (2026-07-28), which asks for a retry.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO, Any

import mcp_types
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError as ProtocolError
from pydantic import ValidationError

from m3nb.elicitation import ElicitationRequest, ElicitationResponse, FormElicitationRequest, UrlElicitationRequest
from m3nb.errors import InvalidSchemaError, MCPError, ServerError, UnsupportedFeature
from m3nb.redaction import REDACTED
from m3nb.runtime import wire
from m3nb.runtime.coordinator import AnsweredRound, Coordinator, Operation
from m3nb.runtime.journal import until_free
from m3nb.runtime.launch import Launch

START_SECONDS = 30.0
"""How long a server may take to answer the first message."""

STDERR_TAIL = 2_000
"""How many bytes of a failed server's last words an error quotes."""

STATE_ONLY_LIMIT = 10
"""How often in a row a server may want the same call again without asking anything."""

MARK = "M3NB_EXECUTION"
"""Environment variable that marks a server process as one of this execution."""

CLASSIC_KEY = "elicitation"
"""The request key of an ``elicitation/create`` request, which has none of its own."""

ToolReply = mcp_types.CallToolResult | mcp_types.InputRequiredResult
_Send = Callable[[Mapping[str, ElicitationResponse] | None, str | None], Awaitable[ToolReply]]

for _noisy in ("mcp", "uvicorn.error"):
    # Without a handler Python prints warnings to stderr, which a notebook shows under whatever cell runs.
    logging.getLogger(_noisy).addHandler(logging.NullHandler())


class _Call:
    """The operation in flight, the answers being handed over in it, and the error its questions ran into."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.delivering: list[AnsweredRound] = []
        self.asking = 0
        self.error: MCPError | None = None

    def settle(self) -> None:
        while self.delivering:
            self.delivering[0].settle()
            self.delivering.pop(0)

    def lose(self, error: MCPError) -> None:
        while self.delivering:
            self.delivering.pop(0).fail(error)


class Upstream:
    """A running server. Made by `connect`."""

    def __init__(self, launch: Launch, coordinator: Coordinator, stderr: IO[bytes]) -> None:
        self.name = launch.selector
        self.tools: Sequence[mcp_types.Tool] = ()
        self._secrets = launch.secrets
        self._protocol = launch.protocol
        self._coordinator = coordinator
        self._stderr = stderr
        self._exact = wire.ExactForms()
        self._client: Client | None = None
        # A classic question does not say which call caused it: one call at a time makes that certain.
        self._turn = asyncio.Lock()
        self._call: _Call | None = None

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> mcp_types.CallToolResult:
        """Call a tool; questions on the way are answered by the person.

        Raises the coordinator's typed errors, `ServerError` when the server is gone, and the SDK's ``MCPError`` for a
        protocol error that the agent should see.
        """
        assert self._client is not None
        session = self._client.session

        async def send(responses: Mapping[str, ElicitationResponse] | None, state: str | None) -> ToolReply:
            return await session.send_request(wire.tool_call(name, arguments, responses, state), wire.TOOL_REPLY)

        async with self._turn:
            call = self._call = _Call(Operation(self.name, "tool", name, arguments))
            try:
                return await self._drive(call, send)
            except BaseException as error:
                call.lose(_as_typed(error, self._coordinator.ending))
                raise
            finally:
                self._call = None

    async def _drive(self, call: _Call, send: _Send) -> mcp_types.CallToolResult:
        responses: Mapping[str, ElicitationResponse] | None = None
        state: str | None = None
        idle = 0
        while True:
            try:
                result = await send(responses, state)
            except Exception as error:
                raise await self._explain(call, error) from error
            if call.error is not None:
                raise call.error
            if call.asking:
                raise self._ended(call, "ended {} without waiting for its question's answer")
            await until_free(call.settle)
            if isinstance(result, mcp_types.CallToolResult):
                return result
            state = result.request_state
            idle = 0 if result.input_requests else idle + 1
            if idle > STATE_ONLY_LIMIT:
                raise self._ended(call, f"wants {{}} again and asks nothing: {STATE_ONLY_LIMIT} times in a row")
            await asyncio.sleep(0.0 if idle < 2 else 0.05 * idle)
            responses = await self._ask_input(call, result)

    async def _ask_input(
        self, call: _Call, result: mcp_types.InputRequiredResult
    ) -> Mapping[str, ElicitationResponse] | None:
        if not result.input_requests:
            # State alone: the server wants the same call again, and nobody is asked.
            return None
        requests = {key: self._request(call.operation, key, request) for key, request in result.input_requests.items()}
        answered = await self._coordinator.await_round(call.operation, requests, result.request_state)
        await until_free(answered.start_delivery)
        call.delivering.append(answered)
        return answered.responses

    async def _on_elicitation(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        call = self._call
        if call is None:
            return mcp_types.ErrorData(
                code=mcp_types.INVALID_REQUEST, message="a question is answered during a call only, and none is running"
            )
        call.asking += 1
        try:
            await until_free(call.settle)
            request = self._question(call.operation, CLASSIC_KEY, params)
            answered = await self._coordinator.await_round(call.operation, {CLASSIC_KEY: request}, None)
            await until_free(answered.start_delivery)
        except Exception as failure:
            # The call's own task raises it; the server only learns that there is no answer.
            error = failure if isinstance(failure, MCPError) else _unforeseen(failure)
            call.error = error
            self._coordinator.abort(error)
            return mcp_types.ErrorData(code=mcp_types.INTERNAL_ERROR, message="the question was not answered")
        finally:
            call.asking -= 1
        call.delivering.append(answered)
        return self._exact.answer(context.request_id, answered.responses[CLASSIC_KEY])

    def _request(self, operation: Operation, key: str, request: mcp_types.InputRequest) -> ElicitationRequest:
        if not isinstance(request, mcp_types.ElicitRequest):
            raise UnsupportedFeature(
                f"{operation.server} asked for {request.method} ({key}) during {operation.kind} {operation.name}: "
                "this version of m3nb answers elicitation only",
                details={"server": operation.server, "method": request.method, "request_key": key},
            )
        return self._question(operation, key, request.params)

    def _question(self, operation: Operation, key: str, params: mcp_types.ElicitRequestParams) -> ElicitationRequest:
        common: dict[str, Any] = {
            "request_key": key,
            "message": params.message,
            "server": operation.server,
            "operation_kind": operation.kind,
            "operation_name": operation.name,
        }
        try:
            if isinstance(params, mcp_types.ElicitRequestURLParams):
                meta = None if params.meta is None else dict(params.meta)
                return UrlElicitationRequest(**common, meta=meta, url=params.url, elicitation_id=params.elicitation_id)
            schema, meta = self._exact.schema(params)
            return FormElicitationRequest(**common, meta=meta, requested_schema=schema)
        except ValidationError as error:
            reasons = "; ".join(
                f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)
            )
            raise InvalidSchemaError(
                f"{operation.server} asked something that cannot be stored ({key}): {reasons}",
                details={"request_key": key},
            ) from None

    async def _explain(self, call: _Call, error: Exception) -> Exception:
        """The error to raise for a failed call: the question's own, or that the server is gone, or the server's."""
        if call.error is not None:
            return call.error
        if isinstance(error, ProtocolError) and not self._exact.ended:
            # The server reacted, if only by refusing: the answer has reached it.
            await until_free(call.settle)
            return self._with_era_hint(error)
        if isinstance(error, ProtocolError | OSError) or type(error).__module__.startswith("anyio"):
            return self._ended(call, "ended during {}", self.last_words())
        await until_free(call.settle)
        return error

    def _ended(self, call: _Call, what: str, more: str = "") -> ServerError:
        """End the execution because of what the server did; ``{}`` in ``what`` is the operation."""
        operation = call.operation
        error = ServerError(
            f"{self.name} {what.format(f'{operation.kind} {operation.name}')}{more}",
            details={"server": self.name, "operation": operation.name},
        )
        self._coordinator.abort(error)
        return error

    async def _on_message(self, message: object) -> None:
        """Notice a message that could not be read; a line that is no message at all is only somebody's ``print``."""
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

    async def _list_tools(self) -> list[mcp_types.Tool]:
        assert self._client is not None
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        seen: set[str | None] = set()
        while cursor not in seen:
            seen.add(cursor)
            try:
                page = await self._client.list_tools(cursor=cursor)
            except (ProtocolError, ValidationError) as error:
                raise ServerError(
                    f"{self.name} could not list its tools: {_innermost(error)}{self.last_words()}",
                    details={"server": self.name},
                ) from None
            tools.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise ServerError(
            f"{self.name} lists its tools in a circle: the cursor {cursor!r} came twice", details={"server": self.name}
        )

    def last_words(self) -> str:
        """The end of what the server wrote to stderr, for an error message; known secrets are hidden."""
        size = self._stderr.seek(0, 2)
        # A little more than is quoted, so that no secret is cut in two before it is looked for.
        margin = max((len(secret.encode()) for secret in self._secrets), default=0)
        self._stderr.seek(max(0, size - STDERR_TAIL - margin))
        text = self._stderr.read().decode("utf-8", "replace").strip()
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        text = text[-STDERR_TAIL:]
        return f". It last wrote:\n{text}" if text else ""


@asynccontextmanager
async def connect(launch: Launch, coordinator: Coordinator) -> AsyncIterator[Upstream]:
    """Start a server and shake hands; on leaving, end it (stdin closed, then SIGTERM, then SIGKILL to its group).

    Raises `ServerError` when it cannot be started or does not answer within `START_SECONDS`.
    """
    with tempfile.TemporaryFile() as stderr:
        upstream = Upstream(launch, coordinator, stderr)
        parameters = StdioServerParameters(
            command=launch.command,
            args=list(launch.args),
            env={**launch.environment, MARK: coordinator.execution_id},
            cwd=launch.cwd,
        )
        client = Client(
            # Any file with a descriptor takes the server's stderr.
            upstream._exact.over(stdio_client(parameters, errlog=stderr)),  # type: ignore[arg-type]
            mode=launch.protocol,
            elicitation_callback=upstream._on_elicitation,
            message_handler=upstream._on_message,
            cache=None,
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                await client.__aenter__()
        except TimeoutError:
            raise _not_started(upstream, f"it did not answer within {START_SECONDS:.0f} s") from None
        except (ProtocolError, OSError, ValueError, ExceptionGroup) as error:
            raise _not_started(upstream, _innermost(error)) from error
        try:
            upstream._client = client
            upstream.tools = await upstream._list_tools()
            yield upstream
        finally:
            await client.__aexit__(None, None, None)


def _not_started(upstream: Upstream, reason: str) -> ServerError:
    return ServerError(
        f"{upstream.name} could not be started: {reason}{upstream.last_words()}", details={"server": upstream.name}
    )


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
