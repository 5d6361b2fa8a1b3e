"""Opening a results database: which file or server is meant, and whether it can be used."""

import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from lengthwise.store import schema
from lengthwise.store.errors import StoreError, not_a_database, plain_words, read_only
from lengthwise.store.results import Store
from lengthwise.values import EXAMPLE, require_no_address

FILE_NAME = "results.db"
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_URL = re.compile("[A-Za-z0-9+_.-]*://")
_SMALLEST = 512  # bytes; SQLite takes a smaller file for an empty database and would write over it
_JOURNAL = bytes.fromhex(
    "d9d505f920a163d7"
)  # begins each part of a rollback journal, and ends one with a super-journal


def open_store(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where`: a results folder (its `results.db`), a database file, or a URL.

    With `create`, what is missing is made, and it has to be writable. Without, it has to be there, and where it may
    only be read, it is opened for reading alone (`Store.readonly`). `timeout`: seconds to wait for another program's
    lock. Raises `StoreError`.
    """
    if isinstance(where, str) and _URL.match(where):
        url = _parse(where)
        if url.get_backend_name() == "postgresql":
            return _open_postgresql(url, create, timeout)
        where = _file_of(url)
    else:
        require_no_address("the results folder", where)  # a path that was made of one
    return _open_sqlite(_database_file(Path(where)), create, timeout)


def open_results(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where` like `open_store`, but only on this machine: `Store.folder` is there.

    Commands and executions take this one: they also need the folder of the trained models. Raises `ConfigError` for an address.
    """
    require_no_address("the results folder", where)
    return open_store(where, create, timeout=timeout)


def _parse(where: str) -> URL:
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):  # a port that is no number
        raise StoreError(f"the address is not a database URL; write {EXAMPLE}, or a folder") from None
    if url.drivername not in ("sqlite", "postgresql", "postgresql+psycopg"):
        raise StoreError(
            f"{url.drivername}:// is not a store that lengthwise knows; give a folder, a .db file or {EXAMPLE}"
        )
    if "@" in (url.host or ""):
        raise StoreError(f"the address has more than one @; write one in a password as %40: {EXAMPLE}")
    return url


def _file_of(url: URL) -> str:
    if not url.database or url.database == ":memory:":
        raise StoreError("sqlite:// would be lost when the program ends; give a file: sqlite:///results.db")
    if url.query or url.host or url.username:
        raise StoreError(f"the URL has options, which a SQLite store has not; write sqlite:///{url.database}")
    return url.database


def _database_file(path: Path) -> Path:
    """The file that is meant: the path itself, or `results.db` in the folder that it is or is going to be."""
    try:
        path = path.expanduser().absolute()
        str(path).encode()  # a name that is no text would fail later, in the database
        if path.is_dir() or not (path.suffix in _DATABASE_SUFFIXES or path.is_file()):
            path /= FILE_NAME
            if path.is_symlink():  # a folder from somebody else, whose link may lead to one's own results
                raise StoreError(
                    f"{path} is a link, and what is written or deleted would lie elsewhere; name the file that it leads to itself"
                )
        if path.is_dir():
            raise StoreError(
                f"{path} is a folder where the database file should be; move it away or give another folder"
            )
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{str(path)!r} cannot be a results folder ({error}); give another one") from error
    return path


# ---- SQLite -----------------------------------------------------------------------------------------------------


def _open_sqlite(path: Path, create: bool, timeout: float) -> Store:
    _find(path, create)
    writable = os.access(path if path.exists() else path.parent, os.W_OK) and os.access(path.parent, os.W_OK)
    if create and not writable:
        raise StoreError(read_only(str(path)))
    scratch = None
    with plain_words(str(path), path, timeout):
        if writable:
            engine = _sqlite_engine(path, "mode=rwc" if create else "mode=rw", timeout)
        else:
            engine, scratch = _sqlite_reader(path, timeout)
        try:
            _check_sqlite(engine, str(path), create, timeout)
        except BaseException:
            engine.dispose()
            if scratch is not None:
                scratch.cleanup()
            raise
    url = URL.create("sqlite", database=str(path)).render_as_string()
    return Store(
        engine,
        name=str(path),
        url=url,
        path=path,
        readonly=not writable,
        timeout=timeout,
        scratch=scratch,
    )


def _find(path: Path, create: bool) -> None:
    try:
        if not create and not path.exists():
            raise StoreError(f"there are no results at {path}; run a study first, or give the folder that has them")
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and 0 < path.stat().st_size < _SMALLEST:
            raise StoreError(not_a_database(str(path)))
        if _names_another_file(journal := Path(f"{path}-journal")):
            raise StoreError(
                f"{journal} names another file, which SQLite would delete; lengthwise never makes such a journal: remove it, "
                "or give other results"
            )
    except (OSError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        told = getattr(error, "strerror", None) or error
        raise StoreError(f"the results folder {path.parent} cannot be used ({told}); give another folder") from error


def _names_another_file(journal: Path) -> bool:
    """Whether a rollback journal ends with the name of a super-journal: whoever opens the database would make SQLite delete that
    file. See "The Rollback Journal" in SQLite's documentation of its file format."""
    try:
        size = journal.stat().st_size
        return size > len(_JOURNAL) and _tail(journal, len(_JOURNAL)) == _JOURNAL
    except FileNotFoundError:
        return False


def _tail(file: Path, count: int) -> bytes:
    with open(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as opened:
        opened.seek(-count, os.SEEK_END)
        return opened.read(count)


def _sqlite_engine(path: Path, options: str, timeout: float) -> Engine:
    """An engine that begins transactions itself: BEGIN, or BEGIN IMMEDIATE where the work is going to write."""
    uri = f"file:{quote(str(path))}?{options}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
        connection.text_factory = _text
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _text(stored: bytes) -> str:
    """A cell's text. What is no UTF-8 becomes text that the checks of a row refuse, so that the other rows are read."""
    return stored.decode("utf-8", "surrogateescape")


def _sqlite_reader(path: Path, timeout: float) -> tuple[Engine, tempfile.TemporaryDirectory[str] | None]:
    """An engine for a database in a place where SQLite may not make the files that go with a write-ahead log.

    Without such files the file alone is everything. With a log that was never merged (its writer was killed) and that
    SQLite cannot use from here, a copy of both is read.
    """
    engine = _sqlite_engine(path, "mode=ro", timeout)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT name FROM sqlite_master").all()
        return engine, None
    except DBAPIError as error:
        engine.dispose()
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
    log = Path(f"{path}-wal")
    if not (log.exists() and log.stat().st_size):
        return _sqlite_engine(path, "mode=ro&immutable=1", timeout), None
    scratch = tempfile.TemporaryDirectory(prefix="lengthwise-")
    try:
        for file in (path, log):
            shutil.copyfile(file, Path(scratch.name, file.name))
    except OSError as error:
        scratch.cleanup()
        raise StoreError(
            f"{path} could not be copied for reading ({error}); copy its folder to a writable place"
        ) from error
    return _sqlite_engine(Path(scratch.name, path.name), "mode=rw", timeout), scratch


def _check_sqlite(engine: Engine, name: str, create: bool, timeout: float) -> None:
    """Raise `StoreError` unless the database has our tables. With `create`, create them in an empty database."""
    with engine.begin() as connection:
        if schema.has_tables(connection, name):
            return
    if not create:
        raise StoreError(f"{name} is empty; run a study first, or give the folder that has results")
    # The file is empty, so changing it cannot damage another program's database.
    _retry_while_locked(lambda: _use_write_ahead_log(engine), timeout)
    with engine.execution_options(writes=True).begin() as connection:
        schema.create(connection, name)


def _use_write_ahead_log(engine: Engine) -> None:
    raw = engine.raw_connection()  # outside of any transaction, which this statement cannot be in
    try:
        raw.cursor().execute("PRAGMA journal_mode=WAL")
    finally:
        raw.close()


def _retry_while_locked(work: Callable[[], None], timeout: float) -> None:
    """SQLite refuses this change at once, not after its timeout, when two processes create the same file."""
    end = time.monotonic() + timeout
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise DBAPIError("PRAGMA journal_mode", None, error) from error
            if time.monotonic() > end:
                raise DBAPIError("PRAGMA journal_mode", None, error) from error
        time.sleep(0.02)


# ---- PostgreSQL -------------------------------------------------------------------------------------------------


def _open_postgresql(url: URL, create: bool, timeout: float) -> Store:
    url = url.set(drivername="postgresql+psycopg")
    server = {option: value for option, value in url.query.items() if option in ("host", "port", "dbname")}
    place = URL.create("postgresql", host=url.host, port=url.port, database=url.database, query=server)
    name = place.render_as_string()  # without who opens it and how
    options = f"-c lock_timeout={int(timeout * 1000)}"
    try:
        connect = {"connect_timeout": max(2, int(timeout)), "options": options}
        engine = create_engine(url, connect_args=connect, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise StoreError(f"{name} needs the package psycopg; install it: pip install 'lengthwise[postgres]'") from error
    except (SQLAlchemyError, TypeError, ValueError):
        raise StoreError(f"{name} has options that cannot be; write {EXAMPLE}") from None
    try:
        with plain_words(name, None, timeout), engine.begin() as connection:
            if create:
                schema.create(connection, name)
            if not schema.has_tables(connection, name):
                raise StoreError(f"{name} has no results; run a study first, or give the database that has them")
    except BaseException:
        engine.dispose()
        raise
    full = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return Store(engine, name=name, url=full, path=None, readonly=False, timeout=timeout, scratch=None)
