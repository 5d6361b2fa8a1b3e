"""Open a results database: find the file or server, and check that it can be used."""

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
from lengthwise.store.errors import StoreError, not_a_database, read_only, store_errors
from lengthwise.store.results import Store
from lengthwise.values import EXAMPLE, require_no_address

FILE_NAME = "results.db"
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_URL = re.compile("[A-Za-z0-9+_.-]*://")
_SMALLEST = 512  # bytes; SQLite would treat a smaller file as an empty database and overwrite it
_JOURNAL = bytes.fromhex(
    "d9d505f920a163d7"
)  # starts each part of a rollback journal, and ends a journal with a super-journal


def open_store(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where`: a results folder (its `results.db`), a database file, or a URL.

    With `create`, missing folders and tables are created, and the database must be writable. Without it, the database must exist;
    if it is not writable, it is opened for reading only (`Store.readonly`). `timeout`: seconds to wait for another program's lock.
    Raises `StoreError`.
    """
    if isinstance(where, str) and _URL.match(where):
        url = _parse(where)
        if url.get_backend_name() == "postgresql":
            return _open_postgresql(url, create, timeout)
        where = _file_of(url)
    else:
        require_no_address("the results folder", where)  # a URL that was converted to a path
    return _open_sqlite(_database_file(Path(where)), create, timeout)


def open_results(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where` like `open_store`, but only on this machine, so that `Store.folder` exists.

    Commands and executions use this function, because they need the folder with the trained models. Raises `ConfigError` for a URL.
    """
    require_no_address("the results folder", where)
    return open_store(where, create, timeout=timeout)


def _parse(where: str) -> URL:
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):  # such as a port that is not a number
        raise StoreError(f"the address must be a folder or a database URL such as {EXAMPLE}") from None
    if url.drivername not in ("sqlite", "postgresql", "postgresql+psycopg"):
        raise StoreError(f"{url.drivername}:// is not supported; give a folder, a .db file or a URL such as {EXAMPLE}")
    if "@" in (url.host or ""):
        raise StoreError(f"the address must have a single @; write an @ in a password as %40: {EXAMPLE}")
    return url


def _file_of(url: URL) -> str:
    if not url.database or url.database == ":memory:":
        raise StoreError("results in sqlite:// would be lost when the program ends; give a file: sqlite:///results.db")
    if url.query or url.host or url.username:
        raise StoreError(f"a SQLite URL must have no options; write sqlite:///{url.database}")
    return url.database


def _database_file(path: Path) -> Path:
    """Return the database file: the path itself, or `results.db` in the folder at the path, which may not exist yet."""
    try:
        path = path.expanduser().absolute()
        str(path).encode()  # a name that is not text would fail later, in the database
        if path.is_dir() or not (path.suffix in _DATABASE_SUFFIXES or path.is_file()):
            path /= FILE_NAME
            if path.is_symlink():  # in a folder from somebody else, it may lead to the user's own results
                raise StoreError(
                    f"{path} must not be a link, since results would be written elsewhere; give the file that it leads to"
                )
        if path.is_dir():
            raise StoreError(f"{path} must be a database file, but it is a folder; move it away or give another folder")
        if path.exists() and not path.is_file():
            raise StoreError(f"{path} must be a regular file, but it is a pipe or a device; give another folder")
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{str(path)!r} cannot be a results folder ({error}); give another folder") from error
    return path


# ---- SQLite -----------------------------------------------------------------------------------------------------


def _open_sqlite(path: Path, create: bool, timeout: float) -> Store:
    _prepare(path, create)
    writable = os.access(path if path.exists() else path.parent, os.W_OK) and os.access(path.parent, os.W_OK)
    if create and not writable:
        raise StoreError(read_only(str(path)))
    scratch_folder = None
    with store_errors(str(path), path, timeout):
        if writable:
            engine = _sqlite_engine(path, "mode=rwc" if create else "mode=rw", timeout)
        else:
            engine, scratch_folder = _sqlite_reader(path, timeout)
        try:
            _check_sqlite(engine, str(path), create, timeout)
        except BaseException:
            engine.dispose()
            if scratch_folder is not None:
                scratch_folder.cleanup()
            raise
    url = URL.create("sqlite", database=str(path)).render_as_string()
    return Store(
        engine,
        name=str(path),
        url=url,
        path=path,
        readonly=not writable,
        timeout=timeout,
        scratch=scratch_folder,
    )


def _prepare(path: Path, create: bool) -> None:
    try:
        if not create and not path.exists():
            raise StoreError(f"there are no results at {path}; run a study first, or give the folder that has results")
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and 0 < path.stat().st_size < _SMALLEST:
            raise StoreError(not_a_database(str(path)))
        for suffix in ("-journal", "-wal", "-shm"):
            beside = Path(f"{path}{suffix}")
            if beside.exists() and not beside.is_file():
                raise StoreError(
                    f"{beside} is not a regular file, so SQLite cannot use it; remove it, or give other results"
                )
        if _names_another_file(journal := Path(f"{path}-journal")):
            raise StoreError(
                f"{journal} names another file, which SQLite would delete; lengthwise never writes such a journal, so remove it, "
                "or give another results folder"
            )
    except (OSError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"the results folder {path.parent} cannot be used ({reason}); give another folder") from error


def _names_another_file(journal: Path) -> bool:
    """Return whether a rollback journal ends with the name of a super-journal, which SQLite deletes when it opens the database.

    See "The Rollback Journal" in SQLite's documentation of its file format.
    """
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
    """Return an engine that starts transactions itself: BEGIN for reading, BEGIN IMMEDIATE for writing."""
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
    """Decode a cell. Invalid UTF-8 becomes text that the checks of its row reject, so that other rows can still be read."""
    return stored.decode("utf-8", "surrogateescape")


def _sqlite_reader(path: Path, timeout: float) -> tuple[Engine, tempfile.TemporaryDirectory[str] | None]:
    """Return an engine for a database in a folder where SQLite cannot create the files of a write-ahead log.

    Without a log, the file is read alone. If there is a log that was never merged because its writer was killed, and SQLite cannot
    use it there, both files are copied to a temporary folder, which is returned too.
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
    folder = tempfile.TemporaryDirectory(prefix="lengthwise-")
    try:
        for file in (path, log):
            shutil.copyfile(file, Path(folder.name, file.name))
    except OSError as error:
        folder.cleanup()
        raise StoreError(
            f"{path} could not be copied for reading ({error}); copy its folder to a writable folder"
        ) from error
    return _sqlite_engine(Path(folder.name, path.name), "mode=rw", timeout), folder


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
    raw = engine.raw_connection()  # this statement must be outside of any transaction
    try:
        raw.cursor().execute("PRAGMA journal_mode=WAL")
    finally:
        raw.close()


def _retry_while_locked(action: Callable[[], None], timeout: float) -> None:
    """Retry an action until the timeout: SQLite fails at once, without waiting, if two processes create the same file."""
    end = time.monotonic() + timeout
    while True:
        try:
            return action()
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
    name = place.render_as_string()  # without user, password and options
    options = f"-c lock_timeout={int(timeout * 1000)}"
    try:
        connect = {"connect_timeout": max(2, int(timeout)), "options": options}
        engine = create_engine(url, connect_args=connect, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise StoreError(f"{name} needs the package psycopg; install it: pip install 'lengthwise[postgres]'") from error
    except (SQLAlchemyError, TypeError, ValueError):
        raise StoreError(f"the URL of {name} has invalid options; write a URL such as {EXAMPLE}") from None
    try:
        with store_errors(name, None, timeout), engine.begin() as connection:
            if create:
                schema.create(connection, name)
            if not schema.has_tables(connection, name):
                raise StoreError(f"{name} has no results; run a study first, or give the database that has results")
    except BaseException:
        engine.dispose()
        raise
    full = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return Store(engine, name=name, url=full, path=None, readonly=False, timeout=timeout, scratch=None)
