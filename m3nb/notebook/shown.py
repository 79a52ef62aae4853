"""What is shown under a cell and waited for in the next: runs of a workbench, and forms of any handle."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Generator
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from m3nb.errors import NoFrontEnd, OperationTimeout

if TYPE_CHECKING:
    from m3nb.notebook.desk import Desk
    from m3nb.notebook.widget import ExecutionWidget

TICK = 0.2
"""Seconds between two looks while a cell waits. Without a tick a waiting cell can't be interrupted."""
READY_SECONDS = 3.0
"""How long a blocking `result()` waits for a page to say that it is there."""
PAGE_SECONDS = 4.0
"""How long `await` waits for the first sign of a page while a round is unanswered."""
SLOW_PAGE_SECONDS = 30.0
"""The same where the cell was sent by a notebook page (its request names a cell): that page may still be loading."""
MARIMO = "marimo lets no answer in while a cell runs: read the result in a cell that runs once the form is answered"
INTERRUPTED = "the waiting was interrupted, the execution goes on and its form can still be answered"

T = TypeVar("T")


class Shown(Generic[T]):
    """An execution with a form: display it, wait for its result of type ``T`` with ``await``.

    ``way_back`` is the code that shows it again, ``name`` what it is called.
    """

    name = "Execution"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._widget: ExecutionWidget | None = None
        self._shown = False

    @property
    def execution_id(self) -> str:
        """The id of the execution; empty while it is not known."""
        return self._desk.handle.execution_id

    @property
    def way_back(self) -> str:
        """The code that shows the form again."""
        raise NotImplementedError

    @property
    def widget(self) -> ExecutionWidget:
        """The widget itself, for layouts and for front ends that want one."""
        if self._widget is None or not self._widget.shows(self._desk):
            from m3nb.notebook.widget import ExecutionWidget

            self._widget = ExecutionWidget(self._desk)
        return self._widget

    def _result(self, timeout: float | None = None) -> T:
        """What the handle's ``result`` returns."""
        raise NotImplementedError

    async def _result_here(self) -> T:
        """The same for a finished execution, on the running loop."""
        return self._result()

    def result(self, timeout: float | None = None) -> T:
        """Block until the execution is finished. In a notebook ``await`` is the better way.

        ``timeout`` in seconds; its expiry raises `OperationTimeout`. On the main thread, with an unanswered round, the
        form is shown under this cell; when no page speaks up within 3 seconds, `NoFrontEnd` is raised and the round
        stays pending.
        """
        marimo = _in_marimo()
        here = marimo or threading.current_thread() is threading.main_thread()
        if not here or (timeout is not None and timeout <= 0):
            return self._result(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        shown_at: float | None = None
        heard = self._desk.heard
        while not self._desk.finished.wait(TICK / 4):
            now = time.monotonic()
            round_id = self._desk.round_id
            if round_id is not None and shown_at is None:
                # Shown again even if it was: only a page that speaks while this cell blocks can be answered in.
                heard = self._desk.heard
                self._show()
                shown_at = now
            if shown_at is not None and self._desk.heard == heard and now - shown_at > READY_SECONDS:
                if round_id is not None:
                    why = f"no page could speak to this blocking cell; write `result = await {self.name.lower()}`"
                    raise self._no_page(round_id, MARIMO if marimo else why)
                shown_at = None
            if deadline is not None and now > deadline:
                raise OperationTimeout(
                    f"execution {self.execution_id} did not finish within {timeout:g} seconds; it goes on",
                    details={"execution_id": self.execution_id},
                )
        return self._result()

    def __await__(self) -> Generator[Any, None, T]:
        return self._wait().__await__()

    async def _wait(self) -> T:
        loop = asyncio.get_running_loop()
        finished = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(finished.set)

        self._desk.when_finished(wake)
        try:
            if not self._shown and not self._desk.finished.is_set():
                self._show()
            await self._until(finished)
        except asyncio.CancelledError as interrupt:
            # The kernel's interrupt comes as this error, bare: it says what became of the execution.
            interrupt.args = interrupt.args or (INTERRUPTED,)
            raise
        finally:
            self._desk.forget(wake)
        return await self._result_here()

    async def _until(self, finished: asyncio.Event) -> None:
        started = time.monotonic()
        patience = SLOW_PAGE_SECONDS if _sent_by_a_page() else PAGE_SECONDS
        marimo = _in_marimo()
        why = MARIMO if marimo else "no page is here that could show the form"
        while not self._desk.finished.is_set():
            try:
                await asyncio.wait_for(finished.wait(), TICK)
            except TimeoutError:
                since, round_id = self._desk.round_since, self._desk.round_id
                alone = marimo or not self._desk.heard
                if round_id and since and alone and time.monotonic() - max(since, started) > patience:
                    raise self._no_page(round_id, why) from None

    def _no_page(self, round_id: str, why: str) -> NoFrontEnd:
        return NoFrontEnd(
            f"round {round_id} waits for an answer, but {why}. The round stays pending: it can be answered in a "
            f"notebook page with `{self.way_back}`, or by another process through the same store, "
            "while this process lives.",
            details={"round_id": round_id, "execution_id": self.execution_id},
        )

    def _show(self) -> None:
        if _kernel() is None:
            return
        from IPython.display import display

        display(self)  # type: ignore[no-untyped-call]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        if _kernel() is None:
            return {"text/plain": repr(self), "text/html": self._repr_html_()}
        self._shown = True
        # The text is saved with the notebook and never changes again: it says nothing that will be wrong tomorrow.
        again = f"{self._title()}: {self.way_back} shows it again"
        return {"text/plain": again, "text/html": escape(again)} | _widget_part(self.widget)

    def _display_(self) -> Any:
        """What marimo shows."""
        return self.widget

    def __repr__(self) -> str:
        return " · ".join([self._title(), *self._words()])

    def _title(self) -> str:
        return f"{self.name} {self.execution_id}".rstrip()

    def _repr_html_(self) -> str:
        status, *rest = map(escape, self._words())
        return " · ".join([f"<b>{status}</b>", *rest, f"<code>{escape(self.execution_id)}</code>"])

    def _words(self) -> list[str]:
        view = self._desk.view
        words = [view["status"]]
        if view["round"]:
            words += [view["server"], view["operation"], f"round {view['round']['round_id']}"]
        return [*words, view["error"]] if view["error"] else words


def _widget_part(widget: ExecutionWidget) -> dict[str, Any]:
    bundle = widget._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle or {}
    return {kind: value for kind, value in data.items() if kind.startswith("application/")}


def _kernel() -> Any:
    """The kernel this code runs in, or None: a terminal, a script."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None)


def _in_marimo() -> bool:
    """Whether this is a cell of marimo, which has no kernel of Jupyter's."""
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())


def _sent_by_a_page() -> bool:
    """Whether the running cell was sent by a notebook page, which names the cell; nbclient and papermill don't."""
    kernel = _kernel()
    try:
        return "cellId" in kernel.get_parent("shell")["metadata"]
    except (AttributeError, KeyError, TypeError):
        return False
