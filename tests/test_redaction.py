"""What histories show of an answer: secrets masked, all else kept, nothing ever refused."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from typing import Any

import pytest
from asking import CASES, form, pending, url
from hypothesis import given, settings, strategies as st

from m3nb import HTTPServer, ServerBinding
from m3nb.elicitation import ElicitationResponse
from m3nb.redaction import REDACTED, is_secret_name, redact_responses
from m3nb.runtime.launch import resolve
from m3nb.types import AgentSpec


def shown(content: Any, schema: Any = None, **options: Any) -> Any:
    response = ElicitationResponse(action="accept", content=content)
    return redact_responses(pending(form(schema or {})), {"form": response}, **options)["form"]["content"]


@pytest.mark.parametrize(
    "name",
    [
        *("password", "PASSWORD", "my_password", "userPassword", "passwordHint", "dbPasswd", "pass-phrase-passphrase"),
        *("apiKey", "api_key", "APIKey", "api-key", "API Key", "apikey", "apiSecret", "client_secret", "secrets"),
        *("token", "accessToken", "refresh_token", "id-token", "accesstoken", "auth", "Authorization", "bearer", "jwt"),
        *("private_key", "privateKey", "sslKey", "ssh-key", "session_key", "awsSecretAccessKey", "encryptionKey"),
        *("credential", "awsCredentials", "cookie", "set-cookie", "pin", "otp", "verification_code", "db_pass", "cvv"),
    ],
)
def test_a_credential_is_known_by_its_name(name: str) -> None:
    assert is_secret_name(name)
    assert shown({name: "value-1", "city": "Pune"}) == {name: REDACTED, "city": "Pune"}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "name",
            "street",
            "author",
            "authority",
            "key",
            "keyboard",
            "monkey",
            "primary_key",
            "sort_key",
            "keyword",
        ),
        *("max_tokens", "tokens", "spin", "pinned", "pineapple", "compass", "passenger", "passport", "bypass", "pass"),
        *("ssn", "credit_card", "secretary", "code", "zip_code", "postalCode", "authored_by"),
    ],
)
def test_other_names_are_no_credentials(name: str) -> None:
    assert not is_secret_name(name)
    assert shown({name: "value-1"}) == {name: "value-1"}


def test_what_is_under_a_secret_name_keeps_its_structure() -> None:
    content = {"credentials": {"user": "x", "list": [1, True, None, {"deep": 2.5}]}, "ok": [1, None, True]}
    assert shown(content) == {
        "credentials": {"user": REDACTED, "list": [REDACTED, REDACTED, None, {"deep": REDACTED}]},
        "ok": [1, None, True],
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"format": "password"}}},
        {"properties": {"x": {"writeOnly": True}}},
        {"properties": {"x": {"title": "API key"}}},
        {"properties": {"x": {"anyOf": [{"type": "null"}, {"type": "string", "format": "password"}]}}},
        {
            "properties": {"x": {"$ref": "#/$defs/a~1b"}},
            "$defs": {"a/b": {"$ref": "#/$defs/c%25"}, "c%": {"writeOnly": True}},
        },
        {"properties": {"x": {"$ref": "#anchored"}}, "$defs": {"a": {"$anchor": "anchored", "writeOnly": True}}},
        {"allOf": [{"if": {}, "then": {"properties": {"x": {"writeOnly": True}}}}]},
        {"additionalProperties": {"format": "password"}, "properties": {"y": {}}},
        {"patternProperties": {"^x": {"format": "password"}}, "properties": {"y": {}}},
        {"dependentSchemas": {"y": {"properties": {"x": {"writeOnly": True}}}}},
        {"properties": {"x": {"$ref": "#/$defs/nowhere"}}},
    ],
)
def test_the_schema_says_what_is_secret(schema: Any) -> None:
    assert shown({"x": "hidden", "y": "kept"}, schema) == {"x": REDACTED, "y": "kept"}


def test_the_schema_of_items_counts_too() -> None:
    secret = {"type": "object", "properties": {"v": {"format": "password"}}}
    for schema in ({"items": secret}, {"prefixItems": [{}, secret]}, {"items": [{}, secret]}, {"contains": secret}):
        content = {"x": [{"w": 1}, {"v": "hidden", "w": 1}]}
        assert shown(content, {"properties": {"x": schema}}) == {"x": [{"w": 1}, {"v": REDACTED, "w": 1}]}


def test_a_title_that_is_a_sentence_is_no_name() -> None:
    schema = {"properties": {"x": {"title": "Shall the token be renewed?"}}}
    assert shown({"x": True}, schema) == {"x": True}


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abcdef.123456", f"Authorization: Bearer {REDACTED}"),
        ("authorization: basic dXNlcjpwYXNz", f"authorization: basic {REDACTED}"),
        (f"before {PEM} after", f"before {REDACTED} after"),
        (PEM[:-10], REDACTED),
        (f"it is {JWT}.", f"it is {REDACTED}."),
        ("https://u:p@h/p?token=a&q=1", f"https://{REDACTED}@h/p?token=%5BREDACTED%5D&q=1"),
        ("see postgres://admin:pw@db:5432/x now", f"see postgres://{REDACTED}@db:5432/x now"),
        ("https://h/#access_token=abc&state=1", "https://h/#access_token=%5BREDACTED%5D&state=1"),
        ("https://h/?api%5Fkey=abc", "https://h/?api%5Fkey=%5BREDACTED%5D"),
    ],
)
def test_a_secret_is_known_by_its_shape(text: str, masked: str) -> None:
    assert shown({"x": text, "y": [text]}) == {"x": masked, "y": [masked]}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "http://",
            "http://[bad",
            "https://example.com/a?page=2#top",
            "a@b.com",
            "mailto:a@b.com",
            "basic information",
        ),
        *("the bearer of this", "eyJ", "1 Main Street; apt 5", "x=1&y=2", "", "ключ", "--BEGIN--"),
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert shown({"x": text}) == {"x": text}


def test_the_executions_own_secrets_are_found_anywhere() -> None:
    secrets = ["s3cr3t-value", "s3cr3t-value-longer", "short", "12345678"]
    content = {
        "x": "s3cr3t-value",
        "y": "a s3cr3t-value-longer b",
        "z": ["short", {"key s3cr3t-value": 12345678}],
        "n": 123456789,
    }
    assert shown(content, secrets=secrets) == {
        "x": REDACTED,
        "y": f"a {REDACTED} b",
        "z": ["short", {f"key {REDACTED}": REDACTED}],
        "n": 123456789,
    }
    assert len(shown({"s3cr3t-value": 1, REDACTED: 2}, secrets=secrets)) == 2


def test_everything_masks_every_value_and_keeps_the_structure() -> None:
    content = {"a": [1, {"b": None}], "c": True, "d": "", "e": {}, "f": []}
    assert shown(content, everything=True) == {
        "a": [REDACTED, {"b": REDACTED}],
        "c": REDACTED,
        "d": REDACTED,
        "e": {},
        "f": [],
    }


def test_actions_and_meta_are_shown() -> None:
    round_ = pending(form({}, "one"), url("two"), form({}, "three"))
    answers = {
        "one": ElicitationResponse(action="accept", content={"city": "Pune"}, meta={"token": "t", "note": "n"}),
        "two": ElicitationResponse(action="accept"),
        "three": ElicitationResponse(action="decline"),
    }
    assert redact_responses(round_, answers) == {
        "one": {"action": "accept", "content": {"city": "Pune"}, "meta": {"token": REDACTED, "note": "n"}},
        "two": {"action": "accept", "content": None, "meta": None},
        "three": {"action": "decline", "content": None, "meta": None},
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_only_the_case_with_credentials_is_masked(case: dict[str, Any]) -> None:
    for content in case["valid"]:
        if case["id"] == "credentials-sample":
            assert shown(content, case["requestedSchema"]) == dict.fromkeys(content, REDACTED)
        else:
            assert shown(content, case["requestedSchema"]) == content


def test_a_circle_a_deep_value_and_a_large_one_are_no_trouble() -> None:
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}
    assert shown({"x": 1}, circle) == {"x": 1}
    deep: Any = {"password": "hidden"}
    for _ in range(250):
        deep = {"x": deep}
    assert "hidden" not in json.dumps(shown(deep))
    doubled: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": {}}
    begin = time.monotonic()
    assert shown({"x": ["a"] * 500}, {"properties": {"x": {"items": {"$ref": "#/$defs/d0"}}}, "$defs": doubled}) == {
        "x": ["a"] * 500
    }
    for text in (
        "eyJ-" * 100_000,
        "://" * 100_000,
        "&a" * 100_000,
        "bearer " * 50_000,
        "-----BEGIN PRIVATE KEY-----" * 5_000,
    ):
        shown({"x": text})
    assert time.monotonic() - begin < 10


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=15,
)
OBJECTS = st.dictionaries(
    st.text(max_size=6) | st.sampled_from(["token", "$ref", "items", "properties", "allOf"]), JSON, max_size=4
)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]


@given(
    content=OBJECTS,
    schema=OBJECTS,
    secrets=st.lists(st.text(min_size=8, max_size=12), max_size=2),
    everything=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_it_never_raises_and_leaks_no_secret(content: Any, schema: Any, secrets: list[str], everything: bool) -> None:
    content = {**content, "note": " ".join(secrets)}
    redacted = shown(content, schema, secrets=secrets, everything=everything)
    text = json.dumps(redacted, ensure_ascii=False)
    assert all(json.dumps(secret, ensure_ascii=False)[1:-1] not in text for secret in secrets if secret not in REDACTED)
    if everything:
        assert set(leaves(redacted)) <= {REDACTED}


def test_secrets_that_cannot_be_read_hide_everything() -> None:
    broken: Any = [None]
    assert shown({"x": "a", "y": 1}, secrets=broken) == {"x": REDACTED, "y": REDACTED}


def test_what_a_server_knows_of_a_header_or_address_is_hidden(kit, store) -> None:
    basic = "Basic " + b64encode(b"ada:correct-horse").decode()
    secrets = {
        "Authorization": (basic, ["correct-horse", "ada:correct-horse", basic.split()[1]]),
        "Cookie": ("theme=dark; session=0123456789abcdef", ["0123456789abcdef"]),
        "X-Api-Key": ("Bearer sesame-open-123", ["sesame-open-123"]),
    }
    for name, (value, parts) in secrets.items():
        server = HTTPServer(name="there", url="http://127.0.0.1:9/mcp", headers={name: value})
        [launch] = resolve(AgentSpec(harness={"kind": "scripted"}, servers=[ServerBinding(server=server)]))
        assert {value, *parts} <= set(launch.secrets)
    assert "correct-horse" not in repr(HTTPServer(name="there", url="https://ada:correct-horse@there.example/mcp"))
    server = HTTPServer(name="there", url="http://127.0.0.1:9/mcp?page=2&access_token=sesame-open-456&x=")
    handle = kit.agents([{"harness": "scripted"}])[0].submit("there:x sesame-open-456", server=server)
    error = handle.result(timeout=30).error
    assert error.code == "server_lost"
    [record] = store.list_executions()
    assert record.spec["servers"][0]["server"]["url"].endswith("/mcp?page=2&access_token=[REDACTED]&x=")
    events = [event.payload for event in store.events(handle.execution_id)]
    assert "sesame-open" not in f"{server!r}{error}{events}"
