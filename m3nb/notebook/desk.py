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
from typing import TYPE_CHECKING, Any

from m3nb.errors import KitClosed, MCPError
from m3nb.notebook.commit import commit, finish_outbox, refused
from m3nb.notebook.view import round_of, summary_of, view_of

if TYPE_CHECKING:
    from m3nb.handles import ExecutionHandle
    from m3nb.storage import SQLiteExecutionStore

log = logging.getLogger(__name__)

SEEN_LIMIT = 256
"""Message ids that are remembered. A page repeats a message for ten seconds at most."""

TIMELESS = {"elapsed": None}
"""Laid over views to compare them: a clock that moved on is no news."""

Publish = Callable[[dict[str, Any]], None]


class Desk:
    """Decides what the pages of one execution show, and handles what they send.

    ``finished`` is set once the execution is. ``heard`` counts the messages that came from pages.
    """

    def __init__(self, store: SQLiteExecutionStore, handle: ExecutionHandle) -> None:
        self.store = store
        self.handle = handle
        self.finished = threading.Event()
        self.heard = 0
        self.round_since: float | None = None
        self._view: dict[str, Any] = {}
        self._round: dict[str, Any] | None = None
        self._publish: Publish | None = None
        self._seen: OrderedDict[str, dict[str, Any] | None] = OrderedDict()
        self._lock = threading.RLock()
        self._on_finish: list[Callable[[], None]] = []
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

    def publish_to(self, publish: Publish | None) -> None:
        """Where new views go; at once the present one."""
        with self._lock:
            self._publish = publish
            if publish is not None:
                publish(self._view)

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
        with self._lock:
            if self.finished.is_set() and not again:
                return False
            calls: list[Callable[[], None]] = []
            try:
                done = self._look(again)
            except KitClosed:  # what is not known by now won't be: whoever waits hears it from the handle
                done = True
            if done:
                self.finished.set()
                calls, self._on_finish = self._on_finish, []
        for call in calls:
            call()
        return not done

    def _look(self, again: bool) -> bool:
        result = self.handle.finished_result()
        state = result.snapshot if result else self.handle.snapshot()
        pending = None if result else self.handle.pending_elicitation()
        if pending is None:
            self._round = self.round_since = None
        elif self._round is None or self._round["round_id"] != pending.round_id:
            record = self.store.managed_input_store.get_round(self.handle.execution_id, pending.round_id)
            self._round = round_of(pending, record)
            self.round_since = time.monotonic()
        view = view_of(state, pending, self._round, result.error.message if result and result.error else None)
        if again or view | TIMELESS != self._view | TIMELESS:
            self._view = view
            if self._publish is not None:
                self._publish(view)
        return result is not None

    def receive(self, message: Any, send: Publish) -> None:
        """Handle one message of a page; ``send`` takes the acknowledgement and the replies. Never raises."""
        if not isinstance(message, Mapping) or not isinstance(message.get("id"), str):
            return
        message_id = message["id"]
        send({"kind": "ack", "id": message_id})
        # Under the lock to the end: a page must hear that its answer was accepted before it sees the round go.
        with self._lock:
            self.heard += 1
            if message_id in self._seen:
                earlier = self._seen[message_id]
                if earlier is not None:
                    send(earlier)
                return
            reply = self._reply(message)
            if reply is not None:
                reply |= {"id": message_id, "round_id": str(message.get("round_id") or self.round_id or "")}
                send(reply)
            self._seen[message_id] = reply
            while len(self._seen) > SEEN_LIMIT:
                self._seen.popitem(last=False)
            if message.get("kind") == "ready" or (reply is not None and reply["kind"] == "accepted"):
                self._tell_news(send, again=message.get("kind") == "ready")

    def _reply(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            kind = message.get("kind")
            if kind == "submit":
                return commit(self.store, self.handle, str(message.get("round_id") or ""), message.get("responses"))
            if kind == "ready":
                finish_outbox(self.store, self.handle)
            elif kind == "cancel_run":
                self.handle.cancel()
                self.refresh()
        except MCPError as error:
            return refused(error.message)
        except Exception as error:  # a page gets words, whatever happened
            return refused(f"This did not work ({type(error).__name__}: {error}).")
        return None

    def _tell_news(self, send: Publish, *, again: bool) -> None:
        try:
            send({"kind": "summary", "rounds": summary_of(self.store, self.handle.execution_id)})
            self.refresh(again=again)  # a page that was loaded again needs a clock that is right
        except MCPError as error:
            log.debug("the store could not be read, the watcher tries again: %s", error)
