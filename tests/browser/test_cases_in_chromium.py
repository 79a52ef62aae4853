"""Every handed case, drawn, submitted, inspected and walked through by keyboard in a real page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from form_cases import form_cases, form_of_case, url_cases
from need import need
from playwright.sync_api import Browser

from browser.gallery import AXE, Gallery
from browser.lab import OUTPUT, Lab
from browser.test_quickstart import themed
from browser.wide_forms import FORMS as WIDE
from m3nb.forms import compile_form
from m3nb.validity import check_content

FORMS = {case["id"]: case for case in form_cases()}
LINKS = {case["id"]: case for case in url_cases()}


@pytest.fixture(scope="module")
def gallery(lab: Lab, browser: Browser) -> Iterator[Gallery]:
    cases = {name: {"schema": case} for name, case in (FORMS | LINKS).items()}
    page = Gallery(browser, lab, cases | WIDE, "cases")
    yield page
    problems = page.problems + page.console
    page.close()
    assert problems == []


# What stands in each form: the names that are drawn, and each control as its kind and its name.
DRAWN = """() => [...document.querySelectorAll(".m3nb [role=form]")].map((form) => {
  const kind = (each) => each.matches("textarea.json") ? "json" : each.matches("input") ? each.type : each.localName;
  const name = (each) => each.getAttribute("aria-label") ?? each.labels[0]?.textContent ?? "";
  return {
    names: [...form.querySelectorAll("label, legend")].map((each) => each.textContent),
    controls: [...form.querySelectorAll("input, select, textarea")].map((each) => [kind(each), name(each)]),
    links: [...form.querySelectorAll("a[href]")].map((each) => each.href),
  };
})"""


def test_every_case_is_drawn_and_json_is_a_last_resort(gallery: Gallery) -> None:
    drawn = dict(zip(gallery.given, gallery.evaluate(DRAWN), strict=True))
    lines = []
    for name, case in FORMS.items():
        controls, names = drawn[name]["controls"], drawn[name]["names"]
        fields = compile_form(form_of_case(case))["fields"]
        for field in fields:
            assert any(each.startswith(field["label"]) for each in names), (name, field["label"])
            lines.append(f"{name}\t{field['pointer']}\t{field['control']}")
        lines += [f"{name}\t  drawn\t{kind}\t{label}" for kind, label in controls]
        assert bool(controls) == bool(fields) == (case["expect"] != "confirm-only"), name
        assert all(label for _, label in controls), name
        if case["expect"] != "render-fallback":
            assert "json" not in [kind for kind, _ in controls], name
    for name, case in LINKS.items():
        lines.append(f"{name}\turl\t{'link' if drawn[name]['links'] else 'no link'}")
        assert bool(drawn[name]["links"]) == (case["expect"] != "refuse"), name
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / "cases.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def exactly(value: Any) -> str:
    """JSON text: 1, 1.0 and true are three values."""
    return json.dumps(value, sort_keys=True)


def test_an_untouched_form_sends_the_valid_defaults_and_nothing_else(gallery: Gallery) -> None:
    """Or, where that is no answer, it is refused with words at a field."""
    gallery.submit_all()
    told = gallery.sent()
    wrong = {}
    for name, widget in gallery.forms():
        if name not in FORMS:
            continue
        case = FORMS[name]
        untouched = case.get("prefill", {})
        if not check_content(form_of_case(case), untouched):
            if exactly(told[name]) != exactly(["accept", untouched]):
                wrong[name] = told[name]
        else:
            shown = widget.locator("[aria-invalid=true], .form-error:not([hidden]), .primary:disabled")
            if told[name] != [None, None] or not shown.count():
                wrong[name] = [told[name], shown.count()]
    assert wrong == {}


@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light", "JupyterLab Dark High Contrast"])
def test_axe_finds_nothing(gallery: Gallery, theme: str) -> None:
    need(AXE.exists(), "axe-core is not installed", "npm --prefix js ci")
    themed(gallery, theme)
    assert gallery.look() == []


# Where the keyboard is: which element of the form, and whether a ring of two pixels stands around it.
WATCH = """(form) => {
  window.walked = new Set();
  window.ringless = [];
  form.addEventListener("focusin", ({target}) => {
    window.walked.add(target);
    const {outlineStyle, outlineWidth} = getComputedStyle(target);
    if (outlineStyle === "none" || parseFloat(outlineWidth) < 2) window.ringless.push(target.outerHTML);
  });
  form.focus();
}"""
WITHIN = 9
"""Stops of the keyboard within one control: a moment has some for its parts."""
LEFT_OUT = """(form) => {
  const stops = [...form.querySelectorAll("input, select, textarea, button, a[href], [tabindex='0']")]
    .filter((each) => !each.closest("[hidden]") && !each.matches(":disabled"));
  const done = (each) => window.walked.has(each) ||
    (each.type === "radio" && [...window.walked].some((one) => one.name === each.name));
  return {missed: stops.filter((each) => !done(each)).map((each) => each.outerHTML),
          ringless: window.ringless.slice(1), stops: stops.length};
}"""
SENT = """(widget) => {
  const status = widget.querySelector("[role=status].say");
  status.textContent = "";
  new MutationObserver(() => (widget.dataset.sent = "yes")).observe(status, {childList: true});
  const all = widget.querySelectorAll("[role=form] :is(input, select, textarea, button.primary):not(:disabled)");
  const first = [...all].find((each) => each.checkVisibility());
  first?.focus();
  return !!first && !!widget.querySelector("button.primary:not(:disabled, .open)");
}"""


def test_everything_is_done_by_keyboard(gallery: Gallery) -> None:
    """From before the first control until the keyboard leaves the form, a ring around each; Ctrl+Enter sends it."""
    keys = gallery.page.keyboard
    sends = []
    for name, widget in gallery.forms():
        form = widget.get_by_role("form")
        form.evaluate(WATCH)
        left = form.evaluate(LEFT_OUT)
        assert left["stops"] >= 2, name
        idle = 0
        while left["missed"]:
            for _ in left["missed"]:
                keys.press("Tab")
            before, left = left, form.evaluate(LEFT_OUT)
            idle = idle + 1 if left["missed"] == before["missed"] else 0
            assert idle < WITHIN, (name, left["missed"])
        assert left["ringless"] == [], name
        for _ in range(WITHIN):
            keys.press("Tab")
            if not form.evaluate("(form) => form.contains(document.activeElement)"):
                break
        else:
            raise AssertionError(f"{name} does not let go of the keyboard")
        if widget.evaluate(SENT):
            keys.press("Control+Enter")
            sends.append(name)
    assert len(sends) > 50
    kept = """() => [...document.querySelectorAll(".m3nb")].map((each) => !!each.dataset.sent ||
      !!each.querySelector("[aria-invalid=true]"))"""
    answered = dict(zip(gallery.given, gallery.evaluate(kept), strict=True))
    assert [name for name in sends if not answered[name]] == []


# Each box that ends outside its widget or has more in it than it shows, but for those that can be scrolled.
STICKS_OUT = """() => [...document.querySelectorAll(".m3nb")].flatMap((widget) => {
  const edge = widget.getBoundingClientRect().right + 1;
  const wide = [...widget.querySelectorAll("*")].filter((each) => each.getBoundingClientRect().right > edge);
  return [...wide, ...(widget.scrollWidth > widget.clientWidth ? [widget] : [])].map((each) => each.outerHTML);
})"""


def test_nothing_sticks_out_of_a_form_of_320_pixels_or_zoomed_to_200_percent(gallery: Gallery) -> None:
    narrow = gallery.page.add_style_tag(content=".m3nb { width: 320px !important; }")
    assert gallery.evaluate("() => [...document.querySelectorAll('.m3nb')].map((each) => each.clientWidth)") == [
        318 for _ in gallery.given
    ]
    assert gallery.evaluate(STICKS_OUT) == []
    narrow.evaluate("(style) => style.remove()")
    screen = gallery.context.new_cdp_session(gallery.page)
    zoomed = {"width": 550, "height": 450, "deviceScaleFactor": 2, "mobile": False}
    screen.send("Emulation.setDeviceMetricsOverride", zoomed)
    assert gallery.evaluate("() => [innerWidth, devicePixelRatio]") == [550, 2]
    assert gallery.evaluate(STICKS_OUT) == []
    screen.send("Emulation.clearDeviceMetricsOverride")
