"""Questions and answers on the wire exactly as they were sent and stored.

The SDK's types refuse a schema without ``properties``, hold flat content only, and warn with the content in the text.
Servers do send such schemas and do ask for nested objects and lists of numbers, so both travel past those types.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, Self

import anyio
import mcp_types
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, Discriminator, PrivateAttr, Tag, TypeAdapter

from m3nb.elicitation import ElicitationResponse, OperationKind
from m3nb.errors import InvalidSchemaError
from m3nb.frozen import thaw

_MARK = "m3nb/schema"

_NO_ID = "m3nb/none"


def _reply_kind(value: Any) -> str:
    # The result type decides, not the shape: an InputRequiredResult may carry _meta and look like any result.
    kind = value.get("resultType") if isinstance(value, dict) else value.result_type
    return "input_required" if kind == "input_required" else "complete"


Final = mcp_types.CallToolResult | mcp_types.GetPromptResult | mcp_types.ReadResourceResult
"""What ends an operation well."""

Reply = Final | mcp_types.InputRequiredResult

Answers = Mapping[str, dict[str, Any]]
"""Answers to a round in the protocol's JSON, by request key."""


def _reply(final: Any) -> TypeAdapter[Any]:
    return TypeAdapter(
        Annotated[
            Annotated[final, Tag("complete")] | Annotated[mcp_types.InputRequiredResult, Tag("input_required")],
            Discriminator(_reply_kind),
        ]
    )


REPLY: Mapping[OperationKind, TypeAdapter[Reply]] = {
    "tool": _reply(mcp_types.CallToolResult),
    "prompt": _reply(mcp_types.GetPromptResult),
    "resource": _reply(mcp_types.ReadResourceResult),
}


class _WithAnswers(BaseModel):
    """A request whose answers go out as they were stored."""

    _answers: Answers | None = PrivateAttr(default=None)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        data = super().model_dump(**options)
        if self._answers is not None:
            data["params"]["inputResponses"] = self._answers
        return data


class _ToolCall(_WithAnswers, mcp_types.CallToolRequest):
    pass


class _PromptGet(_WithAnswers, mcp_types.GetPromptRequest):
    pass


class _ResourceRead(_WithAnswers, mcp_types.ReadResourceRequest):
    pass


def request(
    kind: OperationKind, name: str, arguments: Mapping[str, Any], answers: Answers | None, state: str | None
) -> mcp_types.CallToolRequest | mcp_types.GetPromptRequest | mcp_types.ReadResourceRequest:
    """The request for an operation; with answers and state it is the retry of one that needed input."""
    made: _ToolCall | _PromptGet | _ResourceRead
    if kind == "tool":
        tool = mcp_types.CallToolRequestParams(name=name, arguments=thaw(arguments), request_state=state)
        made = _ToolCall(params=tool)
    elif kind == "prompt":
        prompt = mcp_types.GetPromptRequestParams(name=name, arguments=thaw(arguments) or None, request_state=state)
        made = _PromptGet(params=prompt)
    else:
        made = _ResourceRead(params=mcp_types.ReadResourceRequestParams(uri=name, request_state=state))
    made._answers = answers
    return made


def plain(response: ElicitationResponse) -> dict[str, Any]:
    """An answer in the protocol's JSON: action, content and _meta, the absent ones left out."""
    answer: dict[str, Any] = {"action": response.action}
    if response.content is not None:
        answer["content"] = thaw(response.content)
    if response.meta is not None:
        answer["_meta"] = thaw(response.meta)
    return answer


def elicitation_id(params: mcp_types.ElicitRequestURLParams) -> str | None:
    """The id that the server gave to a URL request, if it gave one."""
    return None if params.elicitation_id == _NO_ID else params.elicitation_id


