"""One execution of a workbench: shown under the cell, awaited in the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound
from m3nb.errors import ModelValidationError
from m3nb.notebook.again import StandingAnswer
from m3nb.notebook.desk import Desk, MakeAgain
from m3nb.notebook.keeping import Keeping
from m3nb.notebook.shown import Shown
from m3nb.types import ExecutionResult, ExecutionState

if TYPE_CHECKING:
    from m3nb.handles import ExecutionHandle
    from m3nb.notebook.watcher import Watcher
    from m3nb.notebook.widget import ExecutionWidget
    from m3nb.storage import SQLiteExecutionStore


class Run(Shown[ExecutionResult]):
    """A submitted execution. Show it as the last line of a cell, wait for it with ``result = await run``.

    The execution goes on whether or not somebody waits: cancelling or interrupting a cell never cancels it.
    """

    name = "Run"

    def __init__(
        self,
        store: SQLiteExecutionStore,
        handle: ExecutionHandle,
        watcher: Watcher,
        *,
        make_again: MakeAgain | None = None,
        standing: StandingAnswer | None = None,
    ) -> None:
        self.handle = handle
        super().__init__(Desk(Keeping(store), handle, make_again=make_again, standing=standing))
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

    @property
    def latest(self) -> Run:
        """What came of it: the last run that was made again from this one, else itself."""
        run = self
        while run._desk.next_run is not None:
            run = run._desk.next_run
        return run

    def again(self, responses: Mapping[str, ElicitationResponse] | None = None) -> Run:
        """Submit the same once more and return the new `Run`.

        ``responses`` (``{request_key: ElicitationResponse}``) answer its first round, if that asks what the last round
        of this run asked: for an answer that came too late. The answer is marked by an ``elicitation.automatic`` event.
        Raises `ModelValidationError` for a run that was not submitted in this process, or that asked nothing before
        ``responses``, and `ManagedInputValidationError` for responses that do not fit.
        """
        make, store = self._desk.make_again, self._desk.keeping.store
        if make is None or store is None:
            raise ModelValidationError(
                f"run {self.execution_id} was not submitted here, so its servers are not known: submit it anew",
                details={"execution_id": self.execution_id},
            )
        standing = None
        if responses is not None:
            from m3nb.validity import check_responses

            rounds = store.managed_input_store.list_rounds(self.execution_id)
            if not rounds:
                raise ModelValidationError(
                    f"run {self.execution_id} asked nothing that responses could answer",
                    details={"execution_id": self.execution_id, "field": "responses"},
                )
            asked = rounds[-1].pending
            standing = StandingAnswer(asked, check_responses(asked, responses))
        self._desk.next_run = run = make(standing)
        return run

    def take_over(self, widget: ExecutionWidget) -> None:
        """Be shown by a widget that showed another run."""
        self._widget = widget
        self._shown = True
        widget.show(self._desk)

    def _result(self, timeout: float | None = None) -> ExecutionResult:
        return self.handle.result(timeout)
