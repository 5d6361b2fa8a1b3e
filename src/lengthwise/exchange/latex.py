r"""LaTeX, with `\usepackage{booktabs}`: for each task a table with a row per encoding and a column per length.

Texts may come from somebody else's database, so each one is escaped: nothing in them is a command, a comment or an
option.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import lengthwise
from lengthwise.analysis import Point, TaskFindings, findings
from lengthwise.analysis.numbers import figure, spread, times
from lengthwise.exchange.columns import no_results

if TYPE_CHECKING:
    from lengthwise.store import Store

ONE_SEED = "$^{1}$"
_ESCAPES = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",
        "`": "`{}",
        "-": "-{}",  # two of them would become a dash
        "×": r"$\times$",
        "−": "$-$",
        "·": r"$\cdot$",
        "±": r"$\pm$",
        "→": r"$\rightarrow$",
        "…": r"\ldots{}",
        "–": "--",
        "“": "``",
        "”": "''",
        "’": "'",
        "\u00a0": "~",
    }
)


def escaped(text: str) -> str:
    """Return a text as LaTeX. Control characters become spaces; other letters stay, and a font must have them."""
    printable = (letter if letter.isprintable() or letter == "\u00a0" else " " for letter in text)
    return "".join(printable).translate(_ESCAPES)


def latex_tables(store: "Store", study: str) -> str:
    """Return the tables of a study. Raises `ConfigError` if it has no score yet, and `StoreError` if it is unknown."""
    tasks = [task for task in findings(store, study).tasks if any(series.points for series in task.series)]
    if not tasks:
        raise no_results("score", study, store)
    name = re.sub("[^A-Za-z0-9]+", "-", study).strip("-") or "study"
    texts = [f"% Written by Lengthwise {lengthwise.__version__}. Needs \\usepackage{{booktabs}}."]
    for number, task in enumerate(tasks, 1):
        wide = any("…" in spread(point.interval) for series in task.series for point in series.points)
        most = 4 if wide else 6  # lengths that fit into a line
        blocks = [task.lengths[start : start + most] for start in range(0, len(task.lengths), most)]
        for n, lengths in enumerate(blocks, 1):
            label = f"tab:{name}-{number}" + (f"-{n}" if len(blocks) > 1 else "")
            texts.append(_table(task, lengths, label))
    return "\n".join(texts)


def _table(task: TaskFindings, lengths: Sequence[int], label: str) -> str:
    import pandas

    heads = [(task.kind(length), f"{length:,}", escaped(times(length / task.train_length))) for length in lengths]
    has_intervals = any(point.n_seeds > 1 for series in task.series for point in series.points)
    rows, shown = [], list[Point]()
    for series in task.ranked(max(task.lengths)):
        points = [series.point_at(length) for length in lengths]
        shown += filter(None, points)
        if series.points:
            rows.append([_label(series.label), *(_mean(task, point, has_intervals) for point in points)])
        intervals = [escaped(spread(point.interval)) if point and point.n_seeds > 1 else "" for point in points]
        if any(intervals):
            rows.append(["", *(f"{{\\scriptsize {text}}}" for text in intervals)])
    for baseline in task.baselines:
        scores = [baseline.scores.get(length) for length in lengths]
        rows.append([_label(f"{baseline.label} ({baseline.kind})"), *map(_number, scores)])
    frame = pandas.DataFrame(rows, columns=pandas.MultiIndex.from_tuples([("", "encoding", ""), *heads]))
    metric = f"{task.metric_label} by length in {task.unit}, {task.metric.better} is better"
    title = escaped(f"{task.title}: {metric}")
    if len(lengths) < len(task.lengths):
        title += f" (lengths {lengths[0]:,} to {lengths[-1]:,})"
    return frame.style.hide(axis="index").to_latex(
        hrules=True,
        column_format="l" + "r" * len(lengths),
        multicol_align="c",
        position_float="centering",
        caption=(" ".join([f"{title}.", *_notes(task, shown, has_intervals)]), f"{{{title}}}"),
        label=label,
    )


def _label(text: str) -> str:
    """Return the name of a row in braces: a bracket or a star at its beginning would be an option of the row before."""
    return f"{{{escaped(text)}}}"


def _number(value: float | None) -> str:
    return "--" if value is None or not math.isfinite(value) else escaped(figure(value))


def _mean(task: TaskFindings, point: Point | None, has_intervals: bool) -> str:
    if point is None:
        return "--"
    best, text = task.best(point.length), _number(point.mean)
    if best is not None and figure(point.mean) == figure(best.mean):
        text = f"\\textbf{{{text}}}"
    return text + (ONE_SEED if has_intervals and point.n_seeds == 1 else "")


def _notes(task: TaskFindings, points: Sequence[Point], has_intervals: bool) -> list[str]:
    seeds = {point.n_seeds for point in points}
    notes = [
        f"Trained at {escaped(task.training_lengths)} {escaped(task.unit)}; below each length is its multiple of the "
        "longest one.",
        f"{_range(seeds)} seed{'s' if seeds != {1} else ''} per score, "
        f"{_range(int(seed.n) for point in points for seed in point.seeds)} test examples per seed.",
    ]
    if bases := {point.interval.basis for point in points if point.n_seeds > 1} - {"none"}:
        notes.append(f"Intervals: 95\\,\\% over {' or '.join(sorted(bases))}.")
    if 1 in seeds:
        notes.append(f"{ONE_SEED if has_intervals else ''}One seed: there is no interval between seeds.")
    if any(task.best(point.length) is not None for point in points):
        notes.append("Bold: the best mean at that length.")
    return notes


def _range(counts: Iterable[int]) -> str:
    ordered = sorted(counts)
    return " to ".join(dict.fromkeys(f"{n:,}" for n in (ordered[0], ordered[-1]))) if ordered else "no"
