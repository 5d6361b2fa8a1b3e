"""The summary of several tasks: mean reciprocal ranks, scores over all longer lengths, and published numbers.

The summary of one task has the scores over all training lengths and over all longer lengths.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis import (
    Findings,
    Interval,
    Kind,
    TaskFindings,
    Ties,
    baseline_over_lengths,
    over_lengths,
    ranking,
)
from lengthwise.analysis.numbers import figure, spread
from lengthwise.analysis.reading import remark, unlearned
from lengthwise.report.palette import Look

KINDS: tuple[Kind, ...] = ("trained", "longer")  # no score includes lengths shorter than training


@dataclass(frozen=True)
class Cell:
    """A number as text, its interval, its sort key, whether it is the best of its column, and the published number."""

    mean: str
    spread: str
    sort: str
    best: bool
    published: str


def summary(findings: Findings, looks: Mapping[str, Look], ties: Ties = "average") -> dict[str, Any] | None:
    """Return the template's data, or None if there is nothing to summarize.

    That is so for one task with at most one length of each kind and no published numbers. `ties`: the rule for equal
    scores.
    """
    order = ranking(findings.tasks, ties)
    published = findings.published
    alone = findings.tasks[0] if len(findings.tasks) == 1 and not findings.tasks[0].shifted else None
    if order is None and published is None and (alone is None or not _many(alone)):
        return None
    kinds: list[Kind] = []  # of the columns, for a single task
    columns: list[tuple[str, dict[str, Interval | None], Mapping[str, float], str, bool]] = []
    if order is not None:
        ranks = published.ranks if published else {}
        longer, inside = ({r.label: getattr(r, name) for r in order.ranks} for name in ("longer", "within"))
        columns.append(("longer lengths", longer, ranks, "higher", _may_mark_first(findings, longer, "longer")))
        if any(inside.values()):
            columns.append(("in distribution", inside, {}, "higher", _may_mark_first(findings, inside, "trained")))
    elif alone is not None:
        within = {s.label: over_lengths(alone, s, "trained") for s in alone.series}
        if any(within.values()):
            columns.append(
                (_lengths(alone, "trained"), within, {}, alone.metric.better, _has_best(alone, within, "trained"))
            )
            kinds.append("trained")
    known = len(columns)
    for task in findings.tasks:
        scores = {s.label: over_lengths(task, s, "longer") for s in task.series}
        cited = published.scores.get(task.name, {}) if published else {}
        if any(scores.values()):
            head = task.title if alone is None else _lengths(task, "longer")
            columns.append((head, scores, cited, task.metric.better, _has_best(task, scores, "longer")))
            kinds.append("longer")
    if not columns:
        return None
    labels = [r.label for r in order.ranks] if order else []
    labels += [label for label in findings.labels if label not in labels]
    if alone is not None:
        labels = _best_first(columns[-1][1], alone.metric.better, labels)
    cells = [_column(values, cited, better, labels, marked) for _, values, cited, better, marked in columns]
    remarks = {s.label: remark(alone, s) for s in alone.series} if alone is not None else {}
    lines = [
        {"label": label, "look": looks[label], "cells": row, "remark": remarks.get(label, "")}
        for label, row in zip(labels, zip(*cells, strict=True), strict=True)
    ]
    return {
        "ranking": order,
        "heads": [name for name, *_ in columns],
        "known": known,
        "sides": [{"new": n >= known, "first": n == known} for n in range(len(columns))],
        "alone": alone,
        "lines": lines,
        "baselines": _baseline_lines(alone, kinds) if alone is not None else [],
        "published": published,
        "unlearned": unlearned(findings.tasks) if alone is None else "",
        "shorter": any(task.of_kind("shorter") for task in findings.tasks),
    }


def _may_mark_first(findings: Findings, ranks: Mapping[str, Interval | None], kind: Kind) -> bool:
    """Return whether the first rank may be marked: there are intervals over seeds, and a best encoding in each task."""
    return all(i is None or i.basis != "none" for i in ranks.values()) and all(
        any(task.best(length) is not None for length in task.of_kind(kind))
        for task in findings.tasks
        if task.of_kind(kind)
    )


def _has_best(task: TaskFindings, values: Mapping[str, Interval | None], kind: Kind) -> bool:
    """Return whether some encoding may be called the best over all lengths of a kind.

    It must be so at one length at least (`TaskFindings.best`), and no floor may have as good a score over all of them.
    """
    if all(task.best(length) is None for length in task.of_kind(kind)):
        return False
    means = [float(f"{i.mean:.6g}") for i in values.values() if i is not None]  # baselines are stored with six digits
    floors = [baseline_over_lengths(task, baseline, kind) for baseline in task.baselines if baseline.floor]
    better = operator.lt if task.metric.better == "lower" else operator.gt
    return any(all(floor is None or better(mean, float(f"{floor:.6g}")) for floor in floors) for mean in means)


def _baseline_lines(task: TaskFindings, kinds: Sequence[Kind]) -> list[dict[str, Any]]:
    """Return the rows of the baselines that have a score in some column. There is a column for each of `kinds`."""
    means = [(b, [baseline_over_lengths(task, b, kind) for kind in kinds]) for b in task.baselines]
    return [
        {"label": b.label, "kind": b.kind, "cells": ["–" if value is None else figure(value) for value in values]}
        for b, values in means
        if any(value is not None for value in values)
    ]


def _many(task: TaskFindings) -> bool:
    """Return whether there is a score over several lengths of one kind."""
    return any(
        len(task.of_kind(kind)) > 1 and any(over_lengths(task, series, kind) for series in task.series)
        for kind in KINDS
    )


def _lengths(task: TaskFindings, kind: Kind) -> str:
    """Return the lengths of one kind as text: `40 to 160 symbols`."""
    lengths = task.of_kind(kind)
    first, last = min(lengths), max(lengths)
    return f"{first:,} {task.unit}" if first == last else f"{first:,} to {last:,} {task.unit}"


def _best_first(values: Mapping[str, Interval | None], better: str, labels: list[str]) -> list[str]:
    """Sort labels by their score. Those without a score come last, in order."""

    def rank(label: str) -> float:
        interval = values.get(label)
        return math.inf if interval is None else interval.mean if better == "lower" else -interval.mean

    return sorted(labels, key=rank)


def _column(
    values: Mapping[str, Interval | None], cited: Mapping[str, float], better: str, labels: list[str], marked: bool
) -> list[Cell]:
    """Return the cells of a column. If `marked`, the best ones are marked, unless all are equal."""
    means = [i.mean for i in values.values() if i is not None]
    marked = marked and not (len(means) > 1 and len({figure(mean) for mean in means}) == 1)
    best = figure((min if better == "lower" else max)(means)) if means and marked else ""
    cells = []
    for label in labels:
        interval, published = values.get(label), figure(cited[label]) if label in cited else ""
        if interval is None:
            cells.append(Cell("–", "", "", False, published))
        else:
            mean = figure(interval.mean)
            cells.append(Cell(mean, spread(interval), f"{interval.mean:.6g}", mean == best, published))
    return cells
