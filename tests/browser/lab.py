"""A JupyterLab of our own and pages on it, driven the way a person does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import psutil
from playwright.sync_api import Browser, Error, Locator, Page

ROOT = Path(__file__).parent.parent.parent
OUTPUT = ROOT / "tests" / "output"
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
KERNEL_READY = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""


class Lab:
    """One JupyterLab server with its own configuration, data and runtime folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "notebooks"
        self.root.mkdir(parents=True)
        dirs = {
            name: str(folder / name.lower())
            for name in (
                "JUPYTER_CONFIG_DIR",
                "JUPYTER_DATA_DIR",
                "JUPYTER_RUNTIME_DIR",
                "JUPYTERLAB_SETTINGS_DIR",
                "JUPYTERLAB_WORKSPACES_DIR",
                "IPYTHONDIR",
            )
        }
        self._settings = Path(dirs["JUPYTERLAB_SETTINGS_DIR"])
        for name, settings in SETTINGS.items():
            self.set(name, settings)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "lab.log"
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--IdentityProvider.token=", "--ServerApp.password=", "--ServerApp.disable_check_xsrf=True"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0"),
            *(f"--ServerApp.root_dir={self.root}", "--LabApp.expose_app_in_browser=True"),
            "--JupyterNotebookApp.expose_app_in_browser=True",
        ]
        _end_leftovers()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=os.environ | dirs, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        _remember(self.process.pid)
        try:
            wait_for_server(self.url, self.process)
        except Exception:
            self.close()
            raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()[-3000:]}") from None

    def set(self, plugin: str, settings: dict[str, Any]) -> None:
        """A person's settings; a page reads them when it is loaded."""
        path = self._settings / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings), encoding="utf-8")

    def close(self) -> None:
        end(self.process.pid)
        self.process.wait()
        (OUTPUT / f"lab-{self.process.pid}.json").unlink(missing_ok=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_server(url: str, process: subprocess.Popen[Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            with urllib.request.urlopen(f"{url}/api/status", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(url)


def end(pid: int) -> None:
    """SIGTERM: the server shuts its kernels down. What is left after that is killed."""
    try:
        server = psutil.Process(pid)
        family = [server, *server.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    server.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(family, timeout=15)
    for process in left:
        process.kill()


def _remember(pid: int) -> None:
    OUTPUT.mkdir(exist_ok=True)
    born = [(each, psutil.Process(each).create_time()) for each in (os.getpid(), pid)]
    (OUTPUT / f"lab-{pid}.json").write_text(json.dumps(born), encoding="utf-8")


def _end_leftovers() -> None:
    """A test run that was killed hard leaves its server behind: end each whose run is gone."""
    for path in OUTPUT.glob("lab-*.json"):
        tests, server = json.loads(path.read_text(encoding="utf-8"))
        if _alive(*tests):
            continue
        if _alive(*server):
            end(server[0])
        path.unlink(missing_ok=True)


def _alive(pid: int, created: float) -> bool:
    try:
        return psutil.Process(pid).create_time() == created
    except psutil.NoSuchProcess:
        return False


class Notebook:
    """One notebook in one page: cells are run by JupyterLab's own commands, as the keyboard shortcuts do.

    ``save_state``: the setting that saves widget state into the notebook (off by default, as in JupyterLab).
    """

    AT = "lab/tree"

    def __init__(
        self,
        browser: Browser,
        lab: Lab,
        cells: list[str],
        *,
        name: str = "test",
        save_state: bool = False,
        **context: Any,
    ) -> None:
        lab.set("@jupyter-widgets/jupyterlab-manager/plugin", {"saveState": save_state})
        self.folder = lab.root / f"{name}-{time.monotonic_ns()}"
        self.folder.mkdir()
        shutil.copy(ROOT / "notebooks" / "shipping_server.py", self.folder)
        self.path = self.folder / "notebook.ipynb"
        kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(
            nbformat.v4.new_notebook(
                cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernelspec}
            ),
            self.path,
        )
        self.url = f"{lab.url}/{self.AT}/{self.path.relative_to(lab.root)}?reset"
        self.context = browser.new_context(**({"viewport": {"width": 1100, "height": 900}} | context))
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.problems: list[str] = []
        self.page.on("pageerror", self.failed)
        self.open()

    def failed(self, error: Error) -> None:
        """The page threw this."""
        self.problems.append(str(error))

    def open(self) -> None:
        self.page.goto(self.url)
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.wait_for_function("() => !!window.jupyterapp")
        # The idle dot alone races with a kernel that is still being asked who it is.
        self.evaluate(KERNEL_READY)
        self.page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', state="attached")

    def reload(self) -> None:
        """Load the page again while the kernel may be busy."""
        self.page.reload()
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.wait_for_function("() => !!window.jupyterapp")

    def evaluate(self, function: str, argument: Any = None, seconds: float = 60) -> Any:
        """`page.evaluate` has no time limit of its own."""
        raced = f"""(argument) => Promise.race([({function})(argument), new Promise((_, fail) =>
            setTimeout(() => fail(new Error("no answer within {seconds} s")), {seconds * 1000}))])"""
        return self.page.evaluate(raced, argument)

    def run(self, index: int) -> None:
        """Run one cell; does not wait for it."""
        self.evaluate(
            """(index) => { const notebook = jupyterapp.shell.currentWidget.content;
            notebook.activeCellIndex = index; jupyterapp.commands.execute('notebook:run-cell'); }""",
            index,
        )

    def run_all(self) -> None:
        self.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells'); }")

    def cell(self, index: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def output(self, index: int, text: str) -> Locator:
        """The cell's output with this text, awaited."""
        found = self.cell(index).locator(".jp-OutputArea-output", has_text=text).first
        found.wait_for()
        return found

    def save(self) -> str:
        """Save by JupyterLab's command; the text of the file."""
        self.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
        return self.path.read_text(encoding="utf-8")

    def restart_kernel(self) -> None:
        """Restart the kernel as the menu does, once the question is answered with yes."""
        self.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")

    def interrupt(self) -> None:
        self.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt(); }")

    def screenshot(self, name: str, target: Locator | None = None) -> Path:
        OUTPUT.mkdir(exist_ok=True)
        path = OUTPUT / f"{name}.png"
        (target or self.page).screenshot(path=path)
        return path

    def close(self) -> None:
        try:
            self.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.shutdown(); }", seconds=20)
        finally:
            self.context.close()
