"""A form for any object with the spec's handle methods: `m3nb.form`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from m3nb.async_api import AsyncExecutionHandle
from m3nb.errors import ModelValidationError
from m3nb.handles import ExecutionHandle
from m3nb.notebook.adapter import Adapter
from m3nb.notebook.desk import Desk
from m3nb.notebook.keeping import Keeping
from m3nb.notebook.shown import Shown
from m3nb.notebook.watcher import Watcher
from m3nb.storage import ExecutionStore, SQLiteExecutionStore

INTERVAL = 0.25
"""Seconds between two looks at a handle: nobody tells when it has changed."""


class Form(Shown[Any]):
    """What `form` returns. Show it as the last line of a cell, wait with ``await``; both need no other code."""

    name = "Form"

    def __init__(self, adapter: Adapter, store: SQLiteExecutionStore | None) -> None:
        self._adapter = adapter
        super().__init__(Desk(Keeping(store), adapter, apart=True))
        self._watcher = Watcher(adapter, INTERVAL)
        self._watcher.add(self._desk)

    @property
    def handle(self) -> Any:
        """The handle as it was given."""
        return self._adapter.handle

    @property
    def way_back(self) -> str:
        """The code that shows the form again."""
        return "m3nb.form(handle)"

    def result(self, timeout: float | None = None) -> Any:
        """Block until the execution is finished; returns what the handle's ``result`` does. See `Run.result`.

        Raises `ModelValidationError` where that would stop the very loop that an async handle runs on.
        """
        if self._adapter.blocks_here():
            raise ModelValidationError(
                "this handle runs on the loop of this thread, which would stand still: write `result = await form`",
                details={"operation": "form.result"},
            )
        return super().result(timeout)

    def close(self) -> None:
        """Look no more at the handle and take the form off its pages. The execution goes on."""
        self._watcher.close()
        if self._widget is not None:
            self._widget.close()

    def _result(self, timeout: float | None = None) -> Any:
        return self._adapter.call("result") if timeout is None else self._adapter.call("result", timeout=timeout)

    async def _result_here(self) -> Any:
        return await self._adapter.result_here()


def form(
    handle: Any,
    *,
    store: SQLiteExecutionStore | str | Path | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Form:
    """The form of an execution, for any object with the spec's handle methods.

    These are ``pending_elicitation()``, ``respond_elicitation(round_id, responses, *, idempotency_key)``,
    ``snapshot()``, ``result(timeout=None)`` and ``cancel()``, plain or awaitable: handles of this package, of ``m3``,
    or any other. Awaitables run on ``loop``; by default on the loop that runs here (a notebook cell has one, and an
    async handle made in a cell belongs to it; the form then moves on while no cell blocks), else on a thread of ours.
    Show what is returned as the last line of a cell, or write ``result = await m3nb.form(handle)``.

    ``store`` (an open store, or the path of its file) keeps each answer with its idempotency key before it is handed
    over, so that a retry after a lost acknowledgement or a kernel restart uses the same key. By default that is the
    store of the handle when it is of this package; for other handles keys are kept in memory, for this form only.

    Raises `ModelValidationError` when ``handle`` lacks a method.
    """
    if isinstance(store, str | Path):
        store = SQLiteExecutionStore(store)
    return Form(Adapter(handle, loop), _own_store(handle) if store is None else store)


def _own_store(handle: Any) -> SQLiteExecutionStore | None:
    """The store that a handle of this package has its execution in."""
    if isinstance(handle, AsyncExecutionHandle):
        store: ExecutionStore = handle._threads._host.store
    elif isinstance(handle, ExecutionHandle):
        store = handle._host.store
    else:
        return None
    return store if isinstance(store, SQLiteExecutionStore) else None
