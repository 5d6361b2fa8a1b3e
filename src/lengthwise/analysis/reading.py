"""The conclusion of a task's scores in plain sentences, which may claim less than the scores allow, but never more."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lengthwise.analysis.estimates import difference, interval_of
from lengthwise.analysis.findings import Baseline, Point, Series, TaskFindings
from lengthwise.analysis.numbers import figure, spread, times
from lengthwise.values import join_names

# The largest loss at a longer length that does not count: 5 percentage points of exact match, about 5 % of perplexity,
# or 5 % of the squared error of always answering 0.
MARGIN = 0.05

FLOOR_WORDS = (
    "a floor is a baseline that a model must beat to count as having learned the task; "
    "the other baselines are for comparison"
)

Verdict = Literal["holds", "loses", "open", "unclear", "unlearned", "one seed", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """Why an encoding does not count as having learned its task, judged by its score at the training length.

    unlearned: the share of correct answers is below `LEARNED`, or the mean is no better than a floor · unclear: the
    95 % interval of the mean reaches a floor. `floor`: the simplest floor that is not beaten; None where only the share
    is too low.
    """

    verdict: Literal["unlearned", "unclear"]
    length: int
    floor: Baseline | None


def shortfall(task: TaskFindings, series: Series) -> Shortfall | None:
    """Return why an encoding does not count as having learned the task; None if it does, or without a score there."""
    point = series.point_at(task.reference_length) if task.reference_length is not None else None
    if point is None or not math.isfinite(point.mean):
        return None
    if task.has_failed(series):
        return Shortfall(verdict="unlearned", length=point.length, floor=task.unbeaten_floor(point))
    if (floor := task.unbeaten_floor(point, by_interval=True)) is not None:
        return Shortfall(verdict="unclear", length=point.length, floor=floor)
    return None


def verdict(task: TaskFindings, series: Series, length: int) -> Verdict:
    """Compare the score at `length` with the score at the training length.

    Scores are paired by seed, and by group of prompts where groups are stored.

    holds: the upper end of the 95 % interval of the loss is at most the `margin` · loses: the interval lies above 0 and
    reaches past the margin · open: neither · unlearned, unclear: the task was not learned, so there is no score to hold
    (`shortfall`) · one seed: there is only one · unknown: a score is missing or not finite.
    """
    before, after = (
        series.point_at(task.reference_length) if task.reference_length is not None else None,
        series.point_at(length),
    )
    if before is None or after is None:
        return "unknown"
    start = {s.key: s for s in before.seeds}
    pairs = [(s, start[s.key]) for s in after.seeds if s.key in start]
    losses = [difference(*(pair if task.metric.better == "lower" else pair[::-1])) for pair in pairs]
    if not losses or not all(math.isfinite(loss.mean) for loss in losses):
        return "unknown"
    if (short := shortfall(task, series)) is not None:
        return short.verdict
    if len(losses) < 2:
        return "one seed"
    loss = interval_of(losses)
    if loss.high <= margin(task, before.length):
        return "holds"
    return "loses" if loss.low > 0 else "open"


def margin(task: TaskFindings, length: int) -> float:
    """Return `MARGIN` in the units of the metric. If the metric has a `scale`, it is a share of that baseline."""
    scale = next((b.scores.get(length) for b in task.baselines if b.label == task.metric.scale), None)
    return MARGIN if scale is None else MARGIN * scale


def _margin_text(task: TaskFindings) -> str:
    """Return the margin with its unit, such as `at most 0.05 nats per byte`."""
    if task.metric.share:
        return f"at most {100 * MARGIN:g} percentage points"
    limit = MARGIN if task.reference_length is None else margin(task, task.reference_length)
    return f"at most {limit:.3g} {task.metric.unit_text(task.unit)}".rstrip()


def reading(task: TaskFindings, done: int) -> str:
    """Return a sentence or two about the longest length. `done`: how many of the task's runs are finished."""
    if not any(s.points for s in task.series):
        return "No run has a score yet."
    text = _reading(task)
    if done == len(task.keys):
        return _capital(text)
    return f"So far ({done} of {len(task.keys)} runs): {text}"


