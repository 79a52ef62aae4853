"""What a server asks, read from the wire: questions for a person, and the requests that are answered without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError as ProtocolError
from pydantic import ValidationError

from m3nb.elicitation import ElicitationRequest, FormElicitationRequest, UrlElicitationRequest
from m3nb.errors import InvalidSchemaError, UnsupportedFeature
from m3nb.runtime.coordinator import Operation
from m3nb.runtime.wire import ExactForms, elicitation_id

CLASSIC_KEY = "elicitation"
"""The request key of an ``elicitation/create`` request, which has none of its own."""

NO_MODEL = "m3nb/unsupported"
"""The model name in the answer to a sampling request."""

Questions = dict[str, ElicitationRequest]


def question(
    operation: Operation, key: str, params: mcp_types.ElicitRequestParams, exact: ExactForms
) -> ElicitationRequest:
    """One ``elicitation/create`` as it is stored. Raises `InvalidSchemaError` for one that can't be."""
    common: dict[str, Any] = {
        "request_key": key,
        "message": params.message,
        "task": None if params.task is None else params.task.model_dump(mode="json", by_alias=True, exclude_none=True),
        "server": operation.server,
        "operation_kind": operation.kind,
        "operation_name": operation.name,
    }
    try:
        if isinstance(params, mcp_types.ElicitRequestURLParams):
            meta = None if params.meta is None else dict(params.meta)
            return UrlElicitationRequest(**common, meta=meta, url=params.url, elicitation_id=elicitation_id(params))
        schema, meta = exact.schema(params)
        return FormElicitationRequest(**common, meta=meta, requested_schema=schema)
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise InvalidSchemaError(
            f"{operation.server} asked something that cannot be stored ({key}): {reasons}",
            details={"request_key": key},
        ) from None


def sort_requests(
    operation: Operation, requests: Mapping[str, mcp_types.InputRequest], exact: ExactForms
) -> tuple[Questions, dict[str, dict[str, Any]]]:
    """The questions of an ``InputRequiredResult`` for a person, and the finished answers to everything else in it.

    A server that asks for a sampled message or for roots must have an answer under each key of its one retry, though
    neither capability was declared (MCP 2026-07-28): it gets a valid one that says there is none. Raises
    `UnsupportedFeature` for any other kind.
    """
    questions: Questions = {}
    others: dict[str, dict[str, Any]] = {}
    for key, request in requests.items():
        if isinstance(request, mcp_types.ElicitRequest):
            questions[key] = question(operation, key, request.params, exact)
        elif isinstance(request, mcp_types.ListRootsRequest):
            others[key] = {"roots": []}
        elif isinstance(request, mcp_types.CreateMessageRequest):
            others[key] = _nothing_sampled()
        else:
            raise UnsupportedFeature(
                f"{operation.server} asked for {request.method} ({key}) during {operation.kind} {operation.name}: "
                "m3nb answers elicitation, sampling and roots",
                details={"server": operation.server, "method": request.method, "request_key": key},
            )
    return questions, others


def _nothing_sampled() -> dict[str, Any]:
    text = "m3nb has no model to sample from: the client did not declare the sampling capability."
    content = {"type": "text", "text": text}
    return {"role": "assistant", "content": content, "model": NO_MODEL, "stopReason": "unsupported"}


def required_urls(operation: Operation, error: ProtocolError) -> Questions:
    """The URL requests that an error -32042 lists, by elicitation id (MCP 2025-11-25). Empty for any other error."""
    if error.code != mcp_types.URL_ELICITATION_REQUIRED:
        return {}
    try:
        data = mcp_types.ElicitationRequiredErrorData.model_validate(error.data, by_name=False)
        questions: Questions = {}
        for number, params in enumerate(data.elicitations, start=1):
            key = params.elicitation_id or f"url-{number}"
            # Two of one id are two questions: consent to one address is none to the other.
            key = key if key not in questions else f"{key} ({number})"
            questions[key] = UrlElicitationRequest(
                request_key=key,
                message=params.message,
                url=params.url,
                elicitation_id=params.elicitation_id,
                meta=None if params.meta is None else dict(params.meta),
                server=operation.server,
                operation_kind=operation.kind,
                operation_name=operation.name,
            )
        return questions
    except ValidationError:
        # Not the protocol's form: an error like any other, which the agent should see.
        return {}


def same_questions(one: Mapping[str, ElicitationRequest], other: Mapping[str, ElicitationRequest]) -> bool:
    """Whether two rounds ask the same; what servers put into ``_meta`` (trace ids, times) does not count."""
    return _asked(one) == _asked(other)


def _asked(questions: Mapping[str, ElicitationRequest]) -> dict[str, Any]:
    return {key: request.model_copy(update={"meta": None}) for key, request in questions.items()}
