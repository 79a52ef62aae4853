"""Formats: which texts each one accepts, whatever else is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from asking import form

from m3nb.validity import check_content
from m3nb.validity.formats import ASSERTED, conforms

EXAMPLES: dict[str, tuple[list[str], list[str]]] = {
    "email": (["a@b.com", "ä@example.com"], ["", "a.b.com"]),
    "idn-email": (["실례@실례.테스트"], ["실례"]),
    "date": (["2024-02-29"], ["2023-02-29", "2024-2-9", "20240229", "2024-02-29\n", "٢٠٢٤-02-29", "2024-W09-4"]),
    "date-time": (
        ["2026-10-25T02:30:00+02:00", "2026-10-25T00:30:00.25Z", "2026-10-25t00:30:00z"],
        [
            "2026-10-25T02:30",
            "2026-10-25T02:30:00",
            "2026-10-25 02:30:00Z",
            "2026-02-30T00:00:00Z",
            "2026-10-25T00:30:00Z\n",
        ],
    ),
    "time": (["18:00:00Z", "18:00:00.5+01:00"], ["18:00", "18:00:00", "24:00:00Z", ""]),
    "duration": (["P3DT12H", "PT0.5S", "P2W", "P1Y10M"], ["", "P", "PT", "P1", "1D", "P1DT", "P1S", "P2W1D"]),
    "uri": (
        ["https://example.com/x?y=1#z", "javascript:alert(1)", "urn:a:b"],
        ["", "example.com", "not a uri", "/path", "http://a b", "http://a\n", "https://[::1"],
    ),
    "uri-reference": (["", "/path", "a?b#c", "https://example.com"], ["a b", "\\", "http://a\n"]),
    "hostname": (["example.com", "a", "xn--9n2bp8q.com", "a-b.c"], ["", "-a.com", "a..b", "a_b", "a" * 64, "a.com\n"]),
    "ipv4": (["192.0.2.1"], ["192.0.2", "192.0.2.256", "192.0.2.01", "1.2.3.4\n", "١.2.3.4"]),
    "ipv6": (["::1", "2001:db8::192.0.2.1"], ["::1%eth0", "12345::", "1.2.3.4", ""]),
    "uuid": (["123e4567-E89B-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000", "{123e4567}", ""]),
    "json-pointer": (["", "/a~1b/0", "/"], ["a", "/~2", "#/a"]),
    "relative-json-pointer": (["0", "1/a", "0#"], ["", "/a", "01/a", "-1", "0##"]),
    "regex": ([r"^\p{L}+$", "a{2}"], ["(", "[z-a]", "a**"]),
}


def test_every_asserted_format_has_examples() -> None:
    assert set(EXAMPLES) == ASSERTED


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_format_accepts_and_refuses(name: str) -> None:
    good, bad = EXAMPLES[name]
    request = form({"properties": {"x": {"format": name}}})
    assert [text for text in good if check_content(request, {"x": text})] == []
    assert [text for text in bad if not check_content(request, {"x": text})] == []
    assert check_content(request, {"x": 5}) == []


@pytest.mark.parametrize("name", ["password", "int32", "binary", "iri", "color", "x-foo", ""])
def test_an_unknown_format_is_an_annotation(name: str) -> None:
    assert conforms(name, "whatever it is")


def test_what_is_asserted_does_not_depend_on_optional_packages() -> None:
    optional = ("rfc3987", "rfc3987_syntax", "fqdn", "idna", "isoduration", "webcolors", "uri_template", "jsonpointer")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({optional!r}))\n"
        "from m3nb.elicitation import FormElicitationRequest\n"
        "from m3nb.validity import check_content\n"
        "for name in ('hostname', 'iri', 'duration', 'idn-hostname', 'uri', 'uri-template', 'json-pointer'):\n"
        "    schema = {'properties': {'x': {'format': name}}}\n"
        "    request = FormElicitationRequest(request_key='k', message='', requested_schema=schema)\n"
        "    print(name, len(check_content(request, {'x': '{not one'})))\n"
    )

    def outcome(text: str) -> str:
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout

    without = outcome(code)
    assert without == outcome(code.replace(code.splitlines()[0], ""))
    decided = dict(line.split() for line in without.splitlines())
    assert {name for name, errors in decided.items() if errors == "1"} == {
        "hostname",
        "duration",
        "uri",
        "json-pointer",
    }
