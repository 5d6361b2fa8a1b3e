"""The revisions of the tables, one file each in `versions/`. Alembic executes them.

A new database gets the tables of `schema.py` without Alembic. No command calls `migrate` yet, because there is only one revision.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from lengthwise.store.schema import version

FOLDER = Path(__file__).parent


def migrate(engine: Engine, revision: int) -> None:
    """Change the tables of a database to those of a later revision, in one transaction. `engine`: that of a `Database`."""
    script = ScriptDirectory(str(FOLDER))

    def steps(stored: Any, _: Any) -> Sequence[Any]:
        return script._upgrade_revs(str(revision), stored)  # Alembic's documentation uses this method too

    with engine.execution_options(writes=True).connect() as connection:
        if (raw := connection.connection.driver_connection) is not None and engine.dialect.name == "sqlite":
            # SQLite changes a table by replacing it, while rows of others refer to it. Has no effect inside of a transaction.
            raw.execute("PRAGMA foreign_keys=OFF")
        with connection.begin(), EnvironmentContext(Config(), script, fn=steps) as environment:
            environment.configure(connection=connection, version_table=version.name)
            environment.run_migrations()
