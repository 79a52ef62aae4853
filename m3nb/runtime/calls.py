"""One operation on a server, from the agent's call to the final word, with the questions in between.

Both wire forms of a question end in `Coordinator.await_round`: the older ``elicitation/create`` request during a call
(MCP revisions up to 2025-11-25, with its error -32042 for URLs that must be visited first) and the newer
``InputRequiredResult`` (2026-07-28), which asks for a retry.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError as ProtocolError

from m3nb.elicitation import ElicitationRequest
from m3nb.errors import MCPError, ServerError
from m3nb.runtime.asking import Questions, required_urls, same_questions, sort_requests
from m3nb.runtime.coordinator import AnsweredRound, Coordinator, Operation
from m3nb.runtime.journal import until_free
from m3nb.runtime.wire import Answers, ExactForms, Final, Reply, plain

STATE_ONLY_LIMIT = 10
"""How often in a row a server may want the same call again without asking a person anything."""

EXPIRED_LIMIT = 3
"""How often in one call a server may refuse a state that it made, before its refusal is passed on."""

COMPLETION_SECONDS = 10.0
"""How long a call that needs a visited URL waits, after the person's consent, for the server to say it is done."""

Send = Callable[[Answers | None, str | None], Awaitable[Reply]]
Explain = Callable[["Call", Exception], Awaitable[Exception]]
Ended = Callable[[Operation, str], ServerError]


@dataclass(frozen=True)
class _Exchange:
    """A round of this call and its answers, kept in case the server forgets that it asked."""

    questions: Questions
    answered: AnsweredRound


