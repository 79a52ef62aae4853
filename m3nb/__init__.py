"""Run an agent against an MCP server from a notebook, answer what the server asks, study what happened in pandas.

Every public name is here. Each is loaded when it is first used, so that ``import m3nb`` stays quick: neither mcp,
jsonschema, pandas nor ipywidgets is loaded by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from m3nb._version import __version__

if TYPE_CHECKING:
    from m3nb.elicitation import (
        ElicitationResponse,
        FormElicitationRequest,
        PendingElicitationRound,
        UrlElicitationRequest,
    )
    from m3nb.errors import (
        AgentError,
        ElicitationExpectationError,
        ElicitationRoundLimitError,
        HumanInputRequired,
        InvalidSchemaError,
        KitClosed,
        ManagedInputConflict,
        ManagedInputError,
        ManagedInputRecoveryError,
        ManagedInputStateError,
        ManagedInputValidationError,
        MCPError,
        ModelValidationError,
        NoFrontEnd,
        OperationCancelled,
        OperationTimeout,
        ServerError,
        StorageBusy,
        StorageError,
        UnsupportedFeature,
        WorkerStopped,
    )
    from m3nb.frames import answers, rounds
    from m3nb.kit import Agent, ExecutionHandle, MCPTestKit
    from m3nb.notebook import Run, Workbench
    from m3nb.plans import (
        ElicitationPlan,
        expect_form,
        expect_url,
        maybe_form,
        maybe_url,
        one_of,
        optional,
        round_of,
        sequence,
    )
    from m3nb.storage import (
        InMemoryExecutionStore,
        ManagedInputLease,
        ManagedInputRecord,
        ManagedInputStatus,
        ManagedInputStore,
        SQLiteExecutionStore,
        SQLiteManagedInputStore,
    )
    from m3nb.types import (
        ACPAgent,
        AgentSpec,
        ClaudeCode,
        Codex,
        DirectSpec,
        ErrorInfo,
        ExecutionId,
        ExecutionOutcome,
        ExecutionResult,
        ExecutionState,
        ExecutionStatus,
        HTTPServer,
        HumanInput,
        InProcessServer,
        OpenCode,
        Pi,
        Scripted,
        SecretReference,
        ServerBinding,
        StdioServer,
        TraceEvent,
    )

_ROOMS = {
    "m3nb.elicitation": (
        "ElicitationResponse FormElicitationRequest PendingElicitationRound UrlElicitationRequest"
    ),
    "m3nb.errors": (
        "AgentError ElicitationExpectationError ElicitationRoundLimitError HumanInputRequired InvalidSchemaError "
        "KitClosed ManagedInputConflict ManagedInputError ManagedInputRecoveryError ManagedInputStateError "
        "ManagedInputValidationError MCPError ModelValidationError NoFrontEnd OperationCancelled OperationTimeout "
        "ServerError StorageBusy StorageError UnsupportedFeature WorkerStopped"
    ),
    "m3nb.frames": "answers rounds",
    "m3nb.kit": "Agent ExecutionHandle MCPTestKit",
    "m3nb.notebook": "Run Workbench",
    "m3nb.plans": (
        "ElicitationPlan expect_form expect_url maybe_form maybe_url one_of optional round_of sequence"
    ),
    "m3nb.storage": (
        "InMemoryExecutionStore ManagedInputLease ManagedInputRecord ManagedInputStatus ManagedInputStore "
        "SQLiteExecutionStore SQLiteManagedInputStore"
    ),
    "m3nb.types": (
        "ACPAgent AgentSpec ClaudeCode Codex DirectSpec ErrorInfo ExecutionId ExecutionOutcome ExecutionResult "
        "ExecutionState ExecutionStatus HTTPServer HumanInput InProcessServer OpenCode Pi Scripted SecretReference "
        "ServerBinding StdioServer TraceEvent"
    ),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = [  # noqa: PLE0604, RUF022 - computed from the table above
    "__version__",
    *sorted(_HOME),
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'm3nb' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
