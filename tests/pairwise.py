"""Tests with several factors: quick for every pair of values, slow for all other combinations.

Most defects need at most two particular values, such as a kind of bias together with a kind of mask. A few rows contain
every such pair; the full product contains them many times.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def pairwise(**factors: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test over the full product of the factors, and mark as `slow` all rows that `cover` leaves out.

    Each factor is an argument of the test and its values. At least three factors are needed: the pairs of two factors
    are their full product, for which `pytest.mark.parametrize` is enough.
    """
    if len(factors) < 3:
        raise ValueError(f"pairwise needs at least three factors, got {len(factors)}; use pytest.mark.parametrize")
    values = {name: list(given) for name, given in factors.items()}
    rows = itertools.product(*(range(len(given)) for given in values.values()))
    quick = set(cover([len(given) for given in values.values()]))
    return pytest.mark.parametrize(
        tuple(values),
        [
            pytest.param(
                *(given[n] for given, n in zip(values.values(), row, strict=True)),
                marks=[] if row in quick else pytest.mark.slow,
                id="-".join(label(given[n]) for given, n in zip(values.values(), row, strict=True)),
            )
            for row in rows
        ],
    )


def cover(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return rows of indices, below these sizes, that together contain every pair of indices of two factors.

    Greedy: each row takes a pair that is missing, and then for each other factor the index that adds most missing
    pairs. The rows depend on the sizes alone.
    """
    if 0 in sizes:
        return []
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(range(len(sizes)), 2)
        for i, j in itertools.product(range(sizes[a]), range(sizes[b]))
    }
    rows = []
    while missing:
        row = dict(min(missing))
        for factor in sorted(set(range(len(sizes))) - row.keys(), key=lambda factor: -sizes[factor]):
            # Among indices that add equally many pairs, the rows take turns.
            choices = [
                (
                    sum(tuple(sorted([(factor, n), other])) in missing for other in row.items()),
                    (len(rows) - n) % sizes[factor],
                    n,
                )
                for n in range(sizes[factor])
            ]
            row[factor] = max(choices)[2]
        rows.append(tuple(row[factor] for factor in range(len(sizes))))
        missing -= set(itertools.combinations(sorted(row.items()), 2))
    return rows


def label(value: Any) -> str:
    return str(getattr(value, "__name__", value))
