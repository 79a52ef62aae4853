"""Answers without their secrets: what histories, events and DataFrames show.

Source: DESIGN.md "Storage", engine-facts section 6 ("Redaction projection") and section 9 point 2. Structure, action
and every value without a reason to hide it stay. Nothing here raises and nothing refuses an answer: what can't be
inspected is masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import quote, unquote_plus

from m3nb.elicitation import ElicitationResponse, FormElicitationRequest, PendingElicitationRound

REDACTED = "[REDACTED]"
"""What stands in the place of a hidden value."""

MIN_SECRET_LENGTH = 8
"""Characters an execution's own secret must have to be looked for: a shorter one would hide ordinary text."""

_MAX_STEPS = 100_000
"""Subschemas and values looked at for one response; the rest is masked."""

_WORDS = frozenset(
    {
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "pwd",
        "secret",
        "secrets",
        "token",
        "auth",
        "bearer",
        "credential",
        "credentials",
        "authorization",
        "authentication",
        "cookie",
        "cookies",
        "jwt",
        "otp",
        "totp",
        "pin",
        "cvv",
        "cvc",
    }
)
_KEYS = frozenset(
    {
        "api",
        "access",
        "private",
        "secret",
        "session",
        "ssl",
        "tls",
        "ssh",
        "signing",
        "encryption",
        "master",
        "account",
        "service",
    }
)
_CODES = frozenset({"access", "security", "verification", "recovery", "backup", "authentication", "pairing"})
_ENDINGS = ("password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "privatekey")
_SPLIT = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_A-Za-z]+")
_MAX_TITLE_WORDS = 3
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE = frozenset(
    {*_REFERENCES, "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies"}
)

