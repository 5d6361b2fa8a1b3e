"""One number per encoding over many tasks: its mean reciprocal rank, and the scores that it is made of."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from lengthwise.analysis.findings import Baseline, Point, Series, TaskFindings, limits_of
from lengthwise.analysis.intervals import Interval, of_scores, over_examples, over_seeds, with_wilson
from lengthwise.analysis.kinds import Kind
from lengthwise.values import ConfigError, near_miss

Ties = Literal["average", "published"]
Key = tuple[str, int]  # of a query: the task's title and the seed
DIGITS = 12  # of a score that count: shares of the same examples, added in another order, differ in the 16th


@dataclass(frozen=True, kw_only=True)
class Rank:
    """An encoding's place. `longer` and `within`: its mean reciprocal rank by the scores at lengths beyond the trained one,
    and at trained ones (shorter ones count for neither); None where there are none of either."""

    label: str
    longer: Interval | None
    within: Interval | None


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Encodings by their mean reciprocal rank, best first. `queries`: how many rankings the means are over, each of one task
    and one seed; `tasks` their titles; `dropped`: queries left out since an encoding has no score in them. `ties`: what became
    of equal scores, see `ranking`."""

    ranks: tuple[Rank, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    queries: int
    dropped: int
    ties: Ties = "average"


def ties_of(name: str) -> Ties:
    """The rule of that name; `ConfigError` for one that there is not."""
    if name not in (known := get_args(Ties)):
        raise ConfigError(f"there is no rule for ties {name!r}{near_miss(name, known)}; there are: {', '.join(known)}")
    return cast(Ties, name)


def ranking(tasks: Sequence[TaskFindings], ties: Ties = "average") -> Ranking | None:
    """Rank the encodings that every task has. None where fewer than two tasks or two encodings can be ranked. Tests that differ
    from the training (`shifts`) are no further tasks: they would count one training several times.

    A query is a task and a seed: its encodings are ranked by their score over all lengths beyond the trained one
    (`overall`), an encoding gets 1 / rank, and the mean over queries is its mean reciprocal rank. A query in which an encoding
    has no score is dropped. The interval is over seeds: each seed's mean over the tasks is one number.

    `ties`: encodings with the same score share the mean of their ranks (.9 .5 .5: 1, 2.5, 2.5). "published" gives them ranks
    in the order of the list (1, 2, 3), as the evaluation of Kazemnejad et al. 2023 does; many zeros then favour whoever
    comes first.
    """
    ties = ties_of(ties)
    tasks = [task for task in tasks if not task.shifted]
    labels = [s.label for s in tasks[0].series] if tasks else []
    labels = [label for label in labels if all(any(s.label == label for s in t.series) for t in tasks)]
    if len(tasks) < 2 or len(labels) < 2:
        return None
    longer, dropped = _queries(tasks, labels, "longer")
    within, _ = _queries(tasks, labels, "trained")
    if len({task for task, _ in longer}) < 2:
        return None
    found = [
        Rank(
            label=label,
            longer=_mean(label, longer, tasks, ties),
            within=_mean(label, within, tasks, ties) if len({task for task, _ in within}) > 1 else None,
        )
        for label in labels
    ]
    return Ranking(
        ranks=tuple(sorted(found, key=lambda rank: -(rank.longer.mean if rank.longer else 0.0))),
        tasks=tuple(dict.fromkeys(task for task, _ in longer)),
        seeds=tuple(sorted({seed for _, seed in longer})),
        queries=len(longer),
        dropped=dropped,
        ties=ties,
    )


def reciprocal_ranks(scores: Mapping[str, float], *, better: str, ties: Ties = "average") -> dict[str, float]:
    """1 / rank of each label, the best score first. Scores that differ by rounding alone (beyond 12 digits) are the same.
    `ties`: see `ranking`; `ConfigError` for a rule that there is not."""
    ties = ties_of(ties)
    scores = {label: float(f"{score:.{DIGITS}g}") for label, score in scores.items()}
    sign = 1 if better == "lower" else -1
    order = sorted(scores, key=lambda label: sign * scores[label])  # a stable sort: ties stay in the order given
    ranks = {}
    for place, label in enumerate(order, 1):
        same = [n for n, other in enumerate(order, 1) if scores[other] == scores[label]]
        ranks[label] = 1 / (sum(same) / len(same) if ties == "average" else place)
    return {label: ranks[label] for label in scores}


def overall(task: TaskFindings, series: Series, kind: Kind) -> dict[int, float]:
    """By seed, an encoding's score over all lengths of a kind: "longer" than the trained one, say.

    Shares are over examples (each example counts once, whatever its length); log perplexities are the mean over lengths, which
    predict the same text. A seed that lacks one of the lengths is left out, and so is one whose score is not finite.
    """
    lengths = task.of_kind(kind)
    points = [series.point_at(n) for n in lengths]
    if not lengths or any(point is None for point in points):
        return {}
    by_seed: dict[int, list[tuple[float, int]]] = {}
    for point in points:
        for score in point.seeds if point else ():
            by_seed.setdefault(score.seed, []).append((score.mean, score.n if task.bounds else 1))
    return {
        seed: math.fsum(mean * n for mean, n in scores) / sum(n for _, n in scores)
        for seed, scores in by_seed.items()
        if len(scores) == len(lengths) and all(math.isfinite(mean) for mean, _ in scores)
    }


def over_lengths(task: TaskFindings, series: Series, kind: Kind) -> Interval | None:
    """`overall` with its interval over seeds; None where there is no score.

    A share's is never narrower than Wilson's for all the examples: seeds that all got none right leave it open, too.
    """
    means = overall(task, series, kind)
    if not means:
        return None
    points = [point for point in series.points if task.kind(point.length) == kind]
    interval = of_scores(list(means.values()), _groups(points, list(means)), math.nan, limits_of(task.metric))
    if task.bounds != (0.0, 1.0):
        return interval
    counts = [score.n for point in points for score in point.seeds if score.seed in means]
    asked_alike = all(
        score.groups for point in points for score in point.seeds
    )  # of the same prompts: no more than once
    return with_wilson(interval, max(counts) if asked_alike else sum(counts))


def baseline_over_lengths(task: TaskFindings, baseline: Baseline, kind: Kind) -> float | None:
    """Return a baseline's score over all lengths of a kind, with the weights that an encoding's lengths have in `overall`.

    None where it has no score at one of the lengths, or where no encoding has all of them.
    """
    if not all(length in baseline.scores for length in task.of_kind(kind)):
        return None
    for series in task.series:
        points = [p for p in series.points if task.kind(p.length) == kind]
        if overall(task, series, kind):
            same = [
                dataclasses.replace(
                    p, seeds=tuple(dataclasses.replace(s, mean=baseline.scores[p.length]) for s in p.seeds)
                )
                for p in points
            ]
            return next(iter(overall(task, dataclasses.replace(series, points=tuple(same)), kind).values()))
    return None


def _groups(points: Sequence[Point], seeds: Sequence[int]) -> list[list[float]]:
    """By seed, the mean over lengths of each group of prompts; empty where some score has none, or other ones."""
    by_seed = [[s for point in points for s in point.seeds if s.seed == seed] for seed in seeds]
    if len({(len(score.groups), score.n) for scores in by_seed for score in scores}) != 1:
        return []
    return [
        [math.fsum(values) / len(values) for values in zip(*(score.groups for score in scores), strict=True)]
        for scores in by_seed
    ]


def _queries(
    tasks: Sequence[TaskFindings], labels: Sequence[str], kind: Kind
) -> tuple[dict[Key, dict[str, float]], int]:
    """The scores of all encodings by query, and how many queries were dropped."""
    found: dict[Key, dict[str, float]] = {}
    for task in tasks:
        own = {s.label: overall(task, s, kind) for s in task.series if s.label in labels}
        for seed in sorted({seed for scores in own.values() for seed in scores}):
            found[task.title, seed] = {label: own[label][seed] for label in labels if seed in own[label]}
    whole = {key: scores for key, scores in found.items() if len(scores) == len(labels)}
    return whole, len(found) - len(whole)


def _mean(
    label: str, queries: Mapping[Key, Mapping[str, float]], tasks: Sequence[TaskFindings], ties: Ties
) -> Interval | None:
    better = {task.title: task.better for task in tasks}
    found = {key: reciprocal_ranks(scores, better=better[key[0]], ties=ties)[label] for key, scores in queries.items()}
    if not found:
        return None
    mean = math.fsum(found.values()) / len(found)
    titles = {task for task, _ in found}
    by_seed = [
        [value for (_, other), value in found.items() if other == seed] for seed in sorted({seed for _, seed in found})
    ]
    if len(by_seed) < 2 or any(len(values) != len(titles) for values in by_seed):
        return over_examples(mean, math.nan)  # seeds of different tasks are no sample of one thing
    return over_seeds([math.fsum(values) / len(values) for values in by_seed], (0.0, 1.0))