def _reading(task: TaskFindings) -> str:
    longest = max(p.length for s in task.series for p in s.points)
    if not task.is_new(longest):
        text = (
            f"no run has a score beyond the training length of {task.train_length:,} {task.unit} yet, "
            "so these scores say nothing about longer inputs."
        )
        return f"{text} {_shortfalls(task)}".strip()
    where = f"at {longest:,} {task.unit} ({times(longest / task.train_length)} the training length)"
    if all(p.n_seeds == 1 for series in task.series if (p := series.point_at(longest))):
        return f"{_one_seed(task, longest, where)} {_shortfalls(task)}".strip()
    groups: dict[Verdict, list[str]] = {}
    for series in task.ranked(longest):
        groups.setdefault(verdict(task, series, longest), []).append(series.label)
    clauses = [_clause(task, groups[name], verbs) for name, verbs in verdict_verbs(task).items() if name in groups]
    judged = f"{where}, {'; '.join(clauses)}." if clauses else ""
    shortfalls = _shortfalls(task)  # this sentence names another length
    there = "there" if clauses and not shortfalls else f"at {longest:,} {task.unit}"
    return " ".join(filter(None, (judged, shortfalls, _best(task, longest, there))))


def verdict_verbs(task: TaskFindings) -> dict[Verdict, tuple[str, str]]:
    limit = _margin_text(task)
    return {
        "holds": (f"has no significant loss ({limit})", f"have no significant loss ({limit})"),
        "loses": ("gets worse", "get worse"),
        "open": (
            "has no clear verdict: the interval over its seeds is too wide",
            "have no clear verdict: the intervals over their seeds are too wide",
        ),
        "one seed": ("has only one seed", "have only one seed"),
        "unknown": ("cannot be judged (a score is missing or not finite)",) * 2,
    }


UNLEARNED = ("has not learned the task", "have not learned the task")
UNCLEAR = ("is not clearly better than", "are not clearly better than")
# For a test that differs from training: an encoding that fails it may still have learned what it was trained on.
FAILED_SHIFTED_TEST = ("already failed this test at the training length",) * 2


def _shortfalls(task: TaskFindings) -> str:
    """Return a sentence on the encodings that have not learned the task, or "" if there is none."""
    groups: dict[tuple[tuple[str, str], str], list[str]] = {}  # encodings by verb and reason
    for series in task.series:
        if (short := shortfall(task, series)) is not None:
            verbs = UNCLEAR if short.verdict == "unclear" else FAILED_SHIFTED_TEST if task.shifted else UNLEARNED
            groups.setdefault((verbs, _reason(task, short)), []).append(series.label)
    clauses = [f"{_clause(task, labels, verbs)}{reason}" for (verbs, reason), labels in groups.items()]
    return _capital("; ".join(clauses) + ".") if clauses else ""


def _reason(task: TaskFindings, short: Shortfall) -> str:
    where = f"at {short.length:,} {task.unit}"
    if short.floor is None:
        return f" (fewer than half of the answers are correct {where})"
    floor = f"the baseline “{short.floor.label}” {where} ({figure(short.floor.scores[short.length])})"
    return f" {floor}" if short.verdict == "unclear" else f": no better than {floor}"


def remark(task: TaskFindings, series: Series) -> str:
    """Return a short remark for an encoding's row in a table, or "".

    It says that the encoding has not learned the task, or that it has fewer seeds than others.
    """
    short = shortfall(task, series)
    remarks = []
    if short is not None and short.verdict == "unclear" and short.floor:
        remarks.append(f"not clearly better than {short.floor.label}")
    elif short is not None and short.verdict == "unlearned":
        remarks.append("failed at the training length" if task.shifted else "not learned")
    seeds = max((point.n_seeds for point in series.points), default=0)
    if 0 < seeds < task.most_seeds:
        remarks.append(f"{seeds} of {task.most_seeds} seeds")
    return "; ".join(remarks)


def unlearned(tasks: Sequence[TaskFindings]) -> str:
    """Return a sentence that lists the tasks that some encodings have not learned, or "" if there is none.

    It stands below tables that compare encodings over several tasks.
    """
    failures = []
    for task in tasks:
        if task.shifted:
            continue
        short = [s.label for s in task.series if (why := shortfall(task, s)) and why.verdict == "unlearned"]
        if short:
            failures.append(f"{task.title} ({join_names(short) if len(short) < len(task.series) else 'all encodings'})")
    if not failures:
        return ""
    return (
        "Some encodings have not learned the task at the training length, so their scores and ranks compare failures: "
        f"{join_names(failures)}."
    )


def _clause(task: TaskFindings, labels: list[str], verbs: tuple[str, str]) -> str:
    """Join encodings with the verb that fits their number."""
    if len(labels) == len(task.series) > 2:
        if verbs in (UNLEARNED, UNCLEAR):  # "all ... have not" is ambiguous
            return f"none of the {len(labels)} encodings {verbs[0].replace(' not', '', 1)}"
        return f"all {len(labels)} encodings {verbs[1]}"
    return f"{join_names(labels)} {verbs[0] if len(labels) == 1 else verbs[1]}"


