"""One thread per workbench keeps the views of its unfinished runs fresh, and ends when none is left."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from m3nb.notebook.desk import Desk

INTERVAL = 0.06
"""Seconds between two looks at the store's `data_version`, which costs some microseconds."""

log = logging.getLogger(__name__)


class Changing(Protocol):
    """What is watched: a store, or the handle of a form."""

    def data_version(self) -> int:
        """Another number when something may have changed."""


class Watcher:
    """Refreshes desks when what is watched has changed. Holds a desk only while its execution is unfinished.

    ``interval``: seconds between two looks at ``data_version()``.
    """

    def __init__(self, watched: Changing, interval: float = INTERVAL) -> None:
        self._watched = watched
        self._interval = interval
        self._desks: set[Desk] = set()
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, desk: Desk) -> None:
        """Watch an execution until it is finished."""
        with self._lock:
            if self._closed or desk.finished.is_set():
                return
            self._desks.add(desk)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="m3nb-watcher", daemon=True)
                self._thread.start()
        self._bell.set()

    def close(self) -> None:
        """Look once more, then stop."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._bell.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _run(self) -> None:
        seen = None
        while True:
            rung = self._bell.wait(self._interval)
            self._bell.clear()
            with self._lock:
                closed = self._closed
                desks = list(self._desks)
            try:
                version = self._watched.data_version()
                if rung or closed or version != seen:
                    seen = version
                    self._refresh(desks)
            except Exception:  # a busy or unreadable store: the next look may succeed, and somebody waits for it
                log.debug("it could not be read", exc_info=True)
            del desks
            with self._lock:
                if closed or not self._desks:
                    self._thread = None
                    self._desks.clear()
                    return

    def _refresh(self, desks: list[Desk]) -> None:
        failed: Exception | None = None
        for desk in desks:
            try:
                done = not desk.refresh()
            except Exception as error:  # the others have news as well
                failed = failed or error
                continue
            if done:
                with self._lock:
                    self._desks.discard(desk)
        if failed is not None:
            raise failed
