"""The tables. Everything is plain SQL that SQLite and PostgreSQL both have.

Status is not stored but follows from what is: a run is running while a living worker holds it, failed while it has an
error, done when it is trained and every question of the study has a score, and pending otherwise. So a study that asks
for one more length makes its runs pending by that alone.
"""

import re

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from lengthwise.store.checks import escaped
from lengthwise.store.errors import StoreError, damaged

SCHEMA_VERSION = 2
"""Goes up with every change of the tables below; a database says which one it has.

1: studies, runs, scores, curves. 2: also `probes`, and `studies.published`. A database of version 1 is read as it is, and
upgraded in place by who first writes to it; programs of version 1 that have it open go on, and those that open it later
refuse it.
"""
_OLDEST = 1

tables = MetaData()

about = Table("lengthwise", tables, Column("schema_version", Integer, primary_key=True, autoincrement=False))

studies = Table(
    "studies",
    tables,
    Column("name", Text, primary_key=True),
    Column("question", Text, nullable=False),
    Column("expectation", Text, nullable=False),
    Column("cost", Text, nullable=False),
    Column("command", Text, nullable=False),
    Column("evaluation", Text, nullable=False),  # JSON
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("published", Text),  # JSON; since version 2
)

runs = Table(
    "runs",
    tables,
    Column("key", Text, primary_key=True),
    Column("label", Text, nullable=False),
    Column("encoding", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("better", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("train_length", BigInteger, nullable=False),
    Column("config", Text, nullable=False),  # JSON
    Column("created", Double, nullable=False),
    Column("worker", Text),  # who holds it
    Column("heartbeat", Double),  # when that worker was last heard of
    Column("handed_out", Text),  # JSON: the questions that came with the claim
    Column("claims", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("started", Double),
    Column("finished", Double),
    Column("error", Text),
    Column("facts", Text, nullable=False),  # JSON
)

study_runs = Table(
    "study_runs",
    tables,
    Column("study", Text, ForeignKey("studies.name"), primary_key=True),
    Column("key", Text, ForeignKey("runs.key"), primary_key=True),
    Column("position", Integer, nullable=False),
)

asked = Table(
    "asked",
    tables,
    Column("study", Text, ForeignKey("studies.name"), primary_key=True),
    Column("key", Text, ForeignKey("runs.key"), primary_key=True),
    Column("question", Text, primary_key=True),  # JSON
    Column("position", Integer, nullable=False),
)

scores = Table(
    "scores",
    tables,
    Column("key", Text, ForeignKey("runs.key"), primary_key=True),
    Column("question", Text, primary_key=True),  # JSON
    Column("length", BigInteger, nullable=False),
    Column("metric", Text, nullable=False),
    Column("better", Text, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("mean", Double),  # NULL: not a number
    Column("standard_error", Double),
    Column("out_of_distribution", Boolean, nullable=False),
    Column("seconds", Double),
    Column("facts", Text, nullable=False),  # JSON
    Column("created", Double, nullable=False),
)

curve = Table(
    "curve",
    tables,
    Column("key", Text, ForeignKey("runs.key"), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("loss", Double),  # NULL: not a number
    Column("learning_rate", Double),
    Column("gradient_norm", Double),
    Column("tokens_per_second", Double),
)

probes = Table(  # since version 2
    "probes",
    tables,
    Column("key", Text, ForeignKey("runs.key"), primary_key=True),
    Column("question", Text, primary_key=True),  # JSON
    Column("result", Text, nullable=False),  # JSON
    Column("created", Double, nullable=False),
    Column("facts", Text, nullable=False),  # JSON
)

Index("study_runs_by_key", study_runs.c.key)

_CREATING = 7266427  # any number, always the same: PostgreSQL's lock for two processes that create the tables at once


def version(connection: Connection, name: str) -> int | None:
    """Which version our tables have; None where there are none.

    `StoreError` when they are another program's, or of a version that this lengthwise cannot read.
    """
    _require_plain(connection, name)
    there = inspect(connection).get_table_names()
    if about.name not in there:
        if there and connection.dialect.name == "sqlite":
            raise StoreError(
                f"{name} is a database of another program (it has the table {there[0]!r}); give another folder or file"
            )
        return None
    versions = [number for number in connection.scalars(select(about.c.schema_version)) if isinstance(number, int)]
    found = max(versions, default=0)
    if len(versions) > 1:
        raise StoreError(damaged(name, f"it has {len(versions)} schema versions instead of one"))
    if len(versions) == 1 and _OLDEST <= found <= SCHEMA_VERSION:
        _require_tables(connection, name, found, there)
        return found
    advice = "upgrade lengthwise" if found > SCHEMA_VERSION else "use the lengthwise that made it"
    raise StoreError(
        f"{name} has schema version {found or 'none'}, and this lengthwise reads versions {_OLDEST} to {SCHEMA_VERSION}; "
        f"{advice}, or give another folder"
    )


def _require_plain(connection: Connection, name: str) -> None:
    """Raise `StoreError` where something else is in a table's place, or where a statement of its own goes off when rows are read
    or written: a view, a trigger, a generated column, a check. Each may run without end."""
    if connection.dialect.name == "sqlite":  # a view and a virtual table have no page of their own
        odd = "SELECT name FROM sqlite_master WHERE lower(tbl_name) = :n AND (type IN ('view', 'trigger') OR rootpage = 0)"
    else:
        odd = (
            "SELECT relname FROM pg_class WHERE pg_table_is_visible(oid) AND relname = :n AND (relkind NOT IN ('r', 'p') "
            "OR EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = pg_class.oid AND NOT tgisinternal))"
        )
    for table in tables.tables:
        if (found := connection.execute(text(odd), {"n": table}).scalar()) is not None:
            raise StoreError(
                f"{name} has {escaped(found)}, a view, virtual table or trigger, at its table {table!r}, which lengthwise never "
                "makes; give other results"
            )
    if connection.dialect.name == "sqlite":
        _require_own_words(connection, name)


def _require_own_words(connection: Connection, name: str) -> None:
    """Raise `StoreError` where the statement that made a table or an index of ours has a word that ours has not, such as AS, CHECK
    or COLLATE, and where there is an index that is none of ours."""
    made = text("SELECT name, sql FROM sqlite_master WHERE lower(tbl_name) = :n AND sql IS NOT NULL")
    for table in tables.sorted_tables:
        statements: list[ExecutableDDLElement] = [CreateTable(table), *map(CreateIndex, table.indexes)]
        known = _TYPES | _words(
            " ".join(str(statement.compile(dialect=connection.dialect)) for statement in statements)
        )
        for item, sql in connection.execute(made, {"n": table.name}):
            odd = sorted(_words(str(sql)) - known)
            if odd or (str(item).lower() != table.name and item not in {index.name for index in table.indexes}):
                said = f" (with {escaped(odd[0])})" if odd else ""
                raise StoreError(
                    f"{name} has {escaped(item)} at its table {table.name!r}, which lengthwise never defines so{said}; give "
                    "other results"
                )


_TYPES = {
    "bigint",
    "boolean",
    "double",
    "float",
    "integer",
    "precision",
    "real",
    "text",
}  # as other versions of SQLAlchemy write


def _words(sql: str) -> set[str]:
    """The words of a statement, names among them, and every sign that is none of a plain definition."""
    return set(re.findall(r"\w+|[^\s\w(),\"]", sql.lower()))


def _require_tables(connection: Connection, name: str, version: int, there: list[str]) -> None:
    """Raise `StoreError` unless there are the tables of the version, and none of a later one."""
    expected = {table for table in tables.tables if version > 1 or table != probes.name}
    columns = (
        {column["name"] for column in inspect(connection).get_columns(studies.name)} if studies.name in there else set()
    )
    if lacking := sorted(expected - set(there)):
        raise StoreError(damaged(name, f"it lacks the table {lacking[0]!r}"))
    if (version > 1) != ("published" in columns) or (version == 1 and probes.name in there):
        raise StoreError(damaged(name, f"it says schema version {version}, and its tables are of another"))


def create(connection: Connection, name: str) -> None:
    """Make the tables, or what they lack, inside a transaction that others wait for, unless another process just did."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _CREATING})
    found = version(connection, name)
    if found is None:
        tables.create_all(connection)
        connection.execute(insert(about).values(schema_version=SCHEMA_VERSION))
    elif found < SCHEMA_VERSION:
        probes.create(connection)
        connection.execute(text("ALTER TABLE studies ADD COLUMN published TEXT"))
        connection.execute(update(about).values(schema_version=SCHEMA_VERSION))
