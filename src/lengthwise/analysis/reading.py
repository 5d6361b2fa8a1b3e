"""One plain reading of a task's numbers. It claims less than the numbers might allow, and nothing that they do not."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lengthwise.analysis.findings import Baseline, Point, SeedScore, Series, TaskFindings
from lengthwise.analysis.intervals import of_scores
from lengthwise.analysis.numbers import figure, spread, times
from lengthwise.values import listing

# What an encoding may lose on the way to a longer length and still hold: 5 points of exact match, or 5 % of perplexity, or of the
# squared error that saying 0 has.
MARGIN = 0.05

FLOOR_WORDS = (
    "a floor is a baseline that a model has to beat to have learned anything; other baselines are shown for comparison"
)

Verdict = Literal["holds", "loses", "open", "unclear", "unlearned", "one seed", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """Why an encoding is not said to have learned its task: by its score at the trained length.

    unlearned: a share right under `LEARNED`, or a mean that is no better than a floor's · unclear: the 95 % interval of the mean
    reaches a floor. `floor`: the simplest one that is not beaten; None: the share alone.
    """

    verdict: Literal["unlearned", "unclear"]
    length: int
    floor: Baseline | None


def shortfall(task: TaskFindings, series: Series) -> Shortfall | None:
    """What speaks against an encoding having learned the task; None: nothing, or there is no score to tell."""
    point = series.at(task.home) if task.home is not None else None
    if point is None or not math.isfinite(point.mean):
        return None
    if task.has_failed(series):
        return Shortfall(verdict="unlearned", length=point.length, floor=task.unbeaten(point))
    if (floor := task.unbeaten(point, surely=True)) is not None:
        return Shortfall(verdict="unclear", length=point.length, floor=floor)
    return None


def verdict(task: TaskFindings, series: Series, length: int) -> Verdict:
    """How the score at `length` stands to the score at the trained length, paired by seed, and by prompts where scores have
    groups of them.

    holds: the 95 % interval of the loss lies below the `margin` · loses: it lies above 0 and reaches past the margin ·
    open: neither · unlearned, unclear: there is nothing that it could hold (`shortfall`) · one seed · unknown: a score is missing
    or not finite.
    """
    before, after = series.at(task.home) if task.home is not None else None, series.at(length)
    if before is None or after is None:
        return "unknown"
    sign = 1 if task.better == "lower" else -1
    start = {s.key: s for s in before.seeds}
    pairs = [(start[s.key], s) for s in after.seeds if s.key in start]
    losses = [sign * (new.mean - old.mean) for old, new in pairs]
    if not losses or not all(map(math.isfinite, losses)):
        return "unknown"
    if (short := shortfall(task, series)) is not None:
        return short.verdict
    if len(losses) < 2:
        return "one seed"
    loss = of_scores(losses, [_group_losses(sign, old, new) for old, new in pairs], math.nan)
    if loss.high <= margin(task, before.length):
        return "holds"
    return "loses" if loss.low > 0 else "open"


def margin(task: TaskFindings, length: int) -> float:
    """`MARGIN`, in the units of the metric. A squared error has those of the labels, which saying 0 knows."""
    zero = next((b.scores.get(length) for b in task.baselines if b.label == "zero"), None)
    return MARGIN if zero is None or task.metric != "squared error" else MARGIN * zero


def _group_losses(sign: int, old: SeedScore, new: SeedScore) -> list[float]:
    """What each group of prompts loses; none where the two scores have no groups, or other ones."""
    if len(old.groups) != len(new.groups):
        return []
    return [sign * (b - a) for a, b in zip(old.groups, new.groups, strict=True)]


def reading(task: TaskFindings, done: int) -> str:
    """A sentence or two on the longest length. `done`: how many of the task's runs are finished."""
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
            f"no score yet beyond the trained length of {task.train_length:,} {task.unit}, "
            "so nothing here speaks of longer inputs."
        )
        return f"{text} {_shortfalls(task)}".strip()
    where = f"at {longest:,} {task.unit}, {times(longest / task.train_length)} the trained length"
    if all(p.n_seeds == 1 for series in task.series if (p := series.at(longest))):
        return f"{_one_seed(task, longest, where)} {_shortfalls(task)}".strip()
    groups: dict[Verdict, list[str]] = {}
    for series in task.ranked(longest):
        groups.setdefault(verdict(task, series, longest), []).append(series.label)
    parts = [_subject(task, groups[name], words) for name, words in WORDS.items() if name in groups]
    judged = f"{where}, {'; '.join(parts)}." if parts else ""
    there = "there" if parts else f"at {longest:,} {task.unit}"
    return " ".join(filter(None, (judged, _shortfalls(task), _best(task, longest, there))))


