"""Charts: scales, lines with intervals, curves, bars and heat maps. Every chart is valid, and names are data."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from lengthwise.analysis.estimates import over_examples
from lengthwise.report.charts.chart import Chart, Mark, Range, averaged, curve, curve_chart
from lengthwise.report.charts.drawing import MANY, file_spec
from lengthwise.report.charts.lines import LABEL_DISTANCE, Line, even_columns, label_heights, line_chart, zero_to
from lengthwise.report.charts.scales import nice_top, robust_top
from lengthwise.report.palette import looks
from tests.report.charts_of import require_valid, symbols

ALONE = over_examples(0.1, math.nan)  # of one seed
EVIL = "'+alert(1)+\"</script><script>alert(2)</script>"


def lines_of(table: Mapping[str, Sequence[float]]) -> list[Line]:
    look = looks(list(table))
    return [
        Line(label, look[label], [over_examples(v, 0.01) for v in values], "3 seeds") for label, values in table.items()
    ]


def chart_of(table: Mapping[str, Sequence[float]], top: float = 1.0) -> Chart:
    columns = even_columns([str(n) for n in range(len(next(iter(table.values()))))], "layer")
    return line_chart("described", lines_of(table), columns, [zero_to(top)])


def charts(label: str) -> Iterator[Chart]:
    """Yield a chart of every kind, with a label of a user."""
    look = {label: looks([label])[label]}
    yield chart_of({label: [0.1, math.nan, 0.3]})
    yield chart_of({label: [5.0] * (MANY + 1)})
    yield line_chart("described", lines_of({label: [0.1]}), even_columns([label], label), [zero_to(1), zero_to(2)])
    cells = [{"label": row, "x": x, "y": y} for row in (label, "b") for x, y in (("1", 0.5), (label, None))]
    yield Chart(kind="heat map", described="", rows=cells, mark=Mark(label))
    yield curve_chart(label, curve(label, [(0, 0.1), (1, math.nan)]), look, (0, 1), (0.0, 1.0), shaded=[(0, 1)])
    yield curve_chart(label, [], look, (0, 0), (-1.0, 1.0))
    bars = [{"label": group, "x": x, "y": 0.1, "step": 0.2} for group in (label, "b") for x in (label, "2")]
    bars[0] |= {"low": 0.05, "high": 0.15}
    yield Chart(kind="bars", described=label, rows=bars, looks=looks([label, "b"]), ranges=[Range("", 0, 1)])


@pytest.mark.parametrize("number", range(7))
def test_every_kind_of_chart_is_valid(number: int) -> None:
    import altair

    chart = list(charts(EVIL))[number].named(EVIL, EVIL, EVIL, EVIL)
    require_valid(chart)
    assert altair.Chart.from_dict(file_spec([("one", "", chart), (EVIL, EVIL, chart)], "white")).to_dict()


@pytest.mark.medium
def test_names_are_data_or_quoted() -> None:
    """An expression has a name as a literal alone, however it is written."""

    def expressions(part: Any) -> Iterator[str]:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
            if key in ("expr", "labelExpr", "filter", "test", "calculate", "update"):
                yield value
            elif key != "datasets":
                yield from expressions(value)

    quoted = json.dumps([EVIL])
    for chart in charts(EVIL):
        found = list(expressions(require_valid(chart)))
        assert not any("alert" in text.replace(quoted, "") for text in found)
        assert len(found) > 1


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
    assert averaged([(1, 0.0), (2, 1.0)]) == [(1, 0.0), (2, 1.0)]
    many = averaged([(n, n % 2) for n in range(200)])
    assert len(many) == 100
    assert many[:2] == [(0.5, 0.5), (2.5, 0.5)]
    assert averaged([]) == []
    assert [row["x"] for row in curve("FIRE", [(1, 0.5), (2, math.nan), (3, math.inf), (4, 0.5)])] == [1, 4]


def test_a_few_far_scores_do_not_flatten_the_others() -> None:
    assert robust_top([1, 1, 1, 1, 1000], 3) == 3
    assert robust_top([1, 2, 3], 3) == 3
    assert robust_top([math.nan], 3) == 1


def test_arrows_mark_what_is_above_the_axis() -> None:
    far, other = (line.look.colour for line in lines_of({"far": [0.0], "other": [0.0]}))
    points, arrows = symbols(chart_of({"far": [500.0, 1.0, 500.0], "other": [1.0, 1.0, 500.0]}, 3))
    assert points == [far] * 3 + [other] * 3
    assert sorted(arrows) == sorted([far, far, other])
    assert len(symbols(chart_of({"far": [1.0], "other": [1.0]}, 3))) == 1, "no arrows where nothing is above"


def test_many_neighbours_above_the_axis_have_one_arrow() -> None:
    values = [0.5] * 3 + [9.0] * 5 + [0.5] * 3 + [9.0] * 3
    _, arrows = symbols(chart_of({"far": values, "other": [0.5] * len(values)}))
    assert len(arrows) == 2


def test_one_seed_has_a_point_and_no_interval() -> None:
    line = Line("FIRE", looks(["FIRE"])["FIRE"], [ALONE, None], "1 seed")
    first, second = line_chart("described", [line], even_columns(["1", "2"]), [zero_to(1)]).rows
    about = {"label": "FIRE", "name": "FIRE"}
    assert first == about | {"x": 0, "y": 0.1, "mean": "0.100", "interval": "no interval", "n": "1 seed"}
    assert second == about | {"x": 1, "y": None}, "it interrupts the line"
