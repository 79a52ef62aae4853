"""Checks of arguments, before anything touches the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from m3nb.errors import MCPError
from m3nb.frozen import freeze
from m3nb.storage.codec import dumps
from m3nb.storage.times import LAST

_LARGEST = 2**63 - 1


def check_texts(refuse: type[MCPError], /, **values: Any) -> None:
    """Raise unless every value is a text that is not empty and can be stored."""
    for name, value in values.items():
        if type(value) is str and value and value.isascii():
            continue
        if not isinstance(value, str) or not value:
            # Never the value itself: it may be a token of the wrong type.
            found = "an empty one" if isinstance(value, str) else type(value).__name__
            raise refuse(f"{name} must be a text that is not empty, not {found}", details={"field": name})
        check_storable(refuse, name, value)


def check_optional_texts(refuse: type[MCPError], /, **values: Any) -> None:
    """The same for values that may be ``None``."""
    check_texts(refuse, **{name: value for name, value in values.items() if value is not None})


def check_storable(refuse: type[MCPError], name: str, value: str) -> None:
    """Raise if a text has no UTF-8 form."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise refuse(
            f"{name} has a lone surrogate at position {error.start} and can't be stored", details={"field": name}
        ) from None


def check_integer(refuse: type[MCPError], name: str, value: Any, *, least: int) -> None:
    """Raise unless ``value`` is an integer, ``least`` or more, that fits in 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        raise refuse(f"{name} must be a whole number, {least} or more, not {shown(value)}", details={"field": name})


def shown(value: Any) -> str:
    """A wrong value in a message. Numbers of thousands of digits have no ``repr``."""
    try:
        return repr(value)[:80]
    except ValueError:
        return f"a {type(value).__name__} that is far too large"


def json_object(refuse: type[MCPError], name: str, value: Any) -> str:
    """The JSON text of a mapping. Raises for what JSON has no form for."""
    if not isinstance(value, Mapping):
        raise refuse(f"{name} must be a mapping, not {type(value).__name__}", details={"field": name})
    return json_text(refuse, name, freeze_or_raise(refuse, name, value))


def freeze_or_raise(refuse: type[MCPError], name: str, value: Any) -> Any:
    """`freeze`, with a typed error."""
    try:
        return freeze(value)
    except (ValueError, RecursionError) as error:
        raise refuse(f"{name} must hold JSON values only: {error}", details={"field": name}) from None


def json_text(refuse: type[MCPError], name: str, value: Any) -> str:
    """The JSON text of frozen values. Raises for integers and texts that can't be written down."""
    try:
        text = dumps(value)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise refuse(f"{name} holds a lone surrogate and can't be stored", details={"field": name}) from None
    except (ValueError, RecursionError) as error:
        raise refuse(f"{name} can't be stored as JSON: {error}", details={"field": name}) from None
    return text


def lease_end(refuse: type[MCPError], now: int, seconds: Any) -> int:
    """When a lease taken now ends. ``seconds`` is a finite number above 0."""
    try:
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
            end = now + max(1, round(seconds * 1_000_000))
            if end <= LAST:
                return end
    except (OverflowError, ValueError):
        # Infinity, NaN.
        pass
    raise refuse(
        f"lease_seconds must be a finite number of seconds above 0, before the year 10000, not {shown(seconds)}"
    )
