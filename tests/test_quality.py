"""The rules of the house, run as tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from need import need

ROOT = Path(__file__).parent.parent
HEAVY = ("mcp", "mcp_types", "jsonschema", "pandas", "ipywidgets", "anywidget", "IPython", "regex")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy", "--strict", "m3nb"),
        ("lint-imports",),
    ],
    ids=" ".join,
)
def test_linters_are_silent(command: tuple[str, ...]) -> None:
    program = Path(sys.executable).parent / command[0]
    need(program.exists(), f"{command[0]} is not installed", "pip install -e '.[lab,test]'")
    done = run(str(program), *command[1:])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", ["m3nb", "m3nb.errors", "m3nb.types", "m3nb.elicitation", "m3nb.storage"])
def test_import_is_light(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_no_file_is_long() -> None:
    folders = ("m3nb", "js", "tests", "notebooks", ".ci")
    skipped = {"node_modules", "__pycache__", "static", "cases", "output", "dist"}
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".ts", ".js", ".mjs", ".css", ".sql", ".md"} and not skipped & set(path.parts)
    }
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_lock_file_names_no_host() -> None:
    lock = (ROOT / "js" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
    assert '"integrity"' in lock


def test_notebooks_are_clean() -> None:
    """Notebooks in git have a kernelspec (or JupyterLab waits in a dialog), no outputs and no widget state."""
    notebooks = list((ROOT / "notebooks").glob("*.ipynb"))
    assert notebooks
    for path in notebooks:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        assert notebook["metadata"]["kernelspec"]["name"] == "python3"
        assert "widgets" not in notebook["metadata"]
        for cell in notebook["cells"]:
            assert not cell.get("outputs"), path
            assert cell.get("execution_count") is None, path


SKIPS = """
import pytest

@pytest.mark.skip(reason="no such thing")
def test_skipped(): ...

@pytest.mark.optional_in_ci("a thing nobody can bring")
def test_optional():
    pytest.skip("not here")

@pytest.mark.xfail(strict=True)
def test_expected_failure():
    assert False
"""


@pytest.mark.parametrize(("ci", "summary"), [("true", "1 skipped, 1 xfailed, 1 error"), ("", "2 skipped, 1 xfailed")])
def test_a_skipped_test_fails_in_ci(tmp_path: Path, ci: str, summary: str) -> None:
    (tmp_path / "test_it.py").write_text(SKIPS, encoding="utf-8")
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "conftest",
        f"--rootdir={tmp_path}",
        str(tmp_path),
        "-c",
        os.devnull,
    )
    done = run(*command, CI=ci, PYTHONPATH=str(ROOT / "tests"))
    assert summary in done.stdout, done.stdout + done.stderr


def test_a_skipped_module_fails_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\npytest.importorskip('no_such_module')\n", encoding="utf-8")
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "conftest",
        f"--rootdir={tmp_path}",
        str(tmp_path),
        "-c",
        os.devnull,
    )
    done = run(*command, CI="true", PYTHONPATH=str(ROOT / "tests"))
    assert "1 error" in done.stdout, done.stdout + done.stderr
