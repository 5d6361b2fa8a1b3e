"""Charts of functions learned in context: what the last question attends to, prompts with repeated examples, and induction.

They are drawn like those of the attention section: HTML and SVG without a script, with coordinates in percent of the frame.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.analysis import Induction, Interval, Panel, Places, Recency, Repeated, TaskFindings
from lengthwise.analysis.numbers import figure, spread
from lengthwise.report.attention import _facts, _percent, _ticks
from lengthwise.report.chart import ARROW
from lengthwise.report.palette import Look, looks
from lengthwise.values import join_names

LABEL_DISTANCE = 6.4  # smallest distance between the labels of two lines, in percent of the frame's height
MAX_POINTS = 100  # of a line; a longer one is averaged over neighbours
POSITIONS = {"begin": "at the beginning", "middle": "in the middle", "end": "at the end"}
KINDS = {"trained": "trained length", "long": "longer", "repeated": "repeated"}

Line = tuple[str, Sequence[Interval | None]]


def in_context(task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any] | None:
    """Return the template's data for one task, or None if it was not probed."""
    probes = task.in_context
    if not probes:
        return None
    labels = [s.label for g in probes.recency for s in g.series]
    labels += [s.label for g in probes.induction for s in g.series]
    labels += [s.label for g in probes.repeated for panel in g.panels for s in panel.series]
    order = [*(label for label in known if label in labels), *(label for label in labels if label not in known)]
    known = dict(known) | {label: look for label, look in looks(labels).items() if label not in known}
    return {
        "legend": [{"label": label, "look": known[label]} for label in dict.fromkeys(order)],
        "recency": [_recency(group, task, known) for group in probes.recency],
        "repeated": [_repeated(group, task, known) for group in probes.repeated],
        "induction": [_induction(group, task, known) for group in probes.induction],
    }


# ---- what the last question attends to ------------------------------------------------------------------------------


