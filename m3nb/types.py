"""The vocabulary: servers, agents, execution states and results (engine-facts sections 2 and 3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from html import escape
from typing import Annotated, Any, Literal, Self

from pydantic import Field, RootModel, SkipValidation, field_validator, model_validator

from m3nb.elicitation import Model, Text
from m3nb.errors import error_of
from m3nb.frozen import EMPTY, JsonObject, JsonValue
from m3nb.plans import Combination, Expectation

HumanInput = Literal["fail", "managed"]
"""What happens when a server asks a person: the execution fails, or it pauses (spec "Public execution API")."""

Protocol = Literal["auto", "legacy", "2026-07-28"]
"""How the protocol era of a server is chosen: probed, the older handshake, or the newer one without a probe."""

LONGEST = 10 * 365 * 86_400.0
"""Seconds: longer waits are not meant, and dates end."""

Seconds = Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)]

ServerName = Annotated[str, Field(min_length=1, max_length=256)]


class ExecutionStatus(StrEnum):
    """The lifecycle of an execution. ``waiting_for_input`` while a round is pending."""

    CREATED = "created"
    QUEUED = "queued"
    STARTING = "starting"
    IDLE = "idle"
    RUNNING_TURN = "running_turn"
    WAITING_FOR_INPUT = "waiting_for_input"
    CLOSING = "closing"
    FINISHED = "finished"


class ExecutionOutcome(StrEnum):
    """How a finished execution ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class SecretReference(Model):
    """A value that is looked up where the execution is submitted and never stored.

    ``source="environment"`` reads the environment variable ``name`` of the submitting process.
    """

    source: Literal["environment", "provider"] = "environment"
    name: Text


