"""Functions learned in context, as pictures that HTML alone draws: where the last question looks, scores of prompts with repeated
examples, and induction. Drawn as the attention section is: coordinates are percent of the frame."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.analysis import Induction, Interval, Panel, Places, Recency, Repeated, TaskFindings
from lengthwise.analysis.numbers import figure, spread
from lengthwise.report.attention import _facts, _percent, _ticks
from lengthwise.report.chart import ARROW
from lengthwise.report.palette import Look, looks

APART = 6.4  # percent of a frame's height that the words for two lines are apart, at least
DRAWN = 100  # points of a line of many places: of neighbours the mean
WORDS = {"begin": "at the beginning", "middle": "in the middle", "end": "at the end"}
KINDS = {"trained": "trained length", "long": "longer", "repeated": "repeated"}

Line = tuple[str, Sequence[Interval | None]]


def in_context(task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any] | None:
    """What the template needs for one task; None where nothing was asked."""
    found = task.in_context
    if not found:
        return None
    labels = [s.label for g in found.recency for s in g.series]
    labels += [s.label for g in found.induction for s in g.series]
    labels += [s.label for g in found.repeated for panel in g.panels for s in panel.series]
    order = [*(label for label in known if label in labels), *(label for label in labels if label not in known)]
    shown = dict(known) | {label: look for label, look in looks(labels).items() if label not in known}
    return {
        "legend": [{"label": label, "look": shown[label]} for label in dict.fromkeys(order)],
        "recency": [_recency(group, shown) for group in found.recency],
        "repeated": [_repeated(group, task, shown) for group in found.repeated],
        "induction": [_induction(group, shown) for group in found.induction],
    }


# ---- where the last question looks ----------------------------------------------------------------------------------


def _recency(group: Recency, known: Mapping[str, Look]) -> dict[str, Any]:
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
                "said": f"share of the most recent tenth {_share(s.recent[0])} in layer 1, {_share(s.recent[-1])} in the last",
                "cells": [_cell(i, percent=True) for i in (*s.recent, s.best)],
            }
            for s in group.series
        ],
        "layers": max(len(s.recent) for s in group.series),
        "heads": [_heads(group, kind, known) for kind in KINDS],
        "facts": _facts(group.facts),
    }


def _heads(group: Recency, kind: str, known: Mapping[str, Look]) -> dict[str, Any]:
    """One kind of prompt, of each encoding a line for each head of the last layer."""
    top = _top([weight for s in group.series for head in s.heads[kind] for weight in head])
    titles = {
        "trained": f"prompts of {group.trained:,} examples, as trained",
        "long": f"prompts of {group.length:,} examples",
        "repeated": f"{group.points:,} examples {group.repeats} times",
    }
    return {
        "title": titles[kind],
        "top": f"{top:g}",
        "series": [
            {
                "label": s.label,
                "look": known[s.label],
                "lines": _ramp([_path(head, top) for head in s.heads[kind]]),
                "said": f"highest weight of a head {figure(max(map(max, s.heads[kind])))}",
            }
            for s in group.series
        ],
    }


def _ramp(paths: Sequence[str]) -> list[dict[str, Any]]:
    """From pale, the first, to full, the last."""
    count = max(1, len(paths) - 1)
    return [{"path": path, "opacity": round(0.3 + 0.7 * n / count, 2)} for n, path in enumerate(paths)]


# ---- prompts with repeated examples ---------------------------------------------------------------------------------


def _repeated(group: Repeated, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    every = [weight for places in group.places for line in places.series.values() for weight in line]
    top = 1.0 if task.bounds else _top(every)
    tabled = [panel for panel in group.panels if panel.kind != "serial"]
    return {
        "group": group,
        "duplicates": group.probe == "duplicates",
        "top": f"{top:g}",
        "panels": [
            _panel(panel, group, task, known) for panel in group.panels if panel.kind not in ("all", "instruction")
        ],
        "places": [_places(places, group, known, top) for places in group.places if places.kind != "noise"],
        "heads": [_column(panel, n) for panel in tabled for n in range(len(panel.at))],
        "rows": [
            {
                "label": s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "cells": [_cell(i) for panel in tabled for i in panel.series[n].scores],
            }
            for n, s in enumerate(tabled[0].series)
        ],
        "serial": [_serial(panel, known) for panel in group.panels if panel.kind == "serial"],
        "one_seed": any(s.seeds == 1 for panel in group.panels for s in panel.series),
        "facts": _facts(group.facts),
    }


def _panel(panel: Panel, group: Repeated, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    at = [n for n, value in enumerate(panel.at) if value != "none"]
    lines: list[Line] = [(s.label, [s.scores[n] for n in at]) for s in panel.series]
    if panel.kind == "serial":
        last = group.length - 2
        xs = [2 + 96 * int(panel.at[n]) / last for n in at]
        marks = [
            {"text": f"{n:,}", "x": _percent((2 + 96 * n / last) / 100)} for n in _few([int(panel.at[m]) for m in at])
        ]
    else:
        xs = [100 * (n + 0.5) / len(at) for n in range(len(at))]
        texts = [f"{panel.starts[n] + 1:,}" if panel.kind == "target" else str(panel.at[n]) for n in at]
        marks = [{"text": text, "x": _percent(x / 100)} for text, x in zip(texts, xs, strict=True)]
    titles = {
        "noise": (
            "Noise before the target",
            f"copies of one example before the target, which begins after {group.points:,}",
        ),
        "target": ("Instruction, noise, target", "the example at which the target begins"),
        "answers": ("Where the answers stand", "the answers to the target among copies of another example"),
        "serial": ("Where the duplicate stands", f"examples before the duplicate of the last of {group.length:,}"),
    }
    title, below = titles[panel.kind]
    return {
        "title": title,
        "below": below,
        "metric": f"{task.metric}, {task.better} is better",
        **plane(lines, xs, known, highest=task.bounds[1] if task.bounds else None),
        "marks": marks,
    }


def _few(values: Sequence[int]) -> list[int]:
    """At most five of them, the first and the last among them."""
    count = min(5, len(values))
    return [values[round(n * (len(values) - 1) / max(1, count - 1))] for n in range(count)]


def _places(places: Places, group: Repeated, known: Mapping[str, Look], top: float) -> dict[str, Any]:
    length = len(next(iter(places.series.values())))
    titles = {
        "all": "copies of one example",
        "instruction": f"instruction {WORDS.get(str(places.at), '')}",
        "target": f"target from {places.start + 1:,} on",
        "answers": f"answers {WORDS.get(str(places.at), '')}",
    }
    return {
        "title": titles[places.kind],
        "length": f"{length:,}",
        "x": _percent(places.start / length),
        "width": _percent((places.stop - places.start) / length),
        "lines": [{"label": label, "look": known[label], "path": _path(m, top)} for label, m in places.series.items()],
        "said": "; ".join(
            f"{label} {figure(means[0])} at first, {figure(means[-1])} at last"
            for label, means in places.series.items()
        ),
    }


def _column(panel: Panel, n: int) -> str:
    names = {
        "noise": f"noise {panel.at[n]}",
        "all": "copies of one",
        "instruction": f"instruction {panel.at[n]}",
        "target": f"target from {panel.starts[n] + 1:,}",
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


def _induction(group: Induction, known: Mapping[str, Look]) -> dict[str, Any]:
    count = max(len(s.layers) for s in group.series)
    xs = [100 * (n + 0.5) / count for n in range(count)]
    ends = [i.mean if i.basis == "none" else i.high for s in group.series for i in s.layers if math.isfinite(i.mean)]
    return {
        "group": group,
        "uniform": {name: f"{share:.3f}" for name, share in group.uniform.items()},
        "panel": {
            "title": "Induction heads",
            "below": "layer",
            "metric": "weight of the best head on what followed the same x before",
            **plane([(s.label, s.layers) for s in group.series], xs, known, highest=max(ends, default=1.0)),
            "marks": [{"text": str(n + 1), "x": _percent(x / 100)} for n, x in enumerate(xs)],
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
    """Lines over `xs` (percent of the width) from 0 up to `highest`, each with its name at its end. None: up to the highest score;
    where a few are far above the others, the frame ends before them, and what is beyond is an arrow at its upper edge."""
    means = [i.mean for _, line in lines for i in line if i is not None and math.isfinite(i.mean)]
    ticks = _ticks(_robust(means, 3) if highest is None else highest)
    top = ticks[-1]
    drawn: list[dict[str, Any]] = []
    for label, line in lines:
        at = [(x, i) for x, i in zip(xs, line, strict=True) if i is not None and math.isfinite(i.mean)]
        path = "M" + "L".join(f"{_percent(x / 100)},{_height(i.mean, top)}" for x, i in at) if at else ""
        sure = [(x, i) for x, i in at if i.basis != "none"]
        band = ""
        if len(sure) > 1:
            upper = [f"{_percent(x / 100)},{_height(i.high, top)}" for x, i in sure]
            lower = [f"{_percent(x / 100)},{_height(i.low, top)}" for x, i in reversed(sure)]
            band = "M" + "L".join([*upper, *lower]) + "Z"
        points = [
            {"x": _percent(x / 100), "y": _height(i.mean, top), "shape": ARROW if i.mean > top else known[label].shape}
            for x, i in at
        ]
        drawn.append({"label": label, "look": known[label], "path": path, "band": band, "points": points})
    for one, y in zip(drawn, _spaced([d["points"][-1]["y"] if d["points"] else None for d in drawn]), strict=True):
        one["y"] = y
    return {
        "ticks": [{"text": f"{tick:g}", "y": _percent(1 - tick / top)} for tick in ticks],
        "series": drawn,
        "over": any(mean > top for mean in means),
    }


def _spaced(ys: Sequence[float | None]) -> list[float | None]:
    """The heights of names beside the ends of their lines: as near as they can be without touching each other."""
    order = sorted((n for n, y in enumerate(ys) if y is not None), key=lambda n: ys[n] or 0.0)
    placed: list[float | None] = list(ys)
    low = -math.inf
    for n in order:
        low = max(ys[n] or 0.0, low + APART)
        placed[n] = round(low, 2)
    high = 100.0
    for n in reversed(order):
        high = min(placed[n] or 0.0, high)
        placed[n], high = round(high, 2), high - APART
    return placed


def _path(values: Sequence[float], top: float) -> str:
    """A line over the whole width; of many places, each point is the mean of neighbours."""
    size = max(1, -(-len(values) // DRAWN))
    parts = [values[n : n + size] for n in range(0, len(values), size)]
    count = max(1, len(values) - 1)
    at = [(n * size + (len(part) - 1) / 2, math.fsum(part) / len(part)) for n, part in enumerate(parts)]
    known = [f"{round(100 * x / count, 1):g},{round(_height(mean, top), 1):g}" for x, mean in at if math.isfinite(mean)]
    return "M" + "L".join(known) if known else ""


def _height(value: float, top: float) -> float:
    return _percent(1 - min(max(value / top, 0.0), 1.0))


def _top(values: Sequence[float], reach: float = 4) -> float:
    return _ticks(_robust(values, reach))[-1]


def _robust(values: Sequence[float], reach: float) -> float:
    """The highest of the values, but not further up than `reach` times what three quarters of them stay below."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return 1.0
    upper = finite[(3 * len(finite)) // 4 if len(finite) > 3 else -1]
    return min(finite[-1], reach * upper) if upper > 0 else finite[-1]


def _cell(interval: Interval | None, *, percent: bool = False) -> dict[str, str]:
    if interval is None or not math.isfinite(interval.mean):
        return {"mean": "–", "spread": "", "sort": ""}
    if percent:
        sure = interval.basis != "none"
        ends = f"{interval.low:.1%} … {interval.high:.1%}" if sure else ""
        return {"mean": f"{interval.mean:.1%}", "spread": ends, "sort": repr(interval.mean)}
    return {"mean": figure(interval.mean), "spread": spread(interval), "sort": repr(interval.mean)}


def _share(interval: Interval) -> str:
    return f"{interval.mean:.0%}" if math.isfinite(interval.mean) else "unknown"
