"""Requests to visit an address, in a real JupyterLab: what opens, when, and what the eye sees."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from browser.lab import ROOT, Notebook
from browser.test_quickstart import focused, form, themed, without_file_browser

START = f"""
import sys
sys.path.append({str(ROOT / "tests")!r})
import m3nb, stand_in
from stand_in import address, link
"""
LONG = f"https://login.bank.example.accounts.{'very-' * 12}long.evil.example/oauth/authorize?state={'x' * 300}"
PAY = "link('https://shop.example.com/confirm?cart=7', 'pay-7', 'Confirm the payment.')"
SHOWN = {
    "consent": "[link('https://mcp.example.com/ui/set_api_key', message='Please provide your API key to continue.')]",
    "warned": "[link('http://login.bank.example@xn--pple-43d.example/session', message='Log in to your bank')]",
    "refused": "[link('javascript:alert(document.domain)', message='Continue the sign-in')]",
    "both": f"[address(), {PAY}]",
    "two": f"[{PAY}, link({LONG!r}, 'link-7')]",
}


def cell(rounds: str) -> str:
    return f"handle = stand_in.AsyncHandle({rounds})\nform = m3nb.form(handle)\nform"


def test_a_click_opens_a_new_tab_without_opener_and_consents(notebook: Callable[..., Notebook]) -> None:
    page = notebook([START + cell("[link('http://127.0.0.1:9/hook?a=1')]"), "print(await form, handle.sync.answers())"])
    fetched: list[str] = []
    page.context.on("request", lambda request: fetched.append(request.url) if "127.0.0.1:9/" in request.url else None)
    page.context.route("**/hook?a=1", lambda route: route.fulfill(body="<title>hook</title>", content_type="text/html"))
    page.run(0)
    asks = form(page, 0)
    page.run(1)
    expect(page.cell(1).locator(".jp-InputPrompt")).to_have_text("[*]:")
    expect(asks.locator("strong")).to_have_text("127.0.0.1:9")
    expect(asks.get_by_role("link", name="Open link")).to_be_visible()
    assert fetched == []

    asks.get_by_role("button", name="Copy").focus()
    page.page.keyboard.press("Tab")
    expect(asks.get_by_role("link", name="Open link")).to_be_focused()
    with page.context.expect_page() as opened:
        page.page.keyboard.press("Enter")
    opened.value.wait_for_load_state()
    assert opened.value.url == "http://127.0.0.1:9/hook?a=1"
    assert opened.value.evaluate("[window.opener, document.referrer]") == [None, ""]
    page.output(1, "their result [{'link': ('accept', None)}]")
    assert len(fetched) == 1
    assert len(page.context.pages) == 2


def test_an_address_and_a_form_with_keys_only(notebook: Callable[..., Notebook]) -> None:
    page = notebook([START + cell(SHOWN["both"]), "print(await form, handle.sync.answers())"])
    keys = page.page.keyboard
    page.run(0)
    asks = form(page, 0)
    page.run(1)
    asks.get_by_label("Street").focus()
    keys.type("1 Main Street")
    keys.press("Enter")
    expect(asks.get_by_text("Not decided yet.")).to_be_visible()
    expect(asks.get_by_role("button", name="I opened it myself")).to_be_focused()
    keys.press("Tab")
    keys.press("Enter")
    expect(asks.get_by_role("button", name="Decline", pressed=True)).to_be_visible()
    asks.get_by_label("Street").focus()
    focused(page, "Street")
    keys.press("Control+Enter")
    page.output(1, "{'where': ('accept', {'street': '1 Main Street'}), 'pay-7': ('decline', None)}")


def test_light_dark_and_narrow(notebook: Callable[..., Notebook]) -> None:
    """Nothing of a host is cut off at any width."""
    page = notebook([START, *map(cell, SHOWN.values())], device_scale_factor=2)
    without_file_browser(page)
    page.run_all()
    cells = {name: page.cell(nth) for nth, name in enumerate(SHOWN, start=1)}
    for nth in range(1, len(cells) + 1):
        form(page, nth)
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        themed(page, theme)
        for name, where in cells.items():
            page.screenshot(f"link-{name}-{theme.split()[1].lower()}", where)
    page.page.set_viewport_size({"width": 400, "height": 900})
    for name, where in cells.items():
        page.screenshot(f"link-{name}-narrow", where.locator(".m3nb"))
        asks = where.get_by_role("form")
        assert asks.bounding_box()["width"] < 330
        assert asks.evaluate("(element) => element.scrollWidth - element.clientWidth") == 0
        for host in asks.locator("strong").all():
            assert host.evaluate("(e) => e.parentElement.scrollHeight - e.parentElement.clientHeight") <= 1
