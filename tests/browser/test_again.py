"""An answer that came too late, in a real page: nothing typed is lost, and the run is made again with it."""

from __future__ import annotations

from collections.abc import Callable

from pages import deliveries
from playwright.sync_api import expect

from browser.lab import Notebook
from browser.test_quickstart import form, quickstart_cells, statuses


def test_too_late_and_run_again(notebook: Callable[..., Notebook]) -> None:
    begin, submit, *_ = quickstart_cells()
    hurried = submit.replace("server=shipping,", "server=shipping, answer_within=6,")
    page = notebook([begin, hurried, "print((await run.latest).snapshot.outcome.value)"])
    page.run(0)
    page.run(1)
    ask = form(page)
    ask.get_by_label("Street").fill("221B Baker Street")
    ask.get_by_label("City").fill("London")
    again = ask.get_by_role("button", name="Run again with this answer")
    again.wait_for(timeout=30_000)
    expect(page.cell(1).locator(".say")).to_contain_text("What was typed is still here")
    page.screenshot("too-late", page.cell(1).locator(".m3nb"))
    again.click()
    expect(page.cell(1).locator(".header .state")).to_have_text("Completed")
    expect(page.cell(1).locator(".answered")).to_contain_text("221B Baker Street")
    page.screenshot("run-again", page.cell(1).locator(".m3nb"))
    page.run(2)
    page.output(2, "completed")
    assert statuses(page) == ["failed", "resolved"]
    assert len(deliveries(page.folder / "shipping.log")) == 1