_SHAPES = (
    (
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.S
        ),
        REDACTED,
    ),
    (re.compile(r"\b(bearer|authorization:\s*basic)\s+[A-Za-z0-9._~+/-]{8,}=*", re.I), rf"\1 {REDACTED}"),
    (re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), REDACTED),
    (re.compile(r"://[^\s/?#]*@"), f"://{REDACTED}@"),
)
_MAYBE = re.compile(r"-----BEGIN|bearer|basic|eyJ|://|[?&#;]", re.I)
"""What every shape has: most texts have none of it and need no closer look."""
_QUERY = re.compile(r"([?&#;])([^=&#\s?;]{1,100})=([^&#\s;]+)")


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Whether a name says that its value is a credential.

    The name is split at everything that is no letter or digit, and at camelCase. It is secret with one of the words
    password, passwd, passphrase, passcode, pwd, secret(s), token, auth, bearer, credential(s), authorization,
    authentication, cookie(s), jwt, otp, totp, pin, cvv, cvc; with a "key" after api, access, private, secret,
    session, ssl, tls, ssh, signing, encryption, master, account, service; with a "code" after access, security,
    verification, recovery, backup, authentication, pairing; with "pass" as the last of several words; or with a word
    that ends like one (userpassword, accesstoken, apikey). Personal data (ssn, credit_card) and ``max_tokens`` are no
    credentials.
    """
    words = [word.lower() for word in _SPLIT.findall(name)]
    if any(word in _WORDS or word.endswith(_ENDINGS) for word in words):
        return True
    for first, second in pairwise(words):
        if (second == "key" and first in _KEYS) or (second == "code" and first in _CODES):
            return True
    return len(words) > 1 and words[-1] == "pass"


def redact_responses(
    pending: PendingElicitationRound,
    responses: Mapping[str, ElicitationResponse],
    *,
    secrets: Iterable[str] = (),
    everything: bool = False,
) -> dict[str, Any]:
    """The responses as ``{request_key: {"action", "content", "meta"}}``, JSON values, secrets masked by `REDACTED`.

    A value is masked when its name or short title is a secret's (`is_secret_name`), when its schema says
    ``format: password`` or ``writeOnly``, when its own shape is a secret's (bearer tokens, private keys, JWTs, URL
    credentials and sensitive query values) or when it equals or contains one of ``secrets`` of at least
    `MIN_SECRET_LENGTH` characters, keys included. ``everything`` masks every value. Never raises.
    """
    try:
        long = {secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH}
        wanted = sorted(long, key=len, reverse=True)
    except Exception:  # a broken iterable of secrets: nothing can be told apart any more
        wanted, everything = [], True
    redacted = {}
    for key, response in responses.items():
        request = pending.requests.get(key)
        schema = request.requested_schema if isinstance(request, FormElicitationRequest) else None
        redacted[key] = {
            "action": response.action,
            "content": _redact(response.content, schema, wanted, everything),
            "meta": _redact(response.meta, None, wanted, everything),
        }
    return redacted


def redact_value(value: Any, secrets: Iterable[str]) -> Any:
    """A JSON value with its secrets masked: by name, by shape and those given, as in `redact_responses`."""
    return _redact(value, None, sorted((each for each in secrets if each), key=len, reverse=True), everything=False)


def _redact(value: Any, schema: Any, secrets: list[str], everything: bool) -> Any:
    if value is None:
        return None
    try:
        return _Redactor(schema, secrets, everything).value(value, [schema], hidden=everything)
    except Exception:  # never refuse an answer: mask what can't be inspected
        return REDACTED


@dataclass(slots=True)
class _Redactor:
    root: Any
    secrets: list[str]
    everything: bool
    steps: int = 0
    resolver: Any = None

    def value(self, value: Any, schemas: list[Any], *, hidden: bool) -> Any:
        self.steps += 1
        applying = [] if hidden else list(self.in_place(schemas))
        hidden = hidden or self.steps > _MAX_STEPS or any(map(_says_secret, applying))
        if isinstance(value, Mapping):
            return self.object(value, applying, hidden)
        if isinstance(value, (list, tuple)):
            return [
                self.value(item, [s for schema in applying for s in _items(schema, index)], hidden=hidden)
                for index, item in enumerate(value)
            ]
        if hidden:
            return None if value is None and not self.everything else REDACTED
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return REDACTED if str(value) in self.secrets else value
        return value if value is None or isinstance(value, bool) else REDACTED

    def object(self, value: Mapping[Any, Any], schemas: list[Any], hidden: bool) -> dict[str, Any]:
        redacted: dict[str, Any] = {}
        for name, item in value.items():
            shown = self.without_secrets(str(name))
            while shown in redacted:
                shown += "'"
            below = [part for schema in schemas for part in _properties(schema, str(name))]
            try:
                redacted[shown] = self.value(item, below, hidden=hidden or is_secret_name(str(name)))
            except Exception:  # never refuse an answer: mask what can't be inspected
                redacted[shown] = REDACTED
        return redacted

    def in_place(self, schemas: list[Any]) -> Iterator[Any]:
        """The schemas and all that apply to the same value, references followed, each once."""
        stack, seen = list(schemas), set()
        while stack:
            schema = stack.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            self.steps += 1
            yield schema
            if _IN_PLACE.isdisjoint(schema):
                continue
            for keyword in ("allOf", "anyOf", "oneOf"):
                stack.extend(schema.get(keyword, ()))
            stack.extend(schema[keyword] for keyword in ("if", "then", "else") if keyword in schema)
            stack.extend(schema.get("dependentSchemas", {}).values())
            stack.extend(schema.get("dependencies", {}).values())
            for keyword in _REFERENCES:
                if keyword in schema:
                    stack.append(self.follow(schema[keyword]))

    def follow(self, reference: str) -> Any:
        target = self.root
        if reference.startswith("#/") or reference == "#":
            for step in unquote_plus(reference.replace("+", "%2B")[1:]).split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                target = target[int(step)] if isinstance(target, list) else target[step]
            return target
        if self.resolver is None:
            from m3nb.validity.references import root_resolver
            from m3nb.validity.schemas import dialect_of

            self.resolver = root_resolver(self.root, dialect_of(self.root))
        return self.resolver.lookup(reference).contents

    def text(self, text: str) -> str:
        text = self.without_secrets(text)
        if not _MAYBE.search(text):
            return text
        for shape, mask in _SHAPES:
            text = shape.sub(mask, text)
        return _QUERY.sub(_mask_query, text)

    def without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, REDACTED)
        return text


def _mask_query(match: re.Match[str]) -> str:
    if not is_secret_name(unquote_plus(match[2])):
        return match[0]
    return f"{match[1]}{match[2]}={quote(REDACTED)}"


def _says_secret(schema: dict[str, Any]) -> bool:
    if schema.get("writeOnly") is True or schema.get("format") == "password":
        return True
    title = None if "const" in schema else schema.get("title")  # a choice's title is a value's name
    return isinstance(title, str) and len(title.split()) <= _MAX_TITLE_WORDS and is_secret_name(title)


def _properties(schema: dict[str, Any], name: str) -> Iterator[Any]:
    properties = schema.get("properties", {})
    if name in properties:
        yield properties[name]
        return
    yield from schema.get("patternProperties", {}).values()
    yield schema.get("additionalProperties")
    yield schema.get("unevaluatedProperties")


def _items(schema: dict[str, Any], index: int) -> Iterator[Any]:
    items = schema.get("items")
    for tuple_form in (schema.get("prefixItems"), items):
        if isinstance(tuple_form, list) and index < len(tuple_form):
            yield tuple_form[index]
    yield items
    yield from (schema.get(keyword) for keyword in ("additionalItems", "contains", "unevaluatedItems"))
