"""The widget under the cell: it publishes the desk's view and passes messages on. Answers never become traits."""

from __future__ import annotations

import contextlib
import weakref
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from m3nb.notebook.desk import Desk


def _text(name: str) -> str:
    # As text and with a line break: a path, or what looks like one, makes anywidget keep a file watcher that holds
    # every instance for ever.
    return files("m3nb").joinpath("static", name).read_text(encoding="utf-8").rstrip("\n") + "\n"


class ExecutionWidget(anywidget.AnyWidget):
    """Draws one execution. ``view`` is the plan of what to draw (JSON), set by Python only."""

    _esm = _text("execution.js")
    _css = _text("execution.css")

    view = traitlets.Dict().tag(sync=True)

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        super().__init__(view=desk.view)
        self.on_msg(ExecutionWidget._on_page)
        desk.publish_to(_publisher(self))

    @traitlets.observe("comm")
    def _keep_route(self, change: Any) -> None:
        """Let replies run where the page sends them.

        ipykernel 7.4 sends them to the shell that last used the comm, which a blocking cell keeps busy. Setting this
        private name to None takes that back; on other versions nothing reads it.
        """
        if change["new"] is not None:
            with contextlib.suppress(AttributeError):
                change["new"]._reply_subshell_for = None

    def _on_page(self, content: Any, _buffers: Any) -> None:
        self._desk.receive(content, self.send)

    def close(self) -> None:
        """Take the widget off its pages and let go of everything it holds."""
        self._desk.publish_to(None)
        super().close()


def _publisher(widget: ExecutionWidget) -> Any:
    """Sets the view of a widget that may be gone: a desk must not keep its widget alive."""
    reference = weakref.ref(widget)

    def publish(view: dict[str, Any]) -> None:
        target = reference()
        if target is not None:
            target.view = view

    return publish
