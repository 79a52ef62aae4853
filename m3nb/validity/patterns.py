"""ECMA-262 patterns, as JSON Schema wants them, translated for the ``regex`` package.

Source: JSON Schema 2020-12 core section 6.4 ("Regular Expressions"), ECMA-262 section 22.2 with Annex B. Both the
``u`` syntax and the older one are read; matching goes by code point. What has a meaning that cannot be carried over
with certainty is not translated, and its answers are left to the server. What neither syntax allows is invalid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

MAX_LENGTH = 20_000
"""Characters of the longest pattern that is translated: compiling has no time limit."""

MAX_NESTING = 50
"""Groups inside groups that are translated: compiling is recursive."""

MAX_REPEAT = 100_000
"""The largest count in ``{n,m}`` that is translated."""

MAX_SIZE = 5_000
"""The most terms a pattern may have once ``x{n}`` is written out n times, as ``regex`` does when it compiles."""

_DIGIT = "0-9"
_WORD = "A-Za-z0-9_"
_SPACE = r"\t-\r\x20\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SETS = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "D": f"[^{_DIGIT}]", "W": f"[^{_WORD}]", "S": f"[^{_SPACE}]"}
_CONTROLS = {"f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NEVER = "(?!)"
_ANY = "(?s:.)"

_QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}", re.ASCII)
_PROPERTY = re.compile(r"\{[A-Za-z0-9_]+(?:=[A-Za-z0-9_]+)?\}")
_MODIFIERS = re.compile(r"\?[ims]*(?:-[ims]*)?:")
_HEX2 = re.compile(r"[0-9A-Fa-f]{2}")
_HEX4 = re.compile(r"[0-9A-Fa-f]{4}")
_CODE_POINT = re.compile(r"\{([0-9A-Fa-f]+)\}")
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_NUMBER = re.compile(r"[0-9]+")
_NAME = re.compile(r"<([^>]*)>")


class PatternSyntaxError(ValueError):
    """The text is no ECMA-262 pattern. The message says why, in a few words."""


@dataclass(frozen=True, slots=True)
class Translation:
    """``source`` is the pattern for ``regex`` (flag V1), or None with the ``reason`` why it has no certain one."""

    source: str | None
    reason: str = ""


@dataclass(slots=True, eq=False)
class _Group:
    start: int
    kind: str
    capture: int = 0
    quantified: bool = False
    size: int = 1


@dataclass(slots=True)
class _Reference:
    at: int
    target: int | str
    closed: frozenset[int]
    behind: bool


@dataclass(slots=True)
class _Translator:
    text: str
    position: int = 0
    out: list[str] = field(default_factory=list)
    open: list[_Group] = field(default_factory=list)
    ancestors: list[tuple[_Group, ...]] = field(default_factory=list)
    closed: set[int] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)
    references: list[_Reference] = field(default_factory=list)
    reason: str = ""
    whole: _Group = field(default_factory=lambda: _Group(0, "whole"))
    unicode: bool = False
    legacy: bool = False

    def run(self) -> Translation:
        self.unicode = any(character > "\uffff" for character in self.text)
        repeatable: _Group | bool = False
        while self.position < len(self.text):
            character = self.text[self.position]
            quantifier = _QUANTIFIER.match(self.text, self.position)
            if quantifier:
                self._quantify(quantifier, repeatable)
                repeatable = False
                continue
            self.position += 1
            repeatable = self._term(character)
            self._grow(repeatable.size if isinstance(repeatable, _Group) else 1)
        if self.open:
            raise PatternSyntaxError("a group is not closed")
        self._resolve()
        if self.unicode and self.legacy:
            self._unsure("it mixes syntax of the u flag with syntax that the flag forbids")
        return Translation(None, self.reason) if self.reason else Translation("".join(self.out))

    def _term(self, character: str) -> _Group | bool:
        """Translate one term; whether a quantifier may follow (and the group it would repeat)."""
        if character == "(":
            return self._open_group()
        if character == ")":
            return self._close_group()
        if character == "[":
            self.out.append(self._class())
        elif character == "\\":
            return self._escape()
        elif character == ".":
            self.out.append(r"[^\n\r\u2028\u2029]")
        elif character in "^$|":
            self.out.append({"^": r"\A", "$": r"\Z", "|": "|"}[character])
            return False
        else:
            self.legacy = self.legacy or character in "{}]"
            self.out.append(_literal(character))
        return True

    def _grow(self, size: int) -> None:
        around = self.open[-1] if self.open else self.whole
        around.size += size
        if around.size > MAX_SIZE:
            around.size = 1
            self._unsure("it is too large once its repeats are written out")

    def _unsure(self, reason: str) -> str:
        self.reason = self.reason or reason
        return ""

    def _quantify(self, match: re.Match[str], repeatable: _Group | bool) -> None:
        if repeatable is False:
            raise PatternSyntaxError(f"nothing to repeat before {match[0]} at position {self.position}")
        low, comma, high = match[1], match[2], match[3]
        if low is not None:
            if len(match[0]) > 20 or int(high or low) > MAX_REPEAT:
                self._unsure("a part is repeated too often")
            elif high and int(high) < int(low):
                raise PatternSyntaxError(f"the counts of {match[0]} are out of order")
            else:
                self._grow(int(low) * (repeatable.size if isinstance(repeatable, _Group) else 1))
        if isinstance(repeatable, _Group):
            repeatable.quantified = True
            if repeatable.kind == "ahead":
                self.legacy = True
                self.out[repeatable.start] = "(?:" + self.out[repeatable.start]
                self.out.append(")")
        self.position = match.end()
        lazy = self.text.startswith("?", self.position)
        self.position += lazy
        counts = match[0] if low is None else f"{{{low}{',' if comma else ''}{high or ''}}}"
        self.out.append(counts + "?" * lazy)

    def _open_group(self) -> bool:
        text, at = self.text, self.position
        kind, opening, length, capture = "group", "(?:", 0, 0
        if not text.startswith("?", at):
            opening, capture = "(", len(self.ancestors) + 1
        elif text.startswith("?:", at):
            length = 2
        elif text.startswith(("?=", "?!"), at):
            kind, opening, length = "ahead", "(" + text[at : at + 2], 2
        elif text.startswith(("?<=", "?<!"), at):
            kind, opening, length = "behind", "(" + text[at : at + 3], 3
        elif name := (_NAME.match(text, at + 1) if text.startswith("?<", at) else None):
            opening, length, capture = "(", len(name[0]) + 1, len(self.ancestors) + 1
            self._name_group(name[1], capture)
        elif (modifiers := _MODIFIERS.match(text, at)) and any(flag in modifiers[0] for flag in "ims"):
            length = len(modifiers[0])
            self._unsure("it changes flags inside the pattern")
        else:
            raise PatternSyntaxError(f"({text[at : at + 2]} opens no group")
        self.position += length
        if capture:
            self.ancestors.append(tuple(self.open))
        if len(self.open) >= MAX_NESTING:
            self._unsure("its groups are nested too deeply")
        self.open.append(_Group(len(self.out), kind, capture))
        self.out.append(opening)
        return False

    def _name_group(self, name: str, capture: int) -> None:
        if "\\" in name:
            self._unsure("a group's name holds an escape")
        elif not name.replace("$", "_").isidentifier():
            raise PatternSyntaxError(f"{name!r} is no name of a group")
        if name in self.names:
            self._unsure(f"two groups are called {name!r}")
        self.names[name] = capture

    def _close_group(self) -> _Group | bool:
        if not self.open:
            raise PatternSyntaxError(f"a closing bracket without an opening one at position {self.position - 1}")
        group = self.open.pop()
        self.out.append(")")
        if group.capture:
            self.closed.add(group.capture)
        return False if group.kind == "behind" else group

    def _escape(self) -> bool:
        character = self._next("a backslash ends the pattern")
        if character in _SETS:
            part = _SETS[character]
            self.out.append(part if part.startswith("[") else f"[{part}]")
        elif character in "bB":
            self.out.append(rf"(?a:\{character})")
            return False
        elif character in "123456789":
            self.position -= 1
            number = _NUMBER.match(self.text, self.position)
            assert number is not None
            self.position = number.end()
            self._refer(int(number[0]) if len(number[0]) < 6 else 10**6)
        elif character == "k":
            name = _NAME.match(self.text, self.position)
            if name:
                self.position = name.end()
                self._refer(name[1])
            else:
                self._refer("")
        else:
            self.out.append(self._escaped_character(character, _literal))
        return True

    def _refer(self, target: int | str) -> None:
        behind = any(group.kind == "behind" for group in self.open)
        self.references.append(_Reference(len(self.out), target, frozenset(self.closed), behind))
        self.out.append("")

    def _resolve(self) -> None:
        for reference in self.references:
            target = reference.target
            if isinstance(target, str):
                if not self.names:
                    self._unsure(r"\k names no group")
                    continue
                if target not in self.names:
                    raise PatternSyntaxError(f"\\k<{target}> names no group")
                target = self.names[target]
            if target > len(self.ancestors):
                self._unsure(f"\\{target} refers to no group")
            elif reference.behind or any(g.quantified or g.kind != "group" for g in self.ancestors[target - 1]):
                self._unsure(f"\\{target} refers into a repeated group or looks behind")
            elif target in reference.closed:
                # A group that took no part matches the empty text in ECMA-262, and nothing in regex.
                self.out[reference.at] = f"(?({target})\\{target}|)"
            else:
                self.out[reference.at] = "(?:)"

    def _next(self, missing: str) -> str:
        if self.position >= len(self.text):
            raise PatternSyntaxError(missing)
        self.position += 1
        return self.text[self.position - 1]

    def _take(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        match = expression.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def _escaped_character(self, character: str, write: Any) -> str:
        """What follows a backslash where it means one character or one property, inside and outside of a class."""
        text: str
        if character in _CONTROLS:
            text = write(_CONTROLS[character])
        elif character == "c" and self.text[self.position : self.position + 1].isascii() and self._peek().isalpha():
            text = write(chr(ord(self._next("")) % 32))
        elif character == "0" and not self._peek().isdigit():
            text = write("\0")
        elif character == "x" and (pair := self._take(_HEX2)):
            text = write(chr(int(pair[0], 16)))
        elif character == "u" and (code := self._code_point()) is not None:
            text = write(chr(code)) if not 0xD800 <= code <= 0xDFFF else self._unsure("it speaks of half a character")
        elif character in "pP" and (name := self._take(_PROPERTY)):
            text = f"\\{character}{name[0]}"
            self.unicode = True
            if not _is_property(name[0]):
                self._unsure(f"{text} is not known here")
        elif character.isascii() and character.isalnum():
            text = self._unsure(f"\\{character} has no meaning in ECMA-262")
        else:
            self.legacy = self.legacy or character not in "^$\\.*+?()[]{}|/-"
            text = write(character)
        return text

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _code_point(self) -> int | None:
        if braced := self._take(_CODE_POINT):
            self.unicode = True
            code = int(braced[1], 16)
            if code > 0x10FFFF:
                raise PatternSyntaxError(f"\\u{braced[0]} is beyond Unicode")
            return code
        if four := self._take(_HEX4):
            code = int(four[0], 16)
            if 0xD800 <= code <= 0xDBFF and (low := self._take(_LOW_SURROGATE)):
                self.unicode = True
                return 0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
            return code
        return None

    def _class(self) -> str:
        negated = self._peek() == "^"
        self.position += negated
        parts: list[str] = []
        while (item := self._class_item()) is not None:
            if self._peek() == "-" and self.text[self.position + 1 : self.position + 2] not in ("]", ""):
                self.position += 1
                end = self._class_item()
                assert end is not None
                parts.append(self._range(item, end))
            else:
                parts.append(item if len(item) > 1 else _literal(item))
        if not parts:
            return _ANY if negated else _NEVER
        return f"[{'^' * negated}{''.join(parts)}]"

    def _range(self, low: str, high: str) -> str:
        if len(low) == 1 and len(high) == 1:
            if low > high:
                raise PatternSyntaxError(f"the range {low}-{high} is out of order")
            return f"{_literal(low)}-{_literal(high)}"
        self.legacy = True
        return "".join(part if len(part) != 1 else _literal(part) for part in (low, "-", high))

    def _class_item(self) -> str | None:
        """One character (text of length 1) or a set already in regex syntax; None at the end of the class."""
        character = self._next("a class is not closed")
        if character == "]":
            return None
        if character != "\\":
            return character
        character = self._next("a backslash ends the pattern")
        if character in _SETS:
            return _SETS[character]
        if character == "b":
            return "\b"
        return self._escaped_character(character, str) or "?"


def _literal(character: str) -> str:
    return character if character.isalnum() or not character.isascii() else f"\\x{ord(character):02x}"


@lru_cache(maxsize=512)
def _is_property(name: str) -> bool:
    import regex

    try:
        regex.compile(rf"\p{name}", regex.V1)
    except regex.error:
        return False
    return True


@lru_cache(maxsize=512)
def translate(pattern: str) -> Translation:
    """The pattern in the syntax of ``regex``. Raises `PatternSyntaxError` for a text that is no pattern."""
    if len(pattern) > MAX_LENGTH:
        return Translation(None, f"it is longer than {MAX_LENGTH} characters")
    return _Translator(pattern).run()


@lru_cache(maxsize=512)
def _compiled(source: str) -> Any:
    import regex

    return regex.compile(source, regex.V1, cache_pattern=False)


def search(pattern: str, text: str, *, seconds: float) -> bool:
    """Whether the pattern occurs in the text; True where only the server can check.

    Raises ``TimeoutError`` after ``seconds``, `PatternSyntaxError` for an invalid pattern. Other threads run meanwhile.
    """
    source = translate(pattern).source
    if source is None:
        return True
    expression = _compiled(source)
    return expression.search(text, timeout=max(seconds, 0.001), concurrent=True) is not None
