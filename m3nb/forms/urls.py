"""A URL that a server wants to be visited, taken apart so that a person can judge it. Nothing is fetched."""

from __future__ import annotations

import ipaddress
import re
from typing import TypedDict
from urllib.parse import SplitResult, urlsplit


class UrlParts(TypedDict):
    """``text`` is the whole URL as sent; ``host`` is in ASCII (Punycode), with the port when there is one."""

    text: str
    scheme: str
    host: str
    path: str


_HIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\\\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def take_apart(url: str) -> tuple[UrlParts, list[str], str | None]:
    """The parts, the warnings, and why it must not be opened (``None``: it may). MCP URL mode, "Safe URL handling"."""
    warnings: list[str] = []
    try:
        split = urlsplit(url)
        host = _host(split)
    except ValueError:
        return _parts(url, "", "", ""), warnings, "This is not a URL that can be opened."
    parts = _parts(url, split.scheme, host, split._replace(scheme="", netloc="").geturl())
    if split.scheme not in ("http", "https"):
        return parts, warnings, "Only https and http addresses can be opened from here."
    if _HIDDEN.search(url):
        return (
            parts,
            warnings,
            "The address holds blanks, backslashes or invisible characters: browsers read it differently.",
        )
    if not host:
        return parts, warnings, "The address names no host."
    if "@" in split.netloc:
        warnings.append(f"The part before “@” is not the host. This address leads to {host}.")
    if "xn--" in host:
        warnings.append("The host has letters from other alphabets (Punycode), which can imitate another name.")
    if split.scheme == "http" and not _is_loopback(split.hostname or ""):
        warnings.append("The connection is not encrypted (http).")
    return parts, warnings, None


def _parts(text: str, scheme: str, host: str, path: str) -> UrlParts:
    return {"text": text, "scheme": scheme, "host": host, "path": path}


def _host(split: SplitResult) -> str:
    name = split.hostname or ""
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
