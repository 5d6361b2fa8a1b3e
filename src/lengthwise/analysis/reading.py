"""One plain reading of a task's numbers. It claims less than the numbers might allow, and nothing that they do not."""

import math
from collections.abc import Mapping
from typing import Literal

from lengthwise.analysis.findings import CONSTANTS, Point, SeedScore, Series, TaskFindings
from lengthwise.analysis.intervals import of_scores
from lengthwise.analysis.numbers import figure, listing, spread, times

# What an encoding may lose on the way to a longer length and still hold: 5 points of exact match, or 5 % of perplexity, or of the
# squared error that saying 0 has.
MARGIN = 0.05
# A model that is right in fewer than half of the cases at the trained length has nothing that it could hold.
LEARNED = 0.5

Verdict = Literal["holds", "loses", "open", "unlearned", "one seed", "unknown"]


def home_length(task: TaskFindings) -> int | None:
    """The length that others are measured against: the trained one, or the longest one within it that was asked."""
    return max(task.of_kind("trained"), default=None)


def verdict(task: TaskFindings, series: Series, length: int) -> Verdict:
    """How the score at `length` stands to the score at the trained length, paired by seed, and by prompts where scores have
    groups of them.

    holds: the 95 % interval of the loss lies below the `margin` · loses: it lies above 0 and reaches past the margin ·
    open: neither · unlearned: a share right under `LEARNED` at the trained length, or a score there that is no better
    than a constant's · one seed · unknown: a score is missing or not finite.
    """
    home = home_length(task)
    before, after = series.at(home) if home is not None else None, series.at(length)
    if before is None or after is None:
        return "unknown"
    sign = 1 if task.better == "lower" else -1
    start = {s.key: s for s in before.seeds}
    pairs = [(start[s.key], s) for s in after.seeds if s.key in start]
    losses = [sign * (new.mean - old.mean) for old, new in pairs]
    if not losses or not all(map(math.isfinite, losses)):
        return "unknown"
    if task.bounds and before.mean < LEARNED:
        return "unlearned"
    constants = [b.scores[before.length] for b in task.baselines if b.label in CONSTANTS and before.length in b.scores]
    if any(sign * (constant - before.mean) <= 0 for constant in constants):
        return "unlearned"
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
        return text[0].upper() + text[1:]
    return f"So far ({done} of {len(task.keys)} runs): {text}"


def _reading(task: TaskFindings) -> str:
    longest = max(p.length for s in task.series for p in s.points)
    if not task.is_new(longest):
        return (
            f"no score yet beyond the trained length of {task.train_length:,} {task.unit}, "
            "so nothing here speaks of longer inputs."
        )
    where = f"at {longest:,} {task.unit}, {times(longest / task.train_length)} the trained length"
    groups: dict[Verdict, list[str]] = {}
    for series in task.ranked(longest):
        groups.setdefault(verdict(task, series, longest), []).append(series.label)
    if all(p.n_seeds == 1 for series in task.series if (p := series.at(longest))):
        return _one_seed(task, longest, where)
    words = WORDS | {"unlearned": UNSUITED} if task.shifted else WORDS
    return f"{_sentence(groups, where, words)} {_best(task, longest)}".strip()


WORDS: dict[Verdict, tuple[str, str]] = {
    "holds": ("keeps its score", "keep their score"),
    "loses": ("gets worse", "get worse"),
    "open": ("is left open by its seeds", "are left open by their seeds"),
    "unlearned": ("never learned the task", "never learned the task"),
    "one seed": ("has one seed only", "have one seed only"),
    "unknown": ("cannot be judged yet", "cannot be judged yet"),
}


# Of a test that differs from the training: whoever fails it may have learned what was trained.
UNSUITED = ("had failed this test at the trained length already",) * 2


def _sentence(groups: dict[Verdict, list[str]], where: str, words: Mapping[Verdict, tuple[str, str]]) -> str:
    parts = []
    for name, (one, many) in words.items():
        labels = groups.get(name, [])
        if len(labels) > 2 and len(groups) == 1:
            parts.append(f"all {len(labels)} encodings {many}")
        elif labels:
            parts.append(f"{listing(labels)} {one if len(labels) == 1 else many}")
    return f"{where}, {'; '.join(parts)}."


def _best(task: TaskFindings, length: int) -> str:
    best = task.best(length)
    if best is None:
        return ""
    here, ties = _leaders(task, length, best.mean)
    if len(ties) == len(here) > 1:
        text = _all_alike(task, ties, best.mean)
        return text[0].upper() + text[1:]
    others = [(label, p) for label, p in here if label not in ties]
    near = [label for label, p in others if not p.interval.apart(best.interval)]
    extreme = "lowest" if task.better == "lower" else "highest"
    width = spread(best.interval) if len(ties) == 1 else ""
    value = f"{figure(best.mean)}{' ' if width.startswith('±') else ', ' if width else ''}{width}"
    if len(task.series) == 1:
        return f"Its mean {task.metric} there is {value}."
    text = f"{listing(ties)} {'has' if len(ties) == 1 else 'share'} the {extreme} mean {task.metric} ({value})"
    if near:
        return f"{text}; {listing(near)} cannot be told apart from {'it' if len(ties) == 1 else 'them'}."
    return f"{text}, clear of the others." if others else f"{text}."


def _leaders(task: TaskFindings, length: int, best: float) -> tuple[list[tuple[str, Point]], list[str]]:
    """Every label with a finite score at a length, and those whose printed mean is the best one's."""
    here = [(s.label, p) for s in task.ranked(length) if (p := s.at(length)) and math.isfinite(p.mean)]
    return here, [label for label, p in here if figure(p.mean) == figure(best)]


def _all_alike(task: TaskFindings, labels: list[str], mean: float) -> str:
    both = f"{listing(labels)} both" if len(labels) == 2 else f"all {len(labels)} encodings"
    return f"{both} have a mean {task.metric} of {figure(mean)} there."


def _one_seed(task: TaskFindings, length: int, where: str) -> str:
    best = task.best(length)
    if best is None:
        return f"{where}, no score is a finite number."
    here, ties = _leaders(task, length, best.mean)
    if len(ties) == len(here) > 1:
        return f"{where}: {_all_alike(task, ties, best.mean)}"
    extreme = "lowest" if task.better == "lower" else "highest"
    if len(task.series) == 1:
        score = f"{'an' if task.metric[0] in 'aeiou' else 'a'} {task.metric} of {figure(best.mean)}"
        return f"{where}, {ties[0]} has {score}; what another seed would give is open."
    return (
        f"{where}, {listing(ties)} {'has' if len(ties) == 1 else 'share'} the {extreme} {task.metric} "
        f"({figure(best.mean)}), but with one seed no difference can be told from chance."
    )
