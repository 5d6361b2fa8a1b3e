"""SQLite: one file that several processes on one machine can share.

Writers take the file's lock when their transaction begins, and readers use the write-ahead log. Where SQLite cannot
create the files of a log, and there is none, the file is read alone.
"""

import os
import sqlite3
import time
from pathlib import Path
from typing import Self
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from lengthwise.store import schema
from lengthwise.store.databases.base import Database
from lengthwise.store.errors import StoreError, StoreGone, first_line, locked, read_only
from lengthwise.store.file_systems import require_local

FILE_NAME = "results.db"
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_SMALLEST = 512  # bytes; SQLite would treat a smaller file as an empty database and overwrite it


class SQLite(Database):
    drivers = ("sqlite",)
    insert = staticmethod(sqlite.insert)
    shared = False
    path: Path
    identity: tuple[int, int] | None

    @classmethod
    def open(cls, url: URL, create: bool, timeout: float) -> Self:
        if not url.database or url.database == ":memory:":
            raise StoreError(
                "results in sqlite:// would be lost when the program ends; give a file: sqlite:///results.db"
            )
        if url.query or url.host or url.username:
            raise StoreError(f"a SQLite URL must have no options; write sqlite:///{url.database}")
        return cls.open_file(Path(url.database), create, timeout)

    @classmethod
    def open_file(cls, path: Path, create: bool, timeout: float) -> Self:
        """Open a database file, or `results.db` in the folder at `path`."""
        try:
            path = _database_file(path)
            if create:
                require_local(path)
                path.parent.mkdir(parents=True, exist_ok=True)
            size = path.stat().st_size if path.exists() else None
        except (OSError, RuntimeError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            where = f"the results folder {path.parent}" if path.name == FILE_NAME else str(path)
            raise StoreError(f"{where} cannot be used ({reason}); give another folder") from error
        if size is None and not create:
            raise StoreError(f"there are no results at {path}; run a study first, or give the folder that has results")
        if size and size < _SMALLEST:
            raise StoreError(_not_a_database(str(path)))
        database = cls(str(path), URL.create("sqlite", database=str(path)).render_as_string(), timeout)
        database.path, database.identity = path, None
        writable = os.access(path if size is not None else path.parent, os.W_OK) and os.access(path.parent, os.W_OK)
        if create and not writable:
            raise StoreError(read_only(str(path)))
        database.readonly = not writable
        log = Path(f"{path}-wal")
        alone = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
        database.engine = _engine(path, alone if not writable else "mode=rwc" if create else "mode=rw", timeout)
        return database

    def check(self, create: bool) -> None:
        with self.begin(writes=False) as connection:
            exists = self.has_tables(connection)
        if not exists and not create:
            raise StoreError(f"{self.name} is empty; run a study first, or give the folder that has results")
        if not exists:
            # The file is empty, so changing it cannot damage another program's database.
            _use_write_ahead_log(self.engine, self.timeout)
            with self.begin(writes=True) as connection:
                self.create_tables(connection)
        self.identity = _identity(self.path)

    def now(self, connection: Connection) -> float:
        """Return the time of this machine."""
        return time.time()

    def lock_creation(self, connection: Connection) -> None:
        """Do nothing: the writing transaction has locked the file."""

    def begin_reading(self, connection: Connection) -> None:
        """Read one row: BEGIN locks the file for writers, but readers get their lock when they read the first row."""
        connection.execute(select(schema.about).limit(1))

    def require_unchanged(self) -> None:
        """Raise `StoreGone` if the file was deleted or replaced since it was opened.

        SQLite would continue without an error, but the file that it writes to has no name any more and disappears at
        the end.
        """
        if self.identity is not None and _identity(self.path) != self.identity:
            raise StoreGone(
                f"{self.name} was deleted or replaced while it was in use, so results can no longer be stored; restore "
                "it, or run the same command again to start from the beginning"
            )

    def explain(self, error: DBAPIError) -> str | None:
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return locked(self.name, self.timeout)
        if code == sqlite3.SQLITE_NOTADB:
            return _not_a_database(self.name)
        if code == sqlite3.SQLITE_CORRUPT:
            reason = first_line(error)
            return f"{self.name} is damaged ({reason}); restore a copy, or move it away and run the study again"
        if code == sqlite3.SQLITE_FULL:
            return (
                f"{self.name} could not be written because the disk is full; free some space and run this command "
                "again (stored results are not affected)"
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return read_only(self.name)
        if code == sqlite3.SQLITE_CANTOPEN:
            if self.path.exists() and not os.access(self.path, os.R_OK):
                return f"{self.name} is not readable by this user; change its permissions"
            return f"{self.name} cannot be opened ({first_line(error)}); check that its folder exists and is writable"
        if code == sqlite3.SQLITE_IOERR:
            return f"{self.name} could not be read or written ({first_line(error)}); check the disk and its free space"
        return None


def _database_file(path: Path) -> Path:
    """Return the database file: the path itself, or `results.db` in the folder at the path, which may not exist yet."""
    path = path.expanduser().absolute()
    str(path).encode()  # a name that is not text would fail later, in the database
    return path if path.is_file() or (path.suffix in _DATABASE_SUFFIXES and not path.is_dir()) else path / FILE_NAME


def _not_a_database(name: str) -> str:
    return f"{name} is not a SQLite database; give the results folder or its .db file, or another name for a new one"


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, which change when it is replaced; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


# ---- connections ---


def _engine(path: Path, options: str, timeout: float) -> Engine:
    """Return an engine that starts transactions itself: BEGIN for reading, BEGIN IMMEDIATE for writing."""
    uri = f"file:{quote(str(path))}?{options}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _use_write_ahead_log(engine: Engine, timeout: float) -> None:
    """Turn on the log. Retry until the timeout: SQLite fails at once if two processes create the same file."""
    end = time.monotonic() + timeout
    while True:
        raw = engine.raw_connection()  # this statement must be outside of any transaction
        try:
            raw.cursor().execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise DBAPIError("PRAGMA journal_mode", None, error) from error
        finally:
            raw.close()
        time.sleep(0.02)
