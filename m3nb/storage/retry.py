"""Waiting for a lock of another connection."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_SECONDS = 0.0005
_LONGEST_SECONDS = 0.01

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds the lock that was needed."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


class Patience:
    """How long one operation waits for locks, over all its steps.

    SQLite's own busy handler sleeps 100 ms between tries when it has waited for a while, so under load a process that
    was unlucky stays so. Here the sleeps are short and random.
    """

    __slots__ = ("_until",)

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, 0 when there are none."""
        return max(0.0, self._until - time.monotonic())

    def __call__(self, step: Callable[[], T]) -> T:
        """The result of ``step``, which is repeated while the database is busy and time is left."""
        longest = _FIRST_SECONDS
        while True:
            try:
                return step()
            except sqlite3.OperationalError as error:
                left = self.left
                if not is_busy(error) or not left:
                    raise
            time.sleep(min(left, random.uniform(0, longest)))  # noqa: S311 - spreads the tries, guards nothing
            longest = min(longest * 2, _LONGEST_SECONDS)
