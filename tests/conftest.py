"""What tests share: in CI a skipped test is a failure; a store in a file, and a kit on it."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `need` and the servers' helpers, from any folder of tests

from need import in_ci

from m3nb import MCPTestKit, SQLiteExecutionStore

OPTIONAL = "optional_in_ci"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{OPTIONAL}(reason): may be skipped in CI: it needs a thing that .ci/run can't bring"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files are shared out whole, and all browser tests together, which come first: they take the longest."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "browser" if nodeid.startswith("tests/browser/") else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return Files(config, log)


def _fail_if_skipped(report: Any) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, which counts as a failure: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if in_ci() and item.get_closest_marker(OPTIONAL) is None:
        _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if in_ci():
        _fail_if_skipped(report)
    return report


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteExecutionStore]:
    store = SQLiteExecutionStore(tmp_path / "runs.sqlite")
    yield store
    store.close()


@pytest.fixture
def kit(store: SQLiteExecutionStore) -> Iterator[MCPTestKit]:
    with MCPTestKit(store=store, env={}) as kit:
        yield kit
