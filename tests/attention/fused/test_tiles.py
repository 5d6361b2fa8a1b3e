"""The lists of tiles that are kept are those that would be computed again."""

import itertools

import pytest
import torch

from lengthwise.attention.fused.arguments import Biases, Geometry, Rows, Segments
from lengthwise.attention.fused.gpu import tiles

CPU = torch.device("cpu")
BIASES = {
    "none": (Biases(), Rows()),
    "table": (Biases(torch.randn(2, 40), -3), Rows()),
    "longer table": (Biases(torch.randn(2, 300), -3), Rows()),
    "table from 5": (Biases(torch.randn(1, 40), 5), Rows()),
    "rows": (Biases(), Rows(torch.randn(1, 2, 100, 40), -3)),
    "both": (Biases(torch.randn(2, 40), -3), Rows(torch.randn(1, 2, 100, 40), 5)),
}
GEOMETRIES = {
    "causal": Geometry(None, None, None, True, 0),
    "window": Geometry(None, None, None, True, 50),
    "both ways": Geometry(None, None, None, False, 0),
}
BUILDERS = [
    (tiles.by_queries, (32, 16)),
    (tiles.by_keys, (32, 16)),
    (tiles.by_queries, (16, 16)),
    (tiles.by_distance, (16, (32, 16))),
]


def case_of(bias: str, geometry: str, queries: int = 100) -> tiles.Case:
    return tiles.Case(*BIASES[bias], GEOMETRIES[geometry], queries, 205, CPU)


def test_lists_that_are_kept_are_those_of_the_case():
    for bias, geometry, queries in itertools.product(BIASES, GEOMETRIES, (100, 205)):
        for build, sizes in BUILDERS[: len(BUILDERS) if bias != "none" else 3]:
            case = case_of(bias, geometry, queries)
            expected, found = build(case, *sizes), tiles.lists(build, case, *sizes)
            assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
            assert found[2:] == expected[2:]
            assert tiles.lists(build, case, *sizes) is found


@pytest.mark.parametrize("what", ["segments", "positions", "documents"])
def test_lists_that_depend_on_tensors_are_not_kept(what):
    biases, rows = BIASES["table"]
    position, geometry = torch.arange(205)[None], GEOMETRIES["causal"]
    if what == "segments":
        line = torch.zeros(1, 1)
        biases = Biases(None, 0, Segments(line, line, torch.zeros(0), torch.arange(205.0), torch.ones(1, 205)))
    elif what == "positions":
        geometry = geometry._replace(position_q=position, position_k=position)
    else:
        geometry = geometry._replace(documents=position // 50)
    case = tiles.Case(biases, rows, geometry, 205, 205, CPU)
    assert case.layout is None
    assert tiles.lists(tiles.by_queries, case, 32, 16) is not tiles.lists(tiles.by_queries, case, 32, 16)
