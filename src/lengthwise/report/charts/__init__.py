"""All charts of the page, as Vega-Lite specs: `line_chart`, `curve_chart` and `bar_chart`. page.js draws them."""

from lengthwise.report.charts.lines import Columns, Ending, Line, Range, even_columns, line_chart, zero_to
from lengthwise.report.charts.scales import nice_top, robust_top, top_of_intervals
from lengthwise.report.charts.small import Bars, Curve, bar_chart, curve_chart, ramp
from lengthwise.report.charts.spec import CONFIG, Chart

__all__ = [
    "CONFIG",
    "Bars",
    "Chart",
    "Columns",
    "Curve",
    "Ending",
    "Line",
    "Range",
    "bar_chart",
    "curve_chart",
    "even_columns",
    "line_chart",
    "nice_top",
    "ramp",
    "robust_top",
    "top_of_intervals",
    "zero_to",
]
