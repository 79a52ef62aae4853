"""What a server asks and what a person answers: requests, responses, pending rounds.

Source: spec "Pending request fields", "Response validation and idempotency"; engine-facts section 2. Whether a
response fits its request is decided in `m3nb.validity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

from m3nb.frozen import FrozenDict, JsonObject

Action = Literal["accept", "decline", "cancel"]
"""A person's three answers, in the protocol's words."""

OperationKind = Literal["tool", "prompt", "resource"]
"""The MCP operations during which a server may ask."""

Text = Annotated[str, Field(min_length=1)]
"""Text that is not empty."""


class Model(BaseModel):
    """Base of every value object: immutable, unknown fields refused, deep-copies and pickles."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _aware(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


Time = Annotated[datetime, AfterValidator(_aware)]
"""A moment. One without a zone is taken as UTC, which is how it would be stored."""


class _Request(Model):
    request_key: Text
    message: str
    meta: JsonObject | None = None
    task: JsonObject | None = None
    server: str | None = None
    operation_kind: OperationKind | None = None
    operation_name: str | None = None


class FormElicitationRequest(_Request):
    """A question answered by an object that fits ``requested_schema`` (MCP form mode).

    ``requested_schema`` equals what the server sent, unknown keywords included.
    """

    mode: Literal["form"] = "form"
    requested_schema: JsonObject


class UrlElicitationRequest(_Request):
    """A request to visit ``url`` (MCP URL mode). Any text is accepted here; the form decides what may be a link."""

    mode: Literal["url"] = "url"
    url: str
    elicitation_id: str | None = None


ElicitationRequest = FormElicitationRequest | UrlElicitationRequest


class ElicitationResponse(Model):
    """A person's answer to one request.

    ``decline`` and ``cancel`` carry no content, not even ``{}``. Whether ``accept`` needs content depends on the
    request and is checked when the response is submitted.
    """

    action: Action
    content: JsonObject | None = None
    meta: JsonObject | None = None

    @model_validator(mode="after")
    def _no_content_without_accept(self) -> ElicitationResponse:
        if self.action != "accept" and self.content is not None:
            raise ValueError(f"{self.action} carries no content")
        return self


def _requests(value: Any) -> FrozenDict:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("requests must be a non-empty mapping of request key to request")
    requests = {key: _request(item) for key, item in value.items()}
    for key, request in requests.items():
        if key != request.request_key:
            raise ValueError(f"the request under {key!r} calls itself {request.request_key!r}")
    return FrozenDict(requests)


def _request(value: Any) -> ElicitationRequest:
    if isinstance(value, FormElicitationRequest | UrlElicitationRequest):
        return value
    mode = value.get("mode") if isinstance(value, Mapping) else None
    if mode == "form":
        return FormElicitationRequest.model_validate(value)
    if mode == "url":
        return UrlElicitationRequest.model_validate(value)
    raise ValueError(
        "a request is a FormElicitationRequest, a UrlElicitationRequest or a mapping with mode form or url"
    )


def _dump_requests(value: Mapping[str, ElicitationRequest]) -> dict[str, Any]:
    return {key: request.model_dump(mode="json") for key, request in value.items()}


class PendingElicitationRound(Model):
    """What a server asked in one round, as shown to a person. It holds no lease data.

    ``request_state`` is opaque and goes back to the server byte for byte (``""`` is a state, ``None`` is none).
    ``deadline`` is when the waiting runtime gives up.
    """

    round_id: Text
    execution_id: Text
    logical_operation_id: Text
    server: Text
    operation_kind: OperationKind
    operation_name: Text
    requests: Annotated[
        Mapping[str, FormElicitationRequest | UrlElicitationRequest],
        PlainValidator(_requests),
        PlainSerializer(_dump_requests),
    ]
    created_at: Time
    request_state: str | None = None
    deadline: Time | None = None

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(key)}</td><td>{escape(request.mode)}</td><td>{escape(request.message)}</td></tr>"
            for key, request in self.requests.items()
        )
        where = escape(f"{self.server}: {self.operation_kind} {self.operation_name}")
        return (
            f"<b>Waiting for an answer</b> · {where}<br><code>{escape(self.round_id)}</code>"
            f"<table><thead><tr><th>key</th><th>mode</th><th>message</th></tr></thead><tbody>{rows}</tbody></table>"
        )
