"""Requests to visit an address, from the wire to the answer: what Python decides about them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import ElicitRequestURLParams
from pages import LocalPage, eventually

from m3nb import ExecutionOutcome, InProcessServer, Run, Workbench

PAY = ("pay-7", "https://shop.example.com/confirm?cart=7&token=s3cr3t", "Confirm the payment.")
LINK = ("link-7", "https://example.com/oauth/files/authorize", "Link the account.")


class Shop:
    """A server with a tool per way to ask; ``calls`` and ``answers`` are what reached it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers: list[tuple[str, Any]] = []
        self.may_say = threading.Event()

    def server(self) -> MCPServer:
        server = MCPServer("shop")

        @server.tool()
        async def visit(ctx: Context, url: str, done: bool = False) -> str:
            """Asks to visit an address; ``done``: says, once it may, that what it was for has happened, and again."""

            async def say() -> None:
                while not self.may_say.is_set():
                    await asyncio.sleep(0.02)
                for elicitation in ("another", "e-1", "e-1"):
                    await ctx.session.send_elicit_complete(elicitation)

            saying = asyncio.ensure_future(say()) if done else None
            result = await ctx.elicit_url("Please visit", url, "e-1")
            if saying is not None:
                saying.cancel()
            self.answers.append((result.action, getattr(result, "content", None)))
            return result.action

        @server.tool()
        async def required() -> str:
            """Needs two addresses to be visited first."""
            self.calls.append("required")
            if len(self.calls) > 1:
                return "linked and paid"
            asked = [ElicitRequestURLParams(elicitation_id=e, url=u, message=m) for e, u, m in (PAY, LINK)]
            raise UrlElicitationRequiredError(asked)

        return server


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def wb(tmp_path: Path) -> Iterator[Workbench]:
    with Workbench(tmp_path / "executions.sqlite") as workbench:
        yield workbench


def start(wb: Workbench, shop: Shop, prompt: str) -> tuple[Run, LocalPage]:
    run = wb.submit(prompt, server=InProcessServer(name="shop", factory=shop.server, protocol="legacy"))
    return run, LocalPage(run)


def visit(url: str, **more: Any) -> str:
    return "shop:visit " + json.dumps({"url": url} | more)


def answer(page: LocalPage, **actions: str) -> list[dict[str, Any]]:
    round_ = page.view["round"]
    responses = {plan["key"]: {"action": actions[plan["key"].replace("-", "_")]} for plan in round_["requests"]}
    return page.send({"kind": "submit", "round_id": round_["round_id"], "responses": responses})


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_consent_and_nothing_else_is_sent(wb: Workbench, shop: Shop, action: str) -> None:
    run, page = start(wb, shop, visit("https://pay.example.com/deposit?token=s3cr3t"))
    page.wait_for_round()
    accepted, summary = answer(page, elicitation=action)
    assert accepted["kind"] == "accepted"
    assert summary["rounds"][0]["items"] == [{"label": "Please visit", "text": f"{action}: pay.example.com"}]
    assert run.result(timeout=30).outcome is ExecutionOutcome.COMPLETED
    assert shop.answers == [(action, None)]


def test_what_is_no_link_cannot_be_accepted_by_a_message_either(wb: Workbench, shop: Shop) -> None:
    run, page = start(wb, shop, visit("https://0x7f.1/login"))
    page.wait_for_round()
    (invalid,) = answer(page, elicitation="accept")
    assert invalid["kind"] == "invalid"
    assert "only be declined or cancelled" in invalid["errors"][0]["message"]
    assert run.pending_elicitation() is not None
    assert wb.store.outbox.unacknowledged() == ()
    answer(page, elicitation="decline")
    run.result(timeout=30)
    assert shop.answers == [("decline", None)]


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "\tJAVA\nSCRIPT:x", "example.com/login"])
def test_what_is_no_web_address_is_never_put_to_a_person(wb: Workbench, shop: Shop, url: str) -> None:
    run, _ = start(wb, shop, visit(url))
    result = run.result(timeout=30)
    assert result.error is not None
    assert result.error.code == "unsafe_url"
    assert shop.answers == []
    [record] = wb.store.managed_input_store.list_rounds(run.execution_id)
    assert (record.status, record.failure_code) == ("failed", "unsafe_url")


def test_the_server_says_that_it_is_done_and_the_person_still_answers(wb: Workbench, shop: Shop) -> None:
    run, page = start(wb, shop, visit("https://pay.example.com/deposit", done=True))
    page.wait_for_round()
    assert page.view["done"] == []
    shop.may_say.set()
    assert eventually(lambda: page.view["done"]) == ["elicitation"]
    assert run.pending_elicitation() is not None
    answer(page, elicitation="accept")
    assert run.result(timeout=30).outcome is ExecutionOutcome.COMPLETED
    assert shop.answers == [("accept", None)]
    assert eventually(lambda: page.view["state"] == "finished")
    assert page.view["done"] == []


def test_two_addresses_that_an_error_lists_are_decided_each_for_itself(wb: Workbench, shop: Shop) -> None:
    run, page = start(wb, shop, "shop:required")
    round_ = page.wait_for_round()
    assert [(plan["key"], plan["url"]["host"]) for plan in round_["requests"]] == [
        ("pay-7", "shop.example.com"),
        ("link-7", "example.com"),
    ]
    # One of them alone is no answer.
    alone = {"pay-7": {"action": "accept"}}
    (refused,) = page.send({"kind": "submit", "round_id": round_["round_id"], "responses": alone})
    assert refused["kind"] == "refused"
    assert shop.calls == ["required"]
    answer(page, pay_7="accept", link_7="accept")
    assert run.result(timeout=30).outcome is ExecutionOutcome.COMPLETED
    assert shop.calls == ["required", "required"]


def test_one_of_two_declined(wb: Workbench, shop: Shop) -> None:
    run, page = start(wb, shop, "shop:required")
    page.wait_for_round()
    _, summary = answer(page, pay_7="accept", link_7="decline")
    assert summary["rounds"][0]["action"] == "mixed"
    assert [item["text"] for item in summary["rounds"][0]["items"]] == [
        "accept: shop.example.com",
        "decline: example.com",
    ]
    run.result(timeout=30)
    assert shop.calls == ["required"]
    assert eventually(lambda: page.view["state"] == "finished")
