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


def run(code: str, folder: Path) -> str:
    code = code.replace('"notebooks/shipping_server.py"', repr(SERVER))
    done = subprocess.run(
        (sys.executable, "-c", code), cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", [1, 2])
def test_the_engine_without_a_notebook(tmp_path: Path, block: int) -> None:
    assert len(blocks("python")) == 5
    assert "completed: Booked" in run(blocks("python")[block], tmp_path)


@pytest.mark.parametrize("block", [1, 2])
def test_what_goes_wrong_is_printed(tmp_path: Path, block: int) -> None:
    """From another folder: the server is not found, and the block must neither hang nor hide why."""
    code = blocks("python")[block].replace("notebooks/shipping_server.py", "nowhere.py")
    assert "nowhere.py" in run(code, tmp_path)


def test_servers_of_other_kinds(tmp_path: Path) -> None:
    run(blocks("python")[3] + "print(there, here)", tmp_path)


def test_a_plan_in_a_test(tmp_path: Path) -> None:
    run(blocks("python")[4] + "test_the_shipment_is_booked()", tmp_path)


def test_ci_runs_the_readme_s_test_command() -> None:
    (command,) = (block.strip() for block in blocks("bash") if "pytest" in block)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert command.replace("pip install ", "pip install -q ") in script


def test_the_screenshots_are_there() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]*)\)", README)
    assert len(pictures) == README.count("![") == 2
    for picture in pictures:
        assert (ROOT / picture).stat().st_size > 10_000
