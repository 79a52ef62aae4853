"""A URL that a server wants to be visited, taken apart so that a person can judge it. Nothing is fetched."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from typing import TypedDict
from urllib.parse import SplitResult, urlsplit

from m3nb.elicitation import UrlElicitationRequest
from m3nb.errors import UnsafeUrlError

SCHEMES = ("http", "https")
ONLY_WEB = "Only https and http addresses can be opened from here."


class UrlParts(TypedDict):
    """``text`` is the whole URL as sent; ``host`` is in ASCII (Punycode), with the port when there is one."""

    text: str
    scheme: str
    host: str
    path: str


_BLANK_LETTERS = "\u034f\u115f\u1160\u2800\u3164\uffa0"
"""Letters and marks that nobody sees: joiners, Hangul fillers, the empty Braille pattern."""

_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def check_scheme(request: UrlElicitationRequest) -> None:
    """Raise `UnsafeUrlError` for what is no web address, such as ``javascript:``: nobody is asked to open it."""
    try:
        scheme = urlsplit(request.url).scheme
    except ValueError:
        # No URL at all: the form shows it, says so and offers no link.
        return
    if scheme not in SCHEMES:
        raise UnsafeUrlError(
            f"{request.server or 'the server'} asked to open {request.url[:200]!r}: {ONLY_WEB}",
            details={"request_key": request.request_key, "scheme": scheme},
        )


def take_apart(url: str) -> tuple[UrlParts, list[str], str | None]:
    """The parts, the warnings, and why it must not be opened (``None``: it may). MCP URL mode, "Safe URL handling"."""
    warnings: list[str] = []
    try:
        split = urlsplit(url)
        host = _host(split)
    except ValueError:
        return _parts(url, "", "", ""), warnings, "This is not a URL that can be opened."
    parts = _parts(url, split.scheme, host, split._replace(scheme="", netloc="").geturl())
    if split.scheme not in SCHEMES:
        return parts, warnings, ONLY_WEB
    if any(_is_hidden(character) for character in url):
        return (
            parts,
            warnings,
            "The address holds blanks, backslashes or invisible characters: browsers read it differently.",
        )
    if not host:
        return parts, warnings, "The address names no host."
    if not _is_plain(host):
        return parts, warnings, "The host is written in an unusual way: browsers may read another one."
    if "@" in split.netloc:
        warnings.append(f"The part before “@” is not the host. This address leads to {host}.")
    if "xn--" in host:
        warnings.append("The host has letters from other alphabets (Punycode), which can imitate another name.")
    if split.scheme == "http" and not _is_loopback(split.hostname or ""):
        warnings.append("The connection is not encrypted (http).")
    return parts, warnings, None


def _parts(text: str, scheme: str, host: str, path: str) -> UrlParts:
    return {"text": text, "scheme": scheme, "host": host, "path": path}


def _is_hidden(character: str) -> bool:
    """Blanks, control and format characters, and what has no meaning: Unicode categories Z and C."""
    return character == "\\" or character in _BLANK_LETTERS or unicodedata.category(character)[0] in "CZ"


def _is_plain(host: str) -> bool:
    """Whether a browser goes to the host that is shown: it decodes ``%61``, and reads ``0x7f.1`` as 127.0.0.1."""
    name = re.sub(r":[0-9]+$", "", host)
    if not _HOST.fullmatch(name):
        return False
    if not _NUMBER.fullmatch(name.removesuffix(".").rpartition(".")[2]):
        return True
    try:
        return str(ipaddress.IPv4Address(name)) == name
    except ValueError:
        return False


def _host(split: SplitResult) -> str:
    name = split.hostname or ""
    if "ß" in name or "ς" in name:
        raise ValueError("Python's IDNA turns these letters into others, browsers keep them")
    if not name.isascii():
        name = name.encode("idna").decode("ascii")
    if ":" in name:
        name = f"[{name}]"
    return f"{name}:{split.port}" if split.port is not None else name


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
