"""Run an agent against an MCP server from a notebook, answer what the server asks, study what happened in pandas.

Every public name is here. Each is loaded when it is first used, so that ``import m3nb`` stays quick: neither mcp,
jsonschema, pandas nor ipywidgets is loaded by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from m3nb._version import __version__

if TYPE_CHECKING:
    from m3nb.async_api import (
        AsyncAgent as AsyncAgent,
        AsyncExecutionHandle as AsyncExecutionHandle,
        AsyncMCPTestKit as AsyncMCPTestKit,
    )
    from m3nb.elicitation import (
        ElicitationResponse as ElicitationResponse,
        FormElicitationRequest as FormElicitationRequest,
        PendingElicitationRound as PendingElicitationRound,
        UrlElicitationRequest as UrlElicitationRequest,
    )
    from m3nb.errors import (
        AgentError as AgentError,
        ElicitationExpectationError as ElicitationExpectationError,
        ElicitationRoundLimitError as ElicitationRoundLimitError,
        HumanInputRequired as HumanInputRequired,
        InvalidSchemaError as InvalidSchemaError,
        KitClosed as KitClosed,
        ManagedInputConflict as ManagedInputConflict,
        ManagedInputError as ManagedInputError,
        ManagedInputRecoveryError as ManagedInputRecoveryError,
        ManagedInputStateError as ManagedInputStateError,
        ManagedInputValidationError as ManagedInputValidationError,
        MCPError as MCPError,
        ModelValidationError as ModelValidationError,
        NoFrontEnd as NoFrontEnd,
        OperationCancelled as OperationCancelled,
        OperationTimeout as OperationTimeout,
        ServerError as ServerError,
        StorageBusy as StorageBusy,
        StorageError as StorageError,
        UnsafeUrlError as UnsafeUrlError,
        UnsupportedFeature as UnsupportedFeature,
        WorkerStopped as WorkerStopped,
    )
    from m3nb.frames import (
        answers as answers,
        events as events,
        executions as executions,
        requests as requests,
        rounds as rounds,
    )
    from m3nb.handles import ExecutionHandle as ExecutionHandle
    from m3nb.kit import Agent as Agent, MCPTestKit as MCPTestKit
    from m3nb.notebook import Form as Form, Run as Run, Workbench as Workbench, form as form
    from m3nb.notebook.preview import Preview as Preview, preview as preview
    from m3nb.plans import (
        ElicitationPlan as ElicitationPlan,
        expect_form as expect_form,
        expect_url as expect_url,
        maybe_form as maybe_form,
        maybe_url as maybe_url,
        one_of as one_of,
        optional as optional,
        round_of as round_of,
        sequence as sequence,
    )
    from m3nb.storage import (
        InMemoryExecutionStore as InMemoryExecutionStore,
        ManagedInputLease as ManagedInputLease,
        ManagedInputRecord as ManagedInputRecord,
        ManagedInputStatus as ManagedInputStatus,
        ManagedInputStore as ManagedInputStore,
        SQLiteExecutionStore as SQLiteExecutionStore,
        SQLiteManagedInputStore as SQLiteManagedInputStore,
    )
    from m3nb.types import (
        ACPAgent as ACPAgent,
        AgentSpec as AgentSpec,
        ClaudeCode as ClaudeCode,
        Codex as Codex,
        DirectSpec as DirectSpec,
        ErrorInfo as ErrorInfo,
        ExecutionId as ExecutionId,
        ExecutionOutcome as ExecutionOutcome,
        ExecutionResult as ExecutionResult,
        ExecutionState as ExecutionState,
        ExecutionStatus as ExecutionStatus,
        HTTPServer as HTTPServer,
        HumanInput as HumanInput,
        InProcessServer as InProcessServer,
        OpenCode as OpenCode,
        Pi as Pi,
        Scripted as Scripted,
        SecretReference as SecretReference,
        ServerBinding as ServerBinding,
        StdioServer as StdioServer,
        TraceEvent as TraceEvent,
    )

_ROOMS = {
    "m3nb.async_api": "AsyncAgent AsyncExecutionHandle AsyncMCPTestKit",
    "m3nb.elicitation": ("ElicitationResponse FormElicitationRequest PendingElicitationRound UrlElicitationRequest"),
    "m3nb.errors": (
        "AgentError ElicitationExpectationError ElicitationRoundLimitError HumanInputRequired InvalidSchemaError "
        "KitClosed ManagedInputConflict ManagedInputError ManagedInputRecoveryError ManagedInputStateError "
        "ManagedInputValidationError MCPError ModelValidationError NoFrontEnd OperationCancelled OperationTimeout "
        "ServerError StorageBusy StorageError UnsafeUrlError UnsupportedFeature WorkerStopped"
    ),
    "m3nb.frames": "answers events executions requests rounds",
    "m3nb.handles": "ExecutionHandle",
    "m3nb.kit": "Agent MCPTestKit",
    "m3nb.notebook": "Form Run Workbench form",
    "m3nb.notebook.preview": "Preview preview",
    "m3nb.plans": ("ElicitationPlan expect_form expect_url maybe_form maybe_url one_of optional round_of sequence"),
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

__all__ = [  # noqa: PLE0604 - computed from the table above
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
    return __all__
