"""JSON values that cannot change: what the models hold.

A frozen value still *is* a ``dict`` or a ``list``: it equals the original, ``json.dumps`` and jsonschema take it as it
is, it deep-copies and pickles (engine-facts section 9, points 1 and 19).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Annotated, Any, NoReturn

from pydantic import PlainSerializer, PlainValidator

MAX_DEPTH = 256
"""Levels of nesting a value may have. ``json`` itself gives up near 1,000; real forms stay below 10."""

MAX_INTEGER_BITS = 13_288
"""Bits of the largest whole number: ``json`` writes and reads none beyond 4,300 digits."""


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise TypeError("this value is frozen: make a dict() or list() of it first")


class FrozenDict(dict[str, Any]):
    """A ``dict`` that refuses every change. Copies of it are itself."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, _memo: Any) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenDict, (dict(self),))


class FrozenList(list[Any]):
    """A ``list`` that refuses every change. Copies of it are itself."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = _refuse
    pop = remove = reverse = sort = _refuse

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, _memo: Any) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenList, (list(self),))


EMPTY = FrozenDict()


def freeze(value: Any, *, depth: int = 0) -> Any:
    """A frozen copy of a JSON value; mappings, sequences, sets, dates and times are turned into their JSON form.

    Raises ``ValueError``: NaN and infinities, bytes, keys that are no text, lone surrogates, whole numbers of
    more than 4,000 digits, nesting deeper than `MAX_DEPTH`, anything JSON has no form for.
    """
    if value is None or value is True or value is False:
        return value
    if type(value) is int:
        return _integer(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (FrozenDict, FrozenList)) and depth == 0:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} is not a JSON number")
        return float(value)
    if isinstance(value, int):
        return _integer(int(value))
    if depth >= MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return FrozenDict({_key(key): freeze(item, depth=depth + 1) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return FrozenList(freeze(item, depth=depth + 1) for item in value)
    if isinstance(value, (set, frozenset)):
        return FrozenList(freeze(item, depth=depth + 1) for item in sorted(value, key=repr))
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    raise ValueError(f"a {type(value).__name__} has no JSON form")


def _integer(value: int) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise ValueError("a whole number has more than 4,000 digits")
    return value


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"the key {key!r} is no text")
    return _text(key)


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"the text has a lone surrogate at position {error.start}") from None
    return str(value)


def thaw(value: Any) -> Any:
    """A plain ``dict``/``list`` copy that may be changed."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


def _freeze_mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return freeze(value)
    raise ValueError("a mapping (JSON object) is expected")


JsonObject = Annotated[dict[str, Any], PlainValidator(_freeze_mapping), PlainSerializer(thaw)]
"""A field that holds a frozen JSON object."""

JsonValue = Annotated[Any, PlainValidator(freeze), PlainSerializer(thaw)]
"""A field that holds any frozen JSON value."""
