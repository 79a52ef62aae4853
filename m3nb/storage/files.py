"""The database file, seen from outside.

Nothing but SQLite ever opens an existing database file: closing any descriptor of it drops the POSIX locks of the whole
process, and another process's close could then delete a WAL with committed data. So an existing file is only looked at
with ``lstat``, and its mode is changed by name.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

from m3nb.errors import MCPError, StorageError

Refusal = type[MCPError]
"""The class of the error that refuses a path: each store has its own (engine-facts section 6)."""

Identity = tuple[int, int]
"""Device and inode: which file a path means at the moment."""

SIDE_FILES = ("-wal", "-shm", "-journal")

_PRIVATE = 0o600

creating = threading.Lock()
"""Held while a new file is created and its descriptor closed, so that no thread of this process sees a file whose
descriptor is about to be closed."""


def database_path(database: Any, refuse: Refusal) -> Path:
    """The absolute path that ``database`` (text or path) names; a ``sqlite:///`` prefix is stripped."""
    if not isinstance(database, str | os.PathLike):
        raise refuse(f"database must be a path or a text, not {type(database).__name__}: give the path of a file")
    text = os.fspath(database)
    if not isinstance(text, str):
        raise refuse("database must be a text path, not bytes: decode it with os.fsdecode")
    text = text.removeprefix("sqlite:///")
    if not text or text == ":memory:":
        raise refuse(
            f"database {text!r} names no file: give the path of a file, or use InMemoryExecutionStore() for a store "
            "that lasts as long as the process"
        )
    if "\0" in text:
        raise refuse(f"database path {text!r} contains a NUL character")
    return Path(os.path.abspath(text))


def identify(path: Path, refuse: Refusal) -> Identity | None:
    """What the path means now, ``None`` if nothing is there. Raises for anything but a regular file."""
    with creating:
        found = _lstat(path, refuse)
    if found is None:
        return None
    if stat.S_ISREG(found.st_mode):
        return (found.st_dev, found.st_ino)
    raise refuse(f"{path} is {_kind(found.st_mode)}, not a database file: give the path of a regular file")


def check_side_files(path: Path, refuse: Refusal) -> None:
    """Refuse a database whose ``-wal``, ``-shm`` or ``-journal`` would lead somewhere else."""
    for suffix in SIDE_FILES:
        side = path.with_name(path.name + suffix)
        found = _lstat(side, refuse)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise refuse(f"{side} is {_kind(found.st_mode)}: remove it, SQLite keeps data of {path.name} there")


def has_wal(path: Path, refuse: Refusal) -> bool:
    """Whether a ``-wal`` file lies beside the database."""
    return _lstat(path.with_name(path.name + "-wal"), refuse) is not None


def create(path: Path) -> None:
    """Create an empty file that only its owner may read, and missing folders above it (these keep the umask).

    Does nothing if the file exists by now.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with creating:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0), _PRIVATE))
    except FileExistsError:
        return
    except OSError as error:
        raise StorageError(
            f"{path} can't be created: {error.strerror}. Choose a folder you may write to",
            details={"path": str(path)},
        ) from error


def make_private(path: Path) -> None:
    """Take the rights of others on the database and its side files away; they hold answers and tokens."""
    if sys.platform == "win32":
        return
    for name in (path, *(path.with_name(path.name + suffix) for suffix in SIDE_FILES)):
        try:
            found = os.lstat(name)
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
                os.chmod(name, _PRIVATE)
        except OSError:
            # Gone since, or on a file system without modes: SQLite will say what it can't do.
            continue


def uri(path: Path, **parameters: str) -> str:
    """The SQLite URI of a path, whatever characters it has."""
    text = "&".join(f"{key}={value}" for key, value in parameters.items())
    return f"file:{quote_from_bytes(os.fsencode(path))}?{text}"


def _lstat(path: Path, refuse: Refusal) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refuse(f"{path} can't be used as a database: {error.strerror}", details={"path": str(path)}) from error


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"))
    return next((name for test, name in kinds if test(mode)), "a special file")
