"""The quickstart where people work beside JupyterLab: Notebook 7, the classic notebook and marimo, each for real."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import deliveries
from playwright.sync_api import Browser, Error, Locator, Page, expect

from browser.lab import OUTPUT, ROOT, Lab, Notebook, end, free_port
from browser.test_quickstart import quickstart_cells

STREET = "dd b 0 a x 221B Baker Street"
"""Each of the first keys does something to a notebook that gets it."""

CELLS = [*quickstart_cells()[:3], "print('NEXT', result.outcome)"]


class Notebook7(Notebook):
    """JupyterLab's server serves it as well."""

    AT = "notebooks"

    def failed(self, error: Error) -> None:
        # Notebook 7.6 throws an error of its own at each start. Widgets come from a blob.
        if "blob:" in (error.stack or ""):
            super().failed(error)


class Classic(Notebook7):
    AT = "nbclassic/notebooks"

    def open(self) -> None:
        self.page.goto(self.url)
        loaded = "window.Jupyter?.notebook?._fully_loaded && Jupyter.notebook.kernel?.is_connected()"
        self.page.wait_for_function(f"() => {loaded}")

    def cell(self, index: int) -> Locator:
        return self.page.locator("#notebook .cell").nth(index)

    def close(self) -> None:
        try:
            self.evaluate("() => new Promise((done) => Jupyter.notebook.session.delete(done, done))", seconds=20)
        finally:
            self.context.close()


def type_into(page: Page, asks: Locator) -> None:
    """Answer in the first form, keys only: Enter in an unfinished form, and keys that a notebook would take."""
    keys = page.keyboard
    expect(asks.get_by_label("Street")).to_be_enabled()
    asks.get_by_label("Street").click()
    keys.type(STREET)
    keys.press("Enter")
    city = asks.get_by_label("City")
    expect(city).to_have_attribute("aria-invalid", "true")
    expect(city).to_be_focused()
    keys.type("London")
    keys.press("Shift+Enter")
    expect(asks.get_by_label("Street")).to_have_value(STREET)
    expect(city).to_have_value("London")
    expect(city).to_be_focused()


@pytest.mark.parametrize("front_end", [Notebook7, Classic])
def test_the_quickstart_in_the_notebooks_of_the_same_server(
    lab: Lab, browser: Browser, front_end: type[Notebook]
) -> None:
    page = front_end(browser, lab, CELLS, name=front_end.__name__)
    try:
        page.cell(0).locator(".cm-content, .CodeMirror-lines").click()
        for _ in CELLS:
            page.page.keyboard.press("Shift+Enter")
        asks = page.cell(1).get_by_role("form")
        asks.wait_for()
        cells = page.page.locator(".jp-Notebook .jp-Cell, #notebook .cell")
        before = [cells.count(), page.cell(2).inner_text()]
        type_into(page.page, asks)
        assert [cells.count(), page.cell(2).inner_text()] == before
        page.screenshot(f"front-end-{front_end.__name__.lower()}")
        asks.get_by_role("button", name="Submit").click()
        expect(page.cell(1).get_by_text("Completed", exact=True)).to_be_visible()
        expect(page.cell(1).get_by_text(STREET)).to_be_visible()
        expect(page.cell(3).get_by_text("NEXT completed").last).to_be_visible()
        assert [each["content"]["street"] for each in deliveries(page.folder / "shipping.log")] == [STREET]
    finally:
        page.close()
    assert page.problems == []


MARIMO = """
import marimo

app = marimo.App()


@app.cell
def _():
    import sys
    import m3nb
    import marimo as mo

    wb = m3nb.Workbench("executions.sqlite")
    log = {"SHIPPING_LOG": "shipping.log"}
    shipping = m3nb.StdioServer(name="shipping", command=sys.executable, args=(SERVER,), environment=log)
    return mo, shipping, wb


@app.cell
def _(shipping, wb):
    run = wb.submit('shipping:book_shipment {"weight_kg": 2.5}', server=shipping, tools=["shipping:book_shipment"])
    run
    return (run,)


@app.cell
def _(mo, run):
    mo.ui.anywidget(run.widget)
    return


@app.cell
def _(mo):
    read = mo.ui.run_button(label="Read")
    read
    return (read,)


@app.cell
def _(mo, read, run):
    mo.stop(not read.value)
    print("NEXT", run.result().outcome)
    return
"""


class Marimo:
    """marimo's editor with one notebook, with folders of its own for everything that it keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.log = folder / "marimo.log"
        notebook = MARIMO.replace("SERVER", repr(str(ROOT / "notebooks" / "shipping_server.py")))
        (folder / "notebook.py").write_text(notebook, encoding="utf-8")
        names = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
        command = [
            *(sys.executable, "-m", "marimo", "-y", "edit", "notebook.py", "--headless", "--no-token"),
            *("--skip-update-check", "--host", "127.0.0.1", "--port", str(self.port)),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {name: str(folder / name.lower()) for name in names},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def open(self, page: Page) -> None:
        deadline = time.monotonic() + 60
        while True:
            assert self.process.poll() is None, self.log.read_text()
            try:
                page.goto(f"http://127.0.0.1:{self.port}/")
                return
            except Error:
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.2)

    def close(self) -> None:
        end(self.process.pid)
        self.process.wait()


@pytest.fixture
def marimo(tmp_path: Path) -> Iterator[Marimo]:
    server = Marimo(tmp_path)
    yield server
    server.close()


def test_marimo_shows_the_form_in_one_cell_and_reads_in_another(marimo: Marimo, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    try:
        marimo.open(page)
        cells = page.locator(".cm-content")
        expect(cells).to_have_count(5, timeout=30_000)
        page.get_by_test_id("run-button").last.click()  # that of all cells
        forms = page.get_by_role("form")
        expect(forms).to_have_count(2, timeout=30_000)
        # A cell that waits for the answer would keep it from coming in.
        page.get_by_role("button", name="Read", exact=True).click()
        expect(page.get_by_text("marimo lets no answer in while a cell runs").first).to_be_visible(timeout=20_000)
        type_into(page, forms.first)
        expect(cells).to_have_count(5)
        OUTPUT.mkdir(exist_ok=True)
        page.screenshot(path=OUTPUT / "front-end-marimo.png")
        forms.first.get_by_role("button", name="Submit").click()
        expect(page.get_by_text("Completed", exact=True)).to_have_count(2)
        expect(page.get_by_text(STREET)).to_have_count(2)
        page.get_by_role("button", name="Read", exact=True).click()
        expect(page.get_by_text("NEXT completed")).to_be_visible()
        assert [each["content"]["street"] for each in deliveries(marimo.folder / "shipping.log")] == [STREET]
    finally:
        context.close()
    assert problems == []
