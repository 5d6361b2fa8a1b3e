"""Loss, learning rate and cost of the training, from the rows of the store to the page."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.analysis.intervals import quantile_t
from lengthwise.analysis.training_curves import ALL_POINTS, MOST_POINTS, points_of_each
from lengthwise.report import render
from lengthwise.report.palette import looks
from lengthwise.report.training_curves import training_curves
from lengthwise.store import CurveRow
from tests.report.charts_of import charts_of, require_valid

Make = Callable[..., Any]
STEPS = (100, 300, 600)


def points(*losses: float, rate: float = 1e-3) -> list[CurveRow]:
    return [
        CurveRow(step, loss, rate * (1 - step / 600), 1.0, 1e4)
        for step, loss in zip(STEPS[: len(losses)], losses, strict=True)
    ]


@pytest.fixture
def studied(make_row: Make, make_score: Make, make_study: Make) -> Findings:
    """FIRE with two seeds, the second of them cut short, and a run of NoPE with strange facts."""
    facts = {"seconds": 60.0, "peak_memory": 400_000_000, "parameters": 800, "backend": "fused"}
    runs = [
        make_row(key="a" * 16, seed=0, facts=facts),
        make_row(key="b" * 16, seed=1, facts=facts | {"seconds": 64.0, "peak_memory": 440_000_000, "backend": "sdpa"}),
        make_row(
            key="c" * 16,
            label="NoPE",
            encoding="NoPE",
            facts={"seconds": "long", "peak_memory": 1.5, "parameters": True, "backend": 3},
        ),
        make_row(key="d" * 16, label="RoPE", encoding="RoPE"),
    ]
    curves = {
        "a" * 16: points(2.0, 1.0, 0.5),
        "b" * 16: points(2.2, 0.7),
        "c" * 16: points(3.0, 2.0, math.nan, rate=2e-3),
    }
    return from_rows([make_study()], runs, [make_score(runs[0], 128, 2.0)], curves=curves)


def test_what_is_gathered(studied: Findings) -> None:
    (task,) = studied.tasks
    assert list(task.curves) == ["FIRE", "NoPE"], "RoPE has no point yet"
    first, second = task.curves["FIRE"]
    assert (first.steps, first.losses, first.seconds, first.parameters, first.backend) == (
        STEPS,
        (2.0, 1.0, 0.5),
        60,
        800,
        "fused",
    )
    assert (second.seed, second.steps, second.last_loss) == (1, STEPS[:2], 0.7)
    (strange,) = task.curves["NoPE"]
    assert strange.last_loss == 2.0, "the last one that is a number"
    assert math.isnan(strange.seconds) and strange.parameters is None and strange.backend is None


def test_the_charts_and_the_table(studied: Findings) -> None:
    task = studied.tasks[0]
    made = training_curves(task, looks(studied.labels))
    assert made is not None and not made["one_schedule"]
    for part in (*made["charts"], *made["schedules"]):
        require_valid(part["chart"])
    fire, nope = ([(row["name"], row["x"], row["y"]) for row in part["chart"].rows] for part in made["charts"])
    assert fire == [(0, 100, 2.0), (0, 300, 1.0), (0, 600, 0.5), (1, 100, 2.2), (1, 300, 0.7)]
    assert [point[1:] for point in nope] == [(100, 3.0), (300, 2.0)]
    (schedules,) = made["schedules"]
    assert schedules["chart"].values("name") == [0, 1, 2], "one is a part of another"
    cells = [[(cell["mean"], cell["spread"]) for cell in row["cells"]] for row in made["rows"]]
    # Two seeds: mean ± t(1) · s / √2, with s = |a − b| / √2.
    loss, seconds = quantile_t(1) * 0.2 / 2, quantile_t(1) * 4 / 2
    assert cells[0] == [
        ("0.600", f"±\xa0{loss:.3f}"),
        ("62.000", f"±\xa0{seconds:.3f}"),
        ("420", f"±\xa0{10 * seconds:.0f}"),
        ("800", ""),
        ("fused or sdpa", ""),
    ]
    assert [mean for mean, _ in cells[1]] == ["2.000", "–", "–", "–", "–"]


def test_the_page_has_them(studied: Findings) -> None:
    text = render(studied)
    part = re.search(r'<details class="training">.*?</details>', text, flags=re.S)
    assert part and part[0].count('class="chart"') == 3 and "fused or sdpa" in part[0]
    assert len(charts_of(part[0])) == 3
    assert 'class="training"' not in render(from_rows(studied.studies and [], [], []))


@pytest.mark.parametrize(
    ("runs", "each"), [(0, MOST_POINTS), (1, MOST_POINTS), (2000, ALL_POINTS // 2000), (100_000, 10)]
)
def test_many_runs_have_fewer_points_each(runs: int, each: int) -> None:
    assert points_of_each(runs) == each
