"""The chart engine: scales, lines with intervals, curves and bars. Every spec is valid and free of anybody's text."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.report.charts.heat import heat_map
from lengthwise.report.charts.lines import LABEL_DISTANCE, Line, even_columns, label_heights, line_chart, zero_to
from lengthwise.report.charts.scales import nice_top, robust_top
from lengthwise.report.charts.small import Curve, averaged, bar_chart, curve_chart, ramp
from lengthwise.report.charts.spec import CONFIG, Chart
from lengthwise.report.palette import looks

LABELS = ("NoPE", "RoPE", "ALiBi", "FIRE")
ALONE = over_examples(0.1, math.nan)  # of one seed
EVIL = "'+alert(1)+'</script><script>alert(2)</script>"


def lines_of(table: Mapping[str, list[float]]) -> list[Line]:
    look = looks(list(table))
    return [
        Line(label, look[label], [over_examples(v, 0.01) for v in values], "3 seeds") for label, values in table.items()
    ]


def chart_of(table: Mapping[str, list[float]], top: float = 1.0) -> Chart:
    columns = even_columns([str(n) for n in range(len(next(iter(table.values()))))], "layer")
    return line_chart("described", lines_of(table), columns, [zero_to(top)])


def charts(label: str) -> Iterator[Chart]:
    """Yield a chart of every kind, with a label of a user."""
    look = looks([label])[label]
    yield chart_of({label: [0.1, math.nan, 0.3]})
    yield chart_of({label: [5.0]})
    yield heat_map(label, [[0.0, math.nan], [1.0, 0.5]], ["a", "b"], ["1", "2"], 1)
    yield curve_chart(label, [Curve([0.1, math.nan], look, label)], 1.0, ("a", "b"), (0, 1))
    yield curve_chart(label, ramp([Curve([0.1, 0.2], look), Curve([0.3, 0.4], look)]), 1.0, ("a", "b"))
    yield curve_chart(label, [], 1.0, ("a", "b"))
    bars = {look.colour: [0.1, 0.2], "var(--c1)": [0.3, 0.4]}
    ends = [over_seeds([0.1, 0.2], (0, 1)), ALONE]
    yield bar_chart(label, bars, (0.2, "20%"), {0: "0", 2: "1"}, whiskers=ends, steps=[0.1, 0.2])


@pytest.mark.parametrize("number", range(7))
def test_every_kind_of_chart_is_valid_and_has_no_text_of_users(number: int) -> None:
    import altair

    chart = list(charts(EVIL))[number]
    spec: Any = chart.data["spec"]
    assert "alert" not in json.dumps(spec, allow_nan=False)
    assert altair.Chart.from_dict(spec | {"config": CONFIG}).to_dict()


def test_the_texts_of_axes_are_never_expressions() -> None:
    """They are values of signals, which Vega does not parse."""

    def expressions(part: Any) -> Iterator[str]:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
            if key in ("expr", "labelExpr", "filter", "test"):
                yield value
            yield from expressions(value)

    (line,) = lines_of({"FIRE": [0.1]})
    look = line.look
    for chart in (
        line_chart("described", [line], even_columns([EVIL], EVIL), [zero_to(1)]),
        curve_chart("described", [Curve([0.1], look)], 1.0, (EVIL, EVIL)),
        bar_chart("described", {look.colour: [0.1]}, (1.0, EVIL), {0: EVIL}),
        heat_map("described", [[0.1, 0.2]], [EVIL], [EVIL, "2"], 1),
    ):
        spec: Any = chart.data["spec"]
        params = spec.pop("params")
        assert "alert" in json.dumps(params)
        assert "alert" not in json.dumps(spec)
        assert len(list(expressions(spec))) > 1
        assert not any("expr" in param or "bind" in param for param in params)


def test_labels_reach_the_page_beside_the_spec() -> None:
    data = chart_of({EVIL: [0.1, 0.2]}).data
    assert (data["names"], data["series"][0]["label"]) == ([EVIL], EVIL)


@pytest.mark.parametrize(
    ("highest", "expected"),
    [(0.158, 0.2), (1.0, 1.0), (0.0003, 0.0003), (0.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (123.0, 150.0)],
)
def test_an_axis_ends_at_a_round_number(highest: float, expected: float) -> None:
    assert nice_top(highest) == pytest.approx(expected)


def test_labels_at_the_ends_of_lines_do_not_touch() -> None:
    for wanted in ([50.0, 50.0, 51.0, 0.0], [239.0, 238.0, 240.0], [0.0] * 7):
        heights = sorted(label_heights(wanted, 240))
        assert all(b - a >= LABEL_DISTANCE - 0.11 for a, b in zip(heights, heights[1:], strict=False))
        assert heights[0] > 0 and heights[-1] < 240


def test_a_line_of_many_places_has_means_of_neighbours() -> None:
    assert averaged([0.0, 1.0, 0.5]) == [(0.5, 0.0), (1.5, 1.0), (2.5, 0.5)]
    many = averaged([0.0, 1.0] * 100)
    assert len(many) == 100
    assert many[:2] == [(1.0, 0.5), (3.0, 0.5)]
    assert averaged([0.0, math.nan, 0.5]) == [(0.5, 0.0), (2.5, 0.5)]
    assert averaged([]) == []


def test_a_few_far_scores_do_not_flatten_the_others() -> None:
    assert robust_top([1, 1, 1, 1, 1000], 3) == 3
    assert robust_top([1, 2, 3], 3) == 3
    assert robust_top([math.nan], 3) == 1
    table = {"far": [500.0], "other": [1.0]}
    (far, other) = chart_of(table, robust_top([1, 1, 1, 1, 500], 3)).data["spec"]["data"]["values"]
    assert (far["over"], other["over"]) == ([0], [-1]), "an arrow marks the one above the frame"
    arrows = [layer for layer in chart_of(table, 3).data["spec"]["layer"] if "datum.over" in json.dumps(layer)]
    assert len(arrows) == 1
    assert "datum.over" not in json.dumps(chart_of({"other": [1.0]}).data["spec"]), "no arrows where nothing is above"


def test_one_seed_has_a_point_and_no_interval() -> None:
    line = Line("FIRE", looks(["FIRE"])["FIRE"], [ALONE, None], "1 seed")
    data = line_chart("described", [line], even_columns(["1", "2"]), [zero_to(1)]).data
    first, second = data["spec"]["data"]["values"]
    assert (first["y"], first["lo"], first["hi"]) == (0.1, None, None)
    assert second["y"] is None
    assert data["series"][0]["points"] == [{"y": 0.1, "mean": "0.100", "interval": "no interval"}, None]
    assert data["series"][0]["n"] == "1 seed"


def test_a_bin_without_an_interval_has_no_whisker() -> None:
    intervals: list[Interval] = [over_seeds([0.1, 0.2], (0, 1)), ALONE]
    chart = bar_chart("described", {"var(--c0)": [0.15, 0.1]}, (0.2, "20%"), {0: "0"}, whiskers=intervals)
    (rule,) = [layer for layer in chart.data["spec"]["layer"] if layer["mark"]["type"] == "rule"]
    assert [row["x"] for row in rule["data"]["values"]] == [0.5]
