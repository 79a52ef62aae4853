"""What forms look like: pictures, forms longer than a page, and a notebook saved with ten answered ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from browser.gallery import Gallery
from browser.lab import ROOT, Lab, Notebook
from browser.test_quickstart import form, themed, without_file_browser
from browser.wide_forms import FORMS, HUGE

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark", "contrast": "JupyterLab Dark High Contrast"}
NARROW = 320


@pytest.fixture(scope="module")
def gallery(lab: Lab, browser: Browser) -> Iterator[Gallery]:
    page = Gallery(browser, lab, FORMS | {"long": HUGE}, "looks")
    without_file_browser(page)
    yield page
    problems = page.problems + page.console
    page.close()
    assert problems == []


def pictures(gallery: Gallery, kind: str) -> None:
    for name, widget in gallery.forms():
        widget.scroll_into_view_if_needed()
        # What is taller than the page is shown as a person sees it.
        gallery.screenshot(f"form-{name.replace(' ', '-')}-{kind}", None if name == "long" else widget)


def test_pictures_in_three_themes_and_two_widths(gallery: Gallery) -> None:
    """The fourth theme is in `test_vscode`."""
    for short, theme in THEMES.items():
        themed(gallery, theme)
        pictures(gallery, short)
        # The form itself is made as narrow as a page of 320 pixels: JupyterLab's margins would take a third of it.
        narrow = gallery.page.add_style_tag(content=f".m3nb {{ width: {NARROW}px !important; }}")
        pictures(gallery, f"{short}-narrow")
        narrow.evaluate("(style) => style.remove()")
    themed(gallery, THEMES["light"])


# Whether the middle of an element is on the page and nothing lies over it.
SEEN = """(each) => {
  const {x, y, width, height} = each.getBoundingClientRect();
  const top = document.elementFromPoint(x + width / 2, y + height / 2);
  return top === each || each.contains(top);
}"""


def test_the_buttons_of_300_fields_and_20_kilobytes_stay_in_view(gallery: Gallery) -> None:
    (asks,) = [widget for name, widget in gallery.forms() if name == "long"]
    buttons = [asks.get_by_role("button", name=name, exact=True) for name in ("Submit", "Decline", "Cancel")]
    fields = asks.locator(".field:visible")
    expect(fields).to_have_count(300)

    def seen(*parts: Locator) -> None:
        for part in [*buttons, *parts]:
            assert part.evaluate(SEEN), part

    asks.evaluate("(each) => each.scrollIntoView()")
    seen(asks.get_by_text("Every one of these, please."))
    for title in ("Field 0", "Field 150", "Field 299"):
        box = fields.filter(has_text=re.compile(f"^{title}(?![0-9])")).locator("input").first
        box.focus()
        seen(box)
    gallery.screenshot("form-long-last-field")
    search = asks.get_by_role("searchbox")
    search.fill("field 287")
    expect(fields).to_have_count(1)
    expect(fields).to_contain_text("Field 287")
    seen(search, fields.locator("input").first)
    search.fill("")
    expect(fields).to_have_count(300)


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


@pytest.fixture(scope="module")
def preview(lab: Lab, browser: Browser) -> Iterator[Notebook]:
    page = Notebook(browser, lab, [PREVIEW], name="preview", save_state=True)
    yield page
    page.close()
    assert page.problems == []


def test_a_preview_that_was_submitted_leaves_nothing_in_the_file(preview: Notebook) -> None:
    preview.run(0)
    asks = form(preview, 0)
    asks.get_by_label("Street").fill("Typed-By-Hand Street")
    preview.page.keyboard.press("Enter")
    expect(preview.cell(0).get_by_text("Would be sent: accept")).to_contain_text('"street": "Typed-By-Hand Street"')
    expect(asks.get_by_label("Street")).to_have_value("Typed-By-Hand Street")
    expect(asks.get_by_label("Street")).to_be_enabled()
    text = preview.save()
    assert "Preview of a form request" in text
    assert "Typed-By-Hand" not in text


# Counts the timers that go on, from now on.
TIMERS = """() => {
  window.ticking = new Set();
  const [start, stop] = [window.setInterval, window.clearInterval];
  window.setInterval = (...given) => { const id = start(...given); window.ticking.add(id); return id; };
  window.clearInterval = (id) => { window.ticking.delete(id); stop(id); };
}"""


def test_a_form_that_is_drawn_again_and_again_is_freed(preview: Notebook) -> None:
    browser = preview.context.new_cdp_session(preview.page)

    def again(times: int) -> dict[str, int]:
        for _ in range(times):
            old = preview.cell(0).locator(".m3nb").element_handle()
            preview.run(0)
            preview.page.wait_for_function("(old) => !old.isConnected", arg=old)
            expect(form(preview, 0).get_by_label("Street")).to_be_enabled()
            old.dispose()
        browser.send("HeapProfiler.collectGarbage")
        timers = preview.evaluate("() => window.ticking.size")
        return {"timers": timers} | {name: int(value) for name, value in browser.send("Memory.getDOMCounters").items()}

    preview.evaluate(TIMERS)
    before, after = again(2), again(10)
    parts = preview.evaluate("() => document.querySelectorAll('.m3nb, .m3nb *').length")
    assert after["timers"] == before["timers"]
    # JupyterLab keeps some of each cell that was run, but less than one of the ten forms.
    assert after["nodes"] - before["nodes"] < parts
    assert after["jsEventListeners"] - before["jsEventListeners"] < 2 * parts
