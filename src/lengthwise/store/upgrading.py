"""`upgrade`: bring the tables of a database to the newest revision."""

from sqlalchemy import Connection, column, select, table, update
from sqlalchemy.exc import DBAPIError

from lengthwise.store import schema
from lengthwise.store.cells import escaped
from lengthwise.store.claims import CLAIM_OVER
from lengthwise.store.databases.base import Database
from lengthwise.store.errors import StoreError, first_line, read_only
from lengthwise.store.workers import is_dead
from lengthwise.values import without_secrets

# These columns are the same in all revisions.
_runs = table("runs", column("key"), column("worker"), column("heartbeat"), column("handed_out"))
_HELD = select(_runs.c.key, _runs.c.worker, _runs.c.heartbeat).where(_runs.c.worker.is_not(None))


def upgrade(database: Database) -> tuple[int, int]:
    """Upgrade the tables to the newest revision in one transaction. Return their revisions before and after."""
    if database.readonly:
        raise StoreError(read_only(database.name))
    with database.errors() as lock_acquired, database.begin_upgrade() as connection:
        lock_acquired()
        before = database.revision(connection)
        if before is None:
            raise StoreError(
                f"{database.name} has no results to upgrade; give the folder or the database that has them"
            )
        if before < schema.REVISION:
            from lengthwise.store import migrations  # imports Alembic, which takes time

            database.require_plain(connection, migrations.tables_of(before))
            _end_claims(database, connection)
            try:
                migrations.migrate(connection, schema.REVISION)
            except DBAPIError as error:
                reason = without_secrets(database.explain(error) or first_line(error))
                raise StoreError(f"{database.name} could not be upgraded, and nothing was changed: {reason}") from error
        database.has_tables(connection)  # raises `StoreError` for a newer revision and for damaged tables
        return before, schema.REVISION


def _end_claims(database: Database, connection: Connection) -> None:
    """Raise `StoreError` if a living worker holds a run. End the claims of dead ones, so that none of them can write any more."""
    now = database.now(connection)
    for key, worker, heartbeat in connection.execute(_HELD):
        if isinstance(worker, str) and isinstance(heartbeat, float) and not is_dead(worker, now - heartbeat):
            host = worker.partition(":")[0]
            raise StoreError(
                f"{database.name} cannot be upgraded while a worker on {escaped(host)} has the run {escaped(key)}; stop all "
                "workers and run this command again"
            )
    connection.execute(update(_runs).where(_runs.c.worker.is_not(None)).values(CLAIM_OVER))
