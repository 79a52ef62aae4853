"""Rows to a DataFrame whose columns are known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from m3nb.storage import InMemoryExecutionStore, SQLiteExecutionStore

if TYPE_CHECKING:
    import pandas as pd

Source = SQLiteExecutionStore | InMemoryExecutionStore | str | PathLike[str]
"""A store, or the path of its database file. An in-memory store has executions and events, never rounds."""

TIME, DURATION = "datetime64[us, UTC]", "timedelta64[us]"

Columns = Mapping[str, str | tuple[str, ...]]
"""Names and dtypes, in order. A tuple is an ordered category of these values."""


def frame(columns: Columns, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The table of rows; what a row lacks is missing. Times and durations come in microseconds."""
    import pandas as pd

    return pd.DataFrame({name: _column([row.get(name) for row in rows], dtype) for name, dtype in columns.items()})


def text(value: Any) -> str | None:
    """A value for a column of text. Payloads and labels may hold any JSON; what is no text is missing."""
    return value if isinstance(value, str) else None


def joined(values: Any) -> str | None:
    """The texts of a list, joined by ", "; ``None`` for anything else."""
    return ", ".join(str(value) for value in values) if isinstance(values, list | tuple) else None


def _column(values: list[Any], dtype: Any) -> Any:
    import numpy as np
    import pandas as pd

    if isinstance(dtype, tuple):
        return pd.Categorical(values, categories=list(dtype), ordered=True)
    if dtype in (TIME, DURATION):
        missing = np.iinfo(np.int64).min  # NaT
        whole = np.array([missing if value is None else value for value in values], dtype=np.int64)
        if dtype == DURATION:
            return pd.Series(whole.view("m8[us]"))
        return pd.Series(whole.view("M8[us]")).dt.tz_localize("UTC")
    return pd.array(values, dtype=dtype)
