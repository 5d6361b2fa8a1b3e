"""The revisions of the tables, one file each in `versions/`. Alembic executes them.

Importing this module imports Alembic, so only an upgrade does it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, create_engine

from lengthwise.store.schema import version

FOLDER = Path(__file__).parent


def migrate(connection: Connection, revision: int) -> None:
    """Change the tables of a database to those of a later revision, in the transaction that the connection is in."""
    assert connection.in_transaction(), "without a transaction, a step that fails would leave the tables of no revision"
    script = ScriptDirectory(str(FOLDER))

    def steps(stored: Any, _: Any) -> Sequence[Any]:
        return script._upgrade_revs(str(revision), stored)  # Alembic's documentation uses this method too

    with EnvironmentContext(Config(), script, fn=steps, destination_rev=str(revision)) as environment:
        environment.configure(connection=connection, version_table=version.name)
        environment.run_migrations()


def tables_of(revision: int) -> MetaData:
    """Return the tables of a revision, with the types that SQLite reports."""
    tables, engine = MetaData(), create_engine("sqlite://")
    with engine.begin() as connection:
        migrate(connection, revision)
        tables.reflect(connection)
    engine.dispose()
    return tables
