"""Times: aware UTC datetimes outside, integer microseconds in the file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from m3nb.errors import ManagedInputValidationError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The present time, aware, in UTC."""
    return datetime.now(UTC)


def to_microseconds(value: datetime) -> int:
    """Microseconds since the epoch. A naive datetime is taken for UTC."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return (value - EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The aware UTC datetime of a stored time."""
    return EPOCH + timedelta(microseconds=value)


def optional_datetime(value: int | None) -> datetime | None:
    """The datetime of a stored time that may be unset."""
    return None if value is None else EPOCH + timedelta(microseconds=value)


def is_aware(value: Any) -> bool:
    """Whether ``value`` is a datetime that knows its zone."""
    return isinstance(value, datetime) and value.utcoffset() is not None


def read_clock(clock: Clock) -> tuple[int, datetime]:
    """Now by ``clock``: in microseconds since the epoch, and as a UTC datetime.

    Raises `ManagedInputValidationError` for a naive datetime.
    """
    now = clock()
    if not isinstance(now, datetime) or now.tzinfo is not UTC:
        if not is_aware(now):
            raise ManagedInputValidationError(f"clock must return timezone-aware datetimes, not {now!r}")
        now = now.astimezone(UTC)
    return (now - EPOCH) // _MICROSECOND, now


def now_microseconds() -> int:
    """The present time in microseconds since the epoch."""
    return (datetime.now(UTC) - EPOCH) // _MICROSECOND
