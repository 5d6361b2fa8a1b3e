"""The tables of `lengthwise reach`: effective lengths, and the scores of each task by length."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lengthwise.analysis.numbers import figure
from lengthwise.cli.printing import FittedTable, note_lines, one_line, title_line
from lengthwise.reach.page import explanation, lengths_of, series_of, tasks_of, title
from lengthwise.reach.results import Results
from lengthwise.reach.summary import HEADLINE, effective, headline, score

if TYPE_CHECKING:
    from rich.console import RenderableType


def parts(measurements: Sequence[Results]) -> Iterator["RenderableType"]:
    """Yield what the command prints."""
    series, tasks, lengths = series_of(measurements), tasks_of(measurements), lengths_of(measurements)
    yield title_line("Effective length in tokens (95 % interval)")
    rows = []
    for name, results, method in series:
        claimed = "–" if results.model.claimed is None else f"{results.model.claimed:,}"
        found = {task: effective(results, method, task) for task in tasks if task in results.plan.tasks}
        both = {" and ".join(HEADLINE): headline(results, method)} if set(HEADLINE) <= set(results.plan.tasks) else {}
        for n, (task, length) in enumerate({**both, **found}.items()):
            texts = ("–", "–") if length is None else (length.text, length.interval_text or "no interval")
            rows.append([one_line(name) if n == 0 else "", claimed if n == 0 else "", task, *texts])
    yield FittedTable(
        ["model", "claimed", "task", "effective", "interval"], rows, left=("model", "task"), drop=("claimed",)
    )
    heads = [f"{length:,}" for length in lengths]
    for task in tasks:
        yield ""
        unit = "nats per token" if task == "text" else "share of correct answers"
        yield title_line(f"{title(task)[0].upper()}{title(task)[1:]} ({unit}), by length")
        rows = [
            [one_line(name), *(_cell(results, method, task, length) for length in lengths)]
            for name, results, method in series
        ]
        yield FittedTable(["model", *heads], rows, left=("model",), drop=tuple(heads))
    yield ""
    skipped = {(s.method, s.length, s.reason) for results in measurements for s in results.skipped}
    lines = [f"Not reached: {length:,} with {method}: {reason}." for method, length, reason in sorted(skipped)]
    yield from note_lines([one_line(line) for line in (*lines, *explanation(measurements))])


def _cell(results: Results, method: str, task: str, length: int) -> str:
    """Return `2.345 (2.301–2.391, n = 10)`."""
    found = score(results.find(method, task, length))
    if found is None:
        return "–"
    interval, count = found
    ends = "" if interval.basis == "none" else f"{figure(interval.low)}–{figure(interval.high)}, "
    return f"{figure(interval.mean)} ({ends}n = {count})"
