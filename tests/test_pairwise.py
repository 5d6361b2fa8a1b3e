"""Pairwise parametrization: every pair runs quickly, every row runs at all, and the choice never changes."""

import itertools
import math

import pytest

from tests.pairwise import cover, pairwise


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (2, 2, 2), (3, 1, 4), (8, 6, 3), (4, 4, 5, 5, 2), (2, 3, 4, 5, 6, 7)], ids=str
)
def test_every_pair_is_covered_by_few_rows(sizes):
    rows = cover(sizes)
    for a, b in itertools.combinations(range(len(sizes)), 2):
        assert {(row[a], row[b]) for row in rows} == set(itertools.product(range(sizes[a]), range(sizes[b])))
    assert len(rows) == len(set(rows))
    largest = math.prod(sorted(sizes)[-2:])
    assert largest <= len(rows) <= 1.6 * largest
    assert rows == cover(sizes)


def test_all_rows_are_there_and_all_but_the_cover_are_slow():
    factors = {"kind": ["none", "table", "rows"], "make": [int, float], "size": [(1, 1), (7, 9)]}
    names, rows = pairwise(**factors).args
    assert names == ("kind", "make", "size")
    assert [row.values for row in rows] == list(itertools.product(*factors.values()))
    assert [row.id for row in rows][:2] == ["none-int-(1, 1)", "none-int-(7, 9)"]
    quick = [row.values for row in rows if not row.marks]
    assert {mark.name for row in rows for mark in row.marks} == {"slow"}
    assert len(quick) == len(cover([3, 2, 2])) < len(rows)


def test_a_factor_without_values_leaves_no_rows():
    assert pairwise(target=(), kind=[1, 2], size=[3]).args[1] == []


def test_two_factors_are_refused():
    with pytest.raises(ValueError, match="at least three factors, got 2; use pytest"):
        pairwise(a=[1], b=[2])
