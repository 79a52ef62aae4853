"""Waiting inside a cell, in real kernels: a stand-in front end answers over the kernel's channels, no browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import ADDRESS, FrontEnd, deliveries, eventually

from m3nb import SQLiteExecutionStore

ROOT = Path(__file__).parent.parent

SUBMIT = f"""
import sys, time, m3nb
wb = m3nb.Workbench("executions.sqlite")
server = m3nb.StdioServer(name="classic", command=sys.executable,
    args=({str(ROOT / "tests" / "servers" / "classic_server.py")!r},), environment={{"SHIPPING_LOG": "shipping.log"}})
"""
BOOK = 'run = wb.submit("classic:book", server=server)'
AWAIT = "result = await run\nprint(result.final_text)"
BLOCK = "result = run.result()\nprint(result.final_text)"
FRAME = 'print(wb.rounds()["status"].tolist(), "1 Main Street" in repr(run))'
TIMED = """
try:
    {}
finally:
    print(time.time() - run.pending_elicitation().created_at.timestamp())
"""
SUBSHELLS = pytest.mark.parametrize("subshells", [True, False], ids=["subshells", "one shell"])


def execute(cells: list[str], folder: Path, answers: list[object], **options: object) -> FrontEnd:
    front_end = FrontEnd([SUBMIT, *cells], folder, answers=answers, **({"subshells": True} | options))  # type: ignore[arg-type]
    front_end.execute()
    return front_end


def answer_from_another_process(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "m3nb.notebook.demo", "executions.sqlite"], cwd=folder)


@SUBSHELLS
def test_await_with_a_wrong_answer_first(tmp_path: Path, subshells: bool) -> None:
    front_end = execute([BOOK, AWAIT, FRAME], tmp_path, [{"street": {"text": "1"}}, ADDRESS], subshells=subshells)
    assert front_end.texts()[2:] == ["booked to Pune\n", "['resolved'] False\n"]
    assert [reply["kind"] for reply in front_end.received if reply["kind"] in ("invalid", "accepted")] == [
        "invalid",
        "accepted",
    ]
    assert [answer["content"]["street"] for answer in deliveries(tmp_path / "shipping.log")] == ["1 Main Street"]
    assert front_end.unacknowledged == {}


def test_await_shows_the_form_itself_and_two_rounds_pass(tmp_path: Path) -> None:
    twice = BOOK.replace("book", "twice")
    answers = [{"name": {"text": "Ada"}}, {"colour": {"choice": 0}}]
    front_end = execute([f"{twice}\n{AWAIT}"], tmp_path, answers, repeat=3)
    assert "accept accept red" in front_end.texts()[1]
    assert [answer["content"] for answer in deliveries(tmp_path / "shipping.log")] == [
        {"name": "Ada"},
        {"colour": "red"},
    ]


def test_a_blocking_cell_is_answered_over_a_subshell(tmp_path: Path) -> None:
    front_end = execute([f"{BOOK}\n{BLOCK}", FRAME], tmp_path, [ADDRESS], subshells=True)
    assert "booked to Pune" in front_end.texts()[1]
    assert front_end.texts()[2] == "['resolved'] False\n"


def test_a_blocking_cell_without_subshells_says_to_await(tmp_path: Path) -> None:
    timed = BOOK + TIMED.format("run.result()")
    front_end = execute([timed, AWAIT], tmp_path, [ADDRESS], subshells=False)
    first, second = front_end.texts()[1:]
    assert float(first.split("\n")[0]) < 5
    assert "NoFrontEnd" in first
    assert "await run" in first
    assert second == "booked to Pune\n"  # the same form, answered while the next cell awaits


@pytest.mark.parametrize("wait", ["await run", "run.result()"], ids=["await", "blocking"])
def test_no_page_at_all(tmp_path: Path, wait: str) -> None:
    """nbconvert, papermill: a typed error that names the round, within 5 s; the run stays answerable from elsewhere."""

    others: list[subprocess.Popen[bytes]] = []

    class NoPage(FrontEnd):
        def deliver(self, model: str, message: object) -> None:
            return

        def overhear(self, kind: str, content: Any) -> None:
            super().overhear(kind, content)
            if kind == "stream" and content["text"].startswith("round-"):
                others.append(answer_from_another_process(tmp_path))

    cells = [BOOK, TIMED.format(wait), "print(run.pending_elicitation().round_id)"]
    answered = "while run.pending_elicitation(): time.sleep(0.1)"
    front_end = NoPage([SUBMIT, *cells, answered, AWAIT], tmp_path, answers=[], subshells=True)
    front_end.execute()
    assert [other.wait(timeout=30) for other in others] == [0]
    _, _, waited, round_id, _, text = front_end.texts()
    assert float(waited.split("\n")[0]) < 5
    assert "NoFrontEnd" in waited
    assert round_id.strip() in waited
    assert text == "booked to Pune\n"


def test_an_answer_from_another_process(tmp_path: Path) -> None:
    second = answer_from_another_process(tmp_path)
    front_end = execute([BOOK, AWAIT, FRAME], tmp_path, [])
    assert second.wait(timeout=30) == 0
    assert front_end.texts()[-2:] == ["booked to Pune\n", "['resolved'] False\n"]


def test_an_interrupted_cell_leaves_the_run(tmp_path: Path) -> None:
    class Interrupting(FrontEnd):
        def overhear(self, kind: str, content: Any) -> None:
            super().overhear(kind, content)
            if kind == "stream" and content["text"] == "waiting\n":
                self.kc.control_channel.send(self.kc.session.msg("interrupt_request"))
            if kind == "stream" and "waiting_for_input" in content["text"]:
                self.answers.append(ADDRESS)
                self.answer(next(iter(self.views)))

    show = "print(run.pending_elicitation() is not None, run.snapshot().lifecycle.value)"
    wait = "while not run.pending_elicitation(): time.sleep(0.05)\nprint('waiting')\nawait run"
    front_end = Interrupting([SUBMIT, BOOK, wait, show, AWAIT], tmp_path, answers=[], subshells=True)
    front_end.execute()
    _, _, interrupted, after, text = front_end.texts()
    assert "CancelledError: the waiting was interrupted, the execution goes on" in interrupted
    assert after == "True waiting_for_input\n"
    assert text == "booked to Pune\n"


def test_the_kernel_ends_with_a_waiting_run(tmp_path: Path) -> None:
    """At the kernel's end the round fails with a reason; nothing stays pending for ever."""
    cells = [BOOK, "while not run.pending_elicitation(): time.sleep(0.05)"]
    FrontEnd([SUBMIT, *cells], tmp_path, answers=[], subshells=False).execute()
    store = SQLiteExecutionStore(tmp_path / "executions.sqlite")
    (execution,) = store.list_executions()
    record = eventually(lambda: store.managed_input_store.list_rounds(execution.execution_id)[0])
    assert eventually(lambda: store.get_execution(execution.execution_id).lifecycle == "finished")
    assert record.pending.operation_name == "book"
    assert store.managed_input_store.list_rounds(execution.execution_id)[0].failure_code == "worker_stopped"
    store.close()
