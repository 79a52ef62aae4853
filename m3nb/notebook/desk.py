"""The state of one execution as its pages see it: a locked object that any thread may call.

Jupyter runs message handlers on the main thread or on a subshell's, both within the life of one widget, and pages
repeat each message until it is acknowledged. So: one lock, each message id is handled once, and the widget only
publishes what is decided here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound, UrlElicitationRequest
from m3nb.errors import KitClosed, ModelValidationError
from m3nb.notebook.again import StandingAnswer
from m3nb.notebook.commit import commit, finish_outbox, late_answer, refused, words_of
from m3nb.notebook.keeping import Keeping
from m3nb.notebook.view import arguments_of, fields_now, round_of, summary_of, view_of, waiting_view
from m3nb.types import ExecutionResult, ExecutionState

if TYPE_CHECKING:
    from m3nb.notebook.run import Run

log = logging.getLogger(__name__)

SEEN_LIMIT = 256
"""Message ids that are remembered. A page repeats a message for ten seconds at most."""

COMPLETE = "elicitation.complete"
"""The kind of event in which the engine notes that notification."""

TIMELESS = {"elapsed": None}
"""Laid over views to compare them: a clock that moved on is no news."""

LOST_AFTER = 40
"""Looks in a row at a handle that is not ours which must fail before nobody waits for it any more."""

Publish = Callable[[dict[str, Any]], None]
MakeAgain = Callable[["StandingAnswer | None"], "Run"]


class Pages(Protocol):
    """What shows a desk: the widget, which may be on several pages."""

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message that nobody asked for."""

    def move_to(self, run: Run) -> None:
        """Show another run from now on."""


class Handle(Protocol):
    """What a desk needs of a handle: m3nb's own, or an `m3nb.notebook.adapter.Adapter`. Every call may block."""

    @property
    def execution_id(self) -> str:
        """The execution's id; empty while it is not known."""

    def finished_result(self) -> ExecutionResult | None:
        """How the execution ended, or None while it goes on."""

    def snapshot(self) -> ExecutionState:
        """Where it stands."""

    def pending_elicitation(self) -> PendingElicitationRound | None:
        """The question that waits."""

    def respond_elicitation(
        self, round_id: str, responses: Mapping[str, ElicitationResponse], *, idempotency_key: str
    ) -> None:
        """Commit an answer, once."""

    def cancel(self) -> None:
        """Cancel the execution."""


