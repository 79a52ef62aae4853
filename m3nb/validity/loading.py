"""jsonschema without the seconds that a grammar takes.

Where ``rfc3987_syntax`` is installed (JupyterLab brings it), jsonschema imports it, and it builds the grammar of IRIs
when it is imported: seconds with the interpreter's lock held, in every kernel, for formats that we do not even ask it
about. Here it is built when jsonschema first needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType

GRAMMAR = "rfc3987_syntax"


@contextmanager
def grammar_later() -> Iterator[None]:
    """Import jsonschema inside: for everybody in the process its checks of IRIs are the same, only later."""
    if GRAMMAR in sys.modules or "jsonschema" in sys.modules or not _installed():
        yield
        return
    stand_in = ModuleType(GRAMMAR)
    stand_in.is_valid_syntax = _is_valid_syntax  # type: ignore[attr-defined]
    sys.modules[GRAMMAR] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(GRAMMAR) is stand_in:
            del sys.modules[GRAMMAR]


def _installed() -> bool:
    try:
        return find_spec(GRAMMAR) is not None
    except (ImportError, ValueError):  # somebody's import hook keeps it away
        return False


def _is_valid_syntax(rule: str, text: str) -> bool:
    from rfc3987_syntax import is_valid_syntax  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return bool(is_valid_syntax(rule, text))
