"""JSON Schema as far as drawing needs it: references followed, ``allOf`` merged, rules applied, all within bounds.

Source: JSON Schema 2020-12 and draft-07 keywords. Whether a value is valid is decided by `m3nb.validity` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from m3nb.elicitation import FormElicitationRequest
from m3nb.validity import fits

MAX_STEPS = 4_000
"""References and subschemas followed for one property of the content. Fan-out beyond it is written as JSON."""

MAX_ALL_STEPS = 30_000
"""References and subschemas followed for one form."""

MAX_HOPS = 24
"""References and subschemas followed in one line."""

STATIC: Any = object()
"""In place of a value that differs from item to item: whatever may apply is drawn, and nothing of it is required."""

_RULES = "\0rules"
_RULE_KEYWORDS = ("if", "dependentRequired", "dependentSchemas", "dependencies")
_TYPE_OF_KEYWORD = {
    "minLength": "string",
    "maxLength": "string",
    "pattern": "string",
    "format": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
    "properties": "object",
    "items": "array",
}


def text_of(schema: Mapping[str, Any], keyword: str) -> str | None:
    """The text under ``keyword``; ``None`` when it is missing, blank or no text."""
    value = schema.get(keyword)
    return value if isinstance(value, str) and value.strip() else None


def mapping_of(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    """The object under ``keyword``; an empty one when there is none."""
    value = schema.get(keyword)
    return value if isinstance(value, Mapping) else {}


def list_of(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    """The list under ``keyword``; an empty one when there is none."""
    value = schema.get(keyword)
    return list(value) if isinstance(value, (list, tuple)) else []


def types_of(schema: Any) -> set[str]:
    """The JSON types a value may have; empty when nothing says so."""
    if not isinstance(schema, Mapping):
        return set()
    declared = schema.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, (list, tuple)):
        return {name for name in declared if isinstance(name, str)}
    implied = {kind for keyword, kind in _TYPE_OF_KEYWORD.items() if keyword in schema}
    return implied if len(implied) == 1 else set()


def without(schema: Mapping[str, Any], *keywords: str) -> dict[str, Any]:
    """The schema but for some keywords."""
    return {key: value for key, value in schema.items() if key not in keywords}


class Resolver:
    """Follows what the schema of one form refers to, never over the network.

    ``live``: some rule depends on what is answered. ``followed``: every ``$ref`` taken so far.
    """

    def __init__(self, request: FormElicitationRequest) -> None:
        self.request = request
        self.root: Mapping[str, Any] = request.requested_schema
        self.live = False
        self.followed: list[str] = []
        self._left = MAX_ALL_STEPS
        self._until = 0
        self._cuts = 0
        # What was followed once is not followed again: by the identity of the schema, which is therefore kept.
        self._flat: dict[int, tuple[Any, Any, tuple[str, ...]]] = {}
        self._members: dict[int, tuple[Any, list[Any], tuple[str, ...]]] = {}
        self.next_property()

    def next_property(self) -> None:
        """Another property of the content begins: it has its own bound."""
        self._until = max(self._left - MAX_STEPS, 0)

    def flat(self, schema: Any, hops: int = 0) -> Any:
        """The schema with local references and ``allOf`` merged into it: a mapping, or a boolean schema.

        The schema's own keywords win over those it refers to. What cannot be followed becomes ``{}``: any JSON.
        """
        if not isinstance(schema, Mapping):
            return schema if isinstance(schema, bool) else {}
        if "$ref" not in schema and "allOf" not in schema:
            return schema
        known = self._flat.get(id(schema))
        if known is not None:
            self.followed.extend(known[2])
            return known[1]
        self._left -= 1
        if hops > MAX_HOPS or self._left < self._until:
            self._cuts += 1
            return {}
        mark, cuts = len(self.followed), self._cuts
        merged = self._merged(schema, hops)
        if cuts == self._cuts:
            self._flat[id(schema)] = schema, merged, tuple(dict.fromkeys(self.followed[mark:]))
        return merged

    def _merged(self, schema: Mapping[str, Any], hops: int) -> Any:
        parts: list[Any] = []
        if isinstance(schema.get("$ref"), str):
            parts.append(self.flat(self._target(schema["$ref"]), hops + 1))
        parts.extend(self.flat(part, hops + 1) for part in list_of(schema, "allOf"))
        if False in parts:
            return False
        merged: dict[str, Any] = {}
        for part in (*parts, without(schema, "$ref", "allOf")):
            if isinstance(part, Mapping):
                _merge(merged, part)
        return merged

    def members(self, schema: Mapping[str, Any], keyword: str) -> list[Any] | None:
        """The branches of a union that can hold at all, flattened; ``None`` when there is no such union."""
        branches = schema.get(keyword)
        if not isinstance(branches, (list, tuple)) or not branches:
            return None
        known = self._members.get(id(branches))
        if known is not None:
            self.followed.extend(known[2])
            return known[1]
        mark, cuts = len(self.followed), self._cuts
        self._left -= len(branches)
        if self._left < self._until:
            self._cuts += 1
            return None
        found = [branch for branch in (self.flat(part, 1) for part in branches) if branch is not False]
        if cuts == self._cuts:
            self._members[id(branches)] = branches, found, tuple(dict.fromkeys(self.followed[mark:]))
        return found

    def ruled(self, schema: Mapping[str, Any], value: Any, hops: int = 0) -> Mapping[str, Any]:
        """A flat object schema with the properties and required names that its rules add for ``value``."""
        rules = [*_rules_of(schema), {key: schema[key] for key in _CONDITIONAL if key in schema}]
        added = [part for rule in rules for part in self._parts(rule, value)]
        for part in added:
            extra = self.flat(part, hops + 1)
            if not isinstance(extra, Mapping) or hops > MAX_HOPS:
                continue
            extra = self.ruled(extra, value, hops + 1)
            merged = dict(schema)
            if value is STATIC:
                there = mapping_of(merged, "properties")
                news = {name: sub for name, sub in mapping_of(extra, "properties").items() if name not in there}
                merged["properties"] = {**there, **news}
            else:
                _merge(merged, {key: extra[key] for key in ("properties", "required") if key in extra})
            schema = merged
        return schema

    def _parts(self, rule: Mapping[str, Any], value: Any) -> Iterator[Any]:
        static = value is STATIC
        branches = {key: rule[key] for key in ("then", "else") if key in rule}
        if "if" in rule and branches:
            self.live = self.live or not static
            if static:
                yield from branches.values()
            else:
                yield branches.get("then" if fits(self.request, rule["if"], value) else "else", {})
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, needed in mapping_of(rule, keyword).items():
                self.live = self.live or not static
                if static or name in value:
                    names = isinstance(needed, (list, tuple))
                    yield {"required": list(needed)} if names else needed

    def _target(self, ref: str) -> Any:
        self.followed.append(ref)
        if ref == "#":
            return self.root
        if not ref.startswith("#/"):
            return {}
        here: Any = self.root
        for token in unquote(ref[2:]).split("/"):
            key = token.replace("~1", "/").replace("~0", "~")
            if isinstance(here, Mapping) and key in here:
                here = here[key]
            elif isinstance(here, (list, tuple)) and key.isdecimal() and int(key) < len(here):
                here = here[int(key)]
            else:
                return {}
        return here


_CONDITIONAL = (*_RULE_KEYWORDS, "then", "else")


def _merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    # Rules of several parts stand side by side: a later "if" must not take the place of an earlier one.
    held_rules = {key: into.pop(key) for key in _CONDITIONAL if key in into and any(k in part for k in _RULE_KEYWORDS)}
    for key, value in part.items():
        held = into.get(key)
        if key == "properties" and isinstance(held, Mapping) and isinstance(value, Mapping):
            both = {name: {"allOf": [held[name], value[name]]} for name in value if name in held}
            into[key] = {**held, **value, **{n: s for n, s in both.items() if held[n] is not value[n]}}
        elif key == "required" and isinstance(held, (list, tuple)) and isinstance(value, (list, tuple)):
            into[key] = [*held, *value]
        elif key != _RULES:
            into[key] = value
    rules = (*_rules_of(into), *_rules_of(part), *((held_rules,) if held_rules else ()))
    if rules:
        into[_RULES] = rules


def _rules_of(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The rules that merging set apart. No server can send a tuple, whatever it calls its keywords."""
    rules = schema.get(_RULES)
    return rules if isinstance(rules, tuple) else ()
