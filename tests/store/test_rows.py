"""The columns are defined once, in the dataclasses of rows: tables, checks and what callers give follow from them."""

import dataclasses

import pytest
from sqlalchemy import BigInteger, Double, Integer, Table, Text

from lengthwise.evaluation import Score
from lengthwise.store import AnswerRow, CurveRow, RunRow, ScoreRow, StudyRow, schema
from lengthwise.store.cells import escaped
from lengthwise.store.rows import cells

TABLES = [
    (schema.runs, RunRow),
    (schema.studies, StudyRow),
    (schema.scores, ScoreRow),
    (schema.curve, CurveRow),
    (schema.answers, AnswerRow),
]


@pytest.mark.parametrize(("table", "row"), TABLES, ids=[row.__name__ for _, row in TABLES])
def test_a_table_has_the_columns_of_its_rows(table: Table, row: type) -> None:
    names = [stored.cell.column or member for member, stored in cells(row).items()]
    assert [c.name for c in table.c if c.name in names] == names
    assert {c.name for c in table.c} - set(names) <= {"handed_out", "position", "key"}
    assert all(table.c[name].info["type"] for name in names)


def test_types_and_nulls_follow_from_the_members() -> None:
    assert isinstance(schema.scores.c.n.type, BigInteger)
    assert isinstance(schema.scores.c.mean.type, Double)
    assert isinstance(schema.scores.c.question.type, Text)
    assert type(schema.runs.c.claims.type) is Integer
    assert [c.name for c in schema.scores.c if c.nullable] == ["mean", "standard_error", "seconds"], "NULL is NaN"
    assert not schema.runs.c.label.nullable
    assert schema.runs.c.error.nullable


def test_an_evaluation_gives_what_a_score_needs() -> None:
    fields = {f.name for f in dataclasses.fields(Score)}
    given = {name for name, member in cells(ScoreRow).items() if member.cell.given}
    assert fields - {"details"} == given - {"facts"}, "a worker stores the details with the facts"


def test_a_long_value_is_cut_in_messages() -> None:
    assert escaped("x" * 58) == repr("x" * 58)
    assert escaped("\x1b" + "x" * 58) == f"'\\x1b{'x' * 52}..."
