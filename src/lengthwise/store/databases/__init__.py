"""The databases that can hold results: one module each, one line each in the list below."""

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from lengthwise.store.databases.base import Database
from lengthwise.store.databases.postgresql import PostgreSQL
from lengthwise.store.databases.sqlite import SQLite
from lengthwise.store.errors import StoreError
from lengthwise.values import EXAMPLE, is_url, require_no_address

DATABASES: tuple[type[Database], ...] = (
    SQLite,
    PostgreSQL,
)


def open_database(where: str | Path, create: bool, timeout: float) -> Database:
    """Open the database at a URL, or the SQLite database of a folder or file. See `open_store`."""
    database = _connect(where, create, timeout)
    try:
        with database.errors():
            database.check(create)
    except BaseException:
        database.close()
        raise
    return database


def _connect(where: str | Path, create: bool, timeout: float) -> Database:
    """Return the database before its tables are checked."""
    if not is_url(where):
        require_no_address("the results folder", where)  # a URL that was converted to a path
        return SQLite.open_file(Path(where), create, timeout)
    try:
        where.encode()
    except UnicodeEncodeError:  # Python's form of bytes that are no text; not shown, because it may contain a password
        raise StoreError(f"the address of the database is not UTF-8; write it in UTF-8, such as {EXAMPLE}") from None
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):  # such as a port that is not a number
        raise StoreError(f"the address must be a folder or a database URL such as {EXAMPLE}") from None
    kind = next((kind for kind in DATABASES if url.drivername in kind.drivers), None)
    if kind is None:
        raise StoreError(f"{url.drivername}:// is not supported; give a folder, a .db file or a URL such as {EXAMPLE}")
    if "@" in (url.host or ""):
        raise StoreError(f"the address must have a single @; write an @ in a password as %40: {EXAMPLE}")
    return kind.open(url, create, timeout)
