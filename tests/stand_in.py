"""A package of another make that has the spec's handle methods, with classes of its own and nothing else of m3nb's."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

ADDRESS = {
    "type": "object",
    "properties": {
        "street": {"type": "string", "title": "Street", "minLength": 3},
        "tags": {"type": "array", "title": "Tags", "items": {"type": "string", "enum": ["fragile", "heavy"]}},
    },
    "required": ["street"],
}


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FormRequest(Model):
    request_key: str
    mode: Literal["form"] = "form"
    message: str
    requested_schema: Mapping[str, object]
    of_their_own: int = 1


class UrlRequest(Model):
    request_key: str
    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: str | None = None


class PendingRound(Model):
    round_id: str
    execution_id: str
    logical_operation_id: str = "operation"
    server: str = "shipping"
    operation_kind: str = "tool"
    operation_name: str = "book"
    requests: Mapping[str, FormRequest | UrlRequest]
    created_at: datetime
    priority: str = "theirs"


class ElicitationResponse(Model):
    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, object] | None = None


class Lifecycle(enum.Enum):
    RUNNING = "in_full_swing"
    WAITING = "waiting_for_input"
    FINISHED = "finished"


class Outcome(enum.Enum):
    COMPLETED = "completed"


class State(Model):
    lifecycle: Lifecycle
    outcome: Outcome | None = None


class ConflictError(Exception):
    pass


def address(key: str = "where") -> FormRequest:
    return FormRequest(request_key=key, message="Where to?", requested_schema=ADDRESS)


def link(url: str, key: str = "link", message: str = "Please visit") -> UrlRequest:
    return UrlRequest(request_key=key, message=message, url=url)


class Handle:
    """Asks one round after the other, then is finished. ``fail`` raises an error ``before`` or ``after`` a commit."""

    def __init__(self, *rounds: list[FormRequest | UrlRequest]) -> None:
        self.rounds = [{each.request_key: each for each in requests} for requests in rounds or ([address()],)]
        self.committed: list[tuple[str, Mapping[str, ElicitationResponse]]] = []
        self.keys: list[str] = []
        self.fail: dict[str, Exception] = {}
        self.changed = threading.Condition()
        self.cancelled = False

    def pending_elicitation(self) -> PendingRound | None:
        self._maybe_fail("read")
        number = len(self.committed)
        if number == len(self.rounds) or self.cancelled:
            return None
        return PendingRound(
            round_id=f"round-{number}",
            execution_id="theirs-1",
            requests=self.rounds[number],
            created_at=datetime(2026, 1, 2, tzinfo=UTC),
        )

    def respond_elicitation(
        self, round_id: str, responses: Mapping[str, ElicitationResponse], *, idempotency_key: str
    ) -> None:
        for response in responses.values():
            assert type(response) is ElicitationResponse
        self.keys.append(idempotency_key)
        self._maybe_fail("before")
        with self.changed:
            if (idempotency_key, responses) not in self.committed:
                if round_id != f"round-{len(self.committed)}":
                    raise ConflictError(f"{round_id} has another answer")
                self.committed.append((idempotency_key, responses))
            self.changed.notify_all()
        self._maybe_fail("after")

    def snapshot(self) -> State:
        self._maybe_fail("read")
        if len(self.committed) == len(self.rounds) or self.cancelled:
            return State(lifecycle=Lifecycle.FINISHED, outcome=Outcome.COMPLETED)
        return State(lifecycle=Lifecycle.RUNNING)

    def result(self, timeout: float | None = None) -> str:
        self._maybe_fail("read")
        with self.changed:
            if not self.changed.wait_for(lambda: self.snapshot().lifecycle is Lifecycle.FINISHED, timeout):
                raise TimeoutError("not yet")
        return "their result"

    def cancel(self) -> None:
        self.cancelled = True

    def answers(self) -> list[dict[str, tuple[str, Any]]]:
        """What was committed, as plain values."""
        return [
            {key: (response.action, response.content and dict(response.content)) for key, response in responses.items()}
            for _, responses in self.committed
        ]

    def _maybe_fail(self, where: str) -> None:
        if where in self.fail:
            raise self.fail[where]


class AsyncHandle:
    """The same with methods that are awaited, on the one loop they were first called on."""

    def __init__(self, *rounds: list[FormRequest | UrlRequest]) -> None:
        self.sync = Handle(*rounds)
        self.loop: asyncio.AbstractEventLoop | None = None

    async def pending_elicitation(self) -> PendingRound | None:
        await self._switch()
        return self.sync.pending_elicitation()

    async def respond_elicitation(
        self, round_id: str, responses: Mapping[str, ElicitationResponse], *, idempotency_key: str
    ) -> None:
        await self._switch()
        self.sync.respond_elicitation(round_id, responses, idempotency_key=idempotency_key)

    async def snapshot(self) -> State:
        await self._switch()
        return self.sync.snapshot()

    async def result(self, timeout: float | None = None) -> str:
        await self._switch()
        return self.sync.result(0.1)

    async def cancel(self) -> None:
        await self._switch()
        self.sync.cancel()

    async def _switch(self) -> None:
        await asyncio.sleep(0)
        self.loop = self.loop or asyncio.get_running_loop()
        assert self.loop is asyncio.get_running_loop(), "another loop than before"
