"""Histories as DataFrames: what ran, what was asked, what was answered, how long it took.

Five tables, each from one query: `executions`, `rounds` (questions that a person was asked), `requests` (what each
round asks), `answers` (one row per field) and `events` (everything, in the order of time). Columns and dtypes are
always the same, also for an empty store; those that a person reads come first, long ids last. Nothing is inferred: ids
and answers stay text, whole numbers are ``Int64``, times are ``datetime64[us, UTC]``, durations ``timedelta64[us]``,
statuses are ordered categories; what is missing is ``<NA>`` or ``NaT``. Reading changes nothing.
"""

from m3nb.frames.questions import answers, requests, rounds
from m3nb.frames.runs import events, executions
from m3nb.frames.table import Source

__all__ = ["Source", "answers", "events", "executions", "requests", "rounds"]
