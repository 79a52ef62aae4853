"""What forms look like: pictures in three themes and at 320 pixels, and a notebook saved with ten answered ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from browser.gallery import Gallery
from browser.lab import ROOT, Lab, Notebook
from browser.test_quickstart import form, themed, without_file_browser
from browser.wide_forms import FORMS

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark", "contrast": "JupyterLab Dark High Contrast"}
NARROW = 320


@pytest.fixture
def gallery(lab: Lab, browser: Browser) -> Iterator[Gallery]:
    page = Gallery(browser, lab, FORMS, "looks", device_scale_factor=2)
    yield page
    problems = page.problems + page.console
    page.close()
    assert problems == []


def test_pictures_in_three_themes_and_at_320_pixels(gallery: Gallery) -> None:
    without_file_browser(gallery)
    for short, theme in THEMES.items():
        themed(gallery, theme)
        for name, widget in gallery.forms():
            widget.scroll_into_view_if_needed()
            # What is taller than the page is shown as a person sees it.
            whole = None if name == "long" else widget
            gallery.screenshot(f"form-{name.replace(' ', '-')}-{short}", whole)
    themed(gallery, THEMES["light"])
    # The form itself is made as narrow as a page of 320 pixels: JupyterLab's own margins would take a third of it.
    gallery.page.add_style_tag(content=f".m3nb {{ width: {NARROW}px !important; }}")
    for name, widget in gallery.forms():
        gallery.screenshot(f"form-{name.replace(' ', '-')}-narrow", widget)
        box = widget.bounding_box()
        assert box is not None
        assert box["width"] <= NARROW
        too_wide = """(root) => [...root.querySelectorAll("*")].filter((each) =>
          each.getBoundingClientRect().right > root.getBoundingClientRect().right + 1).map((each) => each.outerHTML)"""
        assert widget.evaluate(too_wide) == [], name


TEN = f"""
import sys
sys.path.append({str(ROOT / "tests")!r})
import m3nb, stand_in
handles = [stand_in.AsyncHandle() for _ in range(10)]
for handle in handles:
    display(m3nb.form(handle))
"""
PREVIEW = f"import sys\nsys.path.append({str(ROOT / 'tests')!r})\nimport m3nb, stand_in\nm3nb.preview(stand_in.ADDRESS)"
LIMIT = 350_000


def test_ten_answered_forms_make_a_small_file_without_what_was_typed(notebook: Callable[..., Notebook]) -> None:
    page = notebook(
        [TEN, "print([each.sync.answers() != [] for each in handles].count(True), 'ANSWERED')"], save_state=True
    )
    page.run(0)
    asked = page.cell(0).get_by_role("form")
    expect(asked).to_have_count(10)
    for nth in range(10):
        # The first of those that are left: an answered form goes away.
        asked.first.get_by_label("Street").fill(f"{nth} Typed-By-Hand Street")
        page.page.keyboard.press("Enter")
        expect(asked).to_have_count(9 - nth)
    page.run(1)
    page.output(1, "10 ANSWERED")
    text = page.save()
    assert "Completed" in text
    assert text.count("Typed-By-Hand") == 0
    assert len(text.encode()) < LIMIT


def test_a_preview_that_was_submitted_leaves_nothing_in_the_file(notebook: Callable[..., Notebook]) -> None:
    page = notebook([PREVIEW], save_state=True)
    page.run(0)
    asks = form(page, 0)
    asks.get_by_label("Street").fill("Typed-By-Hand Street")
    page.page.keyboard.press("Enter")
    expect(page.cell(0).get_by_text("Would be sent: accept")).to_contain_text('"street": "Typed-By-Hand Street"')
    expect(asks.get_by_label("Street")).to_have_value("Typed-By-Hand Street")
    expect(asks.get_by_label("Street")).to_be_enabled()
    text = page.save()
    assert "Preview of a form request" in text
    assert "Typed-By-Hand" not in text
