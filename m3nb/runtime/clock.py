"""The time an execution may take, not counting the time a person takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager


class ActiveClock:
    """Counts down ``seconds`` while it is not paused (monotonic: a sleeping laptop does not count either)."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._pauses = 0
        self._since = time.monotonic()
        self._changed = asyncio.Event()

    @property
    def left(self) -> float:
        """Seconds left."""
        return self._left if self._pauses else self._left - (time.monotonic() - self._since)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop counting inside the block. Blocks may overlap."""
        if self._pauses == 0:
            self._left = self.left
        self._pauses += 1
        self._changed.set()
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._since = time.monotonic()
            self._changed.set()

    async def expired(self) -> None:
        """Return when no time is left."""
        while self._pauses or self.left > 0:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), None if self._pauses else self.left)
            except TimeoutError:
                continue
