"""A made-up second revision of the tables."""

import shutil
from pathlib import Path

from sqlalchemy import BigInteger, Column, ForeignKey, MetaData, Table, Text

from lengthwise.store import migrations, schema

FIRST = Path(migrations.__file__).parent / "versions" / "revision_1.py"
TABLES = schema.tables  # of the first revision
SECOND = """
from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Text

revision, down_revision = "2", "1"


def upgrade():
    op.create_table(
        "notes",
        Column("key", Text, ForeignKey("runs.key"), primary_key=True),
        Column("note", Text, nullable=False),
    )
    op.execute("INSERT INTO notes SELECT key, label FROM runs")
    op.drop_index("study_runs_by_key", "study_runs")
    op.add_column("runs", Column("priority", BigInteger))
    op.execute("UPDATE runs SET priority = position + 10")
    with op.batch_alter_table("runs") as runs:  # SQLite replaces the table, to which five others refer
        runs.alter_column("priority", existing_type=BigInteger(), nullable=False)
    LAST
"""


def write_revisions(folder: Path, last: str = "pass") -> None:
    """Write the first revision and a second one, which ends with the statement `last`."""
    versions = folder / "versions"
    versions.mkdir(parents=True, exist_ok=True)
    shutil.copy(FIRST, versions)
    (versions / "revision_2.py").write_text(SECOND.replace("LAST", last))


def second_tables() -> MetaData:
    tables = MetaData()
    for table in TABLES.sorted_tables:
        table.to_metadata(tables)
    tables.tables["runs"].append_column(Column("priority", BigInteger, nullable=False))
    tables.tables["study_runs"].indexes.clear()
    notes = (Column("key", Text, ForeignKey("runs.key"), primary_key=True), Column("note", Text, nullable=False))
    Table("notes", tables, *notes)
    return tables