def _recency(group: Recency, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    top = _top([weight for s in group.series for layer in s.layers for weight in layer])
    return {
        "group": group,
        "top": f"{top:g}",
        "uniform": f"{1 / (2 * group.length - 1):.2g}",
        "series": [
            {
                "label": s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "lines": _ramp([_path(layer, top) for layer in s.layers]),
                "described": (
                    f"{task.title}, {s.label}: line chart of the last question's attention weights on labels. Horizontal axis: the "
                    f"{group.length:,} labels, from the farthest to the latest. Vertical axis: weight, from 0 to {top:g}. One line "
                    f"per layer. The most recent tenth has {_share(s.recent[0])} of the weights in layer 1 and "
                    f"{_share(s.recent[-1])} in the last layer."
                ),
                "cells": [_cell(i, percent=True) for i in (*s.recent, s.best)],
            }
            for s in group.series
        ],
        "layers": max(len(s.recent) for s in group.series),
        "heads": [_heads(group, kind, task, known) for kind in KINDS],
        "facts": _facts(group.facts),
    }


def _heads(group: Recency, kind: str, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    """Return the charts of one kind of prompt: for each encoding, a line for each head of the last layer."""
    top = _top([weight for s in group.series for head in s.heads[kind] for weight in head])
    titles = {
        "trained": f"prompts of {group.trained:,} examples, the training length",
        "long": f"prompts of {group.length:,} examples",
        "repeated": f"prompts of {group.points:,} examples, repeated {group.repeats} times",
    }
    return {
        "title": titles[kind],
        "top": f"{top:g}",
        "series": [
            {
                "label": s.label,
                "look": known[s.label],
                "lines": _ramp([_path(head, top) for head in s.heads[kind]]),
                "described": (
                    f"{task.title}, {s.label}: line chart of the last question's attention weights on inputs, {titles[kind]}. "
                    f"Horizontal axis: inputs, from the farthest to the question itself. Vertical axis: weight, from 0 to {top:g}. "
                    f"One line per head of the last layer. The highest weight is {figure(max(map(max, s.heads[kind])))}."
                ),
            }
            for s in group.series
        ],
    }


def _ramp(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return the lines with opacities that rise from the first to the last."""
    count = max(1, len(paths) - 1)
    return [{"path": path, "opacity": round(0.3 + 0.7 * n / count, 2)} for n, path in enumerate(paths)]


# ---- prompts with repeated examples ---------------------------------------------------------------------------------


def _repeated(group: Repeated, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    values = [value for curves in group.places for line in curves.series.values() for value in line]
    top = 1.0 if task.metric.share else _top(values)
    table_panels = [panel for panel in group.panels if panel.kind != "serial"]
    return {
        "group": group,
        "duplicates": group.probe == "duplicates",
        "top": f"{top:g}",
        "panels": [
            _panel(panel, group, task, known) for panel in group.panels if panel.kind not in ("all", "instruction")
        ],
        "curves": [_curves(curves, group, task, known, top) for curves in group.places if curves.kind != "noise"],
        "heads": [_column(panel, n) for panel in table_panels for n in range(len(panel.at))],
        "rows": [
            {
                "label": s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "cells": [_cell(i) for panel in table_panels for i in panel.series[n].scores],
            }
            for n, s in enumerate(table_panels[0].series)
        ],
        "serial": [_serial(panel, known) for panel in group.panels if panel.kind == "serial"],
        "one_seed": any(s.seeds == 1 for panel in group.panels for s in panel.series),
        "facts": _facts(group.facts),
    }


def _panel(panel: Panel, group: Repeated, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    columns = [n for n, value in enumerate(panel.at) if value != "none"]
    lines: list[Line] = [(s.label, [s.scores[n] for n in columns]) for s in panel.series]
    if panel.kind == "serial":
        last = group.length - 2
        xs = [2 + 96 * int(panel.at[n]) / last for n in columns]
        marks = [
            {"text": f"{n:,}", "x": _percent((2 + 96 * n / last) / 100)}
            for n in _some_of([int(panel.at[m]) for m in columns])
        ]
    else:
        xs = [100 * (n + 0.5) / len(columns) for n in range(len(columns))]
        texts = [f"{panel.starts[n] + 1:,}" if panel.kind == "target" else str(panel.at[n]) for n in columns]
        marks = [{"text": text, "x": _percent(x / 100)} for text, x in zip(texts, xs, strict=True)]
    titles = {
        "noise": (
            "Noise before the target",
            f"number of copies of one example before the target, which starts after {group.points:,} examples",
        ),
        "target": ("Instruction, noise, target", "number of the example at which the target starts"),
        "answers": ("Position of the answers", "position of the answers to the target among copies of another example"),
        "serial": (
            "Position of the duplicate",
            f"number of examples before the duplicate of the last of {group.length:,}",
        ),
    }
    title, below = titles[panel.kind]
    metric = f"{task.metric_label}, {task.metric.better} is better"
    drawn = plane(lines, xs, known, highest=1.0 if task.metric.share else None)
    return {
        "title": title,
        "below": below,
        "metric": metric,
        **drawn,
        "marks": marks,
        "described": _described(f"{task.title}, {title}", below, marks, metric, drawn),
    }


def _described(
    title: str, below: str, marks: Sequence[Mapping[str, Any]], metric: str, drawn: Mapping[str, Any]
) -> str:
    """Return the description of a line chart for screen readers: its axes, their ranges, and its lines."""
    ends = f"from {marks[0]['text']} to {marks[-1]['text']}" if marks else "empty"
    names = join_names([s["label"] for s in drawn["series"]])
    return (
        f"{title}: line chart. Horizontal axis: {below}, {ends}. Vertical axis: {metric}, from {drawn['ticks'][0]['text']} to "
        f"{drawn['ticks'][-1]['text']}. Lines: {names}. A table below has the same numbers."
    )


def _some_of(values: Sequence[int]) -> list[int]:
    """Return at most five of the values, with the first and the last."""
    count = min(5, len(values))
    return [values[round(n * (len(values) - 1) / max(1, count - 1))] for n in range(count)]


def _curves(
    curves: Places, group: Repeated, task: TaskFindings, known: Mapping[str, Look], top: float
) -> dict[str, Any]:
    """Return the chart of the scores at every example of one kind of prompt."""
    length = len(next(iter(curves.series.values())))
    titles = {
        "all": "copies of one example",
        "instruction": f"instruction {POSITIONS.get(str(curves.at), '')}",
        "target": f"target from example {curves.start + 1:,} on",
        "answers": f"answers {POSITIONS.get(str(curves.at), '')}",
    }
    ends = "; ".join(
        f"{label} {figure(means[0])} at the first, {figure(means[-1])} at the last"
        for label, means in curves.series.items()
    )
    return {
        "title": titles[curves.kind],
        "length": f"{length:,}",
        "x": _percent(curves.start / length),
        "width": _percent((curves.stop - curves.start) / length),
        "lines": [{"label": label, "look": known[label], "path": _path(m, top)} for label, m in curves.series.items()],
        "described": (
            f"{task.title}, {titles[curves.kind]}: line chart of the score at each example. Horizontal axis: examples 1 to "
            f"{length:,}. Vertical axis: {task.metric_label}, from 0 to {top:g}. One line per encoding: {ends}."
        ),
    }


def _column(panel: Panel, n: int) -> str:
    names = {
        "noise": f"noise {panel.at[n]}",
        "all": "copies of one example",
        "instruction": f"instruction {panel.at[n]}",
        "target": f"target from example {panel.starts[n] + 1:,}",
        "answers": f"answers {panel.at[n]}",
    }
    return names[panel.kind]


def _serial(panel: Panel, known: Mapping[str, Look]) -> dict[str, Any]:
    return {
        "heads": ["no duplicate" if at == "none" else f"{at:,}" for at in panel.at],
        "rows": [
            {"label": s.label, "look": known[s.label], "seeds": s.seeds, "cells": [_cell(i) for i in s.scores]}
            for s in panel.series
        ],
    }


# ---- induction ------------------------------------------------------------------------------------------------------


def _induction(group: Induction, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    count = max(len(s.layers) for s in group.series)
    xs = [100 * (n + 0.5) / count for n in range(count)]
    ends = [i.mean if i.basis == "none" else i.high for s in group.series for i in s.layers if math.isfinite(i.mean)]
    metric = "weight of the best head on the labels of earlier occurrences of the same x"
    marks = [{"text": str(n + 1), "x": _percent(x / 100)} for n, x in enumerate(xs)]
    drawn = plane([(s.label, s.layers) for s in group.series], xs, known, highest=max(ends, default=1.0))
    return {
        "group": group,
        "uniform": {name: f"{share:.3f}" for name, share in group.uniform.items()},
        "panel": {
            "title": "Induction heads",
            "below": "layer",
            "metric": metric,
            **drawn,
            "marks": marks,
            "described": _described(f"{task.title}, induction heads", "layer", marks, metric, drawn),
        },
        "layers": count,
        "rows": [
            {
                "label": s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "heads": s.heads,
                "cells": [_cell(i) for i in (s.prefix, s.nearest, *s.layers)],
            }
            for s in group.series
        ],
        "one_seed": any(s.seeds == 1 for s in group.series),
        "facts": _facts(group.facts),
    }


# ---- drawing --------------------------------------------------------------------------------------------------------


def plane(
    lines: Sequence[Line], xs: Sequence[float], known: Mapping[str, Look], *, highest: float | None
) -> dict[str, Any]:
    """Return lines over `xs` (percent of the width) from 0 to `highest`, each with its label at its end.

    With `highest=None` the frame ends at the highest mean. Where a few means are far above the others, it ends below those, and
    an arrow at its upper edge marks each of them.
    """
    means = [i.mean for _, line in lines for i in line if i is not None and math.isfinite(i.mean)]
    ticks = _ticks(_robust(means, 3) if highest is None else highest)
    top = ticks[-1]
    drawn: list[dict[str, Any]] = []
    for label, line in lines:
        scores = [(x, i) for x, i in zip(xs, line, strict=True) if i is not None and math.isfinite(i.mean)]
        path = "M" + "L".join(f"{_percent(x / 100)},{_height(i.mean, top)}" for x, i in scores) if scores else ""
        intervals = [(x, i) for x, i in scores if i.basis != "none"]
        band = ""
        if len(intervals) > 1:
            upper = [f"{_percent(x / 100)},{_height(i.high, top)}" for x, i in intervals]
            lower = [f"{_percent(x / 100)},{_height(i.low, top)}" for x, i in reversed(intervals)]
            band = "M" + "L".join([*upper, *lower]) + "Z"
        points = [
            {"x": _percent(x / 100), "y": _height(i.mean, top), "shape": ARROW if i.mean > top else known[label].shape}
            for x, i in scores
        ]
        drawn.append({"label": label, "look": known[label], "path": path, "band": band, "points": points})
    for series, y in zip(drawn, _spaced([d["points"][-1]["y"] if d["points"] else None for d in drawn]), strict=True):
        series["y"] = y
    return {
        "ticks": [{"text": f"{tick:g}", "y": _percent(1 - tick / top)} for tick in ticks],
        "series": drawn,
        "over": any(mean > top for mean in means),
    }


def _spaced(ys: Sequence[float | None]) -> list[float | None]:
    """Return heights for the labels at the ends of lines: as near to the ends as possible without overlap."""
    order = sorted((n for n, y in enumerate(ys) if y is not None), key=lambda n: ys[n] or 0.0)
    placed: list[float | None] = list(ys)
    low = -math.inf
    for n in order:
        low = max(ys[n] or 0.0, low + LABEL_DISTANCE)
        placed[n] = round(low, 2)
    high = 100.0
    for n in reversed(order):
        high = min(placed[n] or 0.0, high)
        placed[n], high = round(high, 2), high - LABEL_DISTANCE
    return placed


def _path(values: Sequence[float], top: float) -> str:
    """Return the SVG path of a line over the whole width. Each point of a long line is the mean of neighbours."""
    size = max(1, -(-len(values) // MAX_POINTS))
    parts = [values[n : n + size] for n in range(0, len(values), size)]
    count = max(1, len(values) - 1)
    means = [(n * size + (len(part) - 1) / 2, math.fsum(part) / len(part)) for n, part in enumerate(parts)]
    points = [
        f"{round(100 * x / count, 1):g},{round(_height(mean, top), 1):g}" for x, mean in means if math.isfinite(mean)
    ]
    return "M" + "L".join(points) if points else ""


def _height(value: float, top: float) -> float:
    return _percent(1 - min(max(value / top, 0.0), 1.0))


def _top(values: Sequence[float], reach: float = 4) -> float:
    return _ticks(_robust(values, reach))[-1]


def _robust(values: Sequence[float], reach: float) -> float:
    """Return the highest value, but at most `reach` times the upper quartile."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return 1.0
    upper = finite[(3 * len(finite)) // 4 if len(finite) > 3 else -1]
    return min(finite[-1], reach * upper) if upper > 0 else finite[-1]


def _cell(interval: Interval | None, *, percent: bool = False) -> dict[str, str]:
    if interval is None or not math.isfinite(interval.mean):
        return {"mean": "–", "spread": "", "sort": ""}
    if percent:
        known = interval.basis != "none"
        ends = f"{interval.low:.1%} … {interval.high:.1%}" if known else ""
        return {"mean": f"{interval.mean:.1%}", "spread": ends, "sort": repr(interval.mean)}
    return {"mean": figure(interval.mean), "spread": spread(interval), "sort": repr(interval.mean)}


def _share(interval: Interval) -> str:
    return f"{interval.mean:.0%}" if math.isfinite(interval.mean) else "unknown"
