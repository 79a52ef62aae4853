"""What the submitting process alone knows about a server: where its command is, its folder, its secrets.

Resolved at submission and handed to the worker in memory. The store keeps names, never values (DESIGN "The worker").
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from m3nb.elicitation import Model
from m3nb.errors import ModelValidationError, ServerError, UnsupportedFeature
from m3nb.redaction import REDACTED, is_secret_name
from m3nb.types import AgentSpec, HTTPServer, InProcessServer, SecretReference, ServerBinding, StdioServer

SECRET_LENGTH = 8
"""Shorter values are not looked for in answers: they would hide ordinary words."""


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_HEADER_VALUE = re.compile(r"|[!-~\xa1-\xff](?:[ \t!-~\xa1-\xff]*[!-~\xa1-\xff])?")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One server, ready to be reached. ``secrets`` are the values to hide wherever they turn up."""

    selector: str
    protocol: str = "auto"
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def located(self) -> Launch:
        """The same, with whatever has to be looked for on the disk."""
        return self


@dataclass(frozen=True, kw_only=True)
class StdioLaunch(Launch):
    """A server that is started as a subprocess."""

    command: str
    args: tuple[str, ...]
    cwd: str | None
    environment: Mapping[str, str] = field(repr=False)

    def located(self) -> StdioLaunch:
        """Where the command and its folder are.

        Raises `ModelValidationError` for a folder that can't be one, `ServerError` for a command that is not there.
        """
        folder = _folder(self.cwd, self.selector)
        return replace(self, cwd=folder, command=_command(self, folder))


@dataclass(frozen=True, kw_only=True)
class HTTPLaunch(Launch):
    """A server that runs already."""

    url: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class InProcessLaunch(Launch):
    """A server that ``factory`` makes on a thread of its own."""

    factory: Callable[[], Any] = field(repr=False)


def resolve(spec: AgentSpec, *, cwd: str | None = None) -> tuple[Launch, ...]:
    """What this process knows about every server of a spec, without looking at the disk: see `Launch.located`.

    Raises `UnsupportedFeature` for a server profile, `ModelValidationError` for a secret that is not set, a URL that
    can't be used or two servers of one name.
    """
    launches = tuple(_resolve(binding, spec, cwd) for binding in spec.servers)
    names = [launch.selector for launch in launches]
    if len(set(names)) < len(names):
        raise ModelValidationError(
            f"two servers are called {max(names, key=names.count)!r}: give one of them an alias",
            details={"operation": "execution.submit", "servers": names},
        )
    return launches


def _resolve(binding: ServerBinding, spec: AgentSpec, cwd: str | None) -> Launch:
    server, selector = binding.server, binding.selector
    if server is None:
        raise UnsupportedFeature(
            f"{selector}: a server profile is not served by this version of m3nb: give the server itself",
            details={"server": selector},
        )
    protocol = spec.protocol or server.protocol
    if isinstance(server, InProcessServer):
        return InProcessLaunch(selector=selector, protocol=protocol, factory=server.factory)
    if isinstance(server, HTTPServer):
        return _http(server, selector, protocol)
    return _stdio(server, selector, protocol, cwd)


def _stdio(server: StdioServer, selector: str, protocol: str, cwd: str | None) -> StdioLaunch:
    environment = _values(selector, server.environment)
    return StdioLaunch(
        selector=selector,
        protocol=protocol,
        secrets=_secrets(server.environment, environment),
        command=server.command,
        args=server.args,
        cwd=server.cwd or cwd,
        environment=environment,
    )


def _http(server: HTTPServer, selector: str, protocol: str) -> HTTPLaunch:
    _check_url(server, selector)
    headers = _values(selector, server.headers)
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ModelValidationError(
                f"{selector}: the header {name!r} can't be sent: names are letters, digits and -, values plain text "
                "without line breaks or spaces at the ends",
                details={"operation": "execution.submit", "server": selector, "header": name},
            )
    known = _secrets(server.headers, headers)
    known += tuple(value for name, value in parse_qsl(urlsplit(server.url).query) if is_secret_name(name))
    parts = (part for value in known for part in (value, *_parts(value)))
    secrets = dict.fromkeys(value for value in parts if len(value) >= SECRET_LENGTH)
    return HTTPLaunch(selector=selector, protocol=protocol, secrets=tuple(secrets), url=server.url, headers=headers)


def _parts(header: str) -> Iterable[str]:
    """What a server knows of a header, and may echo, alone: a bearer's token, a cookie's value, a basic password."""
    yield from (pair.strip().partition("=")[2] for pair in header.split(";"))
    scheme, _, rest = header.rpartition(" ")
    yield rest
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):  # binascii's and UTF-8's errors are such
            pair = b64decode(rest).decode()
            yield from (pair, pair.partition(":")[2])