WORDS: dict[Verdict, tuple[str, str]] = {  # of one encoding, and of several
    "holds": ("keeps its score", "keep their score"),
    "loses": ("gets worse", "get worse"),
    "open": ("is left open by its seeds", "are left open by their seeds"),
    "one seed": ("has one seed only", "have one seed only"),
    "unknown": ("cannot be judged yet", "cannot be judged yet"),
}
UNLEARNED = ("has not learned the task", "have not learned the task")
UNCLEAR = ("is not clearly better than", "are not clearly better than")
# Of a test that differs from the training: whoever fails it may have learned what was trained.
UNSUITED = ("had failed this test at the trained length already",) * 2


def _shortfalls(task: TaskFindings) -> str:
    """A sentence on the encodings that are not said to have learned the task; empty where there is none."""
    groups: dict[tuple[tuple[str, str], str], list[str]] = {}  # the same words with the same reason
    for series in task.series:
        if (short := shortfall(task, series)) is not None:
            words = UNCLEAR if short.verdict == "unclear" else UNSUITED if task.shifted else UNLEARNED
            groups.setdefault((words, _why(task, short)), []).append(series.label)
    parts = [f"{_subject(task, labels, words)}{why}" for (words, why), labels in groups.items()]
    return _capital("; ".join(parts) + ".") if parts else ""


def _why(task: TaskFindings, short: Shortfall) -> str:
    where = f"at {short.length:,} {task.unit}"
    if short.floor is None:
        return f" (right in fewer than half of the cases {where})"
    floor = f"the baseline “{short.floor.label}” {where} ({figure(short.floor.scores[short.length])})"
    return f" {floor}" if short.verdict == "unclear" else f": no better than {floor}"


def remark(task: TaskFindings, series: Series) -> str:
    """What a table says beside an encoding's name, in few words: that it has not learned the task, or has fewer seeds than others;
    empty of any other."""
    short = shortfall(task, series)
    found = []
    if short is not None and short.verdict == "unclear" and short.floor:
        found.append(f"not clearly better than {short.floor.label}")
    elif short is not None and short.verdict == "unlearned":
        found.append("failed at the trained length" if task.shifted else "not learned")
    seeds = [max((point.n_seeds for point in other.points), default=0) for other in (series, *task.series)]
    if 0 < seeds[0] < max(seeds):
        found.append(f"{seeds[0]} of {max(seeds)} seeds")
    return "; ".join(found)


def unlearned(tasks: Sequence[TaskFindings]) -> str:
    """A sentence to stand below what compares encodings over several tasks: which ones some have not learned; empty if none."""
    found = []
    for task in tasks:
        if task.shifted:
            continue
        short = [s.label for s in task.series if (why := shortfall(task, s)) and why.verdict == "unlearned"]
        if short:
            found.append(f"{task.title} ({listing(short) if len(short) < len(task.series) else 'by none'})")
    if not found:
        return ""
    return f"Not learned at the trained length, so that scores and ranks compare failures: {listing(found)}."


def _subject(task: TaskFindings, labels: list[str], words: tuple[str, str]) -> str:
    """Some encodings, and what they do."""
    if len(labels) == len(task.series) > 2:
        if words in (UNLEARNED, UNCLEAR):  # "all have not" says two things
            return f"none of the {len(labels)} encodings {words[0].replace(' not', '', 1)}"
        return f"all {len(labels)} encodings {words[1]}"
    return f"{listing(labels)} {words[0] if len(labels) == 1 else words[1]}"


