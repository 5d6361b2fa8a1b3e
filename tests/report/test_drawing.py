"""Charts of probes: scales, lines and the labels at their ends."""

import pytest
from lengthwise.report.drawing import LABEL_DISTANCE, plane, robust_highest, smooth_path, spaced, ticks_up_to

from lengthwise.analysis.intervals import over_examples
from lengthwise.report.palette import looks

LABELS = ("NoPE", "RoPE", "ALiBi", "FIRE")


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (0.158, [0, 0.05, 0.1, 0.15, 0.2]),
        (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0003, [0, 0.0001, 0.0002, 0.0003]),
        (0, [0, 0.5, 1]),
    ],
)
def testticks_up_to(highest: float, expected: list[float]) -> None:
    assert ticks_up_to(highest) == pytest.approx(expected)


def test_names_do_not_touch() -> None:
    assert spaced([50.0, None, 50.0, 51.0, 0.0]) == [50.0, None, 56.4, 62.8, 0.0]
    crowded = spaced([99.0, 98.0, 100.0])
    assert crowded == [93.6, 87.2, 100.0]
    assert all(abs(a - b) >= LABEL_DISTANCE - 1e-9 for a in crowded for b in crowded if a is not b and a and b)


def test_a_line_of_many_places_has_means_of_neighbours() -> None:
    assert smooth_path([0.0, 1.0, 0.5], 1.0) == "M0,100L50,0L100,50"
    many = smooth_path([0.0, 1.0] * 100, 1.0)
    assert many.count(",") == 100
    assert many.startswith("M0.3,50L1.3,50")
    assert smooth_path([0.0, float("nan"), 0.5], 1.0) == "M0,100L100,50"


def test_a_few_far_scores_do_not_flatten_the_others() -> None:
    assert robust_highest([1, 1, 1, 1, 1000], 3) == 3
    assert robust_highest([1, 2, 3], 3) == 3
    lines = [(label, [over_examples(value, 0.01)]) for label, value in zip(LABELS, (1, 1.1, 1.2, 500), strict=True)]
    lines += [(f"x{n}", [over_examples(1.0, 0.01)]) for n in range(4)]
    drawn = plane(lines, [50], looks([label for label, _ in lines]), highest=None)
    assert drawn["over"]
    assert drawn["series"][3]["points"][0]["y"] == 0
    assert drawn["series"][0]["points"][0]["y"] > 50