class Call:
    """The operation in flight, the answers being handed over in it, and the error its questions ran into."""

    def __init__(self, operation: Operation, coordinator: Coordinator, exact: ExactForms, completions: Completions):
        self.operation = operation
        self.asking: set[asyncio.Task[AnsweredRound]] = set()
        self.error: MCPError | None = None
        self._coordinator = coordinator
        self._exact = exact
        self._completions = completions
        self._delivering: list[AnsweredRound] = []
        self._history: list[_Exchange] = []
        self._expired = 0

    async def run(self, send: Send, explain: Explain, ended: Ended) -> Final:
        """Make the call, and again with the answers, until the server has nothing more to ask.

        ``explain`` turns a failure into the error to raise, ``ended`` ends the execution for what the server did.
        Raises the coordinator's typed errors, `ServerError`, and the SDK's ``MCPError`` that the agent should see.
        """
        answers: Answers | None = None
        state: str | None = None
        replay: deque[_Exchange] = deque()
        idle = 0
        while True:
            try:
                result = await send(answers, state)
            except Exception as error:
                if self.error is None and await self._visit(error):
                    continue
                if self.error is None and answers is not None and self._may_start_again(error):
                    # The person took longer than the server keeps its state: it is asked anew, and what it then asks
                    # alike is answered with what was answered already.
                    answers = state = None
                    replay = deque(self._history)
                    continue
                raise await explain(self, error) from error
            if self.error is not None:
                raise self.error
            if self.asking:
                raise ended(self.operation, "ended {} without waiting for its question's answer")
            if not isinstance(result, mcp_types.InputRequiredResult):
                await self.settle()
                return result
            state = result.request_state
            questions, others = sort_requests(self.operation, result.input_requests or {}, self._exact)
            idle = 0 if questions else idle + 1
            if idle > STATE_ONLY_LIMIT:
                raise ended(self.operation, f"wants {{}} again and asks nothing: {STATE_ONLY_LIMIT} times in a row")
            await asyncio.sleep(0.0 if idle < 2 else 0.05 * idle)
            given = await self._answers(questions, state, replay) if questions else {}
            answers = {key: given.get(key) or others[key] for key in result.input_requests or {}} or None

    async def _answers(
        self, questions: Questions, state: str | None, replay: deque[_Exchange]
    ) -> dict[str, dict[str, Any]]:
        if replay and same_questions(questions, replay[0].questions):
            return _plain(replay.popleft().answered)
        replay.clear()
        await self.settle()
        answered = await self._ask(questions, state)
        self._history.append(_Exchange(questions, answered))
        return _plain(answered)

    async def _ask(self, questions: Questions, state: str | None) -> AnsweredRound:
        self._completions.expect(questions)
        answered = await self._coordinator.await_round(self.operation, questions, state)
        await until_free(answered.start_delivery)
        self._delivering.append(answered)
        return answered

    async def ask_during(self, key: str, request: ElicitationRequest) -> AnsweredRound | None:
        """Put a classic question, which is answered while the call goes on. None when the call has ended meanwhile."""

        async def ask() -> AnsweredRound:
            await self.settle()
            return await self._ask({key: request}, None)

        task = asyncio.create_task(ask())
        self.asking.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            return None
        finally:
            self.asking.discard(task)

    def take_back(self) -> None:
        """End the questions that nobody waits for any more."""
        for task in self.asking:
            task.cancel()

    async def _visit(self, error: Exception) -> bool:
        """Have the person visit the URLs that an error demands. Whether the call is to be made again.

        Raises the SDK's ``MCPError`` when the person does not consent to each of them.
        """
        questions = required_urls(self.operation, error) if isinstance(error, ProtocolError) else {}
        if not questions:
            return False
        await self.settle()
        answered = await self._ask(questions, None)
        refused = [key for key, response in answered.responses.items() if response.action != "accept"]
        if refused:
            # Nothing goes to the server: the person's word ends the call.
            await self.settle()
            assert isinstance(error, ProtocolError)
            what = "; ".join(f"{questions[key].message} ({answered.responses[key].action})" for key in refused)
            raise ProtocolError(
                mcp_types.INVALID_REQUEST, f"{error.message.rstrip('.')}. The person did not agree: {what}"
            )
        await self._completions.wait(questions, COMPLETION_SECONDS)
        return True

    def _may_start_again(self, error: Exception) -> bool:
        """Whether the server refuses the state it made itself. (SDK servers keep it for ten minutes by default.)"""
        if not isinstance(error, ProtocolError) or error.code != mcp_types.INVALID_PARAMS:
            return False
        data = error.data
        if not isinstance(data, dict) or data.get("reason") != "invalid_request_state":
            return False
        self._expired += 1
        return self._expired <= EXPIRED_LIMIT

    async def settle(self) -> None:
        """Store that the answers handed over so far have arrived: the server has reacted."""
        await until_free(self._settle)

    def _settle(self) -> None:
        while self._delivering:
            self._delivering[0].settle()
            self._delivering.pop(0)

    def lose(self, error: MCPError) -> None:
        """Store that the answers in the air may not have arrived."""
        while self._delivering:
            self._delivering.pop(0).fail(error)


class Completions:
    """What servers say about URLs a person was sent to: ``notifications/elicitation/complete`` (MCP 2025-11-25)."""

    def __init__(self) -> None:
        self._done: dict[str, asyncio.Event] = {}

    def expect(self, questions: Questions) -> None:
        """Know the ids of these URL requests."""
        for request in questions.values():
            if request.mode == "url" and request.elicitation_id is not None:
                self._done.setdefault(request.elicitation_id, asyncio.Event())

    def complete(self, elicitation_id: str) -> bool:
        """Note that one is done; False for an id that was never asked or is done already."""
        done = self._done.get(elicitation_id)
        if done is None or done.is_set():
            return False
        done.set()
        return True

    async def wait(self, questions: Questions, seconds: float) -> None:
        """Return when all of these are done, or after ``seconds``: the notification is not guaranteed."""
        ids = [request.elicitation_id for request in questions.values() if request.mode == "url"]
        waits = [self._done[id_].wait() for id_ in ids if id_ in self._done]
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*waits)
        except TimeoutError:
            return


def _plain(answered: AnsweredRound) -> dict[str, dict[str, Any]]:
    return {key: plain(response) for key, response in answered.responses.items()}
