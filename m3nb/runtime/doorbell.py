"""Waking whoever waits for a change in the store.

Within the process a ring wakes at once. For changes made elsewhere one poller per worker looks at SQLite's
``data_version`` every 50 ms, only while somebody waits. A lost ring costs one poll interval, nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from m3nb.errors import StorageError

POLL_SECONDS = 0.05


class Doorbell:
    """Lives in the worker's event loop; `ring` may be called from any thread."""

    def __init__(self, data_version: Callable[[], int]) -> None:
        self._data_version = data_version
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Event] = set()
        self._poller: asyncio.Task[None] | None = None
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake every waiter, from any thread. Harmless when the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return

    async def wait(self, timeout: float | None = None) -> None:
        """Return at the next change, or after ``timeout`` seconds. Also without a reason: look at the store again."""
        event = asyncio.Event()
        self._waiters.add(event)
        if self._poller is None or self._poller.done():
            self._poller = self._loop.create_task(self._poll())
        try:
            await asyncio.wait_for(event.wait(), timeout)
        except TimeoutError:
            return
        finally:
            self._waiters.discard(event)

    async def rung(self) -> None:
        """Return at the next `ring` of this process, or at once when one came since the last time."""
        await self._rung.wait()
        self._rung.clear()

    def _wake(self) -> None:
        self._rung.set()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for event in self._waiters:
            event.set()

    async def _poll(self) -> None:
        seen = -1
        while self._waiters:
            await asyncio.sleep(POLL_SECONDS)
            try:
                version = self._data_version()
            except StorageError:
                # Busy or gone for a moment: whoever waits must still be woken later.
                continue
            if version != seen:
                seen = version
                self._wake_waiters()
