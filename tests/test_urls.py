"""A URL taken apart: what may be opened, what a person is warned of, and the host a browser really goes to."""

from __future__ import annotations

from typing import Any

import pytest
from form_cases import url, url_cases

from m3nb.forms import compile_form


@pytest.mark.parametrize("case", url_cases(), ids=lambda case: case["id"])
def test_cases(case: dict[str, Any]) -> None:
    params = case["request"]["params"]
    plan = compile_form(url(params["url"], params["message"]))
    assert plan["openable"] is (case["expect"] != "refuse")
    assert (plan["blocked"] is None) is plan["openable"]
    assert bool(plan["warnings"]) is case["expect"].startswith("warn")
    assert plan["url"]["text"] == params["url"]


@pytest.mark.parametrize(
    ("address", "host", "path"),
    [
        ("https://login.bank.example@evil.example/session?a=1#b", "evil.example", "/session?a=1#b"),
        ("https://EXAMPLE.com:8443/", "example.com:8443", "/"),
        ("http://[::1]:8080/x", "[::1]:8080", "/x"),
        ("https://аpple.example/", "xn--pple-43d.example", "/"),
    ],
)
def test_parts(address: str, host: str, path: str) -> None:
    parts = compile_form(url(address))["url"]
    assert (parts["host"], parts["path"]) == (host, path)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        " JAVASCRIPT:alert(1)",
        "java\nscript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "blob:https://a.example/1",
        "vscode://x",
        "ftp://a.example",
        "https:",
        "https://",
        "//a.example",
        "a.example",
        "",
        "https://a.example\\@b.example",
        "https://a.example/\u202etxt",
        "https://a .example/",
        "https://a.example/\u3164x",
        "https://a.example/\u00a0x",
        "https://ex%61mple.com/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.0.0.1/",
        "https://１２７.１/",
        "https://straße.example/",
        "https://[::1",
        "https://a.example:99999/",
        "https://" + "ü" * 100 + ".example/",
    ],
)
def test_refused(address: str) -> None:
    plan = compile_form(url(address))
    assert plan["openable"] is False
    assert plan["blocked"]


def test_loopback_is_not_flagged() -> None:
    for address in ("http://127.0.0.1:8788/cb", "http://localhost:1/", "http://[::1]/"):
        assert compile_form(url(address))["warnings"] == []
    assert compile_form(url("http://pay.example.com/"))["warnings"]
