"""One JupyterLab and one Chromium for all browser tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from need import need
from playwright.sync_api import Browser, sync_playwright

from browser.lab import CHROMIUM_FLAGS, Lab, Notebook


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    server = Lab(tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    need(chromium, "Chromium is not installed", "apt-get install chromium")
    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield chrome
        chrome.close()


@pytest.fixture
def notebook(lab: Lab, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Notebook]]:
    """Opens notebooks; after the test their kernels are shut down and the pages must have had no error."""
    opened: list[Notebook] = []

    def open_notebook(cells: list[str], **context: Any) -> Notebook:
        opened.append(Notebook(browser, lab, cells, name=request.node.name.split("[")[0], **context))
        return opened[-1]

    yield open_notebook
    problems = [problem for page in opened for problem in page.problems]
    for page in opened:
        page.close()
    assert problems == []
