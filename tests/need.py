"""What a test needs from the machine, said in words."""

from __future__ import annotations

import os

import pytest


def in_ci() -> bool:
    """Whether ``CI=true``: there, a skipped test is a failure."""
    return os.environ.get("CI") == "true"


def need(condition: object, reason: str, command: str) -> None:
    """Skip the test unless ``condition`` holds (in CI: fail); ``command`` is what brings the missing thing."""
    if condition:
        return
    text = f"{reason}; to have it: {command}"
    if in_ci():
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
