"""The lists of tiles that are kept are those that would be computed again."""

import itertools

import pytest
import torch

from lengthwise.attention.fused.arguments import SEGMENTS, Arguments
from lengthwise.attention.fused.gpu import tiles

CPU = torch.device("cpu")
BIASES = {
    "none": {},
    "table": {"table": torch.randn(2, 40), "table_first": -3},
    "longer table": {"table": torch.randn(2, 300), "table_first": -3},
    "table from 5": {"table": torch.randn(1, 40), "table_first": 5},
    "rows": {"rows": torch.randn(1, 2, 100, 40), "rows_first": -3},
}
BIASES["both"] = BIASES["table"] | BIASES["rows"] | {"rows_first": 5}
MASKS = {"causal": {}, "window": {"window": 50}, "both ways": {"causal": False}}


def case_of(bias: str, mask: str, queries: int = 100) -> tiles.Case:
    return tiles.Case(Arguments(**BIASES[bias], **MASKS[mask]), queries, 205, CPU)


def build(case: tiles.Case, *sizes: object) -> tuple[object, ...]:
    """Return what a list may depend on."""
    return (case.layout, case.batch, case.has_bias, case.has_tables_only, *sizes)


def test_lists_that_are_kept_are_those_of_the_case():
    for bias, mask, queries in itertools.product(BIASES, MASKS, (100, 205)):
        for sizes in ((32, 16), (16, 16)):
            case = case_of(bias, mask, queries)
            found = tiles.lists(build, case, *sizes)
            assert found == build(case, *sizes)
            assert tiles.lists(build, case_of(bias, mask, queries), *sizes) is found


@pytest.mark.parametrize("what", ["segments", "positions", "documents"])
def test_lists_that_depend_on_tensors_are_not_kept(what):
    position = torch.arange(205)[None]
    arguments = Arguments(**BIASES["table"])
    if what == "segments":
        line = torch.zeros(1, 1)
        segments = line, line, torch.zeros(0), torch.arange(205.0), torch.ones(1, 205)
        arguments = Arguments(**dict(zip(SEGMENTS, segments, strict=True)))
    elif what == "positions":
        arguments = arguments._replace(position_q=position, position_k=position)
    else:
        arguments = arguments._replace(documents=position // 50)
    case = tiles.Case(arguments, 205, 205, CPU)
    assert case.layout is None
    assert tiles.lists(build, case, 32, 16) is not tiles.lists(build, case, 32, 16)
