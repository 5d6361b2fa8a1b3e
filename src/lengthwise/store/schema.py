"""The tables, in plain SQL that both SQLite and PostgreSQL support. Their columns are defined in `rows.py`.

A run's status is not stored. A run is running while a living worker holds it, failed while it has an error, done
when it is trained and every question of its study has a score, and pending otherwise. So a study that adds a length
makes its runs pending.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    and_,
)
from sqlalchemy.types import TypeEngine

from lengthwise.store.cells import Key, Question
from lengthwise.store.rows import AnswerRow, RunRow, StudyRow, cells

REVISION = 1
"""The revision of the tables below. Every database stores its own, and databases of any other revision are refused."""

tables = MetaData()

# One row with the revision, in the form of Alembic, which can therefore change these tables when there is a second one.
version = Table(
    "lengthwise_schema",
    tables,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="lengthwise_schema_pkc"),
)

# One row.
about = Table(
    "lengthwise",
    tables,
    Column("results_id", Text),  # of the results folder, if the database is elsewhere; see `folders.results_id`
)

_SQL_TYPES: dict[type, type[TypeEngine[Any]]] = {str: Text, int: BigInteger, float: Double, dict: Text}


def _columns(row: type, *primary: str) -> list[Column[Any]]:
    """Return the columns of a class of rows, in its order. `primary`: those of the primary key."""
    columns = []
    for name, member in cells(row).items():
        columns.append(
            Column(
                name,
                Integer if member.cell.small else _SQL_TYPES[member.plain],
                *([ForeignKey("runs.key")] if name == "key" and row is not RunRow else []),
                primary_key=name in primary,
                autoincrement=False,
                nullable=member.nullable,
                info={"type": member.type},
            )
        )
    return columns


def _of_run(**info: Any) -> Column[str]:
    return Column("key", Text, ForeignKey("runs.key"), primary_key=True, info=info)


studies = Table("studies", tables, *_columns(StudyRow, "name"))

_run_columns = _columns(RunRow, "key")
# The place in the study that added the run, in whose order runs are claimed.
_run_columns.append(Column("position", Integer, nullable=False))
runs = Table("runs", tables, *_run_columns)

study_runs = Table(
    "study_runs",
    tables,
    Column("study", Text, ForeignKey("studies.name"), primary_key=True),
    _of_run(),
    Column("position", Integer, nullable=False),
)

requested_questions = Table(
    "asked",
    tables,
    Column("study", Text, ForeignKey("studies.name"), primary_key=True),
    _of_run(type=Key),
    Column("question", Text, primary_key=True, info={"type": Question}),  # JSON
    Column("position", Integer, nullable=False),
)

answers = Table("answers", tables, *_columns(AnswerRow, "key", "measurement", "question"))

Index("study_runs_by_key", study_runs.c.key)
_untrained = and_(runs.c.finished.is_(None), runs.c.error.is_(None), runs.c.worker.is_(None))  # what workers look for
Index("untrained_runs", runs.c.position, runs.c.key, sqlite_where=_untrained, postgresql_where=_untrained)
_held = runs.c.worker.is_not(None)
Index("held_runs", runs.c.key, sqlite_where=_held, postgresql_where=_held)