class Desk:
    """Decides what the pages of one execution show, and handles what they send.

    ``finished`` is set once the execution is. ``heard`` counts the messages that came from pages. ``apart``: the handle
    is called on threads of its own only, because its calls may need the very thread that messages arrive on.
    ``make_again`` submits the same run once more, which is ``next_run`` then; ``standing`` answers the first round.
    """

    def __init__(
        self,
        keeping: Keeping,
        handle: Handle,
        *,
        apart: bool = False,
        make_again: MakeAgain | None = None,
        standing: StandingAnswer | None = None,
    ) -> None:
        self.keeping = keeping
        self.handle = handle
        self.make_again = make_again
        self.next_run: Run | None = None
        self._standing = standing
        self._pages: Pages | None = None
        self.finished = threading.Event()
        self.heard = 0
        self.round_since: float | None = None
        self._apart = apart
        self._view: dict[str, Any] = waiting_view(handle.execution_id)
        self._round: dict[str, Any] | None = None
        self._pending: PendingElicitationRound | None = None
        self._done: list[str] = []
        self._event = -1
        self._failures = 0
        self._publish: Publish | None = None
        self._seen: OrderedDict[str, dict[str, Any] | None] = OrderedDict()
        # The outer lock is held while the handle is called, the inner one never: whoever only reads does not wait.
        self._work = threading.RLock()
        self._lock = threading.RLock()
        self._on_finish: list[Callable[[], None]] = []
        if not apart:
            self.refresh()

    @property
    def view(self) -> dict[str, Any]:
        """The last view."""
        with self._lock:
            return self._view

    @property
    def round_id(self) -> str | None:
        """The round that waits for an answer."""
        with self._lock:
            return self._round["round_id"] if self._round else None

    def publish_to(self, publish: Publish | None, pages: Pages | None = None) -> None:
        """Where new views go; at once the present one. ``pages``: who shows them."""
        with self._lock:
            self._publish = publish
            self._pages = pages
            if publish is not None:
                publish(self._view)

    def go_on_from(self, other: Desk) -> None:
        """Messages that ``other`` has handled may be repeated here."""
        with self._lock:
            self._seen.update(other._seen)

    def when_finished(self, call: Callable[[], None]) -> None:
        """Call once the execution is finished, from any thread; at once when it already is."""
        with self._lock:
            if not self.finished.is_set():
                self._on_finish.append(call)
                return
        call()

    def forget(self, call: Callable[[], None]) -> None:
        """Don't call any more."""
        with self._lock:
            if call in self._on_finish:
                self._on_finish.remove(call)

    def refresh(self, *, again: bool = False) -> bool:
        """Look at the store and publish what changed (``again``: in any case). True while there is more to come."""
        with self._work:
            if self.finished.is_set() and not again:
                return False
            done = self._try_to_look(again)
            calls: list[Callable[[], None]] = []
            if done:
                with self._lock:
                    self.finished.set()
                    calls, self._on_finish = self._on_finish, []
        for call in calls:
            call()
        return not done

    def _try_to_look(self, again: bool) -> bool:
        try:
            done = self._look(again)
            self._failures = 0
            return done
        except KitClosed:  # what is not known by now won't be: whoever waits hears it from the handle
            return True
        except ModelValidationError as error:  # the execution is gone, with the store's file: no look brings it back
            lost = {"state": "finished", "status": "Lost", "round": None, "elapsed": None, "error": error.message}
            self._show(self._view | lost, again)
            return True
        except Exception as error:
            if not self._apart:
                raise
            # The last view stays, with what was typed; the next look may succeed.
            self._failures += 1
            self._show(self._view | {"error": words_of(error)}, again)
            return self._failures >= LOST_AFTER

    def _look(self, again: bool) -> bool:
        result = self.handle.finished_result()
        state = result.snapshot if result else self.handle.snapshot()
        pending = None if result else self.handle.pending_elicitation()
        if pending is not None and self._answered_in_advance(pending):
            pending = None
        since = self.round_since
        if pending is None:
            drawn, since, self._done = None, None, []
        elif self._round is None or self._round["round_id"] != pending.round_id:
            record = self.keeping.record(pending.execution_id, pending.round_id)
            store = self.keeping.store
            drawn = round_of(pending, record, arguments_of(store, record) if store and record else None)
            since, self._done = time.monotonic(), []
        else:
            drawn = self._round
        if pending is not None and any(isinstance(each, UrlElicitationRequest) for each in pending.requests.values()):
            self._hear_what_is_done(pending)
        error = result.error.message if result and result.error else None
        view = view_of(state, pending, drawn, error, list(self._done), self._late_round() if result else None)
        with self._lock:
            self._round, self.round_since, self._pending = drawn, since, pending
        self._show(view, again)
        return result is not None

    def _answered_in_advance(self, pending: PendingElicitationRound) -> bool:
        if self._standing is None or not self._standing.meets(pending, self.handle, self.keeping.store):
            return False
        if self._pages is not None and self.keeping.store is not None:
            self._pages.tell({"kind": "summary", "rounds": summary_of(self.keeping.store, pending.execution_id)})
        return True

    def _late_round(self) -> str | None:
        """The last round, if it failed before it was answered and the run can be made again."""
        store = self.keeping.store
        if store is None or self.make_again is None:
            return None
        last = store.managed_input_store.list_rounds(self.handle.execution_id)[-1:]
        return next((each.pending.round_id for each in last if each.status == "failed" and not each.responses), None)

    def _hear_what_is_done(self, pending: PendingElicitationRound) -> None:
        """Servers say by `notifications/elicitation/complete` that what a URL was for has happened."""
        if self.keeping.store is None:
            return
        for event in self.keeping.store.events(pending.execution_id, after_sequence=self._event):
            self._event = event.sequence
            if event.kind == COMPLETE and event.payload.get("round_id") == pending.round_id:
                key = event.payload.get("request_key")
                if key in pending.requests and key not in self._done:
                    self._done.append(str(key))

    def _show(self, view: dict[str, Any], again: bool) -> None:
        with self._lock:
            if again or view | TIMELESS != self._view | TIMELESS:
                self._view = view
                if self._publish is not None:
                    self._publish(view)

    def receive(self, message: Any, send: Publish) -> None:
        """Handle one message of a page; ``send`` takes the acknowledgement and the replies. Never raises."""
        if not isinstance(message, Mapping) or not isinstance(message.get("id"), str):
            return
        message_id = message["id"]
        send({"kind": "ack", "id": message_id})
        if message.get("kind") == "check":  # changes nothing, so that a repeated one is simply answered again
            reply = self._fields_now(message)
            if reply is not None:
                send(reply)
            return
        with self._lock:
            self.heard += 1
            new = message_id not in self._seen
            earlier = self._seen.setdefault(message_id, None)
            while len(self._seen) > SEEN_LIMIT:
                self._seen.popitem(last=False)
        if not new:
            if earlier is not None:
                send(earlier)
        elif self._apart:
            threading.Thread(target=self._answer, args=(message, send), name="m3nb-form", daemon=True).start()
        else:
            self._answer(message, send)

    def _answer(self, message: Mapping[str, Any], send: Publish) -> None:
        # Locked to the end: a page must hear that its answer was accepted before it sees the round go.
        with self._work:
            reply = self._reply(message)
            if reply is not None:
                reply |= {"id": message["id"], "round_id": str(message.get("round_id") or self.round_id or "")}
                with self._lock:
                    self._seen[message["id"]] = reply
                send(reply)
                if reply["kind"] == "again" and self._pages is not None and self.next_run is not None:
                    self._pages.move_to(self.next_run)
            if message.get("kind") == "ready" or (reply is not None and reply["kind"] == "accepted"):
                self._tell_news(send, again=message.get("kind") == "ready")

    def _reply(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            kind = message.get("kind")
            if kind == "submit":
                return commit(self.keeping, self.handle, str(message.get("round_id") or ""), message.get("responses"))
            if kind == "again":
                return self._again(str(message.get("round_id") or ""), message.get("responses"))
            if kind == "ready":
                finish_outbox(self.keeping, self.handle)
            elif kind == "cancel_run":
                self.handle.cancel()
                self.refresh()
        except Exception as error:  # a page gets words, whatever happened
            return refused(words_of(error))
        return None

    def _again(self, round_id: str, answers: Any) -> dict[str, Any]:
        if self.make_again is None or self.view["again"] != round_id:
            return refused("This run can't be made again from here: submit it anew.")
        found = late_answer(self.keeping, self.handle.execution_id, round_id, answers)
        if isinstance(found, dict):
            return found
        self.next_run = self.make_again(StandingAnswer(*found))
        return {"kind": "again"}

    def _fields_now(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """The fields of one form for what is typed so far; None when it does not wait any more. Stores nothing."""
        with self._lock:
            pending = self._pending
        request = pending.requests.get(str(message.get("key"))) if pending is not None else None
        if pending is None or pending.round_id != message.get("round_id"):
            return None
        try:
            drawn = fields_now(request, message.get("values"))
        except Exception as error:
            log.debug("the fields could not be drawn again: %s", type(error).__name__)
            return None
        ids = {"id": message["id"], "round_id": pending.round_id, "key": message.get("key")}
        return None if drawn is None else {"kind": "plan", **ids, **drawn}

    def _tell_news(self, send: Publish, *, again: bool) -> None:
        try:
            if self.keeping.store is not None:
                send({"kind": "summary", "rounds": summary_of(self.keeping.store, self.handle.execution_id)})
            self.refresh(again=again)  # a page that was loaded again needs a clock that is right
        except Exception as error:
            log.debug("the store could not be read, the watcher tries again: %s", error)
