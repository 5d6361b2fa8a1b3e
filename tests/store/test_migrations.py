"""The revisions of the tables. Revision 2 is made up."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

from lengthwise.store import Store, StoreError, migrations, open_store, schema, worker_name
from tests.postgres_server import needs_postgres
from tests.store.conftest import empty_store
from tests.store.second_revision import second_tables, write_revisions

KEYS = [f"{n:016x}" for n in range(3)]
HOW = """the revisions in store/migrations/versions do not make the tables of store/schema.py. Change them together
(CONTRIBUTING.md, "A change of the tables")."""
Second = Callable[..., None]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[needs_postgres, pytest.mark.slow])])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be opened."""
    return empty_store(request, tmp_path)


@pytest.fixture
def address(where: str) -> str:
    """The address of an empty database."""
    return where if "://" in where else f"sqlite:///{where}.db"


@pytest.fixture
def engine(address: str) -> Iterator[Engine]:
    engine = create_engine(address.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS notes"))
    engine.dispose()


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Second:
    """Make revision 2 the newest one; `last` is the last statement of its upgrade."""

    def second(last: str = "pass") -> None:
        write_revisions(tmp_path / "migrations", last)
        monkeypatch.setattr(migrations, "FOLDER", tmp_path / "migrations")
        monkeypatch.setattr(schema, "REVISION", 2)
        monkeypatch.setattr(schema, "tables", second_tables())

    return second


@pytest.fixture
def first(address: str, engine: Engine, make: Any) -> Iterator[Store]:
    """A store with revision 1 and rows in every table but `probes`."""
    with open_store(address, timeout=0.3) as store:
        store.add_study("s", evaluation={}, runs=[make.run(key) for key in KEYS])
        store.add_scores(KEYS[0], [make.score(8), make.score(16)])
        store.add_curve(KEYS[0], [make.point(1), make.point(2)])
        yield store


def contents(engine: Engine) -> dict[str, Any]:
    """Everything in a database: the definition of each table, and its rows."""
    tables = MetaData()
    with engine.connect() as connection:
        tables.reflect(connection)
        return {
            table.name: (described(connection, table.name), sorted(map(str, connection.execute(table.select()))))
            for table in tables.sorted_tables
        }


def described(connection: Connection, table: str) -> dict[str, Any]:
    """A table as the database has it. The conditions of indexes, which Alembic does not compare, are in their SQL."""
    found = inspect(connection)
    listing = {
        "sqlite": "SELECT name, sql FROM sqlite_master WHERE tbl_name = :t AND type = 'index' ORDER BY name",
        "postgresql": "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = :t ORDER BY indexname",
    }[connection.dialect.name]
    return {
        "columns": {c["name"]: (str(c["type"]), c["nullable"], c["default"]) for c in found.get_columns(table)},
        "primary key": found.get_pk_constraint(table),
        "foreign keys": sorted(map(str, found.get_foreign_keys(table))),
        "indexes": [tuple(row) for row in connection.execute(text(listing), {"t": table})],
    }


def test_the_revisions_make_the_tables(engine: Engine) -> None:
    migrations.migrate(engine, schema.REVISION)
    with engine.begin() as connection:
        options = {"version_table": schema.version.name, "compare_type": True, "compare_server_default": True}
        changes = compare_metadata(MigrationContext.configure(connection, opts=options), schema.tables)
        assert changes == [], HOW
        migrated = {table: described(connection, table) for table in schema.tables.tables}
        schema.tables.drop_all(connection)
        schema.tables.create_all(connection)
        assert migrated == {table: described(connection, table) for table in schema.tables.tables}, HOW


def test_revisions_are_numbered() -> None:
    revisions = [script.revision for script in ScriptDirectory(str(migrations.FOLDER)).walk_revisions()]
    assert revisions == [str(number) for number in range(schema.REVISION, 0, -1)]
    files = {path.name for path in (migrations.FOLDER / "versions").glob("*.py")}
    assert files == {f"revision_{number}.py" for number in revisions}


def test_a_new_database_has_the_newest_revision_without_alembic(address: str, engine: Engine) -> None:
    code = "import sys, lengthwise.store as s; s.open_store(sys.argv[1]).close(); print('alembic' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, check=False)
    assert ran.stdout == "False\n", ran.stderr
    with engine.connect() as connection:
        assert connection.execute(text("SELECT * FROM lengthwise_schema")).all() == [(str(schema.REVISION),)]
        assert connection.execute(text("SELECT * FROM lengthwise")).all() == [(None,)]


def test_a_revision_keeps_the_data(first: Store, address: str, engine: Engine, second: Second) -> None:
    before = contents(engine)
    second()
    with pytest.raises(
        StoreError, match="has revision 1 of the tables, but this lengthwise reads only revision 2; use"
    ):
        open_store(address)
    migrations.migrate(first._database.engine, 2)
    after = contents(engine)
    assert after["notes"][1] == sorted(str((key, "FIRE(hidden_layers=1)")) for key in KEYS)
    assert after["lengthwise_schema"][1] == ["('2',)"]
    assert [row.rsplit(", ", 1)[1] for row in after["runs"][1]] == ["10)", "11)", "12)"]
    assert [row.rsplit(", ", 1)[0] + ")" for row in after["runs"][1]] == before["runs"][1]
    del after["runs"][0]["columns"]["priority"]
    assert after["runs"][0] == before["runs"][0], "also its indexes with conditions"
    for table in ("studies", "study_runs", "asked", "scores", "curve", "answers", "lengthwise"):
        assert after[table][1] == before[table][1]
        assert table == "study_runs" or after[table][0] == before[table][0]
    with open_store(address) as store:
        assert [run.key for run in store.runs("s")] == KEYS
        assert [score.length for score in store.scores([KEYS[0]])] == [8, 16]
        assert store.claim("s", worker_name()) is not None


@pytest.mark.parametrize("last", ["op.execute('SELECT nothing FROM runs')", "raise KeyError('oh')"])
def test_a_step_that_fails_changes_nothing(first: Store, engine: Engine, second: Second, last: str) -> None:
    before = contents(engine)
    second(last)
    with pytest.raises((DBAPIError, KeyError)):
        migrations.migrate(first._database.engine, 2)
    assert contents(engine) == before


def test_a_locked_database_is_not_changed(first: Store, engine: Engine, second: Second) -> None:
    before = contents(engine)
    second()
    statement = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "LOCK TABLE runs"}[engine.dialect.name]
    with engine.connect() as other:
        other.exec_driver_sql(statement)
        with pytest.raises(DBAPIError, match="lock"):
            migrations.migrate(first._database.engine, 2)
    assert contents(engine) == before


@pytest.mark.parametrize(
    ("revision", "shown", "fix"),
    [("7", "7", "upgrade lengthwise"), ("x\ny", "x\\ny", "use the version of lengthwise that wrote it")],
)
def test_another_revision_is_refused(
    first: Store, address: str, engine: Engine, revision: str, shown: str, fix: str
) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE lengthwise_schema SET version_num = :n"), {"n": revision})
    before = contents(engine)
    for create in (True, False):
        with pytest.raises(StoreError) as refused:
            open_store(address, create)
        assert str(refused.value).endswith(
            f"has revision {shown} of the tables, but this lengthwise reads only revision 1; {fix}, or give another folder"
        )
    assert contents(engine) == before
