"""`Database`: what differs between SQLite, PostgreSQL and others. `Store` does everything else with plain SQL."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from sqlalchemy import URL, Connection, Engine, insert, inspect, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lengthwise.store import schema
from lengthwise.store.cells import escaped
from lengthwise.store.errors import StoreError, first_line, read_only
from lengthwise.values import without_secrets


class Database(ABC):
    """An open database. A new kind of database is one module and one line in `DATABASES` (`__init__.py`).

    `name`: how messages call it, without user and password. `url`: the address with which another process opens it.
    `timeout`: seconds to wait for another program's lock. `path`: its file on this machine; None for a database on a
    server.
    """

    drivers: ClassVar[tuple[str, ...]]  # what comes before :// in its addresses
    shared: ClassVar[bool]  # tables of other programs may lie beside ours
    insert: ClassVar[Any]  # a function: the dialect's INSERT statement for a table, which has `on_conflict_do_update`
    path: Path | None = None
    readonly: bool = False
    engine: Engine

    def __init__(self, name: str, url: str, timeout: float):
        self.name, self.url, self.timeout = name, url, timeout
        self._process = os.getpid()

    @classmethod
    @abstractmethod
    def open(cls, url: URL, create: bool, timeout: float) -> Self:
        """Connect to the database at an address, without checking its tables (see `open_store`)."""

    @abstractmethod
    def check(self, create: bool) -> None:
        """Raise `StoreError` unless the database has our tables. With `create`, create them in an empty database."""

    @abstractmethod
    def explain(self, error: DBAPIError) -> str | None:
        """Return a line on an error of the database: the problem and what to do. None: the error's own text is enough.

        Raises `StoreUnreachable` if the server does not answer.
        """

    @abstractmethod
    def now(self, connection: Connection) -> float:
        """Return the time in Unix seconds by the clock that all writers share."""

    @abstractmethod
    def lock_creation(self, connection: Connection) -> None:
        """Make other processes wait until the transaction ends, so that two cannot both create the tables."""

    @abstractmethod
    def begin_reading(self, connection: Connection) -> None:
        """Let a transaction that only reads see the database as it is now, whatever others write until it ends."""

    @abstractmethod
    def require_unchanged(self) -> None:
        """Raise `StoreGone` if the database was deleted or replaced since it was opened."""

    def disconnect(self) -> None:  # noqa: B027  most databases have no server
        """Close the connections to a server that are not in use. The next transaction opens one again."""

    def close(self) -> None:
        self.engine.dispose()

    # ---- transactions -------------------------------------------------------------------------------------------

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert the database's exceptions in this block to `StoreError`."""
        try:
            yield
        except SQLAlchemyError as error:
            line = self.explain(error) if isinstance(error, DBAPIError) else None
            raise StoreError(without_secrets(line or f"{self.name}: {first_line(error)}")) from error

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Connection]:
        assert os.getpid() == self._process, "a Store does not survive a fork: open store.url in the new process"
        if writes and self.readonly:
            raise StoreError(read_only(self.name))
        self.require_unchanged()
        with self.errors(), self.begin(writes=writes) as connection:
            if not writes:
                self.begin_reading(connection)
            yield connection

    def begin(self, *, writes: bool) -> AbstractContextManager[Connection]:
        return (self.engine.execution_options(writes=True) if writes else self.engine).begin()

    # ---- tables -------------------------------------------------------------------------------------------------

    def create_tables(self, connection: Connection) -> None:
        """Create the tables unless they exist."""
        self.lock_creation(connection)
        if not self.has_tables(connection):
            schema.tables.create_all(connection)
            connection.execute(insert(schema.version).values(version_num=str(schema.REVISION)))
            connection.execute(insert(schema.about))

    def has_tables(self, connection: Connection) -> bool:
        """Return whether the database has the tables; False if it is empty.

        Raises `StoreError` for tables of another program or of another revision.
        """
        existing = inspect(connection).get_table_names()
        if schema.version.name not in existing:
            if existing and not self.shared:
                raise StoreError(
                    f"{self.name} is a database of another program (it has the table {existing[0]!r}); give another "
                    "folder or file"
                )
            return False
        revision = connection.scalar(select(schema.version.c.version_num))
        if revision != str(schema.REVISION):
            shown = escaped(revision).strip("'")
            is_newer = shown.isdigit() and int(shown) > schema.REVISION
            fix = "upgrade lengthwise" if is_newer else "use the version of lengthwise that wrote it"
            raise StoreError(
                f"{self.name} has revision {shown} of the tables, but this lengthwise reads only revision "
                f"{schema.REVISION}; {fix}, or give another folder"
            )
        return True
