"""The heat maps at the top of the page."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import render
from lengthwise.report.overview import ends, overview

Make = Callable[..., Any]


def cells(made: dict[str, Any]) -> dict[tuple[str, str], float]:
    """The strength of the colour by encoding and length, of the cells that have a score."""
    return {(row["label"], row["x"]): row["y"] for row in made["chart"].rows if row["y"] is not None}


@pytest.fixture
def text(make_row: Make, make_score: Make, make_study: Make) -> Findings:
    """Losses at two lengths: 2 and 3, 1.8 and 12, and a score that is missing."""
    runs = [
        make_row(key=c * 16, label=label, encoding=label) for c, label in (("a", "RoPE"), ("b", "NoPE"), ("c", "ALiBi"))
    ]
    values = [(0, 128, 2.0), (0, 1024, 3.0), (1, 128, 1.8), (1, 1024, 12.0), (2, 128, 2.2)]
    return from_rows([make_study()], runs, [make_score(runs[n], length, mean) for n, length, mean in values])


def test_rows_columns_and_colours(text: Findings) -> None:
    task = text.tasks[0]
    # Sorted losses: 1.8, 2.0, 2.2, 3.0, 12.0. The palest cell is at 1.8 + 2 · (2.2 − 1.8) = 2.6, nearer than 12.
    assert ends(task) == (pytest.approx(2.6), 1.8)
    (made,) = overview([task])
    assert made["chart"].values("label") == ["RoPE", "NoPE", "ALiBi"], "by the score at the longest length"
    assert made["chart"].values("x") == [f"{n:,}" for n in task.lengths]
    strength = {("RoPE", "128"): 0.75, ("NoPE", "128"): 1.0, ("ALiBi", "128"): 0.5}
    strength |= {("RoPE", "1,024"): 0.0, ("NoPE", "1,024"): 0.0}
    assert cells(made) == strength, "no cell where there is no score"
    assert made["note"] == f"{task.metric_label}: pale 2.600 or worse, strong 1.800"
    assert made["chart"].mark.at == "256", "training had at most 128"


def test_shares_have_the_same_colours_in_every_task(make_row: Make, make_score: Make, make_study: Make) -> None:
    common = {"task": "Copy", "metric": "exact match", "better": "higher", "unit": "symbols"}
    runs = [make_row(key=c * 16, label=label, encoding=label, **common) for c, label in (("a", "RoPE"), ("b", "NoPE"))]
    values = [(0, 128, 0.5), (0, 256, 0.25), (1, 128, 1.0), (1, 256, 0.0)]
    scores = [make_score(runs[n], length, mean) for n, length, mean in values]
    (made,) = overview(from_rows([make_study()], runs, scores).tasks)
    assert sorted(cells(made).values()) == [0.0, 0.25, 0.5, 1.0]
    assert made["note"].endswith("pale 0.000, strong 1.000")


def test_nothing_to_compare_has_no_heat_map(text: Findings) -> None:
    task = text.tasks[0]
    assert overview([replace(task, series=task.series[:1])]) == []
    assert overview([replace(task, lengths=(128,))]) == []
    assert overview([replace(task, series=tuple(replace(s, points=()) for s in task.series))]) == []
    assert 'id="overview"' not in render(replace(text, tasks=()))


def test_the_page_leads_from_a_heat_map_to_its_task(text: Findings) -> None:
    page = render(text)
    part = re.search(r'<section class="card overview".*?</section>', page, flags=re.S)
    assert part and part[0].count('role="img"') == 1
    (target,) = re.findall(r'href="#([^"]+)"', part[0])
    assert f'id="{target}"' in page
    assert all(math.isfinite(shade) for shade in cells(overview(text.tasks)[0]).values())
