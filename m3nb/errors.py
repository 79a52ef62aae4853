"""Every typed error of m3nb, one tree (spec: "Typed errors"; engine-facts section 5).

An error names the field, the id and the way out in its message; what a program may want to read is in ``details``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class MCPError(Exception):
    """Base of every error raised on purpose.

    ``message`` is the text for a person, ``details`` a dict of JSON values for a program, ``code`` a stable word.
    """

    code: ClassVar[str] = "mcp_error"

    def __init__(self, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = dict(details or {})

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle their positional arguments only; the details must cross process borders too.
        return (_rebuild, (type(self), self.message, self.details))


def _rebuild(cls: type[MCPError], message: str, details: dict[str, Any]) -> MCPError:
    return cls(message, details=details)


class ManagedInputError(MCPError):
    """Base of the errors about a stored round."""

    code = "managed_input_error"


class ManagedInputValidationError(ManagedInputError):
    """A malformed id, response map, action or content.

    ``details["errors"]`` is a list of ``{"request_key", "pointer", "keyword", "message"}`` (all text; ``pointer`` is a
    JSON Pointer into the content, ``""`` for the content itself).
    """

    code = "managed_input_invalid"


class ManagedInputConflict(ManagedInputError):  # noqa: N818 - the spec's name
    """Stale ownership, an idempotency key used for another response, a concurrent update, an unknown round."""

    code = "managed_input_conflict"


class ManagedInputStateError(ManagedInputError):
    """A transition or a response that the round's present state does not allow."""

    code = "managed_input_state"


class ManagedInputRecoveryError(ManagedInputError):
    """The store cannot safely recover or reclaim the round."""

    code = "managed_input_recovery_unavailable"


class ModelValidationError(MCPError, ValueError):
    """An argument that makes no sense, found at submission. ``details["operation"]`` names the call."""

    code = "invalid_argument"


class OperationTimeout(MCPError):  # noqa: N818 - the spec's name
    """A wait or a deadline came to its end."""

    code = "timeout"


class OperationCancelled(MCPError):  # noqa: N818 - engine-facts section 5
    """The execution was cancelled."""

    code = "cancelled"


class ElicitationRoundLimitError(MCPError):
    """The server asked more often than ``elicitation_round_limit`` allows."""

    code = "elicitation_round_limit"


class ElicitationExpectationError(MCPError):
    """A request did not match the elicitation plan."""

    code = "elicitation_expectation_failed"


class HumanInputRequired(MCPError):  # noqa: N818 - reads as what happened
    """The server asked a person, and the execution was submitted with ``human_input="fail"``.

    ``details["requests"]`` says what was asked.
    """

    code = "human_input_required"


class UnsupportedFeature(MCPError):  # noqa: N818 - engine-facts section 5
    """An option or a harness that this version does not serve."""

    code = "unsupported"


class KitClosed(MCPError, RuntimeError):  # noqa: N818 - engine-facts section 5
    """The kit, workbench or store was closed."""

    code = "kit_closed"


class InvalidSchemaError(MCPError):
    """A server sent a schema that no answer can be checked against. ``details`` holds ``request_key`` and reason."""

    code = "invalid_schema"


class UnsafeUrlError(MCPError):
    """A server asked a person to open what is no web address. ``details`` holds ``request_key`` and ``scheme``."""

    code = "unsafe_url"


class StorageError(MCPError):
    """The database file cannot be used: a symlink, a directory, a foreign or damaged file, an older SQLite."""

    code = "storage_error"


class StorageBusy(StorageError):  # noqa: N818 - reads as what happened
    """Another connection held the database longer than ``busy_timeout_ms``. Nothing was changed: try again."""

    code = "storage_busy"


class ServerError(MCPError):
    """The MCP server could not be started, died, or answered with a protocol error."""

    code = "server_lost"


class AgentError(MCPError):
    """The agent could not be started, exited early, or reported a failure."""

    code = "agent_exited"


class WorkerStopped(MCPError):  # noqa: N818 - reads as what happened
    """The worker that ran the execution has ended, and the execution with it."""

    code = "worker_stopped"


class NoFrontEnd(MCPError):  # noqa: N818 - reads as what happened
    """A cell waits for an answer, and no page is there that could show the form. The round stays pending."""

    code = "no_front_end"


def error_of(code: str) -> type[MCPError]:
    """The class whose ``code`` this is; `MCPError` for a code that none has."""
    classes = [MCPError]
    for cls in classes:
        if cls.code == code:
            return cls
        classes.extend(cls.__subclasses__())
    return MCPError
