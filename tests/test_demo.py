"""The command line: the demo headless and in JupyterLab, and what it says when something is missing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from browser.lab import free_port, wait_for_server

import m3nb

ROOT = Path(__file__).parent.parent
COMMAND = (sys.executable, "-m", "m3nb")


def environment(folder: Path) -> dict[str, str]:
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    return os.environ | {name: str(folder / name.lower()) for name in names}


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=environment(cwd), capture_output=True, text=True, timeout=120, check=False
    )


def test_version(tmp_path: Path) -> None:
    assert run(*COMMAND, "--version", cwd=tmp_path).stdout == f"m3nb {m3nb.__version__}\n"


def test_execute_runs_the_quickstart_with_a_second_process(tmp_path: Path) -> None:
    done = run(*COMMAND, "demo", "--execute", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A second process answered round" in done.stdout
    assert "to Pune, standard" in done.stdout
    assert "resolved" in done.stdout
    assert not (tmp_path / "m3nb-demo").exists()


def test_execute_in_a_folder_leaves_its_database_there(tmp_path: Path) -> None:
    done = run(*COMMAND, "demo", "--execute", "--folder", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert m3nb.rounds(tmp_path / "here" / "executions.sqlite")["status"].tolist() == ["resolved"]


def test_a_failing_cell_is_an_exit_code_and_words(tmp_path: Path) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(ROOT / "notebooks", folder)
    path = folder / "quickstart.ipynb"
    path.write_text(path.read_text().replace("import m3nb", "import no_such_thing"))
    done = run(*COMMAND, "demo", "--execute", "--folder", str(folder), cwd=tmp_path)
    assert done.returncode == 1
    assert "no_such_thing" in done.stderr
    assert "was changed and is kept" in done.stdout
    assert "no_such_thing" in path.read_text()


def test_the_demo_opens_jupyterlab_on_the_quickstart(tmp_path: Path) -> None:
    port = free_port()
    options = ("--no-browser", f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=")
    with (tmp_path / "log").open("wb") as log:
        lab = subprocess.Popen(
            (*COMMAND, "demo", "--", *options),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for_server(url, lab)
        with urllib.request.urlopen(f"{url}/api/contents/", timeout=10) as answer:
            names = {entry["name"] for entry in json.load(answer)["content"]}
        assert names == {"quickstart.ipynb", "shipping_server.py"}
        with urllib.request.urlopen(url, timeout=10) as page:
            assert page.url.endswith("/lab/tree/quickstart.ipynb")
        assert "opens on m3nb-demo" in (tmp_path / "log").read_text()
    finally:
        lab.send_signal(signal.SIGTERM)
        lab.wait(timeout=30)


def test_without_jupyterlab_the_demo_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['jupyterlab'] = None; from m3nb.__main__ import main; sys.exit(main(['demo']))"
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("m3nb: the demo needs jupyterlab: pip install 'm3nb[lab]'")
    assert "Traceback" not in done.stderr
