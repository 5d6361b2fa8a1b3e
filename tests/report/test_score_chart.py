"""The chart of scores: valid, and readable when scores explode."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from lengthwise.analysis import Baseline, Findings, TaskFindings, from_rows
from lengthwise.report.charts.chart import Chart
from lengthwise.report.charts.drawing import page_data
from lengthwise.report.palette import looks
from lengthwise.report.score_chart import describe, first, ranges, score_chart
from tests.report.charts_of import require_valid, symbols

Make = Callable[..., Any]


def task_of(table: dict[str, list[float]], make_row: Make, make_score: Make, **changes: Any) -> TaskFindings:
    runs = [make_row(key=label, label=label, **changes) for label in table]
    pairs = [
        (run, asked["length"], mean)
        for run in runs
        for asked, mean in zip(run.questions, table[run.label], strict=True)
    ]
    return from_rows([], runs, [make_score(*p) for p in pairs]).tasks[0]


def chart_of(task: TaskFindings) -> Chart:
    return score_chart(task, looks([series.label for series in task.series]))


@pytest.mark.parametrize("number", [0, 1])
def test_altair_finds_the_chart_valid(number: int, quickstart: Findings) -> None:
    import altair
    import jsonschema

    made = require_valid(chart_of(quickstart.tasks[number]))
    broken = json.loads(json.dumps(made).replace('"nominal"', '"nominial"'))
    with pytest.raises(jsonschema.ValidationError):
        altair.Chart.from_dict(broken)


def test_lengths_are_the_ticks_of_a_log2_axis(quickstart: Findings) -> None:
    chart = chart_of(quickstart.tasks[0])
    assert chart.columns is not None and chart.columns.log and chart.mark is not None
    assert list(chart.columns.at) == [128, 256, 512, 1024]
    assert chart.columns.ticks == [["128", "1×"], ["256", "2×"], ["512", "4×"], ["1,024", "8×"]]
    assert (chart.mark.at, chart.mark.left) == (128, "trained at 128")
    assert "longer than training (extrapolation)" in chart.mark.right[0]
    assert chart.shaded == [(128, chart.columns.high)]


def test_no_shade_where_nothing_is_new(make_row: Make, make_score: Make) -> None:
    chart = chart_of(task_of({"FIRE": [1.0] * 4}, make_row, make_score, train_length=1024))
    assert (chart.shaded, chart.mark) == ([], None)


def test_exploding_scores_leave_the_axis_to_the_others(quickstart: Findings) -> None:
    task = quickstart.tasks[0]
    choices = ranges(task)
    assert [c.name for c in choices] == ["all", "most", "best"]
    everything, most, best = choices
    assert everything.high > 9.38
    assert 3.8 < most.high < 5
    assert 1.96 < best.high < 2.1
    assert choices[first(choices)] is most
    assert max(c.low for c in choices) < 1.774, "the best score is always on the axis"


def test_baselines_far_above_leave_the_axis_to_the_encodings(make_row: Make, make_score: Make) -> None:
    """Uniform's 5.545 nats would press the lines together; the words for it say that it is beyond."""
    alone = task_of({"A": [2.0, 2.1, 2.2, 2.3], "B": [2.0, 2.05, 2.1, 2.25]}, make_row, make_score)
    beside = [
        Baseline(label=label, scores=dict.fromkeys(alone.lengths, value))
        for label, value in (("uniform", 5.545), ("bigram", 1.9))
    ]
    task = dataclasses.replace(alone, baselines=tuple(beside))
    everything, encodings = choices = ranges(task)
    assert (everything.name, encodings.name) == ("all", "encodings")
    assert everything.high > 5.545
    assert encodings.low < 1.9
    assert 2.3 < encodings.high < 2.6
    assert choices[first(choices)] is encodings
    chart = chart_of(task)
    assert [end["text"] for end in chart.ends] == [["uniform", "↑ uniform"], ["bigram", "bigram"]]


def test_a_chart_is_described_in_words(quickstart: Findings) -> None:
    text = describe(quickstart.tasks[1])
    assert text.startswith(
        "Copy: line chart. Horizontal axis: length in symbols, from 20 to 160, trained on 1–20. Vertical axis: exact "
        "match, higher is better, from 0.000 to 1.000. One line per encoding: NoPE, Sinusoidal, RoPE, ALiBi, T5, "
        "KerpleLog, FIRE. "
        "Scores at 160 symbols, best first: FIRE 0.5"
    )
    assert text.endswith("The table below has all numbers. The left and right arrow keys move through the lengths.")


def test_every_score_off_the_axis_has_an_arrow(quickstart: Findings) -> None:
    task = quickstart.tasks[0]
    choices = ranges(task)
    chart = chart_of(task)
    for n, choice in enumerate(choices):
        above = [row["label"] for row in chart.rows if row["y"] > choice.high]
        _, arrows = symbols(dataclasses.replace(chart, start=n))
        assert sorted(arrows) == sorted(chart.looks[label].colour for label in above)
        assert bool(above) == (n > 0)


def test_scores_that_lie_together_have_one_axis(make_row: Make, make_score: Make) -> None:
    task = task_of({"A": [2.0, 2.1, 2.2, 2.3], "B": [2.0, 2.05, 2.1, 2.25]}, make_row, make_score)
    assert [c.name for c in ranges(task)] == ["all"]


def test_exact_match_has_its_whole_scale(quickstart: Findings) -> None:
    (whole,) = ranges(quickstart.tasks[1])
    assert (whole.low, whole.high) == pytest.approx((-0.03, 1.03))


@pytest.mark.parametrize(
    "means", [[1.0] * 4, [0.0] * 4, [-1.0] * 4, [1e9] * 4, [math.nan] * 4, [math.inf, 1.0, 2.0, 3.0]]
)
def test_an_axis_has_an_extent_whatever_the_scores(means: list[float], make_row: Make, make_score: Make) -> None:
    task = task_of({"A": means}, make_row, make_score)
    for choice in ranges(task):
        assert math.isfinite(choice.low)
        assert choice.low < choice.high < math.inf
    json.dumps(page_data(chart_of(task)), allow_nan=False)


def test_a_missing_score_breaks_the_line(make_row: Make, make_score: Make) -> None:
    run = make_row()
    task = from_rows([], [run], [make_score(run, 128, 2.0), make_score(run, 512, 3.0)]).tasks[0]
    assert [row["y"] for row in chart_of(task).rows] == [2.0, None, 3.0, None]