def _check_url(server: HTTPServer, selector: str) -> None:
    try:
        url = urlsplit(server.url)
        host = url.hostname or ""
        _ = url.port
    except ValueError as error:
        raise _bad_url(selector, f"is no URL ({error})") from None
    if url.scheme not in ("http", "https") or not host:
        raise _bad_url(selector, "must begin with http:// or https:// and name a host")
    if url.username is not None or url.password is not None:
        raise _bad_url(selector, "holds credentials, which would be stored: give them in headers, as a SecretReference")
    if server.loopback_only and not is_loopback(host):
        raise _bad_url(selector, f"is not on this machine ({host}), and loopback_only is set")


def _bad_url(selector: str, why: str) -> ModelValidationError:
    return ModelValidationError(
        f"{selector}: the url {why}", details={"operation": "execution.submit", "server": selector, "field": "url"}
    )


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own loopback."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _values(selector: str, given: Mapping[str, str | SecretReference]) -> dict[str, str]:
    return {name: _value(selector, name, value) for name, value in given.items()}


def _secrets(given: Mapping[str, str | SecretReference], values: Mapping[str, str]) -> tuple[str, ...]:
    """The values that are secret by where they come from or by their name, and long enough to be looked for."""
    names: Iterable[str] = (
        name for name, value in given.items() if isinstance(value, SecretReference) or is_secret_name(name)
    )
    return tuple(values[name] for name in names if len(values[name]) >= SECRET_LENGTH)


def _folder(cwd: str | None, server: str) -> str | None:
    if cwd is None:
        return None
    try:
        folder = Path(cwd).expanduser().resolve()
        if not folder.is_dir():
            raise ValueError("cwd must be a folder that exists")
        return str(folder)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelValidationError(
            f"{server}: {cwd!r} is no folder to start in ({error})", details={"operation": "execution.submit"}
        ) from None


def _value(server: str, name: str, value: str | SecretReference) -> str:
    if isinstance(value, str):
        return value
    if value.source != "environment":
        raise UnsupportedFeature(
            f'{server}: secrets from a "{value.source}" are not served: use source="environment"',
            details={"server": server, "name": name},
        )
    if value.name not in os.environ:
        raise ModelValidationError(
            f"{server}: the environment variable {value.name} (for {name}) is not set: set it before submitting",
            details={"operation": "execution.submit", "server": server, "name": value.name},
        )
    return os.environ[value.name]


def _command(server: StdioLaunch, folder: str | None) -> str:
    command = os.path.expanduser(server.command)
    if os.path.dirname(command):
        command = os.path.join(folder or "", command)
    found = shutil.which(command, path=server.environment.get("PATH"))
    if found is None:
        raise ServerError(
            f"{server.selector}: the command {server.command!r} was not found: check its spelling and PATH",
            details={"server": server.selector, "command": server.command},
        )
    return os.path.abspath(found)


def storable(spec: Model) -> dict[str, Any]:
    """The spec as JSON for the store: values of environments and headers are withheld, their names kept.

    So are the values of a URL's parameters that are secret by their name, and the answers of a plan; the factory of an
    in-process server is left out. Raises `ModelValidationError` for a plan that is nested too deeply to be written.
    """
    try:
        dumped: dict[str, Any] = spec.model_dump(mode="json", exclude={"servers": {"__all__": {"server": {"factory"}}}})
    except ValueError as error:
        raise ModelValidationError(
            f"the specification can't be stored: {error}", details={"operation": "execution.submit"}
        ) from None
    for binding in dumped.get("servers", ()):
        server = binding.get("server") or {}
        if "url" in server:
            server["url"] = _without_secrets(server["url"])
        for mapping in ("environment", "headers"):
            for name, value in (server.get(mapping) or {}).items():
                if not isinstance(value, dict):
                    server[mapping][name] = {"source": "withheld", "name": name}
    _withhold_answers(dumped.get("elicitation"))
    return dumped


def _without_secrets(url: str) -> str:
    address, mark, query = url.partition("?")
    pairs = (pair.partition("=") for pair in query.split("&"))
    shown = (
        name + equals + (REDACTED if value and is_secret_name(unquote(name)) else value)
        for name, equals, value in pairs
    )
    return address + mark + "&".join(shown)


def _withhold_answers(plan: dict[str, Any] | None) -> None:
    if plan is None:
        return
    if plan.get("response"):
        plan["response"] |= {"content": None, "meta": None}
    for child in plan.get("children", ()):
        _withhold_answers(child)
