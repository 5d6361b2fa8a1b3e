"""`lengthwise statistics`: effective lengths, areas, comparisons and needed seeds of results. Imports no torch."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from lengthwise.cli.options import Integer, Place
from lengthwise.cli.printing import column, figure, plain_table, print_json, stdout

if TYPE_CHECKING:
    from rich.table import Table

    from lengthwise.analysis import Interval
    from lengthwise.analysis.statistics import Comparison, Statistics, TaskStatistics
    from lengthwise.analysis.statistics.seeds import NeededSeeds


def command(
    *,
    study: str | None = None,
    threshold: float | None = None,
    difference: float | None = None,
    length: Integer | None = None,
    place: Place = Place(),
    json: bool = False,
) -> int:
    """Print statistics of stored results: how far encodings reach, which differ, and how many seeds a difference needs.

    docs/statistics.md defines each of them. Intervals are 95 % intervals over seeds; a single seed has none.

    Example: lengthwise statistics --study quickstart --difference 0.02

    Args:
        study: Study to describe. [default: all studies in the results folder]
        threshold: Score that an encoding must reach up to its effective length. [default: 0.8 for shares of correct
            answers; for other scores, the same seed's score at the training length, made worse by the report's limit
            for no significant loss]
        difference: Difference of scores for which the number of needed seeds is computed. [default: the report's limit
            for no significant loss]
        length: Compare encodings at this length. [default: their scores over all lengths longer than training]
        json: Print JSON.
    """
    from lengthwise.analysis import findings
    from lengthwise.analysis.reading import unlearned
    from lengthwise.analysis.statistics import Options, statistics_of

    options = Options(threshold=threshold, difference=difference, length=length)
    with place.reading() as store:
        data = findings(store, study)
    statistics = statistics_of(data, options)
    if json:
        print_json(data_of(statistics))
        return 0
    if not statistics.tasks:
        print("No results yet: no run has a score.")
    for task in statistics.tasks:
        _print_task(task)
    _print_over_tasks(statistics)
    if failures := unlearned(data.tasks):
        print(failures)
    return 0


def data_of(statistics: "Statistics") -> dict[str, Any]:
    """Return statistics as plain data. Each comparison has its needed seeds and its probability of superiority."""
    data = dataclasses.asdict(statistics)
    for task, row in zip(statistics.tasks, data["tasks"], strict=True):
        needed = row.pop("needed")
        for comparison, entry in zip(task.comparisons, row["comparisons"], strict=True):
            entry["needed"] = needed.get((comparison.first, comparison.second))
            entry["superiority"] = comparison.superiority
    for group, row in zip(statistics.over_tasks, data["over_tasks"], strict=True):
        for comparison, entry in zip(group.comparisons, row["comparisons"], strict=True):
            entry["superiority"] = comparison.superiority
    return data


def _print_task(task: "TaskStatistics") -> None:
    console = stdout()
    console.print(f"{task.title}: {task.metric}, {task.better} is better", style="bold")
    span = f"{task.lengths[0]:,} to {task.lengths[-1]:,}" if task.lengths else "none"
    table = _table(
        "encoding", "seeds", f"effective length ({task.unit})", "interval", f"area, {span} {task.unit}", "interval"
    )
    for row in task.encodings:
        effective, area = row.effective, row.area
        reach = [effective.text, effective.interval_text] if effective else ["–", ""]
        table.add_row(row.label, str(row.seeds), *reach, *_cells(area))
    console.print(table)
    console.print(
        "Effective length: the longest length up to which a non-increasing curve through the mean scores passes, with "
        f"{task.rule}."
    )
    if task.comparisons:
        console.print(
            f"\nPairs of encodings, mean score over {task.where}"
            if "lengths" in task.where
            else f"\nPairs at {task.where}"
        )
        console.print(_comparisons(task.comparisons, task.needed))
        console.print(
            f"Needed: seeds that find a difference of {task.difference:.3g} in 80 % of studies, with their interval."
        )
    for note in task.notes:
        console.print(note)
    console.print()


def _print_over_tasks(statistics: "Statistics") -> None:
    console = stdout()
    for group in statistics.over_tasks:
        console.print(f"All {len(group.tasks)} tasks with {group.metric}, over all longer lengths", style="bold")
        table = _table("encoding", "interquartile mean", "interval")
        for label, interval in group.interquartile.items():
            table.add_row(label, *_cells(interval))
        console.print(table)
        if group.comparisons:
            console.print(_comparisons(group.comparisons, {}))
        console.print()
    if statistics.ranking is not None:
        order = statistics.ranking
        seeds = f"{len(order.seeds)} seed{'s' if len(order.seeds) != 1 else ''}"
        console.print(f"Mean reciprocal rank over {len(order.tasks)} tasks, {seeds}", style="bold")
        table = _table("encoding", "longer lengths", "interval")
        for rank in order.ranks:
            table.add_row(rank.label, *_cells(rank.longer))
        console.print(table)


def _comparisons(comparisons: "tuple[Comparison, ...]", needed: "dict[tuple[str, str], NeededSeeds] | Any") -> "Table":
    heads = ["seeds", "difference", "interval", "p (Holm)", "effect size", "interval", "superiority"]
    table = _table("better", "other", *heads, *(["needed"] if needed else []))
    for c in comparisons:
        effect, ends, superiority = c.effect, c.effect_interval, c.superiority
        cells = [
            f"{len(c.seeds)}",
            *_cells(c.difference),
            "–" if c.p_holm is None else f"{c.p_holm:.2g}{' *' if c.resolved else ''}",
            "–" if effect is None else f"{effect:.2f}",
            "" if ends is None else f"{ends[0]:.2f} … {ends[1]:.2f}",
            "–" if superiority is None else f"{superiority[0]:.0%}",
        ]
        table.add_row(c.first, c.second, *cells, *([needed_text(needed.get((c.first, c.second)))] if needed else []))
    return table


def needed_text(needed: "NeededSeeds | None") -> str:
    """Return a number of seeds with its interval as text: `12 (4 … 410)`."""
    if needed is None:
        return "–"
    seeds, low, high = (f"{n:,}" if n is not None else "> 100,000" for n in (needed.seeds, needed.low, needed.high))
    return f"{seeds} ({low} … {high})"


def _cells(interval: "Interval | None") -> list[str]:
    """Return a mean and its interval over seeds. An interval over examples is not shown."""
    if interval is None or not math.isfinite(interval.mean):
        return ["–", ""]
    over_seeds = interval.basis in ("seeds", "seeds and prompts")
    return [figure(interval.mean), f"{figure(interval.low)} … {figure(interval.high)}" if over_seeds else "none"]


def _table(*heads: str) -> "Table":
    return plain_table(
        *(column(head, justify="left" if n == 0 or head == "other" else "right") for n, head in enumerate(heads))
    )
