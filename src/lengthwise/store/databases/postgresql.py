"""PostgreSQL: a server that several machines can share."""

import random
import time
from functools import partial
from typing import Any, Self

from sqlalchemy import URL, Connection, create_engine, event, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from lengthwise.store.databases.base import Database
from lengthwise.store.errors import StoreError, StoreUnreachable, first_line, locked
from lengthwise.values import EXAMPLE, install_extra, without_secrets

_CREATION_LOCK = 7266427  # an arbitrary constant: the lock against two processes that create the tables at once
_LOCK_NOT_AVAILABLE = "55P03"  # SQLSTATE
_NO_CONNECTION_LEFT = ("too many clients", "remaining connection slots", "too many connections")
_SHUTTING_DOWN = ("57P01", "57P02", "57P03")  # SQLSTATE: it ends, has crashed, or is starting


class PostgreSQL(Database):
    drivers = ("postgresql", "postgresql+psycopg")
    insert = staticmethod(postgresql.insert)
    shared = True

    @classmethod
    def open(cls, url: URL, create: bool, timeout: float) -> Self:
        url = url.set(drivername="postgresql+psycopg")
        server = {option: value for option, value in url.query.items() if option in ("host", "port", "dbname")}
        place = URL.create("postgresql", host=url.host, port=url.port, database=url.database, query=server)
        name = place.render_as_string()  # without user, password and options
        database = cls(name, url.set(drivername="postgresql").render_as_string(hide_password=False), timeout)
        options = f"-c lock_timeout={int(timeout * 1000)}"
        try:
            connect = {"connect_timeout": max(2, int(timeout)), "options": options}
            database.engine = create_engine(url, connect_args=connect, pool_size=2)
            event.listen(database.engine, "do_connect", partial(_connect, timeout))
        except ModuleNotFoundError as error:
            raise StoreError(f"{name} needs the package psycopg; {install_extra('postgres')}") from error
        except (SQLAlchemyError, TypeError, ValueError):
            raise StoreError(f"the URL of {name} has invalid options; write a URL such as {EXAMPLE}") from None
        return database

    def check(self, create: bool) -> None:
        with self.engine.begin() as connection:
            if create:
                self.create_tables(connection)
            if not self.has_tables(connection):
                raise StoreError(
                    f"{self.name} has no results; run a study first, or give the database that has results"
                )

    def explain(self, error: DBAPIError) -> str | None:
        code = getattr(error.orig, "sqlstate", "")
        if code == _LOCK_NOT_AVAILABLE:
            return locked(self.name, self.timeout)
        if code in _SHUTTING_DOWN or error.connection_invalidated:
            raise StoreUnreachable(
                f"{self.name} has closed the connection; start the server, and run this command again"
            )
        if code is not None or not isinstance(error, OperationalError):
            return None
        reason = first_line(error).removeprefix("connection is bad: ")  # there is no connection
        if "password" in reason:
            return f"{self.name} refuses the password, or there is none; write it into ~/.pgpass or PGPASSWORD"
        if "does not exist" in reason and "database" in reason:
            return f"{self.name} does not exist on its server; create it with createdb, or correct the address"
        raise StoreUnreachable(
            without_secrets(f"{self.name} cannot be reached ({reason}); start the server, or correct the address")
        )

    def now(self, connection: Connection) -> float:
        """Return the server's time."""
        return float(connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())")))

    def lock_creation(self, connection: Connection) -> None:
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _CREATION_LOCK})

    def begin_reading(self, connection: Connection) -> None:
        """Read one snapshot. By default, every query would see what others have committed before it."""
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))

    def disconnect(self) -> None:
        self.engine.dispose()

    def require_unchanged(self) -> None:
        """Do nothing: the server reports what it lost."""


def _connect(timeout: float, dialect: Any, _: Any, arguments: Any, options: Any) -> Any:
    """Connect to the server. If all its connections are taken, wait for one, for at most `timeout` seconds."""
    end, pause = time.monotonic() + timeout, 0.02
    while True:
        try:
            return dialect.connect(*arguments, **options)
        except dialect.dbapi.OperationalError as error:
            if not any(words in str(error) for words in _NO_CONNECTION_LEFT) or time.monotonic() > end:
                raise
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, 1.0)