def _best(task: TaskFindings, length: int, there: str) -> str:
    """A sentence on the lowest or highest mean at a length."""
    best = task.leader(length)
    if best is None:
        return ""
    here, ties = _leaders(task, length, best.mean)
    beside = _beside(task, best)
    if len(ties) == len(here) > 1:
        return _capital(_all_alike(task, ties, best, there))
    others = [(label, p) for label, p in here if label not in ties]
    near = [label for label, p in others if not p.interval.apart(best.interval)]
    extreme = "lowest" if task.better == "lower" else "highest"
    width = spread(best.interval) if len(ties) == 1 else ""
    value = f"{figure(best.mean)}{' ' if width.startswith('±') else ', ' if width else ''}{width}"
    if len(task.series) == 1:
        return f"Its mean {task.metric} {there} is {value}{beside and f', {beside}'}."
    if task.best(length) is None:
        return f"{_capital(there)} the {extreme} mean {task.metric} ({listing(ties)}: {value}) is {_why_no_best(task, best)}."
    text = f"{listing(ties)} {'has' if len(ties) == 1 else 'share'} the {extreme} mean {task.metric} ({value})"
    if there != "there":
        text += f" {there}"
    if near:
        return f"{text}; {listing(near)} cannot be told apart from {'it' if len(ties) == 1 else 'them'}."
    return f"{text}, clear of the others." if others else f"{text}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _leaders(task: TaskFindings, length: int, best: float) -> tuple[list[tuple[str, Point]], list[str]]:
    """Every label with a finite score at a length, and those whose printed mean is the best one's."""
    here = [(s.label, p) for s in task.ranked(length) if (p := s.at(length)) and math.isfinite(p.mean)]
    return here, [label for label, p in here if figure(p.mean) == figure(best)]


def _beside(task: TaskFindings, best: Point) -> str:
    """Return which floor the leader does not beat, in words; an empty string where it beats all of them."""
    floor = task.unbeaten(best)
    return f"no better than the baseline “{floor.label}” ({figure(floor.scores[best.length])})" if floor else ""


def _why_no_best(task: TaskFindings, best: Point) -> str:
    """Return why the leader is not called the best, in words."""
    if beside := _beside(task, best):
        return beside
    return "of a model that has not learned the task" if task.has_failed(task.ranked(best.length)[0]) else "zero"


def _all_alike(task: TaskFindings, labels: list[str], best: Point, there: str = "there") -> str:
    both = f"{listing(labels)} both" if len(labels) == 2 else f"all {len(labels)} encodings"
    beside = _beside(task, best)
    return f"{both} have a mean {task.metric} of {figure(best.mean)} {there}{beside and f', {beside}'}."


def _one_seed(task: TaskFindings, length: int, where: str) -> str:
    best = task.leader(length)
    if best is None:
        return f"{where}, no score is a finite number."
    here, ties = _leaders(task, length, best.mean)
    if len(ties) == len(here) > 1:
        return f"{where}: {_all_alike(task, ties, best)}"
    extreme = "lowest" if task.better == "lower" else "highest"
    beside = _beside(task, best)
    if len(task.series) == 1:
        score = f"{'an' if task.metric[0] in 'aeiou' else 'a'} {task.metric} of {figure(best.mean)}"
        return f"{where}, {ties[0]} has {score}{beside and f', {beside}'}; what another seed would give is open."
    if task.best(length) is None:
        score = f"the {extreme} {task.metric} ({listing(ties)}: {figure(best.mean)})"
        return f"{where}, {score} is {_why_no_best(task, best)}; with one seed no difference can be told from chance."
    return (
        f"{where}, {listing(ties)} {'has' if len(ties) == 1 else 'share'} the {extreme} {task.metric} "
        f"({figure(best.mean)}), but with one seed no difference can be told from chance."
    )
