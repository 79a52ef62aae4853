"""Many previews on one page, and what is asked of them all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from playwright.sync_api import Browser, Locator

from browser.lab import ROOT, Lab, Notebook

PER_CELL = 15
"""anywidget gives up on a widget that the page has not come to within two seconds."""

AT_ONCE = 20
START = f"""
import json, sys
from pathlib import Path
sys.path.append({str(ROOT / "tests")!r})
import m3nb
from form_cases import form_cases, url_cases
shown = {{}}
def show(given):
    for name, arguments in given.items():
        shown[name] = m3nb.preview(**arguments)
        display(shown[name])
"""
TELL = (
    "told = {name: [each.action, each.content] for name, each in shown.items()}\n"
    "_ = Path('told.json').write_text(json.dumps(told))\nprint('TOLD')"
)
AXE = ROOT / "js" / "node_modules" / "axe-core" / "axe.min.js"

# Two cases may ask the same question, which makes landmarks of one name on this page.
LOOK = """async () => {
  const rules = {"landmark-unique": {enabled: false}};
  const found = await axe.run({include: [[".m3nb"]]}, {resultTypes: ["violations"], rules});
  return found.violations.flatMap(({id, nodes}) => nodes.map(({html, failureSummary}) => [id, html, failureSummary]));
}"""


class Gallery(Notebook):
    """A notebook page with the previews of ``given`` (name to the arguments of `m3nb.preview`), all drawn."""

    def __init__(self, browser: Browser, lab: Lab, given: dict[str, Any], name: str, **context: Any) -> None:
        self.given = given
        names = list(given)
        parts = [names[at : at + PER_CELL] for at in range(0, len(names), PER_CELL)]
        shows = [f"show(json.loads({json.dumps({each: given[each] for each in part})!r}))" for part in parts]
        super().__init__(browser, lab, [START, *shows, TELL], name=name, **context)
        self.told = len(parts) + 1
        self.console: list[str] = []
        self.page.on("console", lambda said: self.console.append(said.text) if said.type == "error" else None)
        ready = "(count) => document.querySelectorAll('.m3nb fieldset.all:not(:disabled)').length === count"
        self.run(0)
        for index in range(len(parts)):
            self.run(index + 1)
            shown = min(len(given), (index + 1) * PER_CELL)
            self.page.wait_for_function(ready, arg=shown, timeout=120_000)

    def forms(self) -> Iterable[tuple[str, Locator]]:
        """Each name with its widget."""
        widgets = self.page.locator(".m3nb")
        return ((name, widgets.nth(at)) for at, name in enumerate(self.given))

    def submit_all(self) -> None:
        """Press what sends each form; links are left alone. Waits until each page has heard what became of it."""
        # Some at a time: a page that waits ten seconds for its turn would say that the kernel does not answer.
        for start in range(0, len(self.given), AT_ONCE):
            part = f"[...document.querySelectorAll('.m3nb')].slice({start}, {start + AT_ONCE})"
            button = "querySelector('button.primary:not(:disabled)')"
            self.evaluate(f"() => {{ for (const each of {part}) each.{button}?.click(); }}")
            settled = f"""() => {part}.every((each) => !each.{button} ? !each.querySelector("fieldset.all:disabled")
              : !["", "Sending…"].includes(each.querySelector("[role=status].say").textContent))"""
            self.page.wait_for_function(settled, timeout=120_000)

    def sent(self) -> dict[str, Any]:
        """What each would have sent: its action and content, as the kernel has them."""
        self.run(self.told)
        self.output(self.told, "TOLD")
        found: dict[str, Any] = json.loads((self.folder / "told.json").read_text(encoding="utf-8"))
        return found

    def look(self) -> list[Any]:
        """What axe-core finds wrong with the widgets of this page."""
        if not self.evaluate("() => !!window.axe"):
            # JupyterLab has a loader of its own, which would take the library for itself.
            self.page.evaluate(f"() => {{ const define = undefined, module = undefined; {AXE.read_text()} }}")
        found: list[Any] = self.evaluate(LOOK, seconds=120)
        return found
