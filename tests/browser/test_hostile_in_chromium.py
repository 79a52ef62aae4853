"""A server's texts stay texts, wherever they stand: nothing runs or is fetched, and what is shown is what was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser

from browser.gallery import Gallery
from browser.hostile import ADDRESSES, TEXTS
from browser.lab import Lab

RUN = "window.hostile=(window.hostile||0)+1"


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """An address, and the paths that were asked for there."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hit", asked
    server.shutdown()
    thread.join()
    server.server_close()


def hostile(text: str) -> dict[str, Any]:
    """A form in which every text that a server may give is this one; ``wrong`` may refuse its default."""
    chosen = {"oneOf": [{"const": text, "title": text, "description": text}, {"const": "b", "title": "b"}]}
    fields = {
        "said": {"type": "string", "title": text, "description": text, "default": text, "examples": [text]},
        "choice": {"title": text, "description": text, "default": text, **chosen},
        "many": {"type": "array", "title": text, "items": {"anyOf": chosen["oneOf"]}, "default": [text]},
        "wrong": {"type": "string", "title": text, "default": text, "pattern": "^[^<]*$", "maxLength": 9999},
        text or "empty": {"type": "integer"},
    }
    schema = {"type": "object", "title": text, "description": text, "properties": fields}
    return {"schema": schema, "message": text}


# Everything a person could do by accident to what stands there.
PROVOKE = """() => {
  for (const each of document.querySelectorAll(".m3nb, .m3nb *"))
    for (const kind of ["pointerenter", "mouseover", "mouseenter", "pointerover", "toggle", "animationstart"])
      each.dispatchEvent(new Event(kind, {bubbles: true}));
  for (const each of document.querySelectorAll(".m3nb :is(input, textarea, select)")) { each.focus(); each.blur(); }
}"""
ELEMENTS = """() => [...new Set([...document.querySelectorAll(".m3nb, .m3nb *")].map((each) => each.localName))]"""
HANDLERS = """() => [...document.querySelectorAll(".m3nb *")].flatMap((each) => each.getAttributeNames())
  .filter((name) => /^(on.*|src.*|style|.*action)$/.test(name))"""
SHOWN = """() => [...document.querySelectorAll(".m3nb [role=form]")].map((form) => {
  const texts = (selector) => [...form.querySelectorAll(selector)].map((each) => each.textContent);
  return {words: texts(".message, .title, .note"), labels: texts("label, .label"), options: texts("option"),
          boxes: [...form.querySelectorAll("input, textarea")].map((each) => each.value)};
})"""
PLAIN = {"div", "span", "fieldset", "legend", "label", "input", "textarea", "select", "option", "button", "section"} | {
    *("dl", "dt", "dd", "code", "strong", "details", "summary", "pre", "p", "ul", "ol", "li", "h2", "h3", "h4"),
}
"""What forms may be made of: nothing that loads or runs anything."""


@pytest.fixture
def opened(lab: Lab, browser: Browser) -> Iterator[Callable[..., Gallery]]:
    pages: list[Gallery] = []

    def open_gallery(given: dict[str, Any], name: str) -> Gallery:
        pages.append(Gallery(browser, lab, given, name))
        return pages[-1]

    yield open_gallery
    problems = [problem for page in pages for problem in page.problems + page.console]
    for page in pages:
        page.close()
    assert problems == []


def test_no_text_of_a_server_is_more_than_text(opened: Callable[..., Gallery], listener: tuple[str, list[str]]) -> None:
    address, asked = listener
    texts = [text.replace("HIT", RUN).replace("URL", address) for text in TEXTS]
    assert len(set(texts)) >= 60
    page = opened({f"text {at}": hostile(text) for at, text in enumerate(texts)}, "hostile")
    dialogs: list[str] = []
    page.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for text, shown in zip(texts, page.evaluate(SHOWN), strict=True):
        assert shown["words"].count(text) >= 3, text
        assert shown["labels"].count(text) >= 5, text
        assert text in shown["boxes"], text
    page.evaluate(PROVOKE)
    page.submit_all()
    page.page.wait_for_timeout(500)
    told = page.sent()
    for at, text in enumerate(texts):
        action, content = told[f"text {at}"]
        assert action == "accept", (text, content)
        assert (content["said"], content["choice"], content["many"]) == (text, text, [text])
    assert set(page.evaluate(ELEMENTS)) <= PLAIN
    assert page.evaluate(HANDLERS) == []
    assert page.evaluate("() => [window.hostile ?? 0, Object.prototype.type ?? null]") == [0, None]
    assert (dialogs, asked, len(page.page.context.pages)) == ([], [], 1)


def test_no_obfuscated_address_becomes_a_link(opened: Callable[..., Gallery], listener: tuple[str, list[str]]) -> None:
    address, asked = listener
    urls = [url.replace("HIT", RUN) for url in ADDRESSES]
    given = {f"url {at}": {"url": url, "message": address} for at, url in enumerate(urls)}
    page = opened(given, "addresses")
    page.evaluate(PROVOKE)
    for url, (_, widget) in zip(urls, page.forms(), strict=True):
        assert widget.locator("a, [href]").count() == 0, repr(url)
        assert widget.get_by_role("button", name="Decline").count() == 1, repr(url)
    assert page.evaluate("() => window.hostile ?? 0") == 0
    assert asked == []
