"""`m3nb.form`: the form of any object with the spec's handle methods, of this package or another, sync or async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import stand_in
from pages import FrontEnd, LocalPage, deliveries, eventually, submit
from runs import classic

import m3nb
from m3nb import AsyncMCPTestKit, MCPTestKit, ModelValidationError, OperationTimeout, SQLiteExecutionStore
from m3nb.notebook import Form, anyform

TESTS = Path(__file__).parent
STREET = {"street": {"text": "1 Main Street"}}
KINDS = pytest.mark.parametrize("kind", [stand_in.Handle, stand_in.AsyncHandle], ids=["sync", "async"])

forms: list[Form] = []


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(anyform, "INTERVAL", 0.02)
    yield
    while forms:
        forms.pop().close()


def form(handle: Any, **options: Any) -> Form:
    forms.append(m3nb.form(handle, **options))
    return forms[-1]


def ask(page: LocalPage, message: dict[str, Any]) -> dict[str, Any]:
    """Send a message; its reply, which comes from another thread."""
    before = len(page.received)
    page.send(message)
    kinds = ("accepted", "invalid", "refused")
    reply: dict[str, Any] = eventually(lambda: [each for each in page.received[before:] if each["kind"] in kinds])[0]
    return reply


def told(handle: Any) -> stand_in.Handle:
    return handle.sync if isinstance(handle, stand_in.AsyncHandle) else handle


@KINDS
def test_a_wrong_answer_then_the_right_one(kind: Any) -> None:
    handle = kind([stand_in.address(), stand_in.link("https://pay.example/x")])
    shown = form(handle)
    page = LocalPage(shown)
    round_ = page.wait_for_round()
    assert (page.view["state"], page.view["server"], page.view["operation"]) == (
        "waiting",
        "shipping asks",
        "book waits",
    )
    assert [field["label"] for field in round_["requests"][0]["fields"]] == ["Street", "Tags"]
    assert round_["requests"][1]["url"]["host"] == "pay.example"

    wrong = ask(page, submit(page.view, "accept", {"street": {"text": "1"}}))
    assert (wrong["kind"], [error["pointer"] for error in wrong["errors"]]) == ("invalid", ["/street"])
    assert told(handle).committed == []

    values = STREET | {"tags": {"choices": [0, 1]}}
    assert ask(page, submit(page.view, "accept", values))["kind"] == "accepted"
    content = {"street": "1 Main Street", "tags": ["fragile", "heavy"]}
    assert told(handle).answers() == [{"where": ("accept", content), "link": ("accept", None)}]
    assert shown.result(timeout=10) == "their result"
    assert eventually(lambda: page.view["state"] == "finished")
    assert page.view["status"] == "Completed"
    assert "theirs-1" in repr(shown)


@KINDS
def test_rounds_one_after_the_other_each_with_a_key_of_its_own(kind: Any) -> None:
    handle = kind([stand_in.address()], [stand_in.link("https://a.example/")])
    page = LocalPage(form(handle))
    first = page.wait_for_round()
    ask(page, submit(page.view, "accept", STREET))
    page.wait_for_round(other_than=first["round_id"])
    ask(page, submit(page.view, "decline"))
    assert told(handle).answers()[1] == {"link": ("decline", None)}
    assert len(set(told(handle).keys)) == 2


@KINDS
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_becomes_words_and_a_retry_has_the_same_key(kind: Any, when: str) -> None:
    """``after``: the answer was committed and the acknowledgement was lost."""
    handle = kind()
    told(handle).rounds.append(told(handle).rounds[0])
    page = LocalPage(form(handle))
    page.wait_for_round()
    told(handle).fail[when] = ConnectionError("the line was cut")
    message = submit(page.view, "accept", STREET)
    refused = ask(page, message)
    assert refused["kind"] == "refused"
    assert "the line was cut" in refused["message"]
    assert "still here" in refused["message"]
    told(handle).fail.clear()
    reply = ask(page, message)
    if when == "before":
        assert reply["kind"] == "accepted"
    else:
        assert "An earlier try may have arrived" in reply["message"]
    assert len(set(told(handle).keys)) == 1
    assert len(told(handle).committed) == 1


@KINDS
def test_after_a_restart_the_stored_answer_goes_out_with_its_first_key(kind: Any, tmp_path: Path) -> None:
    handle = kind()
    path = tmp_path / "answers.sqlite"
    shown = form(handle, store=path)
    page = LocalPage(shown)
    page.wait_for_round()
    told(handle).fail["before"] = ConnectionError("the line was cut")
    ask(page, submit(page.view, "accept", STREET))
    shown.close()
    told(handle).fail.clear()

    store = SQLiteExecutionStore(path)
    (entry,) = store.outbox.unacknowledged("theirs-1")
    again = LocalPage(form(handle, store=store))
    again.send({"kind": "ready"})
    assert eventually(told(handle).answers) == [{"where": ("accept", {"street": "1 Main Street"})}]
    assert told(handle).keys == [entry.idempotency_key] * 2
    assert eventually(lambda: store.outbox.unacknowledged() == ())
    store.close()


@KINDS
def test_a_handle_that_cannot_be_read_for_a_while_loses_nothing(kind: Any) -> None:
    handle = kind()
    page = LocalPage(form(handle))
    round_ = page.wait_for_round()
    told(handle).fail["read"] = OSError("no such host")
    eventually(lambda: "no such host" in (page.view["error"] or ""))
    assert page.view["round"] == round_
    told(handle).fail.clear()
    eventually(lambda: page.view["error"] is None)
    assert ask(page, submit(page.view, "accept", STREET))["kind"] == "accepted"


def test_a_handle_that_stays_unreadable_ends_the_wait_with_its_own_error() -> None:
    handle = stand_in.Handle()
    shown = form(handle)
    LocalPage(shown).wait_for_round()
    handle.fail["read"] = OSError("no such host")

    async def wait() -> Any:
        return await shown

    with pytest.raises(OSError, match="no such host"):
        asyncio.run(wait())


@KINDS
def test_cancel_from_the_page(kind: Any) -> None:
    handle = kind()
    page = LocalPage(form(handle))
    page.wait_for_round()
    page.send({"kind": "cancel_run"})
    eventually(lambda: page.view["state"] == "finished")
    assert told(handle).cancelled


def test_an_async_handle_runs_on_the_loop_of_the_cell() -> None:
    async def cell() -> str:
        handle = stand_in.AsyncHandle()
        assert await handle.pending_elicitation() is not None
        shown = form(handle)
        with pytest.raises(ModelValidationError, match="await form"):
            shown.result()
        page = LocalPage(shown)

        def person() -> None:
            page.wait_for_round()
            # As a kernel without subshells does: the message is handled on the loop's own thread.
            loop.call_soon_threadsafe(page.send, submit(page.view, "accept", STREET))

        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=person)
        thread.start()
        result: str = await shown
        thread.join()
        assert handle.sync.answers() == [{"where": ("accept", {"street": "1 Main Street"})}]
        return result

    assert asyncio.run(cell()) == "their result"


def test_a_given_loop_is_used_and_its_end_is_told() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    handle = stand_in.AsyncHandle()
    page = LocalPage(form(handle, loop=loop))
    page.wait_for_round()
    assert handle.loop is loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    eventually(lambda: "closed" in (page.view["error"] or ""))
    assert page.view["round"] is not None


def test_a_wait_that_is_too_short() -> None:
    shown = form(stand_in.Handle())
    with pytest.raises(OperationTimeout):
        shown.result(timeout=0.2)


@dataclass
class Plain:
    """No class of any package: what the spec names and nothing else."""

    done: Any = None

    def pending_elicitation(self) -> Any:
        if self.done:
            return None
        request = {"request_key": "ok", "mode": "form", "message": "Go on?", "requested_schema": {"type": "object"}}
        return {
            "round_id": "r",
            "execution_id": "e",
            "logical_operation_id": "o",
            "server": "s",
            "operation_kind": "prompt",
            "operation_name": "p",
            "requests": {"ok": request},
            "created_at": datetime.now(UTC),
        }

    def respond_elicitation(self, round_id: str, responses: Any, *, idempotency_key: str) -> None:
        self.done = responses

    def snapshot(self) -> Any:
        return {"lifecycle": "finished" if self.done else "waiting_for_input", "outcome": "something else"}

    def result(self, timeout: float | None = None) -> Any:
        raise RuntimeError("it ended badly")

    def cancel(self) -> None:
        raise AssertionError


def test_plain_values_get_responses_of_ours_and_a_result_that_raises_is_how_it_ended() -> None:
    handle = Plain()
    page = LocalPage(form(handle))
    page.wait_for_round()
    ask(page, submit(page.view, "accept"))
    assert handle.done == {"ok": m3nb.ElicitationResponse(action="accept", content={})}
    eventually(lambda: page.view["state"] == "finished")
    assert page.view["status"] == "Finished"
    assert "it ended badly" in page.view["error"]


@KINDS
@pytest.mark.parametrize("method", ["pending_elicitation", "snapshot", "respond_elicitation", "cancel"])
def test_a_method_that_exits_is_words_and_the_form_goes_on(
    kind: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = kind([stand_in.address()])
    page = LocalPage(form(handle))
    page.wait_for_round()

    def leave(*_: Any, **__: Any) -> None:
        raise SystemExit(3)

    async def leave_later(*_: Any, **__: Any) -> None:
        leave()

    with monkeypatch.context() as patch:
        patch.setattr(handle, method, leave if kind is stand_in.Handle else leave_later)
        if method in ("pending_elicitation", "snapshot"):
            eventually(lambda: "sys.exit(3)" in (page.view["error"] or ""))
        else:
            asked = {"kind": "cancel_run"} if method == "cancel" else submit(page.view, "accept", STREET)
            reply = ask(page, asked)
            assert (reply["kind"], "sys.exit(3)" in reply["message"]) == ("refused", True)
    eventually(lambda: page.view["error"] is None)
    assert ask(page, submit(page.view, "accept", STREET))["kind"] == "accepted"


def test_what_is_no_handle_is_named() -> None:
    with pytest.raises(ModelValidationError, match="str is no execution handle: it has no pending_elicitation"):
        m3nb.form("run-1")


def test_a_handle_of_a_kit_has_its_own_store(tmp_path: Path) -> None:
    store = SQLiteExecutionStore(tmp_path / "executions.sqlite")
    with MCPTestKit(store=store) as kit:
        agent = kit.agents([{"harness": "scripted"}])[0]
        handle = agent.submit("classic:book", server=classic(tmp_path / "log"), human_input="managed")
        shown = form(handle)
        page = LocalPage(shown)
        page.wait_for_round()
        ask(page, submit(page.view, "accept", STREET | {"city": {"text": "Pune"}}))
        assert shown.result(timeout=30).final_text == "booked to Pune"
        assert eventually(lambda: [each for each in page.received if each["kind"] == "summary"])[-1]["rounds"]
        assert store.outbox.unacknowledged() == ()
        (record,) = store.managed_input_store.list_rounds(handle.execution_id)
        assert record.response_idempotency_key.startswith("answer-")
    assert len(deliveries(tmp_path / "log")) == 1
    store.close()


def test_an_async_handle_of_a_kit(tmp_path: Path) -> None:
    store = SQLiteExecutionStore(tmp_path / "executions.sqlite")

    async def cell() -> str:
        async with AsyncMCPTestKit(store=store) as kit:
            agent = kit.agents([{"harness": "scripted"}])[0]
            handle = agent.submit("classic:book", server=classic(tmp_path / "log"), human_input="managed")
            shown = form(handle)
            page = LocalPage(shown)
            await asyncio.to_thread(page.wait_for_round)
            page.send(submit(page.view, "accept", STREET | {"city": {"text": "Pune"}}))
            return (await shown).final_text

    assert asyncio.run(cell()) == "booked to Pune"
    assert len(deliveries(tmp_path / "log")) == 1
    store.close()


SHOW = f"import sys; sys.path.append({str(TESTS)!r})\nimport m3nb, stand_in\n"


@pytest.mark.parametrize("subshells", [True, False], ids=["subshells", "one shell"])
@KINDS
def test_in_a_kernel(kind: Any, subshells: bool, tmp_path: Path) -> None:
    """Shown in one cell and awaited in the next; an awaited handle answers on the very loop the cell waits on."""
    cells = [
        f"{SHOW}handle = stand_in.{kind.__name__}()\nform = m3nb.form(handle)\nform",
        "print(await form, getattr(handle, 'sync', handle).answers())",
    ]
    front_end = FrontEnd(cells, tmp_path, answers=[{"street": {"text": "1"}}, STREET], subshells=subshells)
    front_end.execute()
    assert front_end.texts()[1] == "their result [{'where': ('accept', {'street': '1 Main Street'})}]\n"


def test_in_one_cell_of_a_kernel_that_blocks(tmp_path: Path) -> None:
    cells = [f"{SHOW}print(m3nb.form(stand_in.Handle(), store='answers.sqlite').result())"]
    front_end = FrontEnd(cells, tmp_path, answers=[STREET], subshells=True)
    front_end.execute()
    assert front_end.texts() == ["their result\n"]
