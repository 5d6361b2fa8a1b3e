"""The charts of scores on prompts with repeated examples."""

from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.analysis.probe_rows import ProbeSummary
from lengthwise.probes.repeated_examples import KindTexts, RepeatedExamples
from lengthwise.probes.repeated_examples.summary import PromptSeries
from lengthwise.report.charts.lines import PADDING, Columns, even_columns
from lengthwise.report.charts.scales import robust_top
from lengthwise.report.charts.small import Curve, curve_chart
from lengthwise.report.palette import Look
from lengthwise.report.sections import interval_cell, line, line_panel, table_row

POSITIONS = {"begin": "at the beginning", "middle": "in the middle", "end": "at the end"}

Prompt = Mapping[str, Any]
Looks = Mapping[str, Look]
Summary = ProbeSummary[PromptSeries]


def section(probe: RepeatedExamples, group: Summary, task: TaskFindings, looks: Looks) -> dict[str, Any]:
    """Return the template's data for one question."""
    prompts: Sequence[Prompt] = group.result["prompts"]
    kinds: list[tuple[KindTexts, list[int]]] = [
        (probe.kinds[kind], [n for n, prompt in enumerate(prompts) if prompt["kind"] == kind])
        for kind in dict.fromkeys(prompt["kind"] for prompt in prompts)
    ]
    top = robust_top(value for s in group.series for curve in s.curves for value in curve)
    columns = [n for texts, numbers in kinds if texts.column for n in numbers]
    return {
        "title": probe.title,
        "explanation": probe.explanation.format(**group.asked),
        "panels": [_panel(texts, numbers, group, task, looks) for texts, numbers in kinds if texts.title],
        "curves": [
            _curves(texts, n, group, task, looks, 1.0 if task.metric.share else top)
            for texts, numbers in kinds
            for n in numbers
            if texts.curve and "curve" in prompts[n]
        ],
        "heads": [_text(probe.kinds[prompts[n]["kind"]].column, prompts[n], group) for n in columns],
        "rows": [table_row(s, looks, (interval_cell(s.scores[n]) for n in columns)) for s in group.series],
        "own_tables": [
            {
                "heads": ["no duplicate" if (at := prompts[n]["at"]) == "none" else f"{at:,}" for n in numbers],
                "rows": [table_row(s, looks, (interval_cell(s.scores[n]) for n in numbers)) for s in group.series],
            }
            for texts, numbers in kinds
            if not texts.column
        ],
    }


def _text(text: str, prompt: Prompt, group: Summary) -> str:
    where, start = POSITIONS.get(str(prompt["at"]), ""), f"{prompt['start'] + 1:,}"
    return text.format(
        at=prompt["at"], where=where, start=start, length=group.asked["length"], points=group.asked["points"]
    )


def _panel(
    texts: KindTexts, numbers: Sequence[int], group: Summary, task: TaskFindings, looks: Looks
) -> dict[str, Any]:
    """Return the chart of the scores on the prompts of one kind."""
    columns = {n: prompt for n in numbers if (prompt := group.result["prompts"][n])["at"] != "none"}
    lines = [line(s, looks, [s.scores[n] for n in columns], group.n, "prompt") for s in group.series]
    if texts.to_scale:
        at = [int(prompt["at"]) for prompt in columns.values()]
        marks = [f"{n:,}" for n in at]
        heads = [(mark, "") for mark in marks]
        axis = Columns(at=at, low=0, high=group.asked["length"] - 2, padding=PADDING, ticks=marks, heads=heads)
    else:
        axis = even_columns([_text(texts.mark, prompt, group) for prompt in columns.values()])
    return line_panel(
        texts.title,
        f"{task.title}, {texts.title}",
        f"{task.metric_label}, {task.metric.better} is better",
        _text(texts.below, group.result["prompts"][numbers[0]], group),
        lines,
        axis,
        1.0 if task.metric.share else robust_top((mean for one in lines for mean in one.means), 3),
        task.metric.better,
    )


def _curves(texts: KindTexts, n: int, group: Summary, task: TaskFindings, looks: Looks, top: float) -> dict[str, Any]:
    """Return the chart of the scores at every example of one prompt."""
    prompt = group.result["prompts"][n]
    title = _text(texts.curve, prompt, group)
    means = {s.label: s.curves[n] for s in group.series}
    length = len(group.series[0].curves[n])
    ends = [f"{label} {figure(y[0])} at the first, {figure(y[-1])} at the last" for label, y in means.items()]
    described = (
        f"{task.title}, {title}: line chart of the score at each example. Horizontal axis: examples 1 to {length:,}. Vertical "
        f"axis: {task.metric_label}, from 0 to {top:g}. One line per encoding: {'; '.join(ends)}."
    )
    lines = [Curve(y, looks[label], label) for label, y in means.items()]
    ends_of_axis, shaded = ("1", f"{length:,} examples"), (prompt["start"], prompt["stop"])
    chart = curve_chart(described, lines, top, ends_of_axis, shaded)
    return {"label": title, "chart": chart.named(title, "example", task.metric_label)}
