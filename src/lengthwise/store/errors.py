"""What can be wrong with a results database, in one plain line each."""

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

PATIENCE = 3.0  # seconds in which nobody wonders what is going on
_WAITING = "lengthwise: waiting for %s, which another program may have locked (for up to %g s)"
_LOG = logging.getLogger(__name__)


class StoreError(ValueError):
    """Results that cannot be read or written. One line: what it got, why that cannot be, and what to do."""


class StoreWarning(UserWarning):
    """A row of a database that cannot be read and is left out. One line, in ASCII."""


class Unstorable(StoreError):
    """A value that cannot be stored, or could not be read back. The database is well; who made the value has to mend it."""


class StoreGone(StoreError):
    """The database's file was deleted or replaced while it was open: nothing that is written can be found again."""


class ClaimLost(StoreError):
    """A write by a worker that does not hold the run (any more). Nothing was written: drop the run, claim another."""


@contextmanager
def plain_words(name: str, path: Path | None, timeout: float) -> Iterator[Callable[[], None]]:
    """Turn what the database raises inside the block into a `StoreError`. `name` is the store as people know it.

    What takes long is logged, once: the database waits for others' locks without a word, for up to `timeout` seconds.
    Call what the block is given once the lock is there: what takes long from then on is work.
    """
    place = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    said = threading.Timer(PATIENCE, _LOG.warning, [_WAITING, place, timeout])
    said.daemon = True
    if timeout > PATIENCE:
        said.start()
    try:
        yield said.cancel
    except DBAPIError as error:
        raise StoreError(without_secrets(_explain(error, name, path, timeout))) from error
    except SQLAlchemyError as error:
        raise StoreError(without_secrets(f"{name}: {_first_line(error)}")) from error
    except UnicodeError as error:  # names of tables that are no text
        raise StoreError(damaged(name, "it has names that are no text")) from error
    finally:
        said.cancel()


def _explain(error: DBAPIError, name: str, path: Path | None, timeout: float) -> str:
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or getattr(error.orig, "sqlstate", "") == "55P03":
        return (
            f"{name} is locked by another program (waited {timeout:g} s); end or close that program and run this again"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return not_a_database(name)
    if code == sqlite3.SQLITE_CORRUPT:
        return damaged(name, _first_line(error))
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _nearly_full(path)):
        return (
            f"{name} could not be written, the disk is full; free some space and run this again (what was stored stays)"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return read_only(name)
    if code == sqlite3.SQLITE_CANTOPEN:
        if path is not None and path.exists() and not os.access(path, os.R_OK):
            return f"{name} may not be read by this user; change its permissions"
        if path is not None and not os.access(path.parent, os.W_OK):
            return read_only(name)
        return f"{name} cannot be opened ({_first_line(error)}); check that its folder exists and may be written"
    if code == sqlite3.SQLITE_IOERR:
        return f"{name} could not be read or written ({_first_line(error)}); check the disk and its free space"
    return f"{name}: {_first_line(error)}"


def _nearly_full(path: Path | None) -> bool:
    """SQLite has no better word than "disk I/O error" when there is no space for the index of its log."""
    try:
        return path is not None and shutil.disk_usage(path.parent).free < 2**18
    except OSError:
        return False


def damaged(name: str, why: str) -> str:
    return f"{name} is damaged ({why}); restore a copy, or move it away and run the study again"


def read_only(name: str) -> str:
    return f"{name} is read-only (it or its folder may not be written); change the permissions or give another folder"


def not_a_database(name: str) -> str:
    return f"{name} is not a SQLite database; give the results folder or its .db file, or another name for a new one"


def _first_line(error: SQLAlchemyError) -> str:
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    return re.sub(r'\b(user|role) "[^"]*"', r'\1 "***"', first)  # part of an address, as PostgreSQL repeats it
