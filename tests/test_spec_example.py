"""The specification's example: the notebook has it word for word, and all its cells run."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest
from pages import deliveries

import m3nb

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
NOTEBOOK = NOTEBOOKS / "the-spec-example.ipynb"
PLAIN_SERVER = 'args=("shipping_server.py",)'

SPEC = """
import os
import time

from m3 import ElicitationResponse, MCPTestKit
from m3.storage import SQLiteExecutionStore
from m3.types import ExecutionStatus

# `shipping_server` is the application's configured stdio server binding.
# Set this to a model enabled for the signed-in Codex account.
store = SQLiteExecutionStore("executions.sqlite")
try:
    with MCPTestKit(store=store, env={}) as kit:
        agent = kit.agents(
            [
                {
                    "harness": "codex",
                    "models": [os.environ["M3_DOCS_CODEX_MODEL"]],
                }
            ]
        )[0]
        handle = agent.submit(
            "Ask for the delivery address, then book the shipment.",
            server=shipping_server,
            tools=["shipping:book_shipment"],
            human_input="managed",
        )
        deadline = time.monotonic() + 120
        pending = handle.pending_elicitation()
        while pending is None and time.monotonic() < deadline:
            snapshot = handle.snapshot()
            if snapshot.lifecycle is ExecutionStatus.FINISHED:
                raise RuntimeError(
                    "execution finished before it requested managed input: "
                    f"{snapshot.outcome}"
                )
            time.sleep(0.2)
            pending = handle.pending_elicitation()
        if pending is None:
            raise TimeoutError("execution did not request managed input")
        handle.respond_elicitation(
            pending.round_id,
            {
                "shipping_address": ElicitationResponse(
                    action="accept",
                    content={"street": "1 Main Street", "city": "Pune"},
                )
            },
            idempotency_key=f"address-{pending.round_id}",
        )
        result = handle.result(timeout=120)
finally:
    store.close()
"""
DIFFERENCES = {
    "import os\n": "",  # only the model's name needs it
    "from m3": "from m3nb",
    '"harness": "codex",': '"harness": "scripted",',
    '"models": [os.environ["M3_DOCS_CODEX_MODEL"]],': "",
}


def test_the_example_is_the_specification_s() -> None:
    expected = SPEC
    for theirs, ours in DIFFERENCES.items():
        assert theirs in expected
        expected = expected.replace(theirs, ours)
    cells = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    (example,) = (cell for cell in cells if "MCPTestKit(store=store, env={}) as kit" in cell)
    assert ast.unparse(ast.parse(example)) == ast.unparse(ast.parse(expected))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spec")
    shutil.copy(NOTEBOOKS / "shipping_server.py", folder)
    return folder


@pytest.fixture(scope="module")
def outputs(folder: Path) -> dict[str, str]:
    """What the cells show, each under its last line."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert PLAIN_SERVER in first.source
    first.source = first.source.replace(PLAIN_SERVER, f'{PLAIN_SERVER}, environment={{"SHIPPING_LOG": "shipping.log"}}')
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return {
        cell.source.splitlines()[-1]: "".join(
            output["text"] if output.output_type == "stream" else output["data"]["text/plain"]
            for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def shown(outputs: dict[str, str], beginning: str) -> str:
    (text,) = (text for line, text in outputs.items() if line.startswith(beginning))
    return text


def test_every_cell_shows_what_it_says(outputs: dict[str, str]) -> None:
    assert shown(outputs, "print(result)").startswith("completed: Booked SHIP-")
    assert "Where should the parcel of 1 kg go?" in shown(outputs, "m3nb.requests")
    assert '"1 Main Street"' in shown(outputs, "m3nb.answers")
    assert "resolved" in shown(outputs, 'm3nb.rounds("executions.sqlite")')
    assert "completed" in shown(outputs, "m3nb.executions")
    timeline = shown(outputs, "events.loc[mine")
    order = [timeline.index(kind) for kind in ("tool.call", "create_round", "submit_responses", "resolve ", "finished")]
    assert order == sorted(order)
    assert shown(outputs, "print(store.managed").splitlines() == [
        "resolved: Where should the parcel of 1 kg go?",
        "{'shipping_address': {'action': 'accept', 'content': {'street': '1 Main Street', 'city': 'Pune'}, "
        "'meta': None}}",
    ]
    assert shown(outputs, '    print("Another answer').splitlines() == [
        "The same answer: completed",
        "Another answer: managed_input_conflict",
    ]
    *problems, lifecycle = shown(outputs, "print(handle.snapshot()").splitlines()
    assert [ast.literal_eval(problem)["pointer"] for problem in problems] == ["/street", "/city", "/speed"]
    assert lifecycle == "waiting_for_input"
    assert "No shipment was booked" in shown(outputs, "print(handle.result")
    assert "decline" in shown(outputs, "m3nb.rounds(store)")


def test_each_answer_reached_the_server_once(outputs: dict[str, str], folder: Path) -> None:
    assert [entry["action"] for entry in deliveries(folder / "shipping.log")] == ["accept", "decline"]
    rounds = m3nb.rounds(folder / "executions.sqlite")
    assert rounds[["status", "actions", "refused_attempts"]].values.tolist() == [
        ["resolved", "accept", 1],
        ["resolved", "decline", 1],
    ]
