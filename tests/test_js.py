"""The page: its types, its own tests, and that the committed module is what the sources build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from form_cases import form, plans
from need import need

from m3nb.forms import compile_form, to_values

ROOT = Path(__file__).parent.parent
JS = ROOT / "js"
STATIC = ROOT / "m3nb" / "static"
LIMITS = {"execution.js": 24_576, "execution.css": 6_144}


TREES: dict[str, tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = {
    # name: properties, what an untouched form sends, contents that are put in by hand
    "tree-object": (
        {
            "address": {
                "type": "object",
                "properties": {
                    "street": {"type": "string"},
                    "country": {"enum": ["DE", "FR"], "default": "DE"},
                    "geo": {"type": "object", "properties": {"lat": {"type": "number"}}},
                },
            },
            "billing": {"type": "object", "properties": {"iban": {"type": "string"}}, "required": ["iban"]},
            "note": {"anyOf": [{"type": "object", "properties": {"text": {"type": "string"}}}, {"type": "null"}]},
        },
        {"address": {"country": "DE"}},
        [
            {},
            {"address": {}, "note": None},
            {"address": {"street": "A", "geo": {"lat": 1.5}}, "billing": {"iban": "DE1"}, "note": {"text": "x"}},
        ],
    ),
    "tree-list": (
        {
            "lines": {
                "type": "array",
                "maxItems": 3,
                "items": {
                    "type": "object",
                    "title": "Line",
                    "properties": {
                        "sku": {"type": "string"},
                        "qty": {"type": "integer", "default": 1},
                        "tags": {"type": "array", "items": {"type": "string", "title": "Tag"}},
                    },
                    "required": ["sku"],
                },
            },
            "seen": {"type": "array", "items": {"type": "boolean"}, "default": [True, False]},
        },
        {"seen": [True, False]},
        [
            {},
            {"lines": [], "seen": []},
            {"lines": [{"sku": "a", "qty": 2, "tags": ["x", "y"]}, {"sku": "b", "tags": []}], "seen": [False]},
        ],
    ),
    "tree-union": (
        {
            "pay": {
                "oneOf": [
                    {
                        "title": "Card",
                        "type": "object",
                        "properties": {"kind": {"const": "card"}, "number": {"type": "string"}},
                        "required": ["kind", "number"],
                    },
                    {
                        "title": "Bank",
                        "type": "object",
                        "properties": {
                            "kind": {"const": "bank"},
                            "iban": {"type": "string"},
                            "fast": {"type": "boolean"},
                        },
                        "required": ["kind", "iban"],
                    },
                ]
            },
            "size": {
                "anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}}]
            },
        },
        {},
        [
            {},
            {"pay": {"kind": "card", "number": "42"}, "size": "L"},
            {"pay": {"kind": "bank", "iban": "DE1", "fast": False}, "size": 3},
            {"size": ["a", "b"]},
        ],
    ),
}


def trees() -> list[dict[str, Any]]:
    """More cases for the page: plans of nested schemas."""
    found = []
    for name, (properties, untouched, contents) in TREES.items():
        request = form({"type": "object", "properties": properties})
        fills = [to_values(request, content) for content in contents]
        assert [left for _, left in fills] == [[]] * len(fills), name
        found.append(
            {
                "id": name,
                "expect": "render",
                "plan": compile_form(request),
                "untouched": to_values(request, untouched)[0],
                "fills": [values for values, _ in fills],
            }
        )
    return found


@pytest.fixture(scope="module")
def npm() -> str:
    command = "apt-get install -y nodejs npm && npm --prefix js ci"
    found = shutil.which("npm")
    need(found, "npm is not installed", command)
    assert found
    if not (JS / "node_modules" / "vitest").exists():
        done = subprocess.run(
            [found, "ci", "--no-progress", "--loglevel=error"], cwd=JS, capture_output=True, text=True
        )
        need(done.returncode == 0, f"the page's tools could not be installed ({done.stderr.strip()[-300:]})", command)
    return found


def run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command, cwd=JS, env=os.environ | environment, capture_output=True, text=True, encoding="utf-8", timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_types(npm: str) -> None:
    run([npm, "run", "--silent", "check"])


def test_page(npm: str, tmp_path: Path) -> None:
    import json

    file = tmp_path / "plans.json"
    file.write_text(json.dumps(plans() + trees(), ensure_ascii=False), encoding="utf-8")
    out = run([npm, "run", "--silent", "test", "--", "--reporter=json"], M3NB_PLANS=str(file), NO_COLOR="1")
    report = json.loads(out[out.index("{") :])
    assert report["success"]
    assert report["numPassedTests"] > 450


def test_the_committed_module_is_what_the_sources_build(npm: str, tmp_path: Path) -> None:
    run(["node", "build.mjs", str(tmp_path)])
    for name in LIMITS:
        assert (tmp_path / name).read_bytes() == (STATIC / name).read_bytes(), (
            f"run: npm --prefix js run build ({name})"
        )


@pytest.mark.parametrize("name", LIMITS)
def test_sizes(name: str) -> None:
    assert (STATIC / name).stat().st_size <= LIMITS[name]


def test_nothing_is_parsed_evaluated_or_fetched() -> None:
    """The built module makes text nodes only; it has no way to run text or to load anything."""
    module = (STATIC / "execution.js").read_text(encoding="utf-8")
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|\beval\b|new Function|document\.write|fetch\(|XMLHttp|import\(|https?:"
    )
    assert re.findall(forbidden, module) == []
    style = (STATIC / "execution.css").read_text(encoding="utf-8")
    assert re.findall(r"@import|url\(|https?:", style) == []


def test_the_lock_file_names_no_host_and_every_version_is_exact() -> None:
    import json

    package = json.loads((JS / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in package
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in package["devDependencies"].values())
    lock = json.loads((JS / "package-lock.json").read_text(encoding="utf-8"))
    assert not any("resolved" in entry for entry in lock["packages"].values())