class _Server(Model):
    """Names the field that was meant, and shows the names of possibly secret values, never the values."""

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, given: Any) -> Any:
        for name in given if isinstance(given, Mapping) else ():
            if name not in cls.model_fields:
                begins = [field for field in cls.model_fields if field.startswith(str(name))]
                near = begins or get_close_matches(str(name), cls.model_fields, n=1)
                hint = f": did you mean {near[0]}?" if near else f": it has {', '.join(cls.model_fields)}"
                raise ValueError(f"{cls.__name__} has no field {name!r}{hint}")
        return given

    @field_validator("args", mode="before", check_fields=False)
    @classmethod
    def _separate(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ValueError(f"args is a list: write {given.split()!r}")
        return given

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            if name == "url":
                value = re.sub(r"//[^/?#]*@", "//…@", value.partition("?")[0]) + ("?…" if "?" in value else "")
            yield (name, sorted(value)) if name in ("environment", "headers") else (name, value)


class StdioServer(_Server):
    """An MCP server that is started as a subprocess and spoken to over its standard streams.

    ``command`` is looked for on PATH, ``cwd`` is its folder. ``environment`` is added to a small safe base (PATH, HOME,
    …); a value may be a `SecretReference`. ``protocol``: ``"auto"`` asks the server which era it speaks, ``"legacy"``
    is the handshake of 2025-11-25 and older, ``"2026-07-28"`` that revision without asking.
    """

    name: ServerName
    command: Text
    args: tuple[str, ...] = ()
    environment: Mapping[str, str | SecretReference] = Field(default_factory=dict)
    cwd: str | None = None
    trust: Literal["untrusted", "trusted"] = "untrusted"
    protocol: Protocol = "auto"
    kind: Literal["stdio"] = "stdio"


class HTTPServer(_Server):
    """An MCP server reached over streamable HTTP at ``url``.

    ``headers`` go with every request; a value may be a `SecretReference`. Parameters of the URL that are secret by
    their name are hidden like headers are, from the store and from what is shown. ``loopback_only`` refuses a host that
    is not this machine. ``protocol`` as in `StdioServer`.
    """

    name: ServerName
    url: Text
    headers: Mapping[str, str | SecretReference] = Field(default_factory=dict)
    loopback_only: bool = False
    trust: Literal["untrusted", "trusted"] = "untrusted"
    protocol: Protocol = "auto"
    kind: Literal["streamable_http"] = "streamable_http"


class InProcessServer(_Server):
    """An MCP server in the worker's own process.

    ``factory`` takes nothing and returns a server of the mcp package (``MCPServer`` or lowlevel ``Server``), or a
    coroutine of one; for each execution it is called on a thread with an event loop of its own, where the server
    stays. It cannot be stored.
    """

    name: ServerName
    factory: SkipValidation[Callable[[], Any]] = Field(repr=False)
    descriptor: JsonObject = EMPTY
    origin: str = "sdk"
    trust: Literal["sdk_loopback"] = "sdk_loopback"
    protocol: Protocol = "auto"
    kind: Literal["in_process"] = "in_process"


Server = StdioServer | HTTPServer | InProcessServer


class ServerBinding(Model):
    """A server as an execution sees it. Tools are selected as ``selector:tool``."""

    server: Server | None = None
    profile: str | None = None
    alias: ServerName | None = None
    required: bool = True

    @model_validator(mode="after")
    def _one_of_server_and_profile(self) -> ServerBinding:
        if (self.server is None) == (self.profile is None):
            raise ValueError("a binding has exactly one of server and profile")
        return self

    @property
    def selector(self) -> str:
        """The name used in ``tools=``: the alias, else the server's name."""
        return self.alias or (self.server.name if self.server else self.profile) or ""


class _Harness(Model):
    model: str | None = None
    name: str | None = None
    executable: str | None = None
    runtime: str | None = None
    version: str | None = None
    credential_env: tuple[str, ...] = ()
    credential_references: JsonObject = EMPTY


class Scripted(_Harness):
    """The built-in agent: it makes the calls that the prompt's lines spell out. No model, no account."""

    kind: Literal["scripted"] = "scripted"


class Codex(_Harness):
    """OpenAI's Codex command line agent."""

    kind: Literal["codex"] = "codex"


class ClaudeCode(_Harness):
    """Anthropic's Claude Code command line agent."""

    kind: Literal["claude_code"] = "claude_code"


class OpenCode(_Harness):
    """The OpenCode agent."""

    kind: Literal["opencode"] = "opencode"
    provider: str | None = None
    dialect: str | None = None


class Pi(_Harness):
    """The Pi agent."""

    kind: Literal["pi"] = "pi"
    provider: str | None = None


class ACPAgent(_Harness):
    """Any agent that speaks the Agent Client Protocol."""

    kind: Literal["acp"] = "acp"
    manifest: JsonValue = None


Harness = Annotated[Scripted | Codex | ClaudeCode | OpenCode | Pi | ACPAgent, Field(discriminator="kind")]


class _Spec(Model):
    servers: Annotated[tuple[ServerBinding, ...], Field(min_length=1)]
    tools: tuple[str, ...] | None = None
    run_id: str | None = None
    project_id: str | None = None
    project_name: str | None = None
    suite_name: str | None = None
    case_id: str | None = None
    protocol: Protocol | None = None
    timeout_seconds: Seconds = 180.0
    goal: JsonValue = None
    evaluations: tuple[JsonValue, ...] = ()
    artifact_policy: Literal["failed", "always", "never"] = "failed"
    declared_artifacts: tuple[JsonValue, ...] = ()
    workspace: JsonValue = None
    tool_policy: JsonValue = None
    permission_policy: Literal["deny", "allow", "prompt"] | JsonObject = "deny"
    sampling_policy: JsonValue = None
    filesystem_policy: JsonValue = None
    terminal_policy: JsonValue = None
    metadata: JsonObject = EMPTY


class AgentSpec(_Spec):
    """One agent, one prompt, its servers: what `MCPTestKit.submit` takes.

    ``timeout_seconds`` counts only while no round is pending. ``answer_within_seconds`` is the time a person has for
    each round (None: as long as it takes).
    """

    kind: Literal["agent"] = "agent"
    harness: Harness | None = None
    harness_profile: str | None = None
    message: Text | None = None
    elicitation: Annotated[Expectation | Combination, Field(union_mode="left_to_right")] | None = None
    elicitation_round_limit: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    answer_within_seconds: Seconds | None = None

    @field_validator("elicitation", mode="before")
    @classmethod
    def _one_plan(cls, given: Any) -> Any:
        # A mapping is a plan that was written as JSON.
        if (
            given is None
            or isinstance(given, Expectation | Combination)
            or "kind" in (given if isinstance(given, Mapping) else ())
        ):
            return given
        raise ValueError(f"is one plan, not a {type(given).__name__}: expect_form(…), or sequence(…) of several")

    @model_validator(mode="after")
    def _complete(self) -> AgentSpec:
        if (self.harness is None) == (self.harness_profile is None):
            raise ValueError("an agent has exactly one of harness and harness_profile")
        if self.elicitation is not None and not self.elicitation.is_complete:
            raise ValueError(
                "the elicitation plan has a request without an answer: add .accept(), .decline() or .cancel()"
            )
        return self


class CallTool(Model):
    """Call one tool directly."""

    tool: Text
    arguments: JsonObject = EMPTY
    kind: Literal["call_tool"] = "call_tool"


class ReadResource(Model):
    """Read one resource directly."""

    uri: Text
    kind: Literal["read_resource"] = "read_resource"


class GetPrompt(Model):
    """Get one prompt directly."""

    prompt: Text
    arguments: Mapping[str, str] = Field(default_factory=dict)
    kind: Literal["get_prompt"] = "get_prompt"


class ListTools(Model):
    """List a server's tools."""

    kind: Literal["list_tools"] = "list_tools"


class DirectSpec(_Spec):
    """One MCP operation without an agent."""

    kind: Literal["direct"] = "direct"
    operation: Annotated[CallTool | ReadResource | GetPrompt | ListTools, Field(discriminator="kind")]
    validate_schemas: bool = False


class ExecutionId(RootModel[Text]):
    """The id of an execution: its text is in ``.root``, and ``str()`` gives it too."""

    model_config = {"frozen": True}

    def __str__(self) -> str:
        return self.root


class ErrorInfo(Model):
    """Why an execution did not complete. ``code`` is the code of the typed error."""

    code: str
    message: str
    retryable: bool = False
    details: JsonObject = EMPTY


class TraceEvent(Model):
    """One entry of an execution's history; ``sequence`` counts from 0 within the execution."""

    sequence: int
    kind: str
    payload: JsonObject = EMPTY
    at: datetime


class ExecutionState(Model):
    """Where an execution stands now. ``outcome`` and ``finished_at`` are None until it is finished."""

    execution_id: ExecutionId
    lifecycle: ExecutionStatus
    outcome: ExecutionOutcome | None = None
    sequence: int = 0
    tool_call_count: int = 0
    created_at: datetime
    finished_at: datetime | None = None
    project_id: str | None = None
    run_id: str | None = None
    suite_id: str | None = None
    suite_name: str | None = None
    provenance: JsonObject = EMPTY
    agent: JsonObject | None = None

    def _repr_html_(self) -> str:
        outcome = f" · {escape(self.outcome.value)}" if self.outcome else ""
        return f"<b>{escape(self.lifecycle.value)}</b>{outcome} <code>{escape(str(self.execution_id))}</code>"


class ExecutionResult(Model):
    """What a finished execution left behind. ``error`` is None when it completed."""

    snapshot: ExecutionState
    final_text: str | None = None
    turns: tuple[JsonObject, ...] = ()
    trace: tuple[TraceEvent, ...] = Field(default=(), repr=False)
    direct_result: JsonValue = None
    evaluations: tuple[JsonValue, ...] = ()
    artifacts: tuple[JsonValue, ...] = ()
    activity_health: JsonValue = None
    error: ErrorInfo | None = None
    provenance: JsonObject = EMPTY

    @property
    def outcome(self) -> ExecutionOutcome | None:
        """The snapshot's outcome."""
        return self.snapshot.outcome

    @property
    def trace_view(self) -> tuple[TraceEvent, ...]:
        """The history without the lifecycle entries."""
        return tuple(event for event in self.trace if event.kind != "lifecycle")

    def raise_for_error(self) -> Self:
        """The result itself when the execution completed; else raises the typed error that ended it (`MCPError`)."""
        if self.error is not None:
            raise error_of(self.error.code)(self.error.message, details=self.error.details)
        return self

    def __str__(self) -> str:
        outcome = self.outcome.value if self.outcome else "unfinished"
        return f"{outcome}: {self.error.message if self.error else self.final_text or ''}"

    def _repr_html_(self) -> str:
        outcome = self.outcome.value if self.outcome else "unfinished"
        text = self.error.message if self.error else self.final_text or ""
        code = f" · <code>{escape(self.error.code)}</code>" if self.error else ""
        return f"<b>{escape(outcome)}</b>{code}<pre style='white-space:pre-wrap'>{escape(text)}</pre>"
