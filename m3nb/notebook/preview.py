"""`m3nb.preview`: what a form looks like and what it would send, for who writes the server. No server, no store.

What is typed stays out of the notebook file here as well: what would be sent is told to the page in a message, never in
a trait, and an output of a cell holds no more than the name of the preview.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from m3nb.elicitation import (
    ElicitationResponse,
    FormElicitationRequest,
    PendingElicitationRound,
    UrlElicitationRequest,
)
from m3nb.errors import InvalidSchemaError, ModelValidationError
from m3nb.frozen import thaw
from m3nb.notebook.desk import Desk, Pages, Publish
from m3nb.notebook.keeping import Keeping
from m3nb.notebook.shown import _kernel, _widget_part
from m3nb.types import ExecutionId, ExecutionOutcome, ExecutionResult, ExecutionState, ExecutionStatus

if TYPE_CHECKING:
    from m3nb.forms import FormPlan, UrlPlan
    from m3nb.notebook.widget import ExecutionWidget

KEY = "preview"
"""The request key of what is given without one."""

HEAD = {
    "status": "Preview",
    "server": "nothing is sent from here",
    "operation": None,
    "elapsed": None,
    "preview": True,
}
"""What the page says instead of who asks and since when. There is no run that could be cancelled."""

_numbers = itertools.count(1)


class _Handle:
    """A handle whose one question waits for ever: an answer is looked at, and may be given again."""

    def __init__(self, request: FormElicitationRequest | UrlElicitationRequest) -> None:
        self.execution_id = f"preview-{next(_numbers)}"
        self.request = request
        self.response: ElicitationResponse | None = None
        self._began = datetime.now(UTC)
        self._cancelled = False

    def pending_elicitation(self) -> PendingElicitationRound | None:
        if self._cancelled:
            return None
        return PendingElicitationRound(
            round_id=f"{self.execution_id}-round",
            execution_id=self.execution_id,
            logical_operation_id=self.execution_id,
            server=self.request.server or KEY,
            operation_kind=self.request.operation_kind or "tool",
            operation_name=self.request.operation_name or KEY,
            requests={self.request.request_key: self.request},
            created_at=self._began,
        )

    def respond_elicitation(
        self, round_id: str, responses: Mapping[str, ElicitationResponse], *, idempotency_key: str
    ) -> None:
        self.response = responses[self.request.request_key]

    def snapshot(self) -> ExecutionState:
        return ExecutionState(
            execution_id=ExecutionId(self.execution_id),
            lifecycle=ExecutionStatus.FINISHED if self._cancelled else ExecutionStatus.WAITING_FOR_INPUT,
            outcome=ExecutionOutcome.CANCELLED if self._cancelled else None,
            created_at=self._began,
        )

    def finished_result(self) -> ExecutionResult | None:
        return ExecutionResult(snapshot=self.snapshot()) if self._cancelled else None

    def cancel(self) -> None:
        self._cancelled = True


class _PreviewDesk(Desk):
    """A desk that says what would be sent where another says that it was."""

    def __init__(self, handle: _Handle) -> None:
        self._sheet = handle
        self.values: dict[str, Any] | None = None
        super().__init__(Keeping(None), handle)

    @property
    def view(self) -> dict[str, Any]:
        return super().view | HEAD

    def publish_to(self, publish: Publish | None, pages: Pages | None = None) -> None:
        super().publish_to(None if publish is None else lambda view: publish(view | HEAD), pages)

    def receive(self, message: Any, send: Publish) -> None:
        def told(reply: dict[str, Any]) -> None:
            if reply["kind"] == "accepted":
                answer = message["responses"][self._sheet.request.request_key]
                self.values = answer.get("values") if answer["action"] == "accept" else None
                # Refused, of no round that is shown: the page says the words and leaves the form as it is.
                reply = {"kind": "refused", "id": reply["id"], "round_id": "", "message": self._words()}
            send(reply)

        super().receive(message, told)

    def _words(self) -> str:
        response = self._sheet.response
        if response is None or response.action != "accept":
            return f"Would be sent: {response.action if response else 'nothing'}, without content."
        if response.content is None:
            return "Would be sent: accept, without content, as always for an address."
        text = json.dumps(thaw(response.content), ensure_ascii=False, indent=2)
        return f"Would be sent: accept, with this content.\n{text}"


class Preview:
    """What `preview` returns. Show it as the last line of a cell; Submit says what would be sent."""

    def __init__(self, request: FormElicitationRequest | UrlElicitationRequest) -> None:
        self.request = request
        self._error: InvalidSchemaError | None = None
        self._desk: _PreviewDesk | None = None
        self._widget: ExecutionWidget | None = None
        self._handle = _Handle(request)
        try:
            if isinstance(request, FormElicitationRequest):
                from m3nb.validity import check_schema

                check_schema(request)
            self._desk = _PreviewDesk(self._handle)
        except InvalidSchemaError as error:
            self._error = error

    @property
    def error(self) -> InvalidSchemaError | None:
        """Why there is no form: no answer can be checked against the schema. None when there is one."""
        return self._error

    @property
    def plan(self) -> FormPlan | UrlPlan:
        """What is drawn, as the page gets it. Raises `InvalidSchemaError` for a schema that cannot be used."""
        from m3nb.forms import compile_form

        if self._error is not None:
            raise self._error
        return compile_form(self.request)

    @property
    def action(self) -> str | None:
        """What was pressed last, of ``accept``, ``decline`` and ``cancel``; None before anything was."""
        return self._handle.response.action if self._handle.response else None

    @property
    def content(self) -> dict[str, Any] | None:
        """The content that the last answer would send: valid, JSON types. None for any but an accepted form."""
        response = self._handle.response
        return None if response is None or response.content is None else dict(thaw(response.content))

    @property
    def values(self) -> dict[str, Any] | None:
        """The same as the page sent it: ``{field: m3nb.forms.RawValue}``. None as for ``content``."""
        return None if self._desk is None or self.content is None else self._desk.values

    @property
    def widget(self) -> ExecutionWidget:
        """The widget itself, for layouts. Raises `InvalidSchemaError` when there is no form."""
        if self._desk is None:
            assert self._error is not None
            raise self._error
        if self._widget is None:
            from m3nb.notebook.widget import ExecutionWidget

            self._widget = ExecutionWidget(self._desk)
        return self._widget

    def close(self) -> None:
        """Take the form off its pages."""
        if self._widget is not None:
            self._widget.close()
            self._widget = None

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        text = repr(self)
        bundle = {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
        return bundle if self._desk is None or _kernel() is None else bundle | _widget_part(self.widget)

    def _display_(self) -> Any:
        """What marimo shows."""
        return repr(self) if self._desk is None else self.widget

    def __repr__(self) -> str:
        if self._error is not None:
            return f"InvalidSchemaError: {self._error.message}"
        return f"Preview of a {self.request.mode} request: run the cell in a notebook page to see it"


def preview(
    schema: Any = None,
    message: str = "Please fill in this form.",
    *,
    mode: Literal["form", "url"] = "form",
    url: str | None = None,
) -> Preview:
    """Show what a request looks like to a person and what an answer would send, without a server or a store.

    ``schema`` is the ``requestedSchema`` of a form. Also taken, with the message that is in them: a
    `FormElicitationRequest`, a `UrlElicitationRequest`, the ``params`` of an ``elicitation/create``, or a dict that has
    them under ``request``. ``preview(url="https://…")`` and ``preview("https://…", mode="url")`` show a request to
    visit an address.

    Show what is returned as the last line of a cell. Submit checks the answer as a run does, with errors at the
    fields, and shows the content under the form. A schema that no answer can be checked against is shown as the text
    of its `InvalidSchemaError`, which is ``preview(…).error``. Raises `ModelValidationError` for anything else.
    """
    if isinstance(schema, FormElicitationRequest | UrlElicitationRequest):
        return Preview(schema)
    if mode not in ("form", "url"):
        raise ModelValidationError(f"mode is form or url, not {mode!r}", details={"field": "mode"})
    if (schema is None) == (url is None):
        raise ModelValidationError("give a schema or a url, one of the two", details={"field": "schema"})
    if url is not None or mode == "url":
        given: dict[str, Any] = {"mode": "url", "url": schema if url is None else url}
    else:
        given = _params(schema)
    return Preview(_request({"message": message} | given))


def _params(schema: Any) -> dict[str, Any]:
    """The parameters of an elicitation that ``schema`` is, holds, or is the schema of."""
    if not isinstance(schema, Mapping):
        raise ModelValidationError(f"a schema is a dict, not {type(schema).__name__}", details={"field": "schema"})
    inner = schema.get("request", schema)
    inner = inner.get("params", inner) if isinstance(inner, Mapping) else schema
    if "requestedSchema" in inner or (inner.get("mode") == "url" and "url" in inner):
        names = ("mode", "message", "requestedSchema", "url", "elicitationId")
        return {name: inner[name] for name in names if name in inner}
    return {"requestedSchema": schema}


def _request(given: Mapping[str, Any]) -> FormElicitationRequest | UrlElicitationRequest:
    renamed = {"requestedSchema": "requested_schema", "elicitationId": "elicitation_id"}
    fields = {"request_key": KEY} | {renamed.get(name, name): value for name, value in given.items()}
    kind = UrlElicitationRequest if fields.get("mode") == "url" else FormElicitationRequest
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ModelValidationError(f"{where}: {first['msg']}", details={"field": where}) from None
