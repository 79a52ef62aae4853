"""The formats that are asserted. Every other format is an annotation.

Source: JSON Schema 2020-12 validation section 7.3. One table serves every dialect, and it does not depend on which
optional packages happen to be installed (JupyterLab brings some that change what jsonschema itself checks).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date
from uuid import UUID

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_DURATION = re.compile(
    r"P(?=.)(?:\d+W|(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?)", re.ASCII
)
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_RELATIVE_POINTER = re.compile(r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def _email(text: str) -> bool:
    return "@" in text


def _date(text: str) -> bool:
    return bool(_DATE.fullmatch(text) and date.fromisoformat(text))


def _date_time(text: str) -> bool:
    from rfc3339_validator import validate_rfc3339  # type: ignore[import-untyped]

    return "\n" not in text and bool(validate_rfc3339(text.upper()))


def _time(text: str) -> bool:
    return _date_time(f"1970-01-01T{text}")


def _uri(text: str) -> bool:
    from rfc3986_validator import validate_rfc3986  # type: ignore[import-untyped]

    return "\n" not in text and bool(validate_rfc3986(text, rule="URI"))


def _uri_reference(text: str) -> bool:
    from rfc3986_validator import validate_rfc3986

    return "\n" not in text and bool(validate_rfc3986(text, rule="URI_reference"))


def _hostname(text: str) -> bool:
    return len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.split("."))


def _ipv4(text: str) -> bool:
    return bool(ipaddress.IPv4Address(text))


def _ipv6(text: str) -> bool:
    return not ipaddress.IPv6Address(text).scope_id


def _regex(text: str) -> bool:
    from m3nb.validity.patterns import translate

    translate(text)
    return True


_CHECKS: dict[str, Callable[[str], bool]] = {
    "email": _email,
    "idn-email": _email,
    "date": _date,
    "date-time": _date_time,
    "time": _time,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "uri": _uri,
    "uri-reference": _uri_reference,
    "hostname": _hostname,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "uuid": lambda text: bool(_UUID.fullmatch(text) and UUID(text)),
    "json-pointer": lambda text: _POINTER.fullmatch(text) is not None,
    "relative-json-pointer": lambda text: _RELATIVE_POINTER.fullmatch(text) is not None,
    "regex": _regex,
}

ASSERTED = frozenset(_CHECKS)
"""The names of the formats that are checked."""


def conforms(name: str, text: str) -> bool:
    """Whether the text has the format; True for every format that is not in `ASSERTED`."""
    check = _CHECKS.get(name)
    if check is None:
        return True
    try:
        return check(text)
    except ValueError:  # how the parsers of dates, addresses and patterns say no
        return False
