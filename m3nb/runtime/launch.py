"""What the submitting process alone knows about a server: where its command is, its folder, its secrets.

Resolved at submission and handed to the worker in memory. The store keeps names, never values (DESIGN "The worker").
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3nb.elicitation import Model
from m3nb.errors import ModelValidationError, ServerError, UnsupportedFeature
from m3nb.redaction import is_secret_name
from m3nb.types import AgentSpec, SecretReference, ServerBinding, StdioServer

SECRET_LENGTH = 8
"""Shorter values are not looked for in answers: they would hide ordinary words."""


@dataclass(frozen=True)
class Launch:
    """One stdio server, ready to be started."""

    selector: str
    command: str
    args: tuple[str, ...]
    cwd: str | None
    environment: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    protocol: str = "auto"


def resolve(spec: AgentSpec, *, cwd: str | None = None) -> tuple[Launch, ...]:
    """Resolve every server of a spec in this process.

    Raises `UnsupportedFeature` for a kind of server that is not served, `ModelValidationError` for a secret that is not
    set or two servers of one name, `ServerError` for a command that is not there.
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
    server = binding.server
    if not isinstance(server, StdioServer):
        what = "a server profile" if server is None else f"a server of kind {server.kind}"
        raise UnsupportedFeature(
            f"{binding.selector}: {what} is not served by this version of m3nb: use a StdioServer",
            details={"server": binding.selector},
        )
    environment = {name: _value(binding.selector, name, value) for name, value in server.environment.items()}
    secret = [
        name for name, value in server.environment.items() if isinstance(value, SecretReference) or is_secret_name(name)
    ]
    folder = _folder(server.cwd or cwd, binding.selector)
    return Launch(
        selector=binding.selector,
        command=_command(server, environment, folder),
        args=server.args,
        cwd=folder,
        environment=environment,
        secrets=tuple(environment[name] for name in secret if len(environment[name]) >= SECRET_LENGTH),
        protocol=spec.protocol or server.protocol,
    )


def _folder(cwd: str | None, server: str) -> str | None:
    try:
        return None if cwd is None else str(Path(cwd).expanduser().resolve())
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


def _command(server: StdioServer, environment: Mapping[str, str], folder: str | None) -> str:
    command = os.path.expanduser(server.command)
    if os.path.dirname(command):
        command = os.path.join(folder or "", command)
    found = shutil.which(command, path=environment.get("PATH"))
    if found is None:
        raise ServerError(
            f"{server.name}: the command {server.command!r} was not found: check its spelling and PATH",
            details={"server": server.name, "command": server.command},
        )
    return os.path.abspath(found)


def storable(spec: Model) -> dict[str, Any]:
    """The spec as JSON for the store: values of environments and headers are withheld, their names kept."""
    dumped: dict[str, Any] = spec.model_dump(mode="json")
    for binding in dumped.get("servers", ()):
        server = binding.get("server") or {}
        for mapping in ("environment", "headers"):
            for name, value in (server.get(mapping) or {}).items():
                if not isinstance(value, dict):
                    server[mapping][name] = {"source": "withheld", "name": name}
    return dumped
