"""MCPTestKit: select agents, submit what they should do (engine-facts section 3). Thin over store and worker."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Generic, Protocol, TypeVar

from pydantic import ValidationError

from m3nb.errors import KitClosed, MCPError, ModelValidationError, UnsupportedFeature
from m3nb.handles import ExecutionHandle, Host
from m3nb.plans import ElicitationPlan
from m3nb.runtime.execution import Job
from m3nb.runtime.launch import Launch, resolve, storable
from m3nb.runtime.worker import Worker, end_unstarted
from m3nb.storage import ExecutionStore, InMemoryExecutionStore, SQLiteExecutionStore
from m3nb.types import (
    ACPAgent,
    AgentSpec,
    ClaudeCode,
    Codex,
    DirectSpec,
    ExecutionResult,
    Harness,
    HTTPServer,
    HumanInput,
    InProcessServer,
    OpenCode,
    Pi,
    Scripted,
    Server,
    ServerBinding,
    StdioServer,
)

_SUBMIT = {"operation": "execution.submit"}

_HARNESSES: dict[str, type[Scripted | Codex | ClaudeCode | OpenCode | Pi | ACPAgent]] = {
    "scripted": Scripted,
    "codex": Codex,
    "claude": ClaudeCode,
    "claude_code": ClaudeCode,
    "claude-code": ClaudeCode,
    "opencode": OpenCode,
    "pi": Pi,
    "acp": ACPAgent,
}

_OPTIONS = {
    "case_id": "case_id",
    "run_id": "run_id",
    "protocol": "protocol",
    "timeout": "timeout_seconds",
    "goal": "goal",
    "evaluations": "evaluations",
    "artifact_policy": "artifact_policy",
    "declared_artifacts": "declared_artifacts",
    "workspace": "workspace",
    "permission_policy": "permission_policy",
    "sampling_policy": "sampling_policy",
    "filesystem_policy": "filesystem_policy",
    "terminal_policy": "terminal_policy",
    "metadata": "metadata",
    "tool_policy": "tool_policy",
}

_ALL_OPTIONS = sorted(
    {*_OPTIONS, "server", "servers", "tools", "elicitation", "elicitation_round_limit", "human_input", "answer_within"}
)

_UNSERVED = (
    "goal",
    "evaluations",
    "declared_artifacts",
    "workspace",
    "tool_policy",
    "sampling_policy",
    "filesystem_policy",
    "terminal_policy",
    "harness_profile",
)


class MCPTestKit:
    """Runs agents against MCP servers and keeps what happened in ``store``.

    ``store=None`` keeps it in memory, where ``human_input="managed"`` is refused. ``env`` is the mapping configuration
    is read from (not the servers' environment), ``cwd`` the folder of servers that name none. A context manager;
    `close` ends what still runs. Options of the reference package that are not served raise `UnsupportedFeature`.
    """

    def __init__(
        self,
        config: Any = None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        probe_timeout_seconds: float = 5.0,
        probe_output_limit: int = 65536,
        store: ExecutionStore | None = None,
        embedded_worker: bool = True,
        adapter_registry: Any = None,
        run_id: str | None = None,
        suite_name: str | None = None,
        project_id: str | None = None,
        record_checks: bool = False,
        max_judge_requests: int | None = None,
        harness_cache_dir: str | None = None,
    ) -> None:
        _refuse_set(
            config=(config, None),
            probe_timeout_seconds=(probe_timeout_seconds, 5.0),
            probe_output_limit=(probe_output_limit, 65536),
            embedded_worker=(embedded_worker, True),
            adapter_registry=(adapter_registry, None),
            record_checks=(record_checks, False),
            max_judge_requests=(max_judge_requests, None),
            harness_cache_dir=(harness_cache_dir, None),
        )
        if store is not None and not hasattr(store, "create_execution"):
            raise TypeError(f"store is an execution store such as SQLiteExecutionStore(path), not {store!r}")
        if env is not None and not isinstance(env, Mapping):
            raise TypeError(f"env is a mapping of texts, not {type(env).__name__}")
        self._labels = {"run_id": run_id, "suite_name": suite_name, "project_id": project_id}
        for name, text in (*self._labels.items(), ("cwd", cwd)):
            if text is not None and not isinstance(text, str):
                raise ModelValidationError(
                    f"{name} is a text, not {type(text).__name__}", details={"operation": "kit", "field": name}
                )
        self.env = dict(env or {})
        self._pid = os.getpid()
        self._cwd = cwd
        self._own_store = store is None
        self.store: ExecutionStore = InMemoryExecutionStore() if store is None else store
        self._host = Host(self.store, ring=self._ring)
        self._worker = Worker(self.store, announce=self._host.signals.announce)

    def _ring(self) -> None:
        self._worker.ring()

    def __enter__(self) -> MCPTestKit:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End every execution that still runs here (outcome ``interrupted``). May be called again."""
        if self._host.closed:
            return
        try:
            self._worker.stop()
            for handle in self._host.handles:
                # Remembered, so that result() answers after the store is gone too.
                with contextlib.suppress(MCPError):
                    handle.finished_result()
        finally:
            self._host.close()
            if self._own_store:
                self.store.close()

    def agents(self, selections: Sequence[Mapping[str, Any]], *, trials: int = 1) -> tuple[Agent, ...]:
        """One agent per selection, model and trial. Selecting does no I/O.

        Raises `ModelValidationError` (a ``ValueError``) for an unknown key or harness, empty models or a selection
        given twice, ``TypeError`` for anything but a list of mappings, `KitClosed`.
        """
        self._open()
        return tuple(Agent(self, *selected) for selected in select(selections, trials))

    def submit(self, spec: AgentSpec | DirectSpec, human_input: HumanInput = "fail") -> ExecutionHandle:
        """Start an execution and return at once.

        Raises `ModelValidationError` (``human_input`` unknown; managed input with a DirectSpec, a plan or a store
        that cannot hold it; a secret that is not set), `UnsupportedFeature` for what is not served, `KitClosed`.
        """
        return self._start(self._prepare(spec, human_input))

    def _prepare(self, spec: AgentSpec | DirectSpec, human_input: HumanInput) -> Submission:
        """Check what is to be submitted. Touches no disk."""
        self._open()
        managed = self._check(spec, human_input)
        assert isinstance(spec, AgentSpec)
        launches = resolve(spec, cwd=self._cwd)
        return Submission(f"execution-{uuid.uuid4().hex}", spec, human_input, managed, launches)

    def _start(self, submission: Submission) -> ExecutionHandle:
        """Find the servers, store the execution and hand it to the worker."""
        execution_id, spec, managed = submission.execution_id, submission.spec, submission.managed
        launches = tuple(launch.located() for launch in submission.launches)
        self._worker.register()
        if isinstance(self.store, SQLiteExecutionStore):
            self.store.set_secrets(execution_id, [secret for launch in launches for secret in launch.secrets])
        self.store.create_execution(
            execution_id, spec=storable(spec), worker_id=self._worker.id, managed=managed, labels=self._about(spec)
        )
        try:
            self._worker.enqueue(Job(execution_id, spec, launches, submission.human_input))
        except KitClosed as error:
            # Closed in between, by another thread: nobody would ever run it.
            end_unstarted(self.store, execution_id, error)
            raise
        return ExecutionHandle(self._host, execution_id, managed=managed, spec=spec)

    def handle(self, execution_id: str) -> ExecutionHandle:
        """The handle of an existing execution of the store, also of another process.

        Raises `ModelValidationError` when the store does not have it.
        """
        self._open()
        record = self.store.get_execution(execution_id)
        if record is None:
            raise _invalid(f"the store has no execution {execution_id!r}")
        return ExecutionHandle(self._host, execution_id, managed=record.managed, spec=record.spec)

    def _open(self) -> None:
        if self._host.closed:
            raise KitClosed("the kit or workbench is closed: make a new one")
        if os.getpid() != self._pid:
            raise KitClosed("this kit belongs to the process it was made in: make a new one in this process")

    def _check(self, spec: AgentSpec | DirectSpec, human_input: HumanInput) -> bool:
        if not isinstance(human_input, str) or human_input not in ("fail", "managed"):
            raise _invalid(f'human_input is "fail" or "managed", not {human_input!r}')
        managed = human_input == "managed"
        if not isinstance(spec, AgentSpec | DirectSpec):
            raise _invalid(f"submit takes an AgentSpec, not {type(spec).__name__}")
        if isinstance(spec, DirectSpec):
            if managed:
                raise _invalid('human_input="managed" is for agents: a DirectSpec has none')
            raise UnsupportedFeature("direct operations are not served by this version of m3nb: use an AgentSpec")
        if managed and spec.elicitation is not None:
            raise _invalid('an elicitation plan answers by itself: leave it out, or leave out human_input="managed"')
        if managed and not hasattr(self.store, "resolve_managed_input_store"):
            raise _invalid('human_input="managed" needs a store that lasts: MCPTestKit(store=SQLiteExecutionStore(…))')
        _refuse_unserved(spec)
        _check_tools(spec)
        return managed

    def _about(self, spec: AgentSpec) -> dict[str, Any]:
        harness = spec.harness
        about = {
            **self._labels,
            "servers": [binding.selector for binding in spec.servers],
            "tools": None if spec.tools is None else list(spec.tools),
            "harness": harness.kind if harness else None,
            "model": harness.model if harness else None,
            "name": harness.name if harness else None,
            "case_id": spec.case_id,
            "trial": spec.metadata.get("trial"),
        }
        about.update({k: v for k in ("run_id", "project_id", "suite_name") if (v := getattr(spec, k)) is not None})
        return about


@dataclass(frozen=True)
class Submission:
    """A checked submission, and the id its execution will have. The servers are not looked for yet."""

    execution_id: str
    spec: AgentSpec
    human_input: HumanInput
    managed: bool
    launches: tuple[Launch, ...]


HandleT = TypeVar("HandleT", covariant=True)


class Submits(Protocol[HandleT]):
    """A kit, as its agents see it."""

    def submit(self, spec: AgentSpec, *, human_input: HumanInput) -> HandleT:
        """See `MCPTestKit.submit`."""


class SelectedAgent(Generic[HandleT]):
    """A harness, a model, a trial (counted from 1). ``entry`` is the selection it comes from."""

    def __init__(self, kit: Submits[HandleT], harness: Harness, trial: int, entry: Mapping[str, Any]) -> None:
        self.kit = kit
        self.harness = harness
        self.model = harness.model
        self.name = harness.name or harness.kind
        self.trial = trial
        self.entry = entry

    def __repr__(self) -> str:
        return f"{type(self).__name__}(harness={self.harness.kind!r}, model={self.model!r}, trial={self.trial})"

    def submit(
        self,
        message: str,
        *,
        server: Server | ServerBinding | None = None,
        servers: Iterable[Server | ServerBinding] | None = None,
        tools: Iterable[str] | None = None,
        elicitation: ElicitationPlan | None = None,
        elicitation_round_limit: int = 10,
        human_input: HumanInput = "fail",
        answer_within: float | timedelta | None = None,
        **options: Any,
    ) -> HandleT:
        """Start the agent on a prompt and return at once.

        Exactly one of ``server`` and ``servers``. ``tools`` are ``server:tool`` texts: nothing else can be called.
        ``answer_within`` (seconds or timedelta) is the time a person has for each round. Further options:
        ``timeout`` (seconds, not counting the time people take; 180), ``protocol``, ``case_id``, ``run_id``,
        ``metadata``, ``permission_policy``.

        Raises `ModelValidationError` (a ``ValueError``), ``TypeError`` for an unknown option, and what
        `MCPTestKit.submit` raises.
        """
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            near = get_close_matches(unknown[0], _ALL_OPTIONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(_ALL_OPTIONS)}"
            raise TypeError(f"submit() has no option {unknown[0]!r}: {hint}")
        if not isinstance(message, str):
            raise _invalid(f"message is a text, not {type(message).__name__}")
        if isinstance(tools, str):
            raise _invalid(f"tools is a list: write [{tools!r}]")
        if not isinstance(tools, Iterable | None) or not isinstance(servers, Iterable | None):
            raise _invalid("servers and tools are lists")
        if (server is None) == (servers is None):
            raise _invalid("give exactly one of server and servers")
        bound = [server] if server is not None else list(servers or ())
        fields = {_OPTIONS[name]: value for name, value in options.items() if value is not None}
        metadata = fields.get("metadata", {})
        # Anything else is refused by the spec, by name.
        if self.trial > 1 and isinstance(metadata, Mapping):
            fields["metadata"] = {**metadata, "trial": self.trial}
        spec = _built(
            AgentSpec,
            harness=self.harness,
            message=message,
            servers=tuple(_bind(item) for item in bound),
            tools=None if tools is None else tuple(tools),
            elicitation=elicitation,
            elicitation_round_limit=elicitation_round_limit,
            answer_within_seconds=(
                answer_within.total_seconds() if isinstance(answer_within, timedelta) else answer_within
            ),
            **fields,
        )
        return self.kit.submit(spec, human_input=human_input)

    def session(self, *_args: Any, **_options: Any) -> Any:
        """Several turns with one agent. Not served: raises `UnsupportedFeature`."""
        raise UnsupportedFeature("sessions of several turns are not served by this version of m3nb: use submit()")


class Agent(SelectedAgent[ExecutionHandle]):
    """One selected agent. Made by `MCPTestKit.agents`."""

    def run(self, message: str, **options: Any) -> ExecutionResult:
        """`submit`, then wait for the result."""
        return self.submit(message, **options).result()


def select(selections: Sequence[Mapping[str, Any]], trials: int) -> list[tuple[Harness, int, dict[str, Any]]]:
    """Harness, trial and entry of every agent that is selected. Raises as `MCPTestKit.agents` says."""
    if isinstance(selections, str | Mapping) or not isinstance(selections, Sequence):
        raise TypeError('selections is a list of mappings such as [{"harness": "scripted"}]')
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise _invalid("trials must be a whole number from 1")
    selected: list[tuple[Harness, int, dict[str, Any]]] = []
    seen: list[Harness] = []
    for entry in selections:
        if not isinstance(entry, Mapping):
            raise TypeError(f"a selection is a mapping, not {type(entry).__name__}")
        for harness in _harnesses(entry):
            if harness in seen:
                raise _invalid(f"{harness.kind} {harness.model or ''} is selected twice".replace("  ", " "))
            seen.append(harness)
            selected.extend((harness, trial, dict(entry)) for trial in range(1, trials + 1))
    return selected


def _harnesses(entry: Mapping[str, Any]) -> list[Harness]:
    kind = entry.get("harness")
    if not isinstance(kind, str) or kind not in _HARNESSES:
        raise _invalid(f"there is no harness {kind!r}: choose one of {', '.join(sorted(_HARNESSES))}")
    model_type = _HARNESSES[kind]
    allowed = {"harness", "models", *model_type.model_fields} - {"kind", "model"}
    unknown = [key for key in entry if not isinstance(key, str) or key not in allowed]
    if unknown:
        raise _invalid(f"a {kind} selection has no key {unknown[0]!r}: it takes {', '.join(sorted(allowed))}")
    if model_type is ACPAgent and "manifest" not in entry:
        raise _invalid("an acp selection needs a manifest")
    models = entry.get("models", [None] if model_type in (Scripted, ACPAgent) else [])
    if isinstance(models, str) or not isinstance(models, Sequence) or not models:
        raise _invalid(f"a {kind} selection needs models: a list that is not empty")
    fields = {name: value for name, value in entry.items() if name not in ("harness", "models")}
    return [_built(model_type, model=model, **fields) for model in models]


def _bind(item: Server | ServerBinding) -> ServerBinding:
    if isinstance(item, ServerBinding):
        return item
    if isinstance(item, StdioServer | HTTPServer | InProcessServer):
        return ServerBinding(server=item)
    raise _invalid(
        f"a server is a StdioServer, HTTPServer, InProcessServer or ServerBinding, not {type(item).__name__}"
    )


def _check_tools(spec: AgentSpec) -> None:
    names = {binding.selector for binding in spec.servers}
    tools = spec.tools or ()
    for tool in tools:
        server, colon, name = tool.partition(":")
        if not colon or not name or server not in names:
            raise _invalid(f"tools: {tool!r} is not server:tool with one of the servers {', '.join(sorted(names))}")
    if len(set(tools)) < len(tools):
        raise _invalid(f"tools: {max(tools, key=tools.count)!r} is selected twice")


def _refuse_unserved(spec: AgentSpec) -> None:
    for name in _UNSERVED:
        if getattr(spec, name) not in (None, ()):
            raise UnsupportedFeature(
                f"{name} is not served by this version of m3nb: leave it out", details={"option": name}
            )
    if spec.artifact_policy != "failed":
        raise UnsupportedFeature("artifacts are not served by this version of m3nb: leave artifact_policy out")
    if spec.permission_policy not in ("deny", "allow"):
        raise UnsupportedFeature('permission_policy is "deny" or "allow" in this version of m3nb')


def _refuse_set(**options: tuple[Any, Any]) -> None:
    for name, (value, default) in options.items():
        if value != default:
            raise UnsupportedFeature(
                f"{name} is not served by this version of m3nb: leave it out", details={"option": name}
            )


def _invalid(message: str) -> ModelValidationError:
    return ModelValidationError(message, details=_SUBMIT)


def _built(model: Callable[..., Any], /, **fields: Any) -> Any:
    """A model, or a typed error that names the fields (never their values: they may be secrets)."""
    try:
        return model(**fields)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, each['loc'])) or 'spec'}: {each['msg'].removeprefix('Value error, ')}"
            for each in error.errors(include_input=False)
        ]
        raise ModelValidationError("; ".join(problems), details={**_SUBMIT, "problems": problems}) from None
