"""The widget under the cell: it publishes the desk's view and passes messages on. Answers never become traits."""

from __future__ import annotations

import contextlib
import weakref
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from m3nb.notebook.desk import Desk

if TYPE_CHECKING:
    from m3nb.notebook.run import Run


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
        desk.publish_to(_publisher(self), _Pages(self))

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

    def shows(self, desk: Desk) -> bool:
        """Whether it draws the execution of this desk."""
        return self._desk is desk

    def show(self, desk: Desk) -> None:
        """Draw another execution from now on."""
        self._desk.publish_to(None)
        desk.go_on_from(self._desk)
        self._desk = desk
        desk.publish_to(_publisher(self), _Pages(self))

    def close(self) -> None:
        """Take the widget off its pages and let go of everything it holds."""
        self._desk.publish_to(None)
        super().close()


class _Pages:
    """The pages of a widget that may be gone (`m3nb.notebook.desk.Pages`)."""

    def __init__(self, widget: ExecutionWidget) -> None:
        self._widget = weakref.ref(widget)

    def tell(self, message: dict[str, Any]) -> None:
        widget = self._widget()
        if widget is not None:
            widget.send(message)

    def move_to(self, run: Run) -> None:
        widget = self._widget()
        if widget is not None:
            run.take_over(widget)


def _publisher(widget: ExecutionWidget) -> Any:
    """Sets the view of a widget that may be gone: a desk must not keep its widget alive."""
    reference = weakref.ref(widget)

    def publish(view: dict[str, Any]) -> None:
        target = reference()
        if target is not None:
            target.view = view

    return publish
