"""Tables of answers: what is stored comes back, and rows are combined as defined."""

import json
import math

import pytest

from lengthwise.measurements.table import Table, joined

ROWS = [
    {"layer": 1, "head": 1, "weight": 0.25, "n": 2},
    {"layer": 1, "head": 2, "weight": 0.75, "n": 6},
    {"layer": 2, "head": 1, "weight": math.nan, "n": 1},
    {"layer": 2, "head": 2, "weight": 1.0, "n": 1},
    {"score": 3, "on": "all"},
]


def test_what_is_stored_comes_back() -> None:
    long = [{"layer": n // 100, "flag": n > 3, "x": n / 7} for n in range(400)]
    for rows in (ROWS[:2], long, [{"a": math.inf}, {"a": -math.inf}, {"a": None}, {"a": 0}, {"a": False}]):
        table = Table.from_rows(rows)
        again = Table.from_data(json.loads(json.dumps(table.to_data(), allow_nan=False)))
        assert again == table
        assert [list(map(type, row.values())) for row in again] == [list(map(type, row.values())) for row in rows]
    stored = Table.from_rows(long).to_data()
    assert stored["layer"] == {"runs": [[0, 100], [1, 100], [2, 100], [3, 100]]}, "a column of keys takes no space"
    assert isinstance(stored["x"], list)


def test_rows_are_combined() -> None:
    table = Table.from_rows(ROWS)
    assert table.combined("weight", ("layer",), {"layer": 1}) == {(1,): 0.5}
    assert table.combined("weight", ("layer",), {"layer": 1}, weight="n") == {(1,): 0.625}
    assert table.combined("weight", ("layer",), {"layer": 1}, "max") == {(1,): 0.75}
    assert table.combined("n", ("layer",), {}, "sum") == {(1,): 8, (2,): 2}
    assert table.combined("weight", (), {"layer": (1, 2), "head": 2}) == {(): 0.875}
    assert math.isnan(table.combined("weight", ("layer",), {})[2,]), "one number is not finite"
    assert table.combined("score", (), {}) == {(): 3}, "rows to which a column does not apply are left out"
    assert table.combined("missing", (), {}) == {}


def test_nested_lists_and_joined_tables() -> None:
    table = Table.from_rows(ROWS[:2])
    assert table.grid("weight", "layer", "head") == [[0.25, 0.75]]
    assert table.grid("weight", layer=1, head=2) == 0.75
    with pytest.raises(ValueError, match="unpack"):
        table.grid("weight", layer=1)
    both = joined([table, Table.from_rows([{"score": 1}])])
    assert (len(both), both.column("score"), both.first("score")) == (3, [None, None, 1], 1)
