"""The tables, in plain SQL that both SQLite and PostgreSQL support. Their columns are defined in `rows.py`.

A run's status is not stored. A run is running while a living worker holds it, failed while it has an error, done when it is
trained and every question of its study has a score, and pending otherwise. So a study that adds a length makes its runs pending.
"""

import re
from functools import lru_cache
from typing import Any

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
)
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement
from sqlalchemy.types import TypeEngine

from lengthwise.store import checks
from lengthwise.store.checks import escaped
from lengthwise.store.errors import StoreError, damaged
from lengthwise.store.rows import CurveRow, ProbeRow, RunRow, ScoreRow, StudyRow, cells
from lengthwise.store.shapes import QUESTION

SCHEMA_VERSION = 2
"""The version of the tables below, which every database stores. It rises with each change of the tables, and databases of any
other version are refused."""

tables = MetaData()

about = Table("lengthwise", tables, Column("schema_version", Integer, primary_key=True, autoincrement=False))

_SQL_TYPES: dict[type, type[TypeEngine[Any]]] = {str: Text, int: BigInteger, float: Double, bool: Boolean, dict: Text}


def _columns(row: type, *primary: str) -> list[Column[Any]]:
    """Return the columns of a class of rows, in its order. `primary`: those of the primary key."""
    columns = []
    for member, (kind, cell) in cells(row).items():
        name = cell.column or member
        columns.append(
            Column(
                name,
                Integer if cell.small else _SQL_TYPES[kind],
                *([ForeignKey("runs.key")] if name == "key" and row is not RunRow else []),
                primary_key=name in primary,
                autoincrement=False,
                nullable=_accepts_none(cell.check),
                info={"check": cell.check},
            )
        )
    return columns


def _accepts_none(check: checks.Check) -> bool:
    try:
        check(None)
    except checks.Unreadable:
        return False
    return True


def _of_run(check: checks.Check | None = None) -> Column[str]:
    info = None if check is None else {"check": check}
    return Column("key", Text, ForeignKey("runs.key"), primary_key=True, info=info)


studies = Table("studies", tables, *_columns(StudyRow, "name"))

_run_columns = _columns(RunRow, "key")
# The questions that the worker got with the claim, as JSON.
_run_columns.insert([column.name for column in _run_columns].index("claims"), Column("handed_out", Text))
runs = Table("runs", tables, *_run_columns)

study_runs = Table(
    "study_runs",
    tables,
    Column("study", Text, ForeignKey("studies.name"), primary_key=True),
    _of_run(),
    Column("position", Integer, nullable=False),
)

_question = lru_cache(4096)(checks.parsed(QUESTION))  # all runs of a study have the same few questions

asked = Table(
    "asked",
    tables,
    Column("study", Text, ForeignKey("studies.name"), primary_key=True),
    _of_run(checks.key),
    Column("question", Text, primary_key=True, info={"check": lambda value: dict(_question(value))}),  # JSON
    Column("position", Integer, nullable=False),
)

scores = Table("scores", tables, *_columns(ScoreRow, "key", "question"))
curve = Table("curve", tables, _of_run(), *_columns(CurveRow, "step"))
probes = Table("probes", tables, *_columns(ProbeRow, "key", "question"))

Index("study_runs_by_key", study_runs.c.key)

_CREATION_LOCK = (
    7266427  # an arbitrary constant: PostgreSQL's lock against two processes that create the tables at once
)


