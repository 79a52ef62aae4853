"""An answer that came too late: the run is made again with it."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pages import ADDRESS, LocalPage, accept, deliveries, eventually
from pydantic import BaseModel

from m3nb import (
    ElicitationResponse,
    ExecutionOutcome,
    InProcessServer,
    ManagedInputValidationError,
    ModelValidationError,
    Run,
    StdioServer,
    Workbench,
)

SHIPPING = Path(__file__).parent.parent / "notebooks" / "shipping_server.py"
GIVEN = {"shipping_address": ElicitationResponse(action="accept", content={"street": "1 Main Street", "city": "Pune"})}


class Street(BaseModel):
    street: str


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "shipping.log"


@pytest.fixture
def wb(tmp_path: Path) -> Iterator[Workbench]:
    with Workbench(tmp_path / "executions.sqlite") as workbench:
        yield workbench


def too_late(wb: Workbench, log: Path) -> tuple[Run, LocalPage, dict[str, object]]:
    """A run that asked and was not answered in time, its page, and the view of when it asked."""
    environment = {"SHIPPING_LOG": str(log)}
    server = StdioServer(name="shipping", command=sys.executable, args=(str(SHIPPING),), environment=environment)
    run = wb.submit('shipping:book_shipment {"weight_kg": 2}', server=server, answer_within=0.3)
    page = LocalPage(run)
    page.wait_for_round()
    asked = page.view
    assert run.result(timeout=30).outcome is ExecutionOutcome.TIMED_OUT
    eventually(lambda: page.view["again"])
    return run, page, asked


def automatic(wb: Workbench, run: Run) -> list[str]:
    events = wb.store.events(run.execution_id)
    return [event.payload["round_id"] for event in events if event.kind == "elicitation.automatic"]


def test_from_the_page(wb: Workbench, log: Path) -> None:
    run, page, asked = too_late(wb, log)
    round_id = asked["round"]["round_id"]
    assert page.view["again"] == round_id
    [refused] = page.send(accept(asked, ADDRESS))
    assert (refused["kind"], "timeout" in refused["message"]) == ("refused", True)
    [invalid] = page.send(accept(asked, {"street": {"text": "1 Main Street"}}) | {"kind": "again"})
    assert [(invalid["kind"], error["pointer"]) for error in invalid["errors"]] == [("invalid", "/city")]
    assert run.latest is run

    replies = page.send(accept(asked, ADDRESS) | {"kind": "again"}, times=3)
    assert [(reply["kind"], reply["round_id"]) for reply in replies] == [("again", round_id)] * 3
    new = run.latest
    assert new.execution_id != run.execution_id
    assert new.result(timeout=30).outcome is ExecutionOutcome.COMPLETED
    assert [line["content"]["city"] for line in deliveries(log)] == ["Pune"]
    assert len(automatic(wb, new)) == 1
    eventually(lambda: page.view["state"] == "finished" and page.view["execution_id"] == new.execution_id)
    # The widget is the new run's; whoever shows the old one gets another.
    assert page.widget is new.widget is not run.widget
    told = [message for message in page.received if message["kind"] == "summary"]
    assert "Pune" in json.dumps(told)
    assert "Pune" not in json.dumps(page.view)
    assert (new.latest, page.view["again"]) == (new, None)


def test_from_code(wb: Workbench, log: Path) -> None:
    run, _, _ = too_late(wb, log)
    with pytest.raises(ManagedInputValidationError, match="city"):
        run.again({"shipping_address": ElicitationResponse(action="accept", content={"street": "1 Main Street"})})
    new = run.again(GIVEN)
    assert new.result(timeout=30).outcome is ExecutionOutcome.COMPLETED
    assert len(deliveries(log)) == len(automatic(wb, new)) == 1
    # Without an answer the question is put as ever.
    third = new.again()
    page = LocalPage(third)
    assert page.wait_for_round()["requests"][0]["key"] == "shipping_address"
    assert (run.latest, automatic(wb, third)) == (third, [])


def test_another_question_is_not_answered_by_it(wb: Workbench) -> None:
    count = itertools.count(1)

    def make() -> MCPServer:
        server = MCPServer("asker")

        @server.tool()
        async def ask(context: Context) -> str:  # type: ignore[type-arg]
            answer = await context.elicit(f"Street number {next(count)}?", Street)
            return str(answer.action)

        return server

    server = InProcessServer(name="asker", factory=make, protocol="legacy")
    run = wb.submit("asker:ask", server=server, answer_within=0.3)
    assert run.result(timeout=30).outcome is ExecutionOutcome.TIMED_OUT
    new = run.again({"elicitation": ElicitationResponse(action="accept", content={"street": "x"})})
    assert new.result(timeout=30).outcome is ExecutionOutcome.TIMED_OUT
    assert automatic(wb, new) == []


def test_only_what_was_submitted_here(wb: Workbench, log: Path, tmp_path: Path) -> None:
    run, _, _ = too_late(wb, log)
    with Workbench(tmp_path / "executions.sqlite") as other:
        found = other.handle(run.execution_id)
        assert LocalPage(found).view["again"] is None
        with pytest.raises(ModelValidationError, match="submit it anew"):
            found.again()
    silent = wb.submit("Nothing to do.", server=quiet(), tools=["quiet:nothing"])
    silent.result(timeout=30)
    with pytest.raises(ModelValidationError, match="asked nothing"):
        silent.again(GIVEN)


def quiet() -> InProcessServer:
    def make() -> MCPServer:
        server = MCPServer("quiet")

        @server.tool()
        async def nothing() -> str:
            return "done"

        return server

    return InProcessServer(name="quiet", factory=make)
