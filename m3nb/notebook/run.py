"""One execution of a workbench: shown under the cell, awaited in the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from m3nb.elicitation import PendingElicitationRound
from m3nb.notebook.desk import Desk
from m3nb.notebook.keeping import Keeping
from m3nb.notebook.shown import Shown
from m3nb.types import ExecutionResult, ExecutionState

if TYPE_CHECKING:
    from m3nb.handles import ExecutionHandle
    from m3nb.notebook.watcher import Watcher
    from m3nb.storage import SQLiteExecutionStore


class Run(Shown[ExecutionResult]):
    """A submitted execution. Show it as the last line of a cell, wait for it with ``result = await run``.

    The execution goes on whether or not somebody waits: cancelling or interrupting a cell never cancels it.
    """

    name = "Run"

    def __init__(self, store: SQLiteExecutionStore, handle: ExecutionHandle, watcher: Watcher) -> None:
        self.handle = handle
        super().__init__(Desk(Keeping(store), handle))
        watcher.add(self._desk)

    @property
    def execution_id(self) -> str:
        """The id under which the store knows the execution."""
        return self.handle.execution_id

    @property
    def way_back(self) -> str:
        """The code that shows the run again."""
        return f"wb.handle({self.execution_id!r})"

    def snapshot(self) -> ExecutionState:
        """Where the execution stands now."""
        return self.handle.snapshot()

    def pending_elicitation(self) -> PendingElicitationRound | None:
        """The round that waits for an answer, or None."""
        return self.handle.pending_elicitation()

    def cancel(self) -> None:
        """Cancel the execution. A finished one stays as it is."""
        self.handle.cancel()

    def _result(self, timeout: float | None = None) -> ExecutionResult:
        return self.handle.result(timeout)