def has_tables(connection: Connection, name: str) -> bool:
    """Return whether the database has the tables; False if it is empty.

    Raises `StoreError` for tables of another program, of another schema version, or that are damaged. `name`: the database's
    name in messages.
    """
    _require_plain(connection, name)
    existing = inspect(connection).get_table_names()
    if about.name not in existing:
        if existing and connection.dialect.name == "sqlite":
            raise StoreError(
                f"{name} is a database of another program (it has the table {existing[0]!r}); give another folder or file"
            )
        return False
    versions = [number for number in connection.scalars(select(about.c.schema_version)) if isinstance(number, int)]
    found = max(versions, default=0)
    if len(versions) > 1:
        raise StoreError(damaged(name, f"it has {len(versions)} schema versions instead of one"))
    if found == SCHEMA_VERSION:
        _require_tables(connection, name, existing)
        return True
    advice = "upgrade lengthwise" if found > SCHEMA_VERSION else "use the version of lengthwise that wrote it"
    raise StoreError(
        f"{name} has schema version {found or 'none'}, but this lengthwise reads only version {SCHEMA_VERSION}; "
        f"{advice}, or give another folder"
    )


def _require_plain(connection: Connection, name: str) -> None:
    """Raise `StoreError` for views, triggers, generated columns and checks at our tables.

    They run code of the database's author when rows are read or written, and that code may never end.
    """
    if connection.dialect.name == "sqlite":  # a view and a virtual table have no page of their own
        query = "SELECT name FROM sqlite_master WHERE lower(tbl_name) = :n AND (type IN ('view', 'trigger') OR rootpage = 0)"
    else:
        query = (
            "SELECT relname FROM pg_class WHERE pg_table_is_visible(oid) AND relname = :n AND (relkind NOT IN ('r', 'p') "
            "OR EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = pg_class.oid AND NOT tgisinternal))"
        )
    for table in tables.tables:
        if (found := connection.execute(text(query), {"n": table}).scalar()) is not None:
            raise StoreError(
                f"{name} has {escaped(found)}, a view, virtual table or trigger, at its table {table!r}, which lengthwise never "
                "creates; give another results folder"
            )
    if connection.dialect.name == "sqlite":
        _require_own_keywords(connection, name)


def _require_own_keywords(connection: Connection, name: str) -> None:
    """Raise `StoreError` for an unknown index, and for a table or index whose CREATE statement contains a word that ours does not.

    Examples of such words are AS, CHECK and COLLATE.
    """
    created = text("SELECT name, sql FROM sqlite_master WHERE lower(tbl_name) = :n AND sql IS NOT NULL")
    for table in tables.sorted_tables:
        statements: list[ExecutableDDLElement] = [CreateTable(table), *map(CreateIndex, table.indexes)]
        known = _TYPES | _words(
            " ".join(str(statement.compile(dialect=connection.dialect)) for statement in statements)
        )
        for item, sql in connection.execute(created, {"n": table.name}):
            unknown = sorted(_words(str(sql)) - known)
            if unknown or (str(item).lower() != table.name and item not in {index.name for index in table.indexes}):
                reason = f" (with {escaped(unknown[0])})" if unknown else ""
                raise StoreError(
                    f"{name} has {escaped(item)} at its table {table.name!r}, which lengthwise never defines this way{reason}; "
                    "give another results folder"
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
}  # names of types in other versions of SQLAlchemy


def _words(sql: str) -> set[str]:
    """Return the words of a statement in lower case, including names, and all punctuation but parentheses, commas and quotes."""
    return set(re.findall(r"\w+|[^\s\w(),\"]", sql.lower()))


def _require_tables(connection: Connection, name: str, existing: list[str]) -> None:
    """Raise `StoreError` unless all tables exist."""
    if lacking := sorted(set(tables.tables) - set(existing)):
        raise StoreError(damaged(name, f"it lacks the table {lacking[0]!r}"))
    for table in tables.sorted_tables:
        columns = {column["name"] for column in inspect(connection).get_columns(table.name)}
        if lacking := sorted(set(table.c.keys()) - columns):
            raise StoreError(damaged(name, f"its table {table.name!r} lacks the column {lacking[0]!r}"))


def create(connection: Connection, name: str) -> None:
    """Create the tables unless they exist. The transaction locks the database, so two processes cannot both create them."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _CREATION_LOCK})
    if not has_tables(connection, name):
        tables.create_all(connection)
        connection.execute(insert(about).values(schema_version=SCHEMA_VERSION))
