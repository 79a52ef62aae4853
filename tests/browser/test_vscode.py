"""VS Code's colours and classes around the widget, in its page and in a shadow root. VS Code itself isn't run here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from need import need
from playwright.sync_api import Browser, Page, expect

import m3nb
from browser.gallery import AXE
from browser.lab import OUTPUT, ROOT
from browser.wide_forms import FORMS

# The classes and variables that VS Code gives to the page of a notebook's outputs.
THEMES: dict[str, tuple[str, str, dict[str, str]]] = {
    "Light Modern": (
        "vscode-light",
        "light",
        {"editor-background": "#ffffff", "editor-foreground": "#3b3b3b", "input-background": "#ffffff"},
    ),
    "Dark Modern": (
        "vscode-dark",
        "dark",
        {"editor-background": "#1f1f1f", "editor-foreground": "#cccccc", "input-background": "#313131"},
    ),
    "Dark High Contrast": (
        "vscode-high-contrast",
        "dark",
        {"editor-background": "#000000", "editor-foreground": "#ffffff", "input-background": "#000000"},
    ),
    "Light High Contrast": (
        "vscode-high-contrast-light vscode-high-contrast",
        "light",
        {"editor-background": "#ffffff", "editor-foreground": "#292929", "input-background": "#ffffff"},
    ),
}
FONTS = {"font-family": "system-ui", "editor-font-family": "monospace", "textPreformat-foreground": "#a31515"}

# With the rules that VS Code has for every page of outputs; a model that acknowledges, and refuses each answer.
PAGE = """<!doctype html><html lang="en"><title>outputs</title>
<style>
  body { background: var(--vscode-editor-background); color: var(--vscode-editor-foreground); margin: 20px }
  a, a code { color: #3794ff }
  a:focus, input:focus, select:focus, textarea:focus { outline: 1px solid orange; outline-offset: -1px }
  code { color: var(--vscode-textPreformat-foreground); padding: 1px 3px; border-radius: 4px }
</style><style>CSS</style><main id="open"></main><main id="root"></main>"""
DRAW = """async ([source, css, views]) => {
  const {default: widget} = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
  const shadow = document.querySelector("#root").attachShadow({mode: "open"});
  shadow.append(Object.assign(document.createElement("style"), {textContent: css}));
  for (const place of [document.querySelector("#open"), shadow])
    for (const view of views) {
      let hear;
      const model = {
        get: () => view,
        on: (what, handler) => what === "msg:custom" && (hear = handler),
        off: () => {},
        send: (message) => queueMicrotask(() => {
          hear({kind: "ack", id: message.id});
          const [request] = view.round.requests;
          const error = {request_key: request.key, pointer: request.fields?.[0]?.pointer ?? "", message: "Not so."};
          if (message.kind === "submit") hear({...message, kind: "invalid", errors: [error]});
        }),
      };
      const el = document.createElement("div");
      place.append(el);
      widget.render({model, el});
    }
}"""
WIDGETS = """[...document.querySelectorAll("#open .m3nb"), ...document.querySelector("#root").shadowRoot
  .querySelectorAll(".m3nb")]"""
LOOK = """async () => {
  const found = await axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]});
  const {nodes} = found.passes.find(({id}) => id === "color-contrast");
  return {
    wrong: found.violations.flatMap(({id, nodes}) => nodes.map(({html, failureSummary}) => [id, html, failureSummary])),
    contrast: nodes.map(({target}) => Array.isArray(target[0]) ? "shadow" : "page"),
  };
}"""


def put_on(page: Page, theme: str) -> None:
    classes, _, colours = THEMES[theme]
    variables = {f"--vscode-{name}": value for name, value in (FONTS | colours).items()}
    page.evaluate(
        """([classes, variables]) => {
          document.body.className = classes;
          for (const [name, value] of Object.entries(variables))
            document.documentElement.style.setProperty(name, value);
        }""",
        [classes, variables],
    )


@pytest.fixture(scope="module")
def outputs(browser: Browser) -> Iterator[Page]:
    need(AXE.exists(), "axe-core is not installed", "npm --prefix js ci")
    source, css = ((ROOT / "m3nb" / "static" / f"execution.{kind}").read_text("utf-8") for kind in ("js", "css"))
    views: list[dict[str, Any]] = [m3nb.preview(**given).widget.view for given in FORMS.values()]
    page = browser.new_page(viewport={"width": 900, "height": 1400})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.set_content(PAGE.replace("CSS", css))
    put_on(page, "Dark Modern")
    page.evaluate(DRAW, [source, css, json.loads(json.dumps(views))])
    page.add_script_tag(path=AXE)
    for form in page.get_by_role("form").filter(has=page.get_by_role("button", name="Submit")).all():
        form.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("Not so.").first).to_be_visible()
    yield page
    page.close()
    assert problems == []


@pytest.mark.parametrize("theme", ["Light Modern", "Dark High Contrast", "Light High Contrast", "Dark Modern"])
def test_every_theme_is_followed_and_has_contrast(outputs: Page, theme: str) -> None:
    put_on(outputs, theme)
    _, shade, colours = THEMES[theme]
    every = f"(shade) => {WIDGETS}.every((each) => each.dataset.theme === shade)"
    outputs.wait_for_function(every, arg=shade)
    drawn = outputs.evaluate(f"""() => {WIDGETS}.map((each) => [getComputedStyle(each).backgroundColor,
      getComputedStyle(each).color, getComputedStyle(each).colorScheme])""")
    wanted = [colours["editor-background"], colours["editor-foreground"]]
    rgb = [f"rgb({', '.join(str(int(each[at : at + 2], 16)) for at in (1, 3, 5))})" for each in wanted]
    assert len(drawn) == 2 * len(FORMS)
    assert {*map(tuple, drawn)} == {(*rgb, shade)}
    found = outputs.evaluate(LOOK)
    assert found["wrong"] == []
    assert min(found["contrast"].count(where) for where in ("page", "shadow")) > 200
    OUTPUT.mkdir(exist_ok=True)
    outputs.screenshot(path=OUTPUT / f"vscode-{theme.lower().replace(' ', '-')}.png")
