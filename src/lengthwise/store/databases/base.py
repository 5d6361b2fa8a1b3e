"""`Database`: what differs between SQLite, PostgreSQL and other databases. `Store` does everything else with plain SQL."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from sqlalchemy import URL, Connection, Engine, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError

from lengthwise.store.checks import escaped
from lengthwise.store.errors import StoreError, damaged, read_only, store_errors
from lengthwise.store.schema import SCHEMA_VERSION, about, tables


class Database(ABC):
    """An open database. A new kind of database is one module and one line in `DATABASES` (`__init__.py`).

    `name`: how messages call it, without user and password. `url`: the address with which another process opens it.
    `timeout`: seconds to wait for another program's lock. `path`: its file on this machine; None for a database on a server.
    """

    drivers: ClassVar[tuple[str, ...]]  # what comes before :// in its addresses
    shared: ClassVar[bool]  # tables of other programs may lie beside ours
    insert: ClassVar[Any]  # a function: the dialect's INSERT statement for a table, which has `on_conflict_do_update`
    foreign_objects: ClassVar[str]  # a query for the views, triggers and the like at the table :n, see `require_plain`
    path: Path | None = None
    readonly: bool = False
    engine: Engine

    def __init__(self, name: str, url: str, timeout: float):
        self.name, self.url, self.timeout = name, url, timeout
        self._process = os.getpid()

    @classmethod
    @abstractmethod
    def open(cls, url: URL, create: bool, timeout: float) -> Self:
        """Open the database at an address, as `open_store` describes. Raises `StoreError`."""

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
        """Take the locks of a transaction that only reads, if the database takes them later than at its beginning."""

    @abstractmethod
    def require_unchanged(self) -> None:
        """Raise `StoreGone` if the database was deleted or replaced since it was opened."""

    def disconnect(self) -> None:  # noqa: B027  most databases have no server
        """Close the connections to a server that are not in use. The next transaction opens one again."""

    def close(self) -> None:
        self.engine.dispose()

    # ---- transactions -------------------------------------------------------------------------------------------

    def errors(self) -> AbstractContextManager[Any]:
        """Return a context that converts the database's exceptions, see `store_errors`.

        On a server, which locks single rows, no warning about a lock is logged: its thread would cost more than most transactions.
        """
        return store_errors(self.name, self.timeout if self.path is not None else 0.0, self.explain)

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Connection]:
        assert os.getpid() == self._process, "a Store does not survive a fork: open store.url in the new process"
        if writes and self.readonly:
            raise StoreError(read_only(self.name))
        self.require_unchanged()
        with self.errors() as lock_acquired, self.begin(writes=writes) as connection:
            if not writes:
                self.begin_reading(connection)
            if self.path is not None:  # a server locks single rows, later
                lock_acquired()
            yield connection

    def begin(self, *, writes: bool) -> AbstractContextManager[Connection]:
        return (self.engine.execution_options(writes=True) if writes else self.engine).begin()

    # ---- tables -------------------------------------------------------------------------------------------------

    def create_tables(self, connection: Connection) -> None:
        """Create the tables unless they exist."""
        self.lock_creation(connection)
        if not self.has_tables(connection):
            tables.create_all(connection)
            connection.execute(insert(about).values(schema_version=SCHEMA_VERSION))

    def has_tables(self, connection: Connection) -> bool:
        """Return whether the database has the tables; False if it is empty.

        Raises `StoreError` for tables of another program, of another schema version, or that are damaged.
        """
        self.require_plain(connection)
        existing = inspect(connection).get_table_names()
        if about.name not in existing:
            if existing and not self.shared:
                raise StoreError(
                    f"{self.name} is a database of another program (it has the table {existing[0]!r}); give another folder "
                    "or file"
                )
            return False
        versions = [number for number in connection.scalars(select(about.c.schema_version)) if isinstance(number, int)]
        found = max(versions, default=0)
        if len(versions) > 1:
            raise StoreError(damaged(self.name, f"it has {len(versions)} schema versions instead of one"))
        if found != SCHEMA_VERSION:
            advice = "upgrade lengthwise" if found > SCHEMA_VERSION else "use the version of lengthwise that wrote it"
            raise StoreError(
                f"{self.name} has schema version {found or 'none'}, but this lengthwise reads only version {SCHEMA_VERSION}; "
                f"{advice}, or give another folder"
            )
        if lacking := sorted(set(tables.tables) - set(existing)):
            raise StoreError(damaged(self.name, f"it lacks the table {lacking[0]!r}"))
        for table in tables.sorted_tables:
            columns = {column["name"] for column in inspect(connection).get_columns(table.name)}
            if lacking := sorted(set(table.c.keys()) - columns):
                raise StoreError(damaged(self.name, f"its table {table.name!r} lacks the column {lacking[0]!r}"))
        return True

    def require_plain(self, connection: Connection) -> None:
        """Raise `StoreError` for views, triggers, generated columns and checks at our tables.

        They run code of the database's author when rows are read or written, and that code may never end.
        """
        for table in tables.tables:
            if (found := connection.execute(text(self.foreign_objects), {"n": table}).scalar()) is not None:
                raise StoreError(
                    f"{self.name} has {escaped(found)}, a view, virtual table or trigger, at its table {table!r}, which "
                    "lengthwise never creates; give another results folder"
                )
