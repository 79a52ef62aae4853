"""The quickstart, ready to run: in JupyterLab, or headless with an answer from a second process.

``python -m m3nb.notebook.demo DATABASE`` is that second process: it waits for a round and answers it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from m3nb.errors import OperationTimeout, StorageError, UnsupportedFeature

FILES = ("quickstart.ipynb", "shipping_server.py")
DATABASE = "executions.sqlite"
ANSWER = {"street": "1 Main Street", "city": "Pune"}
ANSWER_SECONDS = 120.0


def open_lab(folder: Path, options: list[str]) -> int:
    """Become a JupyterLab on the quickstart in ``folder``; ``options`` are passed on to it."""
    _require("jupyterlab", "ipykernel")
    _copy(folder)
    command = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--ServerApp.root_dir={folder.resolve()}"]
    command.append(f"--LabApp.default_url=/lab/tree/{FILES[0]}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    print(f"JupyterLab opens on {folder / FILES[0]}. Run its cells; stop it here with Ctrl-C, twice.", flush=True)
    os.execv(sys.executable, command + options)  # noqa: S606 - so that signals and the exit code are JupyterLab's


def execute(folder: Path | None) -> int:
    """Run the quickstart headless, let a second process answer, and print what its cells show."""
    _require("nbclient", "nbformat", "ipykernel")
    if folder is not None:
        return _execute(folder)
    with tempfile.TemporaryDirectory(prefix="m3nb-demo-") as temporary:
        return _execute(Path(temporary))


def answer(database: Path, *, seconds: float = ANSWER_SECONDS) -> str:
    """Wait for a round in ``database`` and answer it through the store, as any process may. Returns the round's id.

    Raises `OperationTimeout` when none appears within ``seconds``.
    """
    # The validator takes a second to load: before the round is there, while the cell does not wait yet.
    import m3nb.validity.keywords  # noqa: F401
    from m3nb.elicitation import ElicitationResponse
    from m3nb.storage import SQLiteExecutionStore

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if database.exists():
            store = SQLiteExecutionStore(database)
            try:
                for record in store.unresolved_rounds():
                    if record.status == "pending":
                        responses = {
                            key: ElicitationResponse(action="accept", content=ANSWER) for key in record.pending.requests
                        }
                        entry = store.outbox.prepare(record.execution_id, record.round_id, responses)
                        store.managed_input_store.submit_responses(
                            record.execution_id,
                            record.round_id,
                            responses,
                            owner_id=record.owner_id,
                            lease_token=record.lease_token,
                            response_idempotency_key=entry.idempotency_key,
                        )
                        store.outbox.acknowledge(entry.idempotency_key)
                        return record.round_id
            finally:
                store.close()
        time.sleep(0.1)
    raise OperationTimeout(f"no round appeared in {database} within {seconds:g} seconds")


def _execute(folder: Path) -> int:
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    _copy(folder)
    notebook = nbformat.read(folder / FILES[0], as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook,
        timeout=180,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--IPKernelApp.log_level=ERROR"],  # it warns that loopback is not encrypted
    )
    second = subprocess.Popen([sys.executable, "-m", "m3nb.notebook.demo", str(folder / DATABASE)])
    try:
        client.execute()
        second.wait(timeout=10)
    except CellExecutionError as error:
        print(f"The quickstart stopped with {error.ename}: {error.evalue}", file=sys.stderr)
        return 1
    finally:
        second.kill()
        second.wait()
    _report(folder / DATABASE)
    return 0


def _report(database: Path) -> None:
    from m3nb.frames import rounds
    from m3nb.storage import SQLiteExecutionStore

    store = SQLiteExecutionStore(database)
    try:
        *_, execution = store.list_executions()
        print(f"result: {execution.outcome}: {(execution.result or {}).get('final_text')}\n")
        print("wb.rounds(), its last row:")
        print(rounds(store).tail(1).T.to_string(header=False))
    finally:
        store.close()


def _copy(folder: Path) -> None:
    source = _source()
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        target = folder / name
        if not target.exists():
            shutil.copyfile(source / name, target)
        elif target.read_bytes() != (source / name).read_bytes():
            print(f"{target} was changed and is kept as it is. Delete it to get a fresh one.", flush=True)


def _source() -> Path:
    """The notebooks: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_notebooks", package.parent / "notebooks"):
        if (folder / FILES[0]).exists():
            return folder
    raise StorageError(f"the quickstart is missing beside {package}: install m3nb again")


def _require(*modules: str) -> None:
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise UnsupportedFeature(
            f"the demo needs {' and '.join(missing)}: pip install 'm3nb[lab]' (in a checkout: pip install '.[lab]')",
            details={"missing": missing, "extra": "lab"},
        )


if __name__ == "__main__":
    print(f"A second process answered round {answer(Path(sys.argv[1]))}.\n", flush=True)
