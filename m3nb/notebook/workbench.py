"""The workbench: one store, one kit, its runs. Sugar over the engine's own objects."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from m3nb.kit import MCPTestKit
from m3nb.notebook.run import Run
from m3nb.notebook.watcher import Watcher
from m3nb.storage import SQLiteExecutionStore
from m3nb.types import HumanInput, Server, ServerBinding

if TYPE_CHECKING:
    import pandas as pd

    from m3nb.handles import ExecutionHandle
    from m3nb.notebook.again import StandingAnswer


class Workbench:
    """Runs agents from a notebook and keeps everything in the SQLite file at ``path``.

    A context manager; `close` ends the runs that are still going.
    """

    def __init__(self, path: str | Path) -> None:
        self.store = SQLiteExecutionStore(path)
        self.kit = MCPTestKit(store=self.store)
        self._watcher = Watcher(self.store)
        self._runs: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()

    def submit(
        self,
        prompt: str,
        *,
        server: Server | ServerBinding | None = None,
        servers: Sequence[Server | ServerBinding] | None = None,
        tools: Sequence[str] | None = None,
        harness: str = "scripted",
        model: str | None = None,
        human_input: HumanInput = "managed",
        answer_within: float | timedelta | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Run:
        """Start an agent on ``prompt`` and return its `Run` at once.

        ``tools`` selects ``server:tool`` names; ``answer_within`` (seconds or timedelta) is the time a person has for
        each round; ``timeout`` (seconds, by default 180) counts only while nobody is asked. Other ``options`` are those
        of the kit's ``agent.submit``, and so are the errors: `ModelValidationError`, `UnsupportedFeature`, ValueError.
        """
        selection: dict[str, Any] = {"harness": harness}
        if model is not None:
            selection["models"] = [model]
        given = {"server": server, "servers": servers, "tools": tools, "timeout": timeout}
        options |= {name: value for name, value in given.items() if value is not None}
        agent = self.kit.agents([selection])[0]

        def make(standing: StandingAnswer | None = None) -> Run:
            handle = agent.submit(prompt, human_input=human_input, answer_within=answer_within, **options)
            return self._run(handle, make_again=make, standing=standing)

        return make()

    def handle(self, execution_id: str) -> Run:
        """The run of an execution that is already in the store, also of another notebook or an earlier day."""
        run = self._runs.get(execution_id)
        return run if run is not None else self._run(self.kit.handle(execution_id))

    def executions(self) -> pd.DataFrame:
        """Every execution of this store, one row each (columns: `m3nb.frames.executions`)."""
        from m3nb.frames import executions

        return executions(self.store)

    def rounds(self) -> pd.DataFrame:
        """Every round of this store, one row each (columns: `m3nb.frames.rounds`)."""
        from m3nb.frames import rounds

        return rounds(self.store)

    def requests(self) -> pd.DataFrame:
        """Every request of every round of this store, one row each (columns: `m3nb.frames.requests`)."""
        from m3nb.frames import requests

        return requests(self.store)

    def answers(self, redacted: bool = True) -> pd.DataFrame:
        """Every answer of this store, one row per field, redacted by default (columns: `m3nb.frames.answers`)."""
        from m3nb.frames import answers

        return answers(self.store, redacted=redacted)

    def events(self) -> pd.DataFrame:
        """Everything that happened in this store, in the order of time (columns: `m3nb.frames.events`)."""
        from m3nb.frames import events

        return events(self.store)

    def close(self) -> None:
        """End what still runs, then close the store. Closing twice does nothing."""
        self.kit.close()
        self._watcher.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Workbench({str(self.store.path)!r})"

    def _run(self, handle: ExecutionHandle, **again: Any) -> Run:
        run = Run(self.store, handle, self._watcher, **again)
        self._runs[run.execution_id] = run
        return run
