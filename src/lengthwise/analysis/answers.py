"""Stored answers of measurements to means and intervals over seeds: what may be averaged, by encoding."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from lengthwise.analysis.differences import flat
from lengthwise.analysis.estimates import Estimate, Interval, interval_of, over_rounds
from lengthwise.analysis.kinds import KIND_WORDS, length_kind
from lengthwise.analysis.protocol import canonical
from lengthwise.measurements import MEASUREMENTS, Measurement, Table
from lengthwise.measurements.base import Bounds, Column, Number, Numbers
from lengthwise.measurements.table import How, joined
from lengthwise.metrics import Metric

if TYPE_CHECKING:
    from lengthwise.store import AnswerRow, RunRow

Key = tuple[Any, ...]
COSTS = ("seconds", "peak_memory")  # facts that differ between all answers


@dataclass(frozen=True, kw_only=True)
class Series:
    """The answers about an encoding, one table for each run. `name`: of its line or row, by default its label."""

    label: str
    name: str
    seeds: tuple[int, ...]
    runs: tuple[Table, ...]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The answers of encodings to the same question, which may be compared.

    `question`: what all have in common. `lengths`: the lengths that numbers are means over, if any. `metric`: the
    task's metric. `facts`: the origin of the numbers, flat. `reference`, `pairing`: of a comparison,
    the encoding that all are compared with, and whether its runs have the same seed.
    """

    measurement: Measurement
    question: Mapping[str, Any]
    series: tuple[Series, ...]
    lengths: tuple[int, ...] = ()
    metric: Metric | None = None
    facts: Mapping[str, Any]
    reference: str = ""
    pairing: str = ""

    @cached_property
    def n(self) -> int:
        """Return the smallest number of examples; 0 if none are counted."""
        return min((count for s in self.series for run in s.runs for count in run.column("n") if count), default=0)

    @property
    def one_seed(self) -> bool:
        return any(len(series.runs) == 1 for series in self.series)

    def bounds(self, column: Column) -> Bounds:
        bounds = self.measurement.bounds(column, self.question)
        if bounds != "metric":
            return bounds
        return self.metric.limits if self.metric is not None else None

    def is_share(self, column: Column) -> bool:
        """Return whether values are shares of counted examples, whose intervals are at least Wilson's."""
        is_score = column.bounds == "metric"
        return bool(column.examples) and (not is_score or (self.metric is not None and self.metric.share))

    def texts(self) -> dict[str, Any]:
        """Return what texts may name: the options, the notes of the first run, and what the comparison is with."""
        first = self.series[0].runs[0]
        notes = {c.name: first.first(c.name) for c in self.measurement.columns if c.role == "note"}
        own = self.measurement.texts(self.question)
        return {**notes, **self.question, **own, "n": self.n, "reference": self.reference, "pairing": self.pairing}


# ---- means and intervals ------------------------------------------------------------------------------------------


def summarize(
    summary: Summary,
    y: str,
    by: Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    how: How = "mean",
    *,
    first_seed: bool = False,
) -> list[dict[Key, Interval]]:
    """Return for each series the mean of the column `y` with its 95 % interval over seeds, by the values of the
    columns `by`.

    The rows of one run are combined first, see `Table.combined`. A median is that of the rounds of one measurement, and
    its interval is over rounds. All other intervals are those of `interval_of`.
    """
    column, where = summary.measurement.column(y), where or {}
    if how == "median":
        return [_over_rounds(series.runs[0], y, by, where) for series in summary.series]
    bounds, share = summary.bounds(column), summary.is_share(column)
    of_all_series = []
    for series in summary.series:
        of_key: dict[Key, list[Estimate]] = defaultdict(list)
        for run in series.runs[:1] if first_seed else series.runs:
            for key, estimate in _estimates(run, column, by, where, how).items():
                of_key[key].append(estimate)
        of_all_series.append({key: interval_of(own, bounds, share=share) for key, own in of_key.items()})
    return of_all_series


def _over_rounds(run: Table, y: str, by: Sequence[str], where: Mapping[str, Any]) -> dict[Key, Interval]:
    values = run.column(y)
    return {key: over_rounds([values[n] for n in rows]) for key, rows in run.groups(y, by, where).items()}


def _estimates(
    run: Table, column: Column, by: Sequence[str], where: Mapping[str, Any], how: How
) -> dict[Key, Estimate]:
    """Return the numbers of one run, by the values of the columns `by`."""
    means = run.combined(column.name, by, where, how, column.weight)
    if not (column.error or column.groups or column.examples):
        return {key: Estimate(mean=mean) for key, mean in means.items()}
    groups = run.groups(column.name, by, where)
    return {key: _estimate(run, column, groups[key], mean) for key, mean in means.items()}


