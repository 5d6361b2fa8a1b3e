r"""LaTeX: for each task a table with a row per encoding and a column per length, for documents with `\usepackage{booktabs}`.

Texts may come from somebody else's database, so each one is escaped: nothing in them is a command, a comment or an option.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import lengthwise
from lengthwise.analysis import Interval, Kind, Point, Series, TaskFindings, findings
from lengthwise.analysis.numbers import figure, spread, times
from lengthwise.exchange.columns import no_results
from lengthwise.exchange.formats.base import Format, Table

if TYPE_CHECKING:
    from lengthwise.store import Store

COLUMNS = 6  # lengths per table; further lengths are in a table of their own
NARROW = 4  # of them fit if intervals are shown by their two ends
ONE_SEED = "$^{1}$"

_ESCAPES = {
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


def escaped(text: str) -> str:
    """Return a text as LaTeX. Control characters become spaces; other letters stay, and a font must have them."""
    printable = "".join(letter if letter.isprintable() or letter == "\u00a0" else " " for letter in text)
    return "".join(_ESCAPES.get(letter, letter) for letter in printable)


class Latex(Format):
    suffix = ".tex"
    tables = ("scores",)

    def content(self, store: "Store", study: str, table: Table) -> bytes:
        found = findings(store, study)
        tasks = [task for task in found.tasks if any(series.points for series in task.series)]
        if not tasks:
            raise no_results("score", study, store)
        parts = [f"% Written by Lengthwise {lengthwise.__version__}. Needs \\usepackage{{booktabs}}."]
        for number, task in enumerate(tasks, 1):
            blocks = _blocks(task)
            names = [_name(study, number, n, len(blocks)) for n in range(1, len(blocks) + 1)]
            parts += [_table(task, lengths, name) for lengths, name in zip(blocks, names, strict=True)]
        return ("\n\n".join(parts) + "\n").encode("utf-8", "replace")


def _blocks(task: TaskFindings) -> list[tuple[int, ...]]:
    """Return the lengths of each table."""
    wide = any("…" in spread(point.interval) for series in task.series for point in series.points)
    most = NARROW if wide else COLUMNS
    return [task.lengths[start : start + most] for start in range(0, len(task.lengths), most)]


def _name(study: str, task: int, block: int, blocks: int) -> str:
    r"""Return the name for `\ref`, such as `tab:quickstart-1`, with letters, digits and dashes only."""
    name = re.sub("[^A-Za-z0-9]+", "-", study).strip("-") or "study"
    return f"tab:{name}-{task}" + (f"-{block}" if blocks > 1 else "")


def _table(task: TaskFindings, lengths: Sequence[int], name: str) -> str:
    metric = f"{task.metric_label} by length in {task.unit}, {task.metric.better} is better"
    caption = escaped(f"{task.title}: {metric}")
    if len(lengths) < len(task.lengths):
        caption += f" (lengths {_number(lengths[0])} to {_number(lengths[-1])})"
    order = [series for series in task.ranked(max(task.lengths)) if series.points]
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{caption}.}}",
        f"  \\label{{{name}}}",
        r"  \setlength{\tabcolsep}{4pt}\renewcommand{\arraystretch}{0.9}",
        f"  \\begin{{tabular}}{{l{'r' * len(lengths)}}}",
        r"    \toprule",
        *_heads(task, lengths),
        r"    \midrule",
        *(line for series in order for line in _rows(task, series, lengths)),
    ]
    if task.baselines:
        lines.append(r"    \midrule")
        for baseline in task.baselines:
            scores = [baseline.scores.get(length) for length in lengths]
            lines.append(
                _row(f"{baseline.label} ({baseline.kind})", ["--" if s is None else f"${_math(s)}$" for s in scores])
            )
    lines += [r"    \bottomrule", r"  \end{tabular}", r"  \par\smallskip"]
    notes = " ".join(_notes(task, order, lengths))
    return "\n".join([*lines, f"  \\parbox{{\\linewidth}}{{\\footnotesize {notes}}}", r"\end{table}"])


def _heads(task: TaskFindings, lengths: Sequence[int]) -> list[str]:
    """Return the two rows of the head: the kinds of the lengths with a rule below each, and the lengths."""
    words: dict[Kind, str] = {"shorter": "shorter", "trained": "trained", "longer": "longer"}
    groups = [(words[kind], [n for n, length in enumerate(lengths) if task.kind(length) == kind]) for kind in words]
    cells, rules = [], []
    for word, places in groups:  # lengths ascend, and so do their kinds
        if places:
            cells.append(f"\\multicolumn{{{len(places)}}}{{c}}{{{word}}}")
            rules.append(f"\\cmidrule(lr){{{places[0] + 2}-{places[-1] + 2}}}")
    ratios = [_small(escaped(times(n / task.train_length))) for n in lengths]
    return [_row("", cells), f"    {' '.join(rules)}", _row("encoding", map(_number, lengths)), _row("", ratios)]


def _row(label: str, cells: Iterable[str]) -> str:
    # The braces keep a label that begins with a bracket or a star from being an option of the row before.
    return f"    {{{escaped(label)}}} & {' & '.join(cells)} \\\\"


def _rows(task: TaskFindings, series: Series, lengths: Sequence[int]) -> list[str]:
    """Return the row with an encoding's means and, if one has an interval between seeds, the row with the intervals."""
    points = [series.point_at(length) for length in lengths]
    means = _row(series.label, [_mean(task, point) for point in points])
    intervals = ["" if point is None or point.n_seeds == 1 else _interval(point.interval) for point in points]
    return [means, f"{_row('', intervals)}[1pt]"] if any(intervals) else [means]


