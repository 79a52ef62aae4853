"""ECMA-262 patterns: what they match, which are invalid, which only the server can check."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given, settings, strategies as st

from m3nb.validity.patterns import PatternSyntaxError, search, translate


def matches(pattern: str, text: str) -> bool:
    assert translate(pattern).source is not None, translate(pattern).reason
    return search(pattern, text, seconds=5)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        # anchors and the dot
        ("^a$", ["a"], ["a\n", "\na", "ba"]),
        ("a", ["bab"], ["", "b"]),
        ("^.$", ["x", "é", "😀", "\x85"], ["\n", "\r", "\u2028", "\u2029", "", "ab"]),
        ("^[^]$", ["x", "\n", "😀"], ["", "ab"]),
        ("[]", [], ["", "x", "]"]),
        ("^(?:a|b$)", ["ax", "b"], ["bx"]),
        ("", ["", "x"], []),
        # classes of characters are those of ECMA-262
        (r"^\d$", ["0", "9"], ["٣", "²", "a"]),
        (r"^\D$", ["٣"], ["3"]),
        (r"^\w$", ["a", "Z", "_", "0"], ["é", "-", "ß"]),
        (r"^\W$", ["é", "-"], ["a", "_"]),
        (r"^\s$", [" ", "\t", "\n", "\x0b", "\xa0", "\ufeff", "\u2028", "\u3000"], ["\x1c", "\x85", "\u200b", "a"]),
        (r"^\S$", ["\x85", "a"], ["\ufeff"]),
        (r"\bcafé\b", [], ["café"]),
        (r"\bcaf\b", ["café", "a caf!"], ["cafe"]),
        (r"^a\Bb", ["ab"], ["a b"]),
        # escapes
        (r"^\u0041\x42\t\cJ\0$", ["AB\t\n\0"], ["ab"]),
        (r"^\u{1F600}$", ["😀"], ["u"]),
        (r"^\uD83D\uDE00$", ["😀"], ["\ufffd"]),
        (r"^[\uD83D\uDE00-\uD83D\uDE4F]$", ["😀", "🙏"], ["a"]),
        (r"^\/\.\-\@\_$", ["/.-@_"], ["/x-@_"]),
        (r"^[\b]$", ["\b"], ["b"]),
        # Unicode properties
        (r"^\p{L}[\p{L}' -]*$", ["Łuk O'Hara", "李"], ["1", ""]),
        (r"^\P{Lu}$", ["a", "1"], ["A"]),
        (r"^\p{Script=Greek}\p{sc=Grek}[^\p{Emoji}]$", ["αβx"], ["abx", "αβ😀"]),
        # classes
        ("^[a-c]$", ["a", "b", "c"], ["d", "-"]),
        ("^[a-]$", ["a", "-"], ["b"]),
        ("^[-a]$", ["a", "-"], ["b"]),
        (r"^[\]\[^]$", ["]", "[", "^"], ["\\"]),
        (r"^[^\W\d]$", ["a", "_"], ["1", "é", "-"]),
        (r"^[\s\S]$", ["\n", "é"], [""]),
        (r"^[\w-]$", ["a", "-"], ["é"]),
        (r"^[\d-z]$", ["1", "-", "z"], ["a"]),
        ("^[a&&b]$", ["a", "b", "&"], ["c"]),
        ("^[a||b~~]$", ["|", "~", "a"], ["e"]),
        ("^[[a]$", ["[", "a"], ["b"]),
        ("^[[:alpha:]]$", ["a]", ":]", "[]"], ["b", "x]"]),
        # quantifiers, literal braces
        ("^a{2}$", ["aa"], ["a", "aaa"]),
        ("^a{2,}$", ["aa", "aaaa"], ["a"]),
        ("^a{1,2}?$", ["a", "aa"], ["aaa"]),
        ("^a{,2}$", ["a{,2}"], ["a", "aa"]),
        ("^{a}$", ["{a}"], ["a"]),
        ("^x{e<=1}$", ["x{e<=1}"], ["x", "xy"]),
        ("^(?=a)*b", ["b"], ["a"]),
        # groups
        ("^(?:ab)+$", ["abab"], ["aba"]),
        (r"^(?<q>['\"]).*\k<q>$", ["'a'", '"b"'], ["'a\""]),
        (r"^(a)?\1b$", ["aab", "b"], ["ab"]),
        (r"^\1(a)$", ["a"], ["aa"]),
        (r"^(a\1)$", ["a"], ["aa"]),
        ("^(?=.*[0-9])(?=.*[a-z]).{4,}$", ["abc1"], ["abcd", "a1"]),
        ("(?<!-)b(?<=ab)", ["ab"], ["-b", "b"]),
        ("^(?!foo)", ["bar"], ["foo"]),
        # as people write them
        (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", ["a@b.co"], ["a@b", "a b@c.d"]),
        (r"^(\+\d{1,3}[- ]?)?\d{10}$", ["+49 0123456789", "0123456789"], ["١٢٣٤٥٦٧٨٩٠"]),
        ("^#([0-9a-fA-F]{3}){1,2}$", ["#fff", "#00ff00"], ["#ffff"]),
    ],
)
def test_a_pattern_matches_what_ecmascript_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in yes if not matches(pattern, text)] == []
    assert [text for text in no if matches(pattern, text)] == []


INVALID = [
    *(
        "(",
        ")",
        "(?",
        "(?a)",
        "(?P<n>a)",
        "(?i)a",
        "(?>a)",
        "(?#c)",
        "(?<n",
        "(?<1>x)",
        "(*)",
        "(|?)",
        "[",
        "[a",
        "[z-a]",
        "[",
    ),
    *(
        "*",
        "+a",
        "?",
        "a**",
        "a++",
        "{1}",
        "a|*",
        "a{2,1}",
        "^*",
        r"\b+",
        "(?<=a)*",
        "\\",
        "[\\",
        r"(?<a>x)\k<b>",
        r"\u{110000}",
    ),
]


@pytest.mark.parametrize("pattern", INVALID)
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternSyntaxError):
        translate(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\A[a-z]+\Z",  # another language's anchors, which ECMA-262 reads as letters or not at all
        r"\p{RGI_Emoji}",
        r"\p{Nonsense}",
        "(?i:a)",
        "(?-s:.)",
        r"(?:(a)|b)*\1",  # the group is forgotten at each turn in ECMA-262
        r"(?!(a))\1",
        r"(?<=\1(a))",
        r"\1",
        r"\01",
        r"\k<n>",
        r"[\uD800-\uDFFF]",
        r"\p{L}{{",  # u syntax mixed with syntax the u flag forbids
        r"(?<a>x)|(?<a>y)",
        "a{200000}",
        "((((a{100}){100}){100}){100}){100}",
        "(" * 60 + ")" * 60,
        "a" * 30_000,
    ],
)
def test_a_pattern_without_a_certain_meaning_here_is_left_to_the_server(pattern: str) -> None:
    translation = translate(pattern)
    assert translation.source is None
    assert translation.reason
    assert search(pattern, "anything", seconds=1)


@pytest.mark.parametrize(
    "pattern", ["(?:a{100}){50}", r"\b" * 4900, "()" * 2400, "[" + "a-z" * 6000 + "]", "(?:a?){0,100000}"]
)
def test_large_patterns_compile_soon(pattern: str) -> None:
    begin = time.monotonic()
    search(pattern, "ab", seconds=5)
    assert time.monotonic() - begin < 3


def test_a_search_ends_in_time() -> None:
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        search("^(a|aa)+$", "a" * 5000 + "!", seconds=0.2)
    assert time.monotonic() - begin < 1.5


PIECES = st.sampled_from(
    [*r"ab01 -_.^$|*+?(){}[]\,:=!<>", *(f"\\{letter}" for letter in "dDwWsSbBnpPukxc0123"), "(?:", "(?<n>"]
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=8), st.text(max_size=8))
@settings(max_examples=1000, deadline=None)
def test_any_text_is_a_pattern_or_is_refused(pattern: str, text: str) -> None:
    with contextlib.suppress(PatternSyntaxError):
        search(pattern, text, seconds=5)


@given(st.text(max_size=10), st.text(max_size=3), st.text(max_size=3))
@settings(max_examples=300, deadline=None)
def test_an_escaped_text_finds_itself_only(wanted: str, before: str, after: str) -> None:
    special = set("^$\\.*+?()[]{}|/")
    pattern = "".join(f"\\{character}" if character in special else character for character in wanted)
    assert matches(pattern, before + wanted + after)
    assert matches(f"^{pattern}$", before + wanted + after) is (before + after == "")
    assert matches(f"^[{pattern}]+$".replace("-", r"\-"), wanted) is bool(wanted)
