"""Everything durable, in one SQLite file; the only room that says SQL."""

from m3nb.storage.executions import InMemoryExecutionStore, SQLiteExecutionStore
from m3nb.storage.managed import SQLiteManagedInputStore
from m3nb.storage.protocols import ExecutionStore, ManagedInputStore
from m3nb.storage.reading import read_rows
from m3nb.storage.records import (
    EventRecord,
    ExecutionRecord,
    ManagedInputLease,
    ManagedInputRecord,
    ManagedInputStatus,
    NewEvent,
    OutboxEntry,
    WorkerRecord,
)

__all__ = [
    "EventRecord",
    "ExecutionRecord",
    "ExecutionStore",
    "InMemoryExecutionStore",
    "ManagedInputLease",
    "ManagedInputRecord",
    "ManagedInputStatus",
    "ManagedInputStore",
    "NewEvent",
    "OutboxEntry",
    "SQLiteExecutionStore",
    "SQLiteManagedInputStore",
    "WorkerRecord",
    "read_rows",
]
