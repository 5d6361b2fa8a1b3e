"""Errors of a results database, each described in one line."""

import logging
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lengthwise.values import without_secrets

LOG_AFTER = 3.0  # seconds of waiting for a lock before a warning is logged
_WAITING = "lengthwise: waiting up to %g s for %s, which another program may have locked"
_LOG = logging.getLogger(__name__)


class StoreError(ValueError):
    """Results cannot be read or written. The message is one line: the problem, the expectation, and what to do."""


class StoreWarning(UserWarning):
    """A row of a database cannot be read and is skipped. The message is one line of ASCII."""


class Unstorable(StoreError):
    """A value cannot be stored, or could not be read back. The database is intact; the caller must correct the value."""


class StoreGone(StoreError):
    """The database's file was deleted or replaced while it was open, so nothing more can be stored in it."""


class ClaimLost(StoreError):
    """A worker tried to write to a run that it does not hold. Nothing was written; it must stop and claim another run."""


@contextmanager
def store_errors(name: str, path: Path | None, timeout: float) -> Iterator[Callable[[], None]]:
    """Convert the database's exceptions in the block to `StoreError`. `name`: the store's name in messages.

    The database waits silently for locks, for up to `timeout` seconds. After 3 s, a warning is logged once. The block must call the
    function that it gets as soon as it has the lock, so that later work does not cause the warning.
    """
    printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    warning = threading.Timer(LOG_AFTER, _LOG.warning, [_WAITING, timeout, printable])
    warning.daemon = True
    if timeout > LOG_AFTER:
        warning.start()
    try:
        yield warning.cancel
    except DBAPIError as error:
        raise StoreError(without_secrets(_explain(error, name, path, timeout))) from error
    except SQLAlchemyError as error:
        raise StoreError(without_secrets(f"{name}: {_first_line(error)}")) from error
    except UnicodeError as error:  # table names that are not text
        raise StoreError(damaged(name, "it has names that are not text")) from error
    finally:
        warning.cancel()


def _explain(error: DBAPIError, name: str, path: Path | None, timeout: float) -> str:
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or getattr(error.orig, "sqlstate", "") == "55P03":
        return (
            f"{name} is locked by another program (waited {timeout:g} s); close that program and run this command again"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return not_a_database(name)
    if code == sqlite3.SQLITE_CORRUPT:
        return damaged(name, _first_line(error))
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _nearly_full(path)):
        return (
            f"{name} could not be written because the disk is full; free some space and run this command again "
            "(stored results are not affected)"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return read_only(name)
    if code == sqlite3.SQLITE_CANTOPEN:
        if path is not None and path.exists() and not os.access(path, os.R_OK):
            return f"{name} is not readable by this user; change its permissions"
        if path is not None and not os.access(path.parent, os.W_OK):
            return read_only(name)
        return f"{name} cannot be opened ({_first_line(error)}); check that its folder exists and is writable"
    if code == sqlite3.SQLITE_IOERR:
        return f"{name} could not be read or written ({_first_line(error)}); check the disk and its free space"
    return f"{name}: {_first_line(error)}"


def _nearly_full(path: Path | None) -> bool:
    """Return whether the disk is nearly full: without space for its log's index, SQLite only says "disk I/O error"."""
    try:
        return path is not None and shutil.disk_usage(path.parent).free < 2**18
    except OSError:
        return False


def damaged(name: str, why: str) -> str:
    return f"{name} is damaged ({why}); restore a copy, or move it away and run the study again"


def read_only(name: str) -> str:
    return (
        f"{name} is read-only (the file or its folder is not writable); change the permissions or give another folder"
    )


def not_a_database(name: str) -> str:
    return f"{name} is not a SQLite database; give the results folder or its .db file, or another name for a new one"


def _first_line(error: SQLAlchemyError) -> str:
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    return re.sub(r'\b(user|role) "[^"]*"', r'\1 "***"', first)  # PostgreSQL repeats this part of the address
