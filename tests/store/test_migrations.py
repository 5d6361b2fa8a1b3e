"""The revisions of the tables, and upgrades of older databases. Revision 2 is made up."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, create_engine, inspect, text

from lengthwise.store import (
    ClaimLost,
    StoreError,
    Upgrade,
    migrations,
    open_store,
    schema,
    upgrade_results,
    worker_name,
)
from lengthwise.store.databases import postgresql
from tests.postgres_server import needs_postgres
from tests.store import second_revision
from tests.store.conftest import empty_store
from tests.store.second_revision import second_tables, write_revisions

KEYS = [f"{n:016x}" for n in range(3)]
HOW = """the revisions in store/migrations/versions do not make the tables of store/schema.py. After an intended change of the
tables, add the next revision and raise REVISION in schema.py (CONTRIBUTING.md, "A change of the tables")."""
Second = Callable[..., Path]


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
    """Make revision 2 the newest one; `last` is the last statement of its upgrade. Return its folder."""

    def second(last: str = "pass") -> Path:
        write_revisions(tmp_path / "migrations", last)
        monkeypatch.setattr(migrations, "FOLDER", tmp_path / "migrations")
        monkeypatch.setattr(schema, "REVISION", 2)
        monkeypatch.setattr(schema, "tables", second_tables())
        return tmp_path / "migrations"

    return second


@pytest.fixture
def results(address: str, engine: Engine, make: Any) -> str:
    """The address of a database with revision 1 and rows in every table but `probes`."""
    with open_store(address) as store:
        store.add_study("s", evaluation={}, runs=[make.run(key) for key in KEYS])
        store.add_scores(KEYS[0], [make.score(8), make.score(16)])
        store.add_curve(KEYS[0], [make.point(1), make.point(2)])
    return address


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


def refused(action: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(StoreError) as caught:
        action(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# ---- the revisions ----------------------------------------------------------------------------------------------


def test_the_revisions_make_the_tables(engine: Engine) -> None:
    with engine.begin() as connection:
        migrations.migrate(connection, schema.REVISION)
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


# ---- upgrades ---------------------------------------------------------------------------------------------------


def test_an_upgrade_keeps_the_data(results: str, engine: Engine, second: Second, make: Any) -> None:
    before = contents(engine)
    assert upgrade_results("r", store=results) == Upgrade(open_store(results).name, 1, 1)
    second()
    message = refused(open_store, results, create=False)
    assert message.endswith(
        "has revision 1 of the tables, but this lengthwise reads only revision 2; stop all workers and run `lengthwise "
        "upgrade --store ADDRESS`"
    )
    done = upgrade_results("r", store=results)
    assert (done.before, done.after) == (1, 2)
    after = contents(engine)
    assert after["notes"][1] == sorted(str((key, "FIRE(hidden_layers=1)")) for key in KEYS)
    assert after["lengthwise_schema"][1] == ["('2',)"]
    assert [row.rsplit(", ", 1)[1] for row in after["runs"][1]] == ["10)", "11)", "12)"]
    assert [row.rsplit(", ", 1)[0] + ")" for row in after["runs"][1]] == before["runs"][1]
    del after["runs"][0]["columns"]["priority"]
    assert after["runs"][0] == before["runs"][0], "also its indexes with conditions"
    for table in ("studies", "study_runs", "asked", "scores", "curve", "probes", "lengthwise"):
        assert after[table][1] == before[table][1]
        assert table == "study_runs" or after[table][0] == before[table][0]
    with open_store(results) as store:
        assert [run.key for run in store.runs("s")] == KEYS
        assert [score.length for score in store.scores([KEYS[0]])] == [8, 16]
        assert store.claim("s", worker_name()) is not None
    assert upgrade_results("r", store=results).before == 2, "nothing to do, whoever has a run"


@pytest.mark.parametrize(
    "last", ["op.execute('SELECT nothing FROM runs')", "raise KeyError('oh')", "op.drop_table('curve')"]
)
def test_a_step_that_fails_changes_nothing(results: str, engine: Engine, second: Second, last: str) -> None:
    before = contents(engine)
    second(last)
    if "KeyError" in last:
        with pytest.raises(KeyError):
            upgrade_results("r", store=results)
    else:
        words = "lacks the table 'curve'" if "drop" in last else "could not be upgraded, and nothing was changed: "
        assert words in refused(upgrade_results, "r", store=results)
    assert contents(engine) == before
    second()
    assert upgrade_results("r", store=results).before == 1


@pytest.fixture
def start(results: str, tmp_path: Path) -> Iterator[Callable[[str], "subprocess.Popen[str]"]]:
    """Start a process of a newer version that upgrades the database; `last` is the last statement of its upgrade."""
    processes: list[subprocess.Popen[str]] = []

    def start(last: str) -> "subprocess.Popen[str]":
        write_revisions(tmp_path / "migrations", last)
        command = [sys.executable, second_revision.__file__, results, str(tmp_path / "migrations")]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.medium
def test_a_kill_changes_nothing(results: str, engine: Engine, start: Callable[..., Any], second: Second) -> None:
    before = contents(engine)
    killed = start("print('changed', flush=True); time.sleep(600)")
    assert killed.stdout.readline() == "changed\n"
    second()
    message = refused(open_store, results, timeout=0.3)
    assert "is locked by another program" in message or "run `lengthwise upgrade" in message
    assert "is locked by another program" in refused(upgrade_results, "r", store=results, timeout=0.3)
    killed.kill()
    killed.wait()
    end = time.monotonic() + 30
    while True:  # a server notices it after a moment
        try:
            assert contents(engine) == before
            break
        except AssertionError:
            assert time.monotonic() < end
            time.sleep(0.2)
    assert upgrade_results("r", store=results, timeout=30).before == 1


@pytest.mark.slow
def test_two_upgrades_at_once(results: str, start: Callable[..., Any]) -> None:
    both = [start("time.sleep(1)") for _ in range(2)]
    assert sorted(process.communicate(timeout=120)[0] for process in both) == ["1 2\n", "2 2\n"]


@needs_postgres
@pytest.mark.parametrize("where", ["postgresql"], indirect=True)
def test_an_upgrade_waits_for_the_lock_of_creation(results: str, engine: Engine, second: Second) -> None:
    """Without it, two upgrades could each read the revision and then wait for the other one."""
    second()
    with engine.begin() as other:
        other.execute(text(f"SELECT pg_advisory_xact_lock({postgresql._CREATION_LOCK})"))
        assert "is locked by another program" in refused(upgrade_results, "r", store=results, timeout=0.3)
    assert upgrade_results("r", store=results).before == 1


@pytest.mark.slow
def test_a_worker_of_the_older_version_gets_no_run_during_an_upgrade(results: str, start: Callable[..., Any]) -> None:
    with open_store(results) as store:
        upgrading = start("print('changed', flush=True); time.sleep(1.5)")
        assert upgrading.stdout.readline() == "changed\n"
        assert "has revision 2 of the tables, but this lengthwise reads only revision 1" in refused(
            store.claim, "s", "w"
        )
        assert upgrading.communicate(timeout=60)[0] == "1 2\n"
        assert {run.worker for run in store.runs("s")} == {None}


def test_a_living_worker_prevents_an_upgrade(results: str, engine: Engine, second: Second) -> None:
    with open_store(results) as store:
        store.claim("s", living := worker_name())
        before = contents(engine)
        second()
        message = refused(upgrade_results, "r", store=results)
        host = living.partition(":")[0]
        assert f"cannot be upgraded while a worker on {host!r} has the run '{KEYS[0]}'; stop all workers" in message
        assert contents(engine) == before


def test_a_worker_that_seemed_dead_cannot_go_on_after_an_upgrade(
    results: str, engine: Engine, second: Second, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    with open_store(results) as store:
        store.claim("s", "elsewhere:1:0-0-0")
        with engine.begin() as connection:
            connection.execute(text("UPDATE runs SET heartbeat = heartbeat - 100"))
        second()
        assert upgrade_results("r", store=results).after == 2
        monkeypatch.undo()  # the worker has the older version
        assert not store.heartbeat(KEYS[0], "elsewhere:1:0-0-0", 1, 2)
        with pytest.raises(ClaimLost):
            store.add_curve(KEYS[0], [make.point(3)], worker="elsewhere:1:0-0-0")
        message = refused(store.claim, "s", "elsewhere:1:0-0-0")
        assert message.endswith(
            "has revision 2 of the tables, but this lengthwise reads only revision 1; upgrade lengthwise, or give another folder"
        )


# ---- what is refused --------------------------------------------------------------------------------------------

VERSIONS = {
    "INSERT INTO lengthwise_schema VALUES ('2')": "is damaged (its table 'lengthwise_schema' has more than one row instead of one)",
    "DELETE FROM lengthwise_schema": "is damaged (its table 'lengthwise_schema' has no row instead of one)",
    "UPDATE lengthwise_schema SET version_num = 'x\ny'": "the revision of its tables is 'x\\ny' and not a number",
    "UPDATE lengthwise_schema SET version_num = '0'": "the revision of its tables is '0' and not a number",
    "UPDATE lengthwise_schema SET version_num = '7'": "has revision 7 of the tables, but this lengthwise reads only revision 2; "
    "upgrade lengthwise, or give another folder",
    "ALTER TABLE lengthwise_schema RENAME version_num TO v": "'lengthwise_schema'",
    "DROP TABLE lengthwise_schema": "has no revision of its tables, so an early version of lengthwise wrote it; use that version",
    "DROP TABLE lengthwise_schema; CREATE VIEW lengthwise_schema AS SELECT '1' AS version_num": "a view, virtual table or trigger",
    "DROP TABLE lengthwise_schema; CREATE TABLE lengthwise_schema (version_num BIGINT); INSERT INTO lengthwise_schema VALUES (1)":
    "the revision of its tables is 1 and not a number",
}  # fmt: skip


@pytest.mark.parametrize(
    ("statements", "newest"),
    [
        *((statements, 2) for statements in VERSIONS),
        *((text, 1) for text in VERSIONS if "'7'" in text or "'2'" in text),
    ],
)
def test_hostile_revisions(results: str, engine: Engine, second: Second, statements: str, newest: int) -> None:
    with engine.begin() as connection:
        for statement in statements.split("; "):
            connection.execute(text(statement))
    before = contents(engine)
    if newest == 2:
        second()
    actions: list[Callable[[], Any]] = [
        lambda: open_store(results),
        lambda: open_store(results, create=False),
        lambda: upgrade_results("r", store=results),
    ]
    for action in actions:
        assert VERSIONS[statements].replace("only revision 2", f"only revision {newest}") in refused(action)
    with engine.begin() as connection:
        connection.execute(text("DROP VIEW IF EXISTS lengthwise_schema")) if "VIEW" in statements else None
    assert {**before, "lengthwise_schema": 0} == {**contents(engine), "lengthwise_schema": 0}


TRIGGERS = {
    "sqlite": ["CREATE TRIGGER t AFTER UPDATE ON runs BEGIN DELETE FROM scores; END"],
    "postgresql": [
        "CREATE FUNCTION wipe() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM scores; RETURN NULL; END'",
        "CREATE TRIGGER t AFTER UPDATE ON runs EXECUTE FUNCTION wipe()",
    ],
}


def test_an_older_database_with_a_trigger_is_not_upgraded(results: str, engine: Engine, second: Second) -> None:
    with engine.begin() as connection:
        for statement in TRIGGERS[connection.dialect.name]:
            connection.execute(text(statement))
    before = contents(engine)
    second()
    try:
        assert "a view, virtual table or trigger, at its table 'runs'" in refused(upgrade_results, "r", store=results)
        assert contents(engine) == before
    finally:
        if engine.dialect.name == "postgresql":
            with engine.begin() as connection:
                connection.execute(text("DROP FUNCTION wipe CASCADE"))


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")  # by the test itself
@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE INDEX odd ON runs (upper(label))", "has 'odd' at its table 'runs', which lengthwise never defines this way"),
        ("ALTER TABLE runs ADD COLUMN g AS (printf('%.*c', 9, 'x'))", "has 'runs' at its table 'runs', which lengthwise never"),
        ("DELETE FROM runs", "refers to a row of 'runs' that is missing); restore a copy"),
    ],
)  # fmt: skip
def test_an_older_file_that_is_not_ours_is_not_upgraded(
    results: str, engine: Engine, second: Second, statement: str, words: str
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    before = contents(engine)
    second()
    assert words in refused(upgrade_results, "r", store=results)
    assert contents(engine) == before


def test_what_cannot_be_upgraded(address: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there are no results at" in refused(upgrade_results, tmp_path / "nothing")
    (tmp_path / "empty.db").touch()
    assert "has no results to upgrade; give" in refused(upgrade_results, tmp_path / "empty.db")
    if engine.dialect.name == "postgresql":
        assert "has no results to upgrade; give" in refused(upgrade_results, "r", store=address)
    with create_engine(f"sqlite:///{tmp_path}/other.db").begin() as connection:
        connection.exec_driver_sql("CREATE TABLE songs (name)")
    assert "is a database of another program" in refused(upgrade_results, tmp_path / "other.db")
    assert not (tmp_path / "nothing").exists()
    open_store(tmp_path / "results").close()
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "is read-only" in refused(upgrade_results, tmp_path / "results")