class ExactForms:
    """Carries schemas in and answers out as they are, past the SDK's narrower types. ``on_end``: the server has gone.

    Each schema that comes in is kept here and a plain one takes its place; a mark in ``_meta`` says which it was.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._answers: dict[mcp_types.RequestId, dict[str, Any]] = {}
        self._when_sent: dict[mcp_types.RequestId, Callable[[], None]] = {}
        self._schemas: dict[str, Any] = {}
        self._count = 0
        self.ended = False
        """Whether the server's side of the connection has ended. No error code says so: servers use -32000 too."""

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._on_end()

    def answer(self, request_id: mcp_types.RequestId, response: ElicitationResponse) -> mcp_types.ElicitResult:
        """What the callback for ``elicitation/create`` returns: the action; the rest joins it on the way out."""
        self._answers[request_id] = plain(response)
        return mcp_types.ElicitResult(action=response.action)

    def when_answered(self, request_id: mcp_types.RequestId, call: Callable[[], None]) -> None:
        """Call once the answer or error to a request is on its way."""
        self._when_sent[request_id] = call

    def schema(self, params: mcp_types.ElicitRequestFormParams) -> tuple[Any, dict[str, Any] | None]:
        """The schema as the server sent it, and the request's ``_meta`` without our mark.

        Raises `InvalidSchemaError` for a question that is none: no schema, an unknown mode.
        """
        meta: dict[str, Any] = dict(params.meta or {})
        schema = self._schemas.pop(meta.pop(_MARK, ""), params.requested_schema)
        if isinstance(schema, InvalidSchemaError):
            raise schema
        return schema, meta or None

    @asynccontextmanager
    async def over(self, transport: AbstractAsyncContextManager[TransportStreams]) -> AsyncIterator[TransportStreams]:
        """The same transport, with schemas taken out and answers put in."""
        async with transport as (read, write):
            yield _Reader(read, self._take_schemas, self._end), _Writer(write, self._put_answer, self._sent)

    def _put_answer(self, message: Any) -> None:
        if isinstance(message, mcp_types.JSONRPCResponse):
            message.result.update(self._answers.pop(message.id, {}))

    def _sent(self, message: Any) -> None:
        if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError) and message.id is not None:
            self._when_sent.pop(message.id, lambda: None)()

    def _take_schemas(self, message: Any) -> None:
        if isinstance(message, mcp_types.JSONRPCRequest) and message.method == "elicitation/create":
            self._take_schema(message.params)
            if isinstance(message.params, dict) and message.params.get("mode") == "url":
                # The SDK refuses a URL request without one, and some servers send none.
                message.params.setdefault("elicitationId", _NO_ID)
        elif isinstance(message, mcp_types.JSONRPCResponse) and message.result.get("resultType") == "input_required":
            requests = message.result.get("inputRequests")
            for request in requests.values() if isinstance(requests, dict) else ():
                if isinstance(request, dict) and request.get("method") == "elicitation/create":
                    self._take_schema(request.get("params"))

    def _take_schema(self, params: Any) -> None:
        if not isinstance(params, dict) or params.get("mode") == "url":
            return
        meta = params.get("_meta")
        self._count += 1
        mark = str(self._count)
        self._schemas[mark] = _schema_of(params)
        # What is left is a question the SDK takes, whatever was sent: the refusal is ours, with a reason.
        params["_meta"] = {**(meta if isinstance(meta, dict) else {}), _MARK: mark}
        params["requestedSchema"] = {"type": "object", "properties": {}}
        params.pop("mode", None)
        if not isinstance(params.get("message"), str):
            params["message"] = ""


def _schema_of(params: dict[str, Any]) -> Any:
    """The schema of a form request, or why there is none."""
    mode = params.get("mode", "form")
    if mode != "form":
        return InvalidSchemaError(f"the server asked in the unknown mode {str(mode)[:40]!r}: form and url are known")
    schema = params.get("requestedSchema")
    if isinstance(schema, dict):
        return schema
    if "requestedSchema" in params:
        return InvalidSchemaError(f"requestedSchema must be an object, the server sent a {type(schema).__name__}")
    instead = ' (it sent "schema": the protocol says requestedSchema)' if "schema" in params else ""
    return InvalidSchemaError(f"the server asked without a requestedSchema{instead}")


class _Stream:
    """A stream whose messages are looked at on the way; everything else is the stream's own."""

    def __init__(self, stream: Any, look: Callable[[Any], None]) -> None:
        self._stream = stream
        self._look = look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


class _Reader(_Stream):
    def __init__(self, stream: Any, look: Callable[[Any], None], ended: Callable[[], None]) -> None:
        super().__init__(stream, look)
        self._ended = ended

    async def receive(self) -> SessionMessage | Exception:
        try:
            item: SessionMessage | Exception = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended()
            raise
        if isinstance(item, SessionMessage):
            self._look(item.message)
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Writer(_Stream):
    def __init__(self, stream: Any, look: Callable[[Any], None], sent: Callable[[Any], None]) -> None:
        super().__init__(stream, look)
        self._sent = sent

    async def send(self, item: SessionMessage) -> None:
        self._look(item.message)
        await self._stream.send(item)
        self._sent(item.message)
