"""The first tables."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Double, ForeignKey, Integer, Text, text

revision = "1"
down_revision = None


def upgrade() -> None:
    op.create_table("lengthwise", Column("results_id", Text))
    op.create_table(
        "studies",
        Column("name", Text, primary_key=True),
        Column("question", Text, nullable=False),
        Column("expectation", Text, nullable=False),
        Column("cost", Text, nullable=False),
        Column("command", Text, nullable=False),
        Column("evaluation", Text, nullable=False),
        Column("created", Double, nullable=False),
        Column("updated", Double, nullable=False),
        Column("published", Text),
    )
    op.create_table(
        "runs",
        Column("key", Text, primary_key=True),
        Column("label", Text, nullable=False),
        Column("encoding", Text, nullable=False),
        Column("task", Text, nullable=False),
        Column("metric", Text, nullable=False),
        Column("better", Text, nullable=False),
        Column("unit", Text, nullable=False),
        Column("seed", BigInteger, nullable=False),
        Column("train_length", BigInteger, nullable=False),
        Column("config", Text, nullable=False),
        Column("parent", Text),
        Column("created", Double, nullable=False),
        Column("worker", Text),
        Column("heartbeat", Double),
        Column("handed_out", Text),
        Column("claims", Integer, nullable=False),
        Column("failures", Integer, nullable=False),
        Column("deaths", Integer, nullable=False),
        Column("step", BigInteger, nullable=False),
        Column("steps", BigInteger, nullable=False),
        Column("started", Double),
        Column("finished", Double),
        Column("error", Text),
        Column("facts", Text, nullable=False),
        Column("position", Integer, nullable=False),
    )
    op.create_table(
        "study_runs",
        Column("study", Text, ForeignKey("studies.name"), primary_key=True),
        Column("key", Text, ForeignKey("runs.key"), primary_key=True),
        Column("position", Integer, nullable=False),
    )
    op.create_table(
        "asked",
        Column("study", Text, ForeignKey("studies.name"), primary_key=True),
        Column("key", Text, ForeignKey("runs.key"), primary_key=True),
        Column("question", Text, primary_key=True),
        Column("position", Integer, nullable=False),
    )
    op.create_table(
        "scores",
        Column("key", Text, ForeignKey("runs.key"), primary_key=True),
        Column("question", Text, primary_key=True),
        Column("length", BigInteger, nullable=False),
        Column("metric", Text, nullable=False),
        Column("better", Text, nullable=False),
        Column("n", BigInteger, nullable=False),
        Column("mean", Double),
        Column("standard_error", Double),
        Column("out_of_distribution", Boolean, nullable=False),
        Column("seconds", Double),
        Column("facts", Text, nullable=False),
        Column("created", Double, nullable=False),
    )
    op.create_table(
        "curve",
        Column("key", Text, ForeignKey("runs.key"), primary_key=True),
        Column("step", BigInteger, primary_key=True, autoincrement=False),
        Column("loss", Double),
        Column("learning_rate", Double),
        Column("gradient_norm", Double),
        Column("tokens_per_second", Double),
    )
    op.create_table(
        "answers",
        Column("key", Text, ForeignKey("runs.key"), primary_key=True),
        Column("question", Text, primary_key=True),
        Column("rows", Text, nullable=False),
        Column("created", Double, nullable=False),
        Column("facts", Text, nullable=False),
    )
    op.create_index("study_runs_by_key", "study_runs", ["key"])
    untrained = text("finished IS NULL AND error IS NULL AND worker IS NULL")
    op.create_index("untrained_runs", "runs", ["position", "key"], sqlite_where=untrained, postgresql_where=untrained)
    held = text("worker IS NOT NULL")
    op.create_index("held_runs", "runs", ["key"], sqlite_where=held, postgresql_where=held)
