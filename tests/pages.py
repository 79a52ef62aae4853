"""Stand-ins for a page: one in this process, one that drives a real kernel as a front end does, without a browser."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty
from typing import Any

import nbclient
import nbformat

from m3nb import Run

VIEW = "application/vnd.jupyter.widget-view+json"
ADDRESS = {"street": {"text": "1 Main Street"}, "city": {"text": "Pune"}}


def accept(view: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The submit message that answers every request of the view's round with ``values``."""
    return submit(view, "accept", values)


def submit(view: Mapping[str, Any], action: str, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    round_ = view["round"]
    responses = {plan["key"]: {"action": action, "values": dict(values or {})} for plan in round_["requests"]}
    return {"kind": "submit", "round_id": round_["round_id"], "responses": responses}


def deliveries(log: Path) -> list[dict[str, Any]]:
    """What really reached the server, from its own log."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def eventually(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true value of ``condition``."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


class LocalPage:
    """A page in this process: talks to a run's widget by the messages a browser would send."""

    def __init__(self, run: Run) -> None:
        self.widget = run.widget
        self.received: list[dict[str, Any]] = []
        self.widget.send = lambda content, buffers=None: self.received.append(content)
        self.count = 0

    @property
    def view(self) -> dict[str, Any]:
        return dict(self.widget.view)

    def wait_for_round(self, other_than: str | None = None) -> dict[str, Any]:
        def asked() -> Any:
            round_ = self.view["round"]
            return round_ is not None and round_["round_id"] != other_than and round_

        found: dict[str, Any] = eventually(asked)
        return found

    def send(self, message: Mapping[str, Any], *, times: int = 1) -> list[dict[str, Any]]:
        """Send a message, again with the same id when ``times`` says so; what came back, without acknowledgements."""
        self.count += 1
        before = len(self.received)
        for _ in range(times):
            self.widget._handle_custom_msg({"id": f"message-{self.count}", **message}, [])
        return [reply for reply in self.received[before:] if reply["kind"] != "ack"]


def _looking_again(get_msg: Callable[..., Any]) -> Callable[..., Any]:
    """Sending on the same socket may swallow the signal that a reply has come: it is looked for again and again."""

    async def get(timeout: float | None = None) -> Any:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return await get_msg(timeout=0.5)
            except Empty:
                if end is not None and time.monotonic() > end:
                    raise

    return get


class FrontEnd(nbclient.NotebookClient):
    """Runs a notebook and answers its forms over the kernel's channels, as JupyterLab (``subshells``) or nbclassic do.

    ``answers`` are the values to submit, one after the other: the next when a form appears or an answer was invalid.
    Each message is repeated every 250 ms until it is acknowledged, as the page's module does.
    """

    def __init__(self, cells: list[str], folder: Path, *, answers: list[Any], subshells: bool, repeat: int = 1) -> None:
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        )
        super().__init__(notebook, timeout=60, resources={"metadata": {"path": str(folder)}}, allow_errors=True)
        self.answers = answers
        self.subshells = subshells
        self.subshell: str | None = None
        self.repeat = repeat
        self.received: list[dict[str, Any]] = []
        self.asked: set[str] = set()
        self.unacknowledged: dict[str, asyncio.TimerHandle] = {}
        self.views: dict[str, Any] = {}
        self.count = 0

    async def async_start_new_kernel_client(self, **kwargs: Any) -> Any:
        client = await super().async_start_new_kernel_client(**kwargs)
        if self.subshells:
            client.control_channel.send(client.session.msg("create_subshell_request"))
            reply = await client.control_channel.get_msg(timeout=20)
            self.subshell = reply["content"]["subshell_id"]
        get_msg = client.iopub_channel.get_msg

        async def overhear(*args: Any, **options: Any) -> Any:
            # nbclient itself looks only at what the running cell caused; a page hears everything.
            message = await get_msg(*args, **options)
            self.overhear(message["msg_type"], message["content"])
            return message

        client.iopub_channel.get_msg = overhear
        client.shell_channel.get_msg = _looking_again(client.shell_channel.get_msg)
        return client

    def overhear(self, kind: str, content: Any) -> None:
        if kind == "comm_open":
            self.see(content["comm_id"], content["data"].get("state", {}))
        elif kind == "comm_msg" and content["data"].get("method") == "update":
            self.see(content["comm_id"], content["data"]["state"])
        elif kind == "comm_msg" and content["data"].get("method") == "custom":
            self.hear(content["comm_id"], content["data"]["content"])
        elif kind in ("display_data", "execute_result") and VIEW in content["data"]:
            self.deliver(content["data"][VIEW]["model_id"], {"kind": "ready"})

    def see(self, model: str, state: Mapping[str, Any]) -> None:
        view = state.get("view")
        if view is None:
            return
        self.views[model] = view
        if view["round"] and view["round"]["round_id"] not in self.asked:
            self.asked.add(view["round"]["round_id"])
            self.answer(model)

    def hear(self, model: str, content: dict[str, Any]) -> None:
        self.received.append(content)
        if content["kind"] == "ack" and content["id"] in self.unacknowledged:
            self.unacknowledged.pop(content["id"]).cancel()
        if content["kind"] == "invalid":
            self.answer(model)

    def answer(self, model: str) -> None:
        if self.answers:
            self.deliver(model, accept(self.views[model], self.answers.pop(0)))

    def deliver(self, model: str, message: Mapping[str, Any]) -> None:
        self.count += 1
        message = {"id": f"message-{self.count}", **message}

        def send() -> None:
            if self.kc is None:  # the kernel has ended
                return
            for _ in range(self.repeat):
                self.send(model, message)
            self.unacknowledged[message["id"]] = asyncio.get_running_loop().call_later(0.25, send)

        send()

    def send(self, model: str, content: Mapping[str, Any]) -> None:
        message = self.kc.session.msg("comm_msg", {"comm_id": model, "data": {"method": "custom", "content": content}})
        if self.subshell:
            message["header"]["subshell_id"] = self.subshell
        self.kc.shell_channel.send(message)

    def texts(self) -> list[str]:
        """What each cell printed, or its error by name and message."""
        return [
            "".join(
                output.text if output.output_type == "stream" else f"{output.ename}: {output.evalue}"
                for output in cell.outputs
                if output.output_type in ("stream", "error")
            )
            for cell in self.nb.cells
        ]
