"""The quickstart, the way a newcomer does it: a real JupyterLab in a real Chromium, keys only."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from pages import deliveries
from playwright.sync_api import Locator, expect

from browser.lab import ROOT, Notebook
from m3nb import SQLiteExecutionStore

QUICKSTART = ROOT / "notebooks" / "quickstart.ipynb"
STREET = "221B Baker Street"
PLAIN_SERVER = 'args=("shipping_server.py",),'
STATE = "application/vnd.jupyter.widget-state+json"


def quickstart_cells() -> list[str]:
    """The code cells as they are in git; the server is told to keep its log."""
    cells = [cell.source for cell in nbformat.read(QUICKSTART, as_version=4).cells if cell.cell_type == "code"]
    assert PLAIN_SERVER in cells[0]
    cells[0] = cells[0].replace(PLAIN_SERVER, PLAIN_SERVER + ' environment={"SHIPPING_LOG": "shipping.log"},')
    return cells


def form(notebook: Notebook, cell: int = 1) -> Locator:
    found = notebook.cell(cell).get_by_role("form")
    found.wait_for()
    return found


def focused(notebook: Notebook, label: str) -> None:
    """The keyboard is at the control with this label."""
    expect(notebook.page.get_by_label(label, exact=True).first).to_be_focused()


def answer(notebook: Notebook, cell: int, street: str = STREET) -> None:
    """Type an address and press Enter, keys only."""
    keys = notebook.page.keyboard
    form(notebook, cell).get_by_label("Street").focus()
    keys.type(street)
    keys.press("Tab")
    focused(notebook, "City")
    keys.type("London")
    keys.press("Enter")


def statuses(notebook: Notebook) -> list[str]:
    store = SQLiteExecutionStore(notebook.folder / "executions.sqlite")
    try:
        return [
            record.status
            for execution in store.list_executions()
            for record in store.managed_input_store.list_rounds(execution.execution_id)
        ]
    finally:
        store.close()


def widget_state(text: str) -> list[dict[str, Any]]:
    models = json.loads(text)["metadata"]["widgets"][STATE]["state"].values()
    return [model["state"] for model in models if "view" in model["state"]]


def test_the_quickstart_with_keys_only(notebook: Callable[..., Notebook]) -> None:
    page = notebook(quickstart_cells(), save_state=True)
    keys = page.page.keyboard
    page.run(0)
    page.run(1)
    asks = form(page)
    expect(asks).to_contain_text("Where should the parcel of 2.5 kg go?")
    page.run(2)  # the cell that waits: the form above stays usable

    asks.get_by_label("Street").focus()
    keys.type("1")
    keys.press("Tab")
    focused(page, "City")
    keys.type("London")
    keys.press("Enter")
    street = asks.get_by_label("Street")
    expect(street).to_have_attribute("aria-invalid", "true")
    expect(street).to_be_focused()
    error = page.page.locator(f"#{street.get_attribute('aria-describedby').split()[-1]}")
    expect(error).to_contain_text("3")
    assert statuses(page) == ["pending"]
    expect(page.cell(2).locator(".jp-InputPrompt")).to_have_text("[*]:")
    page.screenshot("error", page.cell(1))

    keys.press("Control+A")
    keys.type(STREET)
    for label in ("City", "Postal code"):
        keys.press("Tab")
        focused(page, label)
    keys.type("NW1 6XE")
    page.save()  # half way: what is typed must not be in the file either
    assert STREET not in page.path.read_text(encoding="utf-8")
    keys.press("Enter")

    expect(page.cell(2).locator(".jp-InputPrompt")).to_have_text("[3]:")
    expect(page.cell(1).get_by_text("Completed")).to_be_visible()
    page.run(3)
    page.output(3, "to London")
    page.run(4)
    page.output(4, "resolved")
    # The summary stays readable: JupyterLab has rules of its own for lists like this one.
    assert page.cell(1).get_by_text("Street", exact=True).bounding_box()["height"] < 30
    page.screenshot("answered", page.cell(1))
    page.screenshot("frame", page.cell(4))
    assert statuses(page) == ["resolved"]
    assert [entry["content"]["street"] for entry in deliveries(page.folder / "shipping.log")] == [STREET]

    text = page.save()
    (state,) = widget_state(text)
    assert state["view"]["state"] == "finished"
    assert STREET not in text
    assert "NW1 6XE" not in text
    assert "to London" in text  # the outputs are there, so the file is the saved one


def test_run_all_waits_for_the_answer(notebook: Callable[..., Notebook]) -> None:
    page = notebook(quickstart_cells())
    page.run_all()
    answer(page, 1)
    page.output(3, "to London")
    page.output(4, "resolved")
    assert len(deliveries(page.folder / "shipping.log")) == 1


@pytest.mark.parametrize("wait", ["await run", "run.result()"], ids=["await", "blocking"])
def test_one_cell_that_submits_shows_and_waits(notebook: Callable[..., Notebook], wait: str) -> None:
    """The form is answered while its own cell runs; the next cell, already queued, sees the result."""
    cells = quickstart_cells()
    page = notebook([cells[0], cells[1].removesuffix("\nrun") + f"\nresult = {wait}", "print('NEXT', result.outcome)"])
    page.run_all()
    form(page)
    page.page.wait_for_timeout(5_000)  # as slow as a person
    answer(page, 1)
    page.output(2, "NEXT completed")
    assert len(deliveries(page.folder / "shipping.log")) == 1


# Answers as soon as the form is drawn, faster than JupyterLab starts the subshell that it would be answered on.
AT_RENDER = """() => new MutationObserver((_, observer) => {
  const form = document.querySelector(".m3nb [role=form]");
  if (!form || form.querySelector("fieldset.all:disabled")) return;
  observer.disconnect();
  const type = (label, text) => {
    const box = [...form.querySelectorAll("label")].find((each) => each.textContent === label).control;
    box.value = text;
    box.dispatchEvent(new Event("input", {bubbles: true}));
  };
  type("Street", "221B Baker Street");
  type("City", "London");
  [...form.querySelectorAll("button")].find((each) => each.textContent === "Submit").click();
}).observe(document.body, {subtree: true, childList: true, attributes: true})"""


@pytest.mark.parametrize("wait", ["await run", "run.result()"], ids=["await", "blocking"])
def test_an_answer_at_render_is_not_lost(notebook: Callable[..., Notebook], wait: str) -> None:
    cells = quickstart_cells()
    page = notebook([cells[0], cells[1].removesuffix("\nrun") + f"\nresult = {wait}", "print('NEXT', result.outcome)"])
    page.evaluate(AT_RENDER)
    page.run_all()
    page.output(2, "NEXT completed")
    assert len(deliveries(page.folder / "shipping.log")) == 1


def test_a_reloaded_page_shows_the_form_again(notebook: Callable[..., Notebook]) -> None:
    page = notebook(quickstart_cells())
    page.run(0)
    page.run(1)
    form(page)
    page.run(2)
    page.save()
    page.reload()
    answer(page, 1)
    expect(page.cell(1).get_by_text("Completed")).to_be_visible()
    assert statuses(page) == ["resolved"]
    assert len(deliveries(page.folder / "shipping.log")) == 1


def test_an_interrupted_cell_leaves_the_form_alive(notebook: Callable[..., Notebook]) -> None:
    page = notebook(quickstart_cells())
    page.run(0)
    page.run(1)
    form(page)
    page.run(2)
    expect(page.cell(2).locator(".jp-InputPrompt")).to_have_text("[*]:")
    page.interrupt()
    page.output(2, "Error")
    assert statuses(page) == ["pending"]
    answer(page, 1)
    expect(page.cell(1).get_by_text("Completed")).to_be_visible()
    page.run(2)
    page.run(3)
    page.output(3, "to London")


def test_a_form_of_a_restarted_kernel_says_so_and_the_run_can_be_looked_up(notebook: Callable[..., Notebook]) -> None:
    page = notebook([*quickstart_cells()[:2], "wb.handle(wb.store.list_executions()[-1].execution_id)"])
    page.run(0)
    page.run(1)
    old = form(page)
    page.restart_kernel()
    expect(page.cell(1).get_by_text("Not connected to a kernel")).to_be_visible(timeout=20_000)
    expect(old.get_by_role("button", name="Submit")).to_be_disabled()
    page.run(0)
    page.run(2)
    expect(page.cell(2).get_by_text("The interpreter has ended")).to_be_visible()
    assert statuses(page) == ["failed"]


def test_a_form_without_a_kernel_says_so(notebook: Callable[..., Notebook]) -> None:
    """A saved notebook with widget state draws its old form; nothing is behind it, so nothing can be typed."""
    page = notebook(quickstart_cells(), save_state=True)
    page.run(0)
    page.run(1)
    form(page)
    page.save()
    page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.shutdown(); }")
    page.open()
    expect(page.cell(1).get_by_text("Not connected to a kernel")).to_be_visible(timeout=20_000)
    expect(form(page).get_by_label("Street")).to_be_disabled()


def themed(page: Notebook, theme: str) -> None:
    page.evaluate("async (theme) => { await jupyterapp.commands.execute('apputils:change-theme', {theme}); }", theme)
    light = "true" if "Light" in theme else "false"
    page.page.wait_for_selector(f'body[data-jp-theme-light="{light}"]', state="attached")
    page.page.locator("#jupyterlab-splash").wait_for(state="detached")


def without_file_browser(page: Notebook) -> None:
    page.evaluate("async () => { await jupyterapp.commands.execute('application:toggle-left-area'); }")


def luminance(colour: list[float]) -> float:
    channel = [v / 255 / 12.92 if v / 255 <= 0.03928 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in colour]
    return 0.2126 * channel[0] + 0.7152 * channel[1] + 0.0722 * channel[2]


# Colours as red, green, blue, whatever notation the browser reports them in.
CONTRAST = """(element) => {
  const painted = (colour) => {
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  let behind = element;
  while (behind && painted(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  return [painted(getComputedStyle(element).color).slice(0, 3),
          painted(getComputedStyle(behind ?? document.body).backgroundColor).slice(0, 3)];
}"""


def test_light_dark_and_narrow(notebook: Callable[..., Notebook]) -> None:
    page = notebook(quickstart_cells(), device_scale_factor=2)
    page.run(0)
    page.run(1)
    asks = form(page)
    asks.get_by_label("Street").fill("1")
    asks.get_by_label("City").fill("London")
    page.page.keyboard.press("Enter")
    expect(asks.get_by_label("Street")).to_have_attribute("aria-invalid", "true")
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        themed(page, theme)
        page.screenshot(f"quickstart-{theme.split()[1].lower()}", page.cell(1))
        for text in ("Street", "With the house number", "Where should the parcel of 2.5 kg go?"):
            pair = asks.get_by_text(text, exact=True).first.evaluate(CONTRAST)
            light, dark = sorted((luminance(colour) for colour in pair), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (theme, text, pair)
    themed(page, "JupyterLab Light")
    without_file_browser(page)
    page.page.set_viewport_size({"width": 480, "height": 900})
    page.screenshot("quickstart-narrow", page.cell(1))
    assert asks.bounding_box()["width"] < 400
    assert asks.evaluate("(element) => element.scrollWidth - element.clientWidth") == 0
    expect(asks.get_by_role("button", name="Submit")).to_be_visible()


def test_the_screenshot_of_the_readme(notebook: Callable[..., Notebook]) -> None:
    cells = [cell.source for cell in nbformat.read(QUICKSTART, as_version=4).cells if cell.cell_type == "code"]
    page = notebook(cells[:3], device_scale_factor=2, viewport={"width": 860, "height": 1130})
    themed(page, "JupyterLab Light")
    without_file_browser(page)
    page.run(0)
    page.run(1)
    asks = form(page)
    page.run(2)
    asks.get_by_label("Street").fill("1 Main Street")
    asks.get_by_label("City").fill("Pune")
    asks.get_by_label("City").press("Tab")
    page.cell(0).scroll_into_view_if_needed()
    picture = page.screenshot("quickstart", page.page.locator(".jp-Notebook"))
    assert picture.stat().st_size > 10_000
    if os.environ.get("M3NB_UPDATE_SCREENSHOT") == "1":
        shutil.copyfile(picture, Path(ROOT, "notebooks", "quickstart.png"))
