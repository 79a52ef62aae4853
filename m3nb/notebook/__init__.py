"""The notebook room: the workbench, its runs, and the widget under the cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m3nb.notebook.anyform import Form, form
    from m3nb.notebook.run import Run
    from m3nb.notebook.workbench import Workbench

__all__ = ["Form", "Run", "Workbench", "form"]


def __getattr__(name: str) -> Any:
    if name == "Workbench":
        from m3nb.notebook.workbench import Workbench

        return Workbench
    if name == "Run":
        from m3nb.notebook.run import Run

        return Run
    if name in ("Form", "form"):
        from m3nb.notebook import anyform

        return getattr(anyform, name)
    raise AttributeError(f"module 'm3nb.notebook' has no attribute {name!r}")
