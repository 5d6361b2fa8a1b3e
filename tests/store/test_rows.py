"""The columns are defined once, in the dataclasses of rows: tables, checks and what callers give follow from them."""

import pytest
from sqlalchemy import BigInteger, Double, Integer, Table, Text

from lengthwise.store import AnswerRow, RunRow, StudyRow, schema
from lengthwise.store.cells import escaped
from lengthwise.store.rows import cells

TABLES = [
    (schema.runs, RunRow),
    (schema.studies, StudyRow),
    (schema.answers, AnswerRow),
]


@pytest.mark.parametrize(("table", "row"), TABLES, ids=[row.__name__ for _, row in TABLES])
def test_a_table_has_the_columns_of_its_rows(table: Table, row: type) -> None:
    names = list(cells(row))
    assert [c.name for c in table.c if c.name in names] == names
    assert {c.name for c in table.c} - set(names) <= {"position", "key"}
    assert all(table.c[name].info["type"] for name in names)


def test_types_and_nulls_follow_from_the_members() -> None:
    assert isinstance(schema.runs.c.seed.type, BigInteger)
    assert isinstance(schema.answers.c.created.type, Double)
    assert isinstance(schema.answers.c.question.type, Text)
    assert type(schema.runs.c.claims.type) is Integer
    assert not any(column.nullable for column in schema.answers.c)
    assert not schema.runs.c.label.nullable
    assert schema.runs.c.error.nullable


def test_a_long_value_is_cut_in_messages() -> None:
    assert escaped("x" * 58) == repr("x" * 58)
    assert escaped("\x1b" + "x" * 58) == f"'\\x1b{'x' * 52}..."