def _estimate(run: Table, column: Column, rows: Sequence[int], mean: float) -> Estimate:
    """Return the combined number of some rows of one run, with what they say about its examples.

    The standard error of a mean over lengths is that of independent examples. That of a mean over anything else is
    unknown, because the parts of one model are not independent samples.
    """
    errors, lengths = ([run.column(name)[n] for n in rows] for name in (column.error, "length"))
    known = column.error and None not in errors and (len(rows) == 1 or len(set(lengths)) == len(rows))
    error = math.hypot(*errors) / len(rows) if known else math.nan
    if len(rows) > 1:
        return Estimate(mean=mean, standard_error=error)
    examples, groups = (run.column(name)[rows[0]] for name in (column.examples, column.groups))
    if column.examples and not column.error:
        error = 0.0  # Wilson's interval is the only one
    return Estimate(mean=mean, standard_error=error, n=examples or 0, groups=tuple(groups or ()))


class NumbersRow(NamedTuple):
    """A row of a table: the series, what else identifies it, and its cells."""

    series: Series
    name: str
    cells: list[Interval | str | None]


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Return the different keys, ascending if all are whole numbers, because series may begin with different ones."""
    unique = list(dict.fromkeys(keys))
    return sorted(unique) if all(type(cell) is int for key in unique for cell in key) else unique


def numbers_table(summary: Summary, table: Numbers) -> tuple[list[tuple[str, Column]], list[NumbersRow]]:
    """Return the heads of a table of numbers, each with its column, and its rows."""
    heads: list[tuple[str, Column]] = []
    cells: dict[tuple[int, Key], dict[int, Interval | str]] = defaultdict(dict)
    for number in table.numbers:
        by = (*table.rows, *number.by)
        of_all_series: list[Any] = _texts(summary, number, by)
        if summary.measurement.column(number.y).role != "note":
            of_all_series = summarize(summary, number.y, by, number.where, number.how, first_seed=table.first_seed)
        places: dict[Key, int] = {}
        for own in in_order(key[len(table.rows) :] for values in of_all_series for key in values):
            places[own] = len(heads)
            head = number.head.format(**dict(zip(number.by, own, strict=True)))
            heads.append((head, summary.measurement.column(number.y)))
        for of_series, values in enumerate(of_all_series):
            for key, interval in values.items():
                cells[of_series, key[: len(table.rows)]][places[key[len(table.rows) :]]] = interval
    rows = []
    for (of_series, key), row_cells in sorted(cells.items(), key=lambda item: item[0][0]):
        names = [summary.measurement.column(name).text_of(cell) for name, cell in zip(table.rows, key, strict=True)]
        series = summary.series[of_series]
        rows.append(NumbersRow(series, ", ".join([series.name, *names]), [row_cells.get(n) for n in range(len(heads))]))
    return heads, rows


def _texts(summary: Summary, number: Number, by: Sequence[str]) -> list[dict[Key, str]]:
    """Return the first text of a note for each series, by the values of the columns `by`."""
    runs = [series.runs[0] for series in summary.series]
    groups = [run.groups(number.y, by, number.where) for run in runs]
    return [
        {key: str(run.column(number.y)[rows[0]]) for key, rows in of_run.items()}
        for run, of_run in zip(runs, groups, strict=True)
    ]


def numbers_of(summary: Summary) -> dict[str, Any]:
    """Return the tables of a summary as plain data."""
    tables = []
    for table in summary.measurement.tables:
        heads, rows = numbers_table(summary, table)
        cells = [
            {
                "label": row.series.label,
                "name": row.name,
                "seeds": len(row.series.runs),
                "cells": [asdict(cell) if isinstance(cell, Interval) else cell for cell in row.cells],
            }
            for row in rows
        ]
        tables.append({"title": table.title, "heads": [head for head, _ in heads], "rows": cells})
    about = {name: getattr(summary, name) for name in ("question", "lengths", "n", "reference", "pairing", "facts")}
    return about | {"tables": tables}


# ---- which answers may be averaged --------------------------------------------------------------------------------


def shown_table(answer: "AnswerRow", measurement: Measurement, run: "RunRow") -> Table:
    """Return the rows to show of a stored answer, with its length and the kind of the length as columns."""
    table = measurement.derive(Table.from_data(answer.rows), answer.facts)
    length = answer.question.get("length")
    if length is None or "length" in table.columns:
        return table
    kind = KIND_WORDS[length_kind(run, answer.question)]
    return Table({**table.columns, "length": [length] * len(table), "length_kind": [kind] * len(table)})


def summaries(
    answers: Iterable["AnswerRow"],
    labels: Mapping[str, str],
    runs: Mapping[str, "RunRow"],
    metric: Metric | None = None,
) -> dict[str, tuple[Summary, ...]]:
    """Return the summaries of stored answers about the runs of one task, by the name of the measurement.

    `labels`: the label of each of these runs, by key. `runs`: these runs and those that they are compared with, by
    key. `metric`: the task's metric. Measurements that are not known, such as those of a later
    version, are left out.
    """
    by_name: dict[str, list[AnswerRow]] = defaultdict(list)
    for answer in answers:
        if answer.key in labels:
            by_name[answer.measurement].append(answer)
    by_measurement = {
        name: tuple(
            _summary(measurement, group, labels, runs, metric, reference, pairing)
            for reference, pairing, rows in _by_reference(by_name[name], labels, runs)
            for group in _by_question(rows, measurement)
        )
        for name, measurement in MEASUREMENTS.items()
        if name in by_name
    }
    return {name: groups for name, groups in by_measurement.items() if groups}


def _by_reference(
    answers: Sequence["AnswerRow"], labels: Mapping[str, str], runs: Mapping[str, "RunRow"]
) -> list[tuple[str, str, list["AnswerRow"]]]:
    """Return the answers by the encoding that the runs are compared with, and by the way of pairing seeds; all if
    they are not.

    The distances between a reference's seeds, the baseline, are shown with both ways of pairing the other encodings.
    """
    groups: dict[tuple[str, str], list[AnswerRow]] = defaultdict(list)
    for answer in answers:
        against = answer.question.get("against")
        if against is None:
            groups["", ""].append(answer)
        elif against in runs:
            reference = labels.get(against, runs[against].label)
            same = runs[answer.key].seed == runs[against].seed
            pairing = "" if labels[answer.key] == reference else "the same seed" if same else "different seeds"
            groups[reference, pairing].append(answer)
    comparisons = []
    for (reference, pairing), own in groups.items():
        baseline = groups.get((reference, ""), []) if pairing else []
        if pairing or not reference:
            comparisons.append((reference, pairing, [*own, *baseline]))
        elif not any(other == reference and of_pairs for other, of_pairs in groups):
            comparisons.append((reference, "different seeds", own))
    return comparisons


def _by_question(answers: Iterable["AnswerRow"], measurement: Measurement) -> list[list["AnswerRow"]]:
    """Group the answers by their questions. If lengths are averaged, keep those that all runs have in common."""
    omitted = ("against", "length") if measurement.over_lengths else ("against",)
    groups: dict[str, list[AnswerRow]] = defaultdict(list)
    for answer in answers:
        groups[canonical({k: v for k, v in answer.question.items() if k not in omitted})].append(answer)
    ordered = sorted(groups.values(), key=lambda group: (_length(group[0]), group[0].question.get("query", 0)))
    if not measurement.over_lengths:
        return ordered[-1:] if measurement.longest_only else ordered
    return [same_lengths for group in ordered for same_lengths in _at_common_lengths(group)]


def _length(answer: "AnswerRow") -> int:
    return int(answer.question.get("length", 0))


def _at_common_lengths(answers: Sequence["AnswerRow"]) -> list[list["AnswerRow"]]:
    """Return the answers at the lengths that all runs or pairs have. Without any, group the runs with the same ones."""
    lengths_of: dict[Any, set[int]] = defaultdict(set)
    for answer in answers:
        lengths_of[_compared(answer)].add(_length(answer))
    if common := set.intersection(*lengths_of.values()):
        return [[answer for answer in answers if _length(answer) in common]]
    sets_of_lengths = dict.fromkeys(map(frozenset, lengths_of.values()))
    return [[answer for answer in answers if lengths_of[_compared(answer)] == lengths] for lengths in sets_of_lengths]


def _compared(answer: "AnswerRow") -> Any:
    return answer.key, answer.question.get("against")


def _summary(
    measurement: Measurement,
    answers: Sequence["AnswerRow"],
    labels: Mapping[str, str],
    runs: Mapping[str, "RunRow"],
    metric: Metric | None,
    reference: str,
    pairing: str,
) -> Summary:
    of_run: dict[str, list[Table]] = defaultdict(list)
    for answer in answers:
        of_run[answer.key].append(shown_table(answer, measurement, runs[answer.key]))
    keys: dict[str, list[str]] = defaultdict(list)  # by label, both in the order of `labels`
    for key, label in labels.items():
        if key in of_run:
            keys[label].append(key)
    omitted = ("against", *(["length"] if measurement.over_lengths else []))
    return Summary(
        measurement=measurement,
        question={name: value for name, value in answers[0].question.items() if name not in omitted},
        series=tuple(
            Series(
                label=label,
                name=f"{label} (another seed)" if label == reference else label,
                seeds=tuple(runs[key].seed for key in of_label),
                runs=tuple(joined(of_run[key]) for key in of_label),
            )
            for label, of_label in keys.items()
        ),
        lengths=tuple(sorted({_length(answer) for answer in answers} - {0})),
        metric=metric,
        facts=joint(flat({k: v for k, v in answer.facts.items() if k not in COSTS}) for answer in answers),
        reference=reference,
        pairing=pairing,
    )


def joint(facts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of all facts by name. Where they differ, the value is a list of all values."""
    values_of: dict[str, dict[str, Any]] = defaultdict(dict)
    for own in facts:
        for name, value in own.items():
            values_of[name][canonical(value)] = value
    return {name: next(iter(v.values())) if len(v) == 1 else list(v.values()) for name, v in values_of.items()}


def of_answers(
    measurement: Measurement, names: Sequence[str], answers: Sequence["AnswerRow"], runs: Mapping[str, "RunRow"]
) -> Summary:
    """Return a summary with each answer as a series of its own, for the table of a command."""
    series = [
        Series(label=name, name=name, seeds=(0,), runs=(shown_table(answer, measurement, runs[answer.key]),))
        for name, answer in zip(names, answers, strict=True)
    ]
    return Summary(measurement=measurement, question=answers[0].question, series=tuple(series), facts={})
