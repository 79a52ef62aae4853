"""Predefined answers: what a test expects a server to ask, and the answer it gives (engine-facts section 8).

The plan is a tree. A leaf names a request; `Expectation.accept`, `decline` and `cancel` bind its answer; ``sequence``,
``one_of``, ``round_of`` and ``optional`` combine plans.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, Literal

from pydantic import model_validator

from m3nb.elicitation import ElicitationResponse, Model, OperationKind, Text
from m3nb.frozen import JsonObject


class ElicitationPlan(Model, ABC):
    """Base of every plan."""

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether every request of the plan has an answer."""

    def canonical_json(self) -> str:
        """The plan as JSON text; equal plans give equal text."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Expectation(ElicitationPlan):
    """One expected request. ``None`` in a field means that any value fits."""

    kind: Literal["form", "url"]
    request_key: Text
    message: str | None = None
    requested_schema: JsonObject | None = None
    url: str | None = None
    elicitation_id: str | None = None
    server: str | None = None
    operation_kind: OperationKind | None = None
    operation_name: str | None = None
    required: bool = True
    response: ElicitationResponse | None = None

    @property
    def is_complete(self) -> bool:
        return self.response is not None

    def accept(self, content: dict[str, Any] | None = None) -> Expectation:
        """The same expectation, answered with ``accept`` (and, in form mode, this content)."""
        return self._answered(ElicitationResponse(action="accept", content=content))

    def decline(self) -> Expectation:
        """The same expectation, answered with ``decline``."""
        return self._answered(ElicitationResponse(action="decline"))

    def cancel(self) -> Expectation:
        """The same expectation, answered with ``cancel``."""
        return self._answered(ElicitationResponse(action="cancel"))

    def _answered(self, response: ElicitationResponse) -> Expectation:
        return self.model_copy(update={"response": response})


class Combination(ElicitationPlan):
    """Several plans: one after another, exactly one, all in one round, or at most one."""

    kind: Literal["sequence", "one_of", "round_of", "optional"]
    children: tuple[Expectation | Combination, ...]

    @model_validator(mode="after")
    def _enough_children(self) -> Combination:
        if self.kind != "optional" and len(self.children) < 2:
            raise ValueError(f"{self.kind} needs at least two plans")
        if not self.is_complete:
            raise ValueError(f"{self.kind} takes plans with answers: add .accept(), .decline() or .cancel()")
        return self

    @property
    def is_complete(self) -> bool:
        return all(child.is_complete for child in self.children)


def _expect(kind: Literal["form", "url"], key: str, required: bool, **fields: Any) -> Expectation:
    return Expectation(kind=kind, request_key=key, required=required, **fields)


def expect_form(
    key: str,
    *,
    message: str | None = None,
    schema: dict[str, Any] | None = None,
    server: str | None = None,
    operation_kind: OperationKind | None = None,
    operation_name: str | None = None,
) -> Expectation:
    """A form request that must come."""
    return _expect(
        "form",
        key,
        True,
        message=message,
        requested_schema=schema,
        server=server,
        operation_kind=operation_kind,
        operation_name=operation_name,
    )


def maybe_form(
    key: str,
    *,
    message: str | None = None,
    schema: dict[str, Any] | None = None,
    server: str | None = None,
    operation_kind: OperationKind | None = None,
    operation_name: str | None = None,
) -> Expectation:
    """A form request that may come."""
    return expect_form(
        key,
        message=message,
        schema=schema,
        server=server,
        operation_kind=operation_kind,
        operation_name=operation_name,
    ).model_copy(update={"required": False})


def expect_url(
    key: str,
    *,
    message: str | None = None,
    url: str | None = None,
    elicitation_id: str | None = None,
    server: str | None = None,
    operation_kind: OperationKind | None = None,
    operation_name: str | None = None,
) -> Expectation:
    """A URL request that must come."""
    return _expect(
        "url",
        key,
        True,
        message=message,
        url=url,
        elicitation_id=elicitation_id,
        server=server,
        operation_kind=operation_kind,
        operation_name=operation_name,
    )


def maybe_url(
    key: str,
    *,
    message: str | None = None,
    url: str | None = None,
    elicitation_id: str | None = None,
    server: str | None = None,
    operation_kind: OperationKind | None = None,
    operation_name: str | None = None,
) -> Expectation:
    """A URL request that may come."""
    return expect_url(
        key,
        message=message,
        url=url,
        elicitation_id=elicitation_id,
        server=server,
        operation_kind=operation_kind,
        operation_name=operation_name,
    ).model_copy(update={"required": False})


def sequence(*children: Expectation | Combination) -> Combination:
    """Plans that happen one after another."""
    return Combination(kind="sequence", children=children)


def one_of(*children: Expectation | Combination) -> Combination:
    """Exactly one of the plans happens."""
    return Combination(kind="one_of", children=children)


def round_of(*children: Expectation | Combination) -> Combination:
    """Requests that come together in one round."""
    return Combination(kind="round_of", children=children)


def optional(child: Expectation | Combination) -> Combination:
    """A plan that may happen or not."""
    return Combination(kind="optional", children=(child,))
