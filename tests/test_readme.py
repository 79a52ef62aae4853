"""What the README shows is run: its code, and its test command is what CI runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ADDRESS, FrontEnd

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVER = str(ROOT / "notebooks" / "shipping_server.py")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_lines_a_person_writes(tmp_path: Path) -> None:
    lines = blocks("python")[0].replace('"shipping_server.py"', repr(SERVER))
    show = "print(result.final_text, wb.rounds()['status'].tolist(), set(wb.answers()['action']))"
    front_end = FrontEnd([lines, show], tmp_path, answers=[ADDRESS], subshells=True)
    front_end.execute()
    first, second = front_end.texts()
    assert first == ""
    assert "to Pune, standard. ['resolved'] {'accept'}" in second


@pytest.mark.parametrize("block", [1, 2, 3])
def test_the_engine_without_a_notebook(tmp_path: Path, block: int) -> None:
    assert len(blocks("python")) == 4
    code = blocks("python")[block].replace('"notebooks/shipping_server.py"', repr(SERVER))
    done = subprocess.run(
        (sys.executable, "-c", code), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "to Pune, standard." in done.stdout


def test_ci_runs_the_readme_s_test_command() -> None:
    (command,) = (block.strip() for block in blocks("bash") if "pytest" in block)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert command.replace("pip install ", "pip install -q ") in script


def test_the_screenshot_is_there() -> None:
    (picture,) = re.findall(r"!\[[^]]*\]\(([^)]*)\)", README)
    assert (ROOT / picture).stat().st_size > 10_000