def _mean(task: TaskFindings, point: Point | None) -> str:
    if point is None or not math.isfinite(point.mean):
        return "--"
    best, text = task.best(point.length), _math(point.mean)
    if best is not None and figure(point.mean) == figure(best.mean):
        text = f"\\mathbf{{{text}}}"
    mark = ONE_SEED if point.n_seeds == 1 and not _only_single_seeds(task.series) else ""
    return f"${text}${mark}"


def _interval(interval: Interval) -> str:
    """Return `± 0.012` in small digits, the two ends of an interval that is not symmetric, or "" without an interval."""
    if not (text := spread(interval)):
        return ""
    ends = [_digits(part) for part in text.replace("\u00a0", " ").removeprefix("± ").split(" … ")]
    return _small(f"$\\pm {ends[0]}$" if len(ends) == 1 else f"$[{ends[0]},\\,{ends[1]}]$")


def _small(text: str) -> str:
    return f"{{\\scriptsize {text}}}"


def _notes(task: TaskFindings, order: Sequence[Series], lengths: Sequence[int]) -> list[str]:
    points = [point for series in order for length in lengths if (point := series.point_at(length)) is not None]
    seeds, counts = {p.n_seeds for p in points}, {s.n for p in points for s in p.seeds}
    notes = [
        f"Trained at {escaped(task.training_lengths)} {escaped(task.unit)}; below each length is its multiple of the longest one.",
        f"$n$: {_ends(seeds)} seed{'s' if seeds != {1} else ''} per score, {_ends(counts)} test examples per seed.",
        *_bases(points),
    ]
    if _only_single_seeds(task.series):
        notes.append("One seed: there is no interval between seeds.")
    elif 1 in seeds:
        notes.append(f"{ONE_SEED}One seed: there is no interval between seeds.")
    if any(task.best(length) is not None for length in lengths):
        notes.append("Bold: the best mean at that length.")
    if task.baselines:
        notes.append("Below the rule: predictions without a model.")
    return notes


def _bases(points: Iterable[Point]) -> list[str]:
    """Return a sentence for each basis of the intervals of several seeds."""
    words = {
        "seeds": r"Intervals: 95\,\%, over the means of the seeds (Student's t, or a beta distribution for shares).",
        "seeds and prompts": r"Intervals: 95\,\%, over seeds (Student's t) and prompts (bootstrap).",
    }
    found = {point.interval.basis for point in points if point.n_seeds > 1}
    return [text for basis, text in words.items() if basis in found]


def _only_single_seeds(series: Iterable[Series]) -> bool:
    return all(point.n_seeds == 1 for one in series for point in one.points)


def _ends(counts: Iterable[int]) -> str:
    ordered: list[Any] = sorted(counts)
    return " to ".join(dict.fromkeys(_number(n) for n in (ordered[0], ordered[-1]))) if ordered else "no"


def _number(value: int) -> str:
    return f"{value:,}".replace(",", "{,}")


def _math(value: float) -> str:
    """Return a number for math mode."""
    return _digits(figure(value)) if math.isfinite(value) else r"\textrm{--}"


def _digits(text: str) -> str:
    """Return a formatted number for math mode: with a minus sign, commas without spaces, and powers of ten."""
    text = re.sub(r"e([+-]?)0*(\d+)$", lambda m: f"\\cdot 10^{{{m[1].replace('+', '')}{m[2]}}}", text)
    return text.replace("−", "-").replace(",", "{,}")
