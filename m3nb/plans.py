"""Predefined answers: what a test expects a server to ask, and the answer it gives (engine-facts section 8).

The plan is a tree. A leaf names a request; `Expectation.accept`, `decline` and `cancel` bind its answer; ``sequence``,
``one_of``, ``round_of`` and ``optional`` combine plans. `m3nb.matching` says when a server's requests follow a plan.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from m3nb.elicitation import ElicitationResponse, Model, OperationKind, Text
from m3nb.frozen import JsonObject

if TYPE_CHECKING:
    from m3nb.matching import PlanMatcher

MAX_LEVELS = 64
"""How deep combinations may be nested. One combination takes any number of plans, so real ones stay below 5."""

MAX_PARTS = 10_000
"""How many requests and combinations a plan may have, a part that is used twice counted twice."""


class ElicitationPlan(Model, ABC):
    """Base of every plan."""

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether every request of the plan has an answer."""

    @property
    @abstractmethod
    def is_optional(self) -> bool:
        """Whether the plan is fulfilled when nothing at all is asked."""

    def canonical_json(self) -> str:
        """The plan as JSON text. Plans whose JSON is equal give equal text, in whatever order keys were written."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def matcher(self) -> PlanMatcher:
        """What answers one execution from this plan. Each call gives a new one, at the plan's beginning.

        Raises ``ValueError`` when a request of the plan has no answer.
        """
        from m3nb.matching import PlanMatcher

        return PlanMatcher(self)


class Expectation(ElicitationPlan):
    """One expected request. ``None`` in a field means that any value fits.

    ``server`` is the name by which the execution knows the server (its alias, if it has one). ``required=False`` means
    that the request may come or not.
    """

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

    @model_validator(mode="after")
    def _answerable(self) -> Expectation:
        if self.response is not None and self.response.action == "accept":
            if self.kind == "form" and self.response.content is None:
                raise ValueError("accepting a form needs content: .accept({}) when no field is filled in")
            if self.kind == "url" and self.response.content is not None:
                raise ValueError("accepting a URL is consent and carries no content: .accept()")
        return self

    @property
    def is_complete(self) -> bool:
        return self.response is not None

    @property
    def is_optional(self) -> bool:
        return not self.required

    def accept(self, content: dict[str, Any] | None = None) -> Expectation:
        """The same expectation, answered with ``accept``.

        Raises ``ValueError`` for a form without content, a URL with content, or content that is no JSON.
        """
        return self._answered(ElicitationResponse(action="accept", content=content))

    def decline(self) -> Expectation:
        """The same expectation, answered with ``decline``."""
        return self._answered(ElicitationResponse(action="decline"))

    def cancel(self) -> Expectation:
        """The same expectation, answered with ``cancel``."""
        return self._answered(ElicitationResponse(action="cancel"))

    def _answered(self, response: ElicitationResponse) -> Expectation:
        return Expectation.model_validate({**self.__dict__, "response": response})


class Combination(ElicitationPlan):
    """Several plans: one after another, exactly one, all in one round; or one that may happen or not.

    Raises ``ValueError``: too few plans, one without an answer, more than `MAX_LEVELS` levels or `MAX_PARTS` parts; in
    ``one_of`` a plan that is fulfilled when nothing is asked; in ``round_of`` a ``sequence``, or two plans that name
    the same request key (the requests of one round have different keys).
    """

    kind: Literal["sequence", "one_of", "round_of", "optional"]
    children: tuple[Expectation | Combination, ...]

    @model_validator(mode="after")
    def _sensible(self) -> Combination:
        if self.kind != "optional" and len(self.children) < 2:
            raise ValueError(f"{self.kind} needs at least two plans")
        if self.kind == "optional" and len(self.children) != 1:
            raise ValueError("optional takes one plan")
        # First of all: the other rules look at every part.
        self._check_size()
        if not self.is_complete:
            raise ValueError(f"{self.kind} takes plans with answers: add .accept(), .decline() or .cancel()")
        if self.kind == "one_of" and any(child.is_optional for child in self.children):
            raise ValueError("each plan of one_of must ask something: write optional(one_of(...)) if none may happen")
        if self.kind == "round_of":
            self._check_round()
        return self

    def _check_size(self) -> None:
        for number, (_, level) in enumerate(_parts(self), start=1):
            if level > MAX_LEVELS:
                raise ValueError(
                    f"plans are nested at most {MAX_LEVELS} levels deep: a combination takes any number of plans"
                )
            if number > MAX_PARTS:
                raise ValueError(f"a plan has at most {MAX_PARTS:,} requests and combinations")

    def _check_round(self) -> None:
        if any(part.kind == "sequence" for part, _ in _parts(self)):
            raise ValueError("round_of is one round: a sequence, which takes several, cannot be part of it")
        keys = Counter(key for child in self.children for key in keys_of(child))
        if twice := [key for key, count in keys.items() if count > 1]:
            raise ValueError(
                f"two plans of round_of name the request key {twice[0]!r}, and a round has each key once: "
                "write one_of(...) for alternatives"
            )

    @property
    def is_complete(self) -> bool:
        return all(child.is_complete for child in self.children)

    @property
    def is_optional(self) -> bool:
        return self.kind == "optional" or (self.kind != "one_of" and all(child.is_optional for child in self.children))


def _parts(plan: Expectation | Combination) -> Iterator[tuple[Expectation | Combination, int]]:
    """The plan and all below it, each with its level (the plan's own is 0)."""
    found = [(plan, 0)]
    while found:
        part, level = found.pop()
        yield part, level
        if isinstance(part, Combination):
            found.extend((child, level + 1) for child in part.children)


def keys_of(plan: Expectation | Combination) -> set[str]:
    """The request keys a plan names."""
    return {part.request_key for part, _ in _parts(plan) if isinstance(part, Expectation)}


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
    """A form request that must come.

    ``key`` is the server's key of the request; one made with the older ``elicitation/create`` has the key
    ``"elicitation"``.
    """
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
    """Plans that happen one after another; each request on its own is a round of its own."""
    return Combination(kind="sequence", children=children)


def one_of(*children: Expectation | Combination) -> Combination:
    """Exactly one of the plans happens. Each must ask something: ``optional(one_of(...))`` when none may happen."""
    return Combination(kind="one_of", children=children)


def round_of(*children: Expectation | Combination) -> Combination:
    """Requests that come together in one round; what is optional among them may be missing."""
    return Combination(kind="round_of", children=children)


def optional(child: Expectation | Combination) -> Combination:
    """A plan that may happen or not."""
    return Combination(kind="optional", children=(child,))