def _best(task: TaskFindings, length: int, there: str) -> str:
    """Return a sentence on the lowest or highest mean at a length."""
    best = task.leader(length)
    if best is None:
        return ""
    here, ties = _leaders(task, length, best.mean)
    beside = _beside(task, best)
    if len(ties) == len(here) > 1:
        return _capital(_all_equal(task, ties, best, there))
    others = [(label, p) for label, p in here if label not in ties]
    near = [label for label, p in others if not p.interval.differs_from(best.interval)]
    extreme = "lowest" if task.metric.better == "lower" else "highest"
    width = spread(best.interval) if len(ties) == 1 else ""
    value = f"{figure(best.mean)}{' ' if width.startswith('±') else ', ' if width else ''}{width}"
    if len(task.series) == 1:
        return f"Its mean {task.metric.name} {there} is {value}{beside and f', {beside}'}."
    if task.best(length) is None:
        which = f"the {extreme} mean {task.metric.name} ({join_names(ties)}: {value})"
        return f"{_capital(there)}, {which} is {_description_of_best(task, best)}."
    text = f"{join_names(ties)} {'has' if len(ties) == 1 else 'share'} the {extreme} mean {task.metric.name} ({value})"
    if there != "there":
        text += f" {there}"
    text += beside and f", {beside}"
    if near:
        return f"{text}; {join_names(near)} {'is' if len(near) == 1 else 'are'} not significantly different."
    rest = others[0][0] if len(others) == 1 else "the others"
    return f"{text}, {beside and 'but '}significantly better than {rest}." if others else f"{text}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _leaders(task: TaskFindings, length: int, best: float) -> tuple[list[tuple[str, Point]], list[str]]:
    """Return all labels with a finite score at a length, and those whose printed mean equals the best one."""
    here = [(s.label, p) for s in task.ranked(length) if (p := s.point_at(length)) and math.isfinite(p.mean)]
    return here, [label for label, p in here if figure(p.mean) == figure(best)]


def _beside(task: TaskFindings, best: Point) -> str:
    """Return text that names the floor that the leader or its interval does not beat, or "" if it beats all of them."""
    for words, by_interval in (("no better", False), ("not clearly better", True)):
        if (floor := task.unbeaten_floor(best, by_interval=by_interval)) is not None:
            return f"{words} than the baseline “{floor.label}” ({figure(floor.scores[best.length])})"
    return ""


def _description_of_best(task: TaskFindings, best: Point) -> str:
    if task.unbeaten_floor(best) is not None:
        return _beside(task, best)
    return "that of a model that has not learned the task" if task.has_failed(task.ranked(best.length)[0]) else "zero"


def _all_equal(task: TaskFindings, labels: list[str], best: Point, there: str = "") -> str:
    both = f"{join_names(labels)} both" if len(labels) == 2 else f"all {len(labels)} encodings"
    beside = _beside(task, best)
    mean = f"a mean {task.metric.name} of {figure(best.mean)}"
    return f"{both} have {mean}{there and f' {there}'}{beside and f', {beside}'}."


def _one_seed(task: TaskFindings, length: int, where: str) -> str:
    best = task.leader(length)
    if best is None:
        return f"{where}, no score is a finite number."
    here, ties = _leaders(task, length, best.mean)
    if len(ties) == len(here) > 1:
        return f"{where}, {_all_equal(task, ties, best)}"
    metric = task.metric.name
    extreme = "lowest" if task.metric.better == "lower" else "highest"
    beside = _beside(task, best)
    chance = "with one seed per encoding, differences may be due to chance"
    if len(task.series) == 1:
        score = f"{'an' if metric[0] in 'aeiou' else 'a'} {metric} of {figure(best.mean)}"
        return f"{where}, {ties[0]} has {score}{beside and f', {beside}'}; other seeds may give other results."
    if task.best(length) is None:
        score = f"the {extreme} {metric} ({join_names(ties)}: {figure(best.mean)})"
        return f"{where}, {score} is {_description_of_best(task, best)}; {chance}."
    share = "has" if len(ties) == 1 else "share"
    score = f"the {extreme} {metric} ({figure(best.mean)})"
    return f"{where}, {join_names(ties)} {share} {score}{beside and f', {beside}'}; {chance}."
