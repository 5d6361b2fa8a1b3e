"""Mean reciprocal ranks of encodings over several tasks, and the scores that they are computed from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from lengthwise.analysis.estimates import Estimate, Interval, interval_of, weighted
from lengthwise.analysis.findings import Baseline, Series, TaskFindings
from lengthwise.analysis.kinds import Kind
from lengthwise.metrics import Metric
from lengthwise.values import ConfigError, near_miss

Ties = Literal["average", "published"]
Key = tuple[str, int]  # of a query: the task's title and the seed
DIGITS = 12  # significant digits of a score: sums of the same shares in another order differ in the 16th digit


@dataclass(frozen=True, kw_only=True)
class Rank:
    """An encoding's mean reciprocal ranks by the scores at lengths longer than training (`longer`) and at trained ones
    (`within`).

    Lengths shorter than training count for neither. None without such scores.
    """

    label: str
    longer: Interval | None
    within: Interval | None


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Encodings by their mean reciprocal rank, best first.

    `queries`: the number of rankings in the means, one for each task and seed. `tasks`: the titles of the tasks.
    `dropped`: the number of queries left out because an encoding has no score in them. `ties`: the rule for equal
    scores, see `ranking`.
    """

    ranks: tuple[Rank, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    queries: int
    dropped: int
    ties: Ties = "average"


def require_ties(name: str) -> Ties:
    """Return the rule for ties of that name. Raises `ConfigError` for an unknown name."""
    if name not in (known := get_args(Ties)):
        raise ConfigError(f"there is no rule for ties {name!r}{near_miss(name, known)}; available: {', '.join(known)}")
    return cast(Ties, name)


def ranking(tasks: Sequence[TaskFindings], ties: Ties = "average") -> Ranking | None:
    """Rank the encodings that every task has. Return None if fewer than two tasks or two encodings can be ranked.

    Tests that differ from training (`shifts`) are excluded, because they would count one training several times.

    A query is a task and a seed. Its encodings are ranked by their score over all lengths longer than training
    (`overall`), an encoding gets 1 / rank, and the mean over queries is its mean reciprocal rank. A query in which an
    encoding has no score is dropped. The interval is over seeds: each seed's mean over the tasks is one number.

    `ties`: with "average", encodings with equal scores share the mean of their ranks (.9 .5 .5: 1, 2.5, 2.5). With
    "published", they are ranked in the order of the list (1, 2, 3), as in the evaluation of Kazemnejad et al. 2023;
    with many zeros, this favours the encodings at the top of the list.
    """
    ties = require_ties(ties)
    tasks = [task for task in tasks if not task.shifted]
    labels = [s.label for s in tasks[0].series] if tasks else []
    labels = [label for label in labels if all(any(s.label == label for s in t.series) for t in tasks)]
    if len(tasks) < 2 or len(labels) < 2:
        return None
    longer, dropped = _queries(tasks, labels, "longer")
    within, _ = _queries(tasks, labels, "trained")
    if len({task for task, _ in longer}) < 2:
        return None
    several_within = len({task for task, _ in within}) > 1
    ranks_longer, ranks_within = (_reciprocal_ranks(queries, tasks, ties) for queries in (longer, within))
    ranks = [
        Rank(
            label=label,
            longer=_mean(label, ranks_longer),
            within=_mean(label, ranks_within) if several_within else None,
        )
        for label in labels
    ]
    return Ranking(
        ranks=tuple(sorted(ranks, key=lambda rank: -(rank.longer.mean if rank.longer else 0.0))),
        tasks=tuple(dict.fromkeys(task for task, _ in longer)),
        seeds=tuple(sorted({seed for _, seed in longer})),
        queries=len(longer),
        dropped=dropped,
        ties=ties,
    )


def reciprocal_ranks(scores: Mapping[str, float], *, better: str, ties: Ties = "average") -> dict[str, float]:
    """Return 1 / rank of each label; the best score has rank 1. Scores that agree in 12 digits count as equal.

    `ties`: see `ranking`. Raises `ConfigError` for an unknown rule.
    """
    ties = require_ties(ties)
    scores = {label: float(f"{score:.{DIGITS}g}") for label, score in scores.items()}
    sign = 1 if better == "lower" else -1
    order = sorted(scores, key=lambda label: sign * scores[label])  # the sort is stable, so ties keep their order
    ranks = {}
    for rank, label in enumerate(order, 1):
        same = [n for n, other in enumerate(order, 1) if scores[other] == scores[label]]
        ranks[label] = 1 / (sum(same) / len(same) if ties == "average" else rank)
    return {label: ranks[label] for label in scores}


def overall(task: TaskFindings, series: Series, kind: Kind) -> dict[int, float]:
    """Return an encoding's score over all lengths of a kind, for each seed.

    Shares are means over examples: each example has the same weight, whatever its length. Cross-entropies are means
    over lengths, which predict the same text. A seed is left out if it lacks one of the lengths or if a score is not
    finite.
    """
    seeds = series.by_seed(task.of_kind(kind))
    weights = {seed: _weights(scores, task.metric) for seed, scores in seeds.items()}
    return {
        seed: math.fsum(w * score.mean for w, score in zip(weights[seed], scores, strict=True)) / sum(weights[seed])
        for seed, scores in seeds.items()
    }


def over_lengths(task: TaskFindings, series: Series, kind: Kind) -> Interval | None:
    """Return `overall` as an interval over seeds, or None without a score.

    The interval is that of one score with the examples of all lengths, see `interval_of`.
    """
    means = []
    for scores in series.by_seed(task.of_kind(kind)).values():
        # With groups, the examples are the same at all lengths.
        weights = [1.0] * len(scores) if scores[0].groups else _weights(scores, task.metric)
        means.append(weighted(list(zip(weights, scores, strict=True)), sum(weights)))
    if len(means) == 1:
        means = [replace(means[0], standard_error=math.nan)]  # the examples of several lengths may be related
    return interval_of(means, task.metric.limits, share=task.metric.share) if means else None


def baseline_over_lengths(task: TaskFindings, baseline: Baseline, kind: Kind) -> float | None:
    """Return a baseline's score over all lengths of a kind, with the weights that the lengths have in `overall`.

    Return None if it has no score at one of the lengths, or if no encoding has scores at all of them.
    """
    lengths = task.of_kind(kind)
    if not all(length in baseline.scores for length in lengths):
        return None
    for series in task.series:
        for scores in series.by_seed(lengths).values():
            weights = _weights(scores, task.metric)
            return math.fsum(baseline.scores[n] * w for n, w in zip(lengths, weights, strict=True)) / sum(weights)
    return None


def _weights(scores: Sequence[Estimate], metric: Metric) -> list[float]:
    """Return the weights of the lengths in a mean over them, see `overall`."""
    return [score.n if metric.share else 1 for score in scores]


def _queries(
    tasks: Sequence[TaskFindings], labels: Sequence[str], kind: Kind
) -> tuple[dict[Key, dict[str, float]], int]:
    """Return the scores of all encodings by query, and the number of dropped queries."""
    scores_by_query: dict[Key, dict[str, float]] = {}
    for task in tasks:
        own = {s.label: overall(task, s, kind) for s in task.series if s.label in labels}
        for seed in sorted({seed for scores in own.values() for seed in scores}):
            scores_by_query[task.title, seed] = {label: own[label][seed] for label in labels if seed in own[label]}
    whole = {key: scores for key, scores in scores_by_query.items() if len(scores) == len(labels)}
    return whole, len(scores_by_query) - len(whole)


def _reciprocal_ranks(
    queries: Mapping[Key, Mapping[str, float]], tasks: Sequence[TaskFindings], ties: Ties
) -> dict[Key, dict[str, float]]:
    """Return 1 / rank of each encoding by query."""
    better = {task.title: task.metric.better for task in tasks}
    return {key: reciprocal_ranks(scores, better=better[key[0]], ties=ties) for key, scores in queries.items()}


def _mean(label: str, queries: Mapping[Key, Mapping[str, float]]) -> Interval | None:
    """Return the mean of an encoding's reciprocal ranks."""
    ranks_by_query = {key: ranks[label] for key, ranks in queries.items()}
    if not ranks_by_query:
        return None
    mean = math.fsum(ranks_by_query.values()) / len(ranks_by_query)
    titles = {task for task, _ in ranks_by_query}
    by_seed = [
        [value for (_, other), value in ranks_by_query.items() if other == seed]
        for seed in sorted({seed for _, seed in ranks_by_query})
    ]
    if len(by_seed) < 2 or any(len(values) != len(titles) for values in by_seed):
        return interval_of([Estimate(mean=mean)])  # seeds of different tasks are not samples of the same quantity
    return mean_reciprocal_rank(by_seed, len(next(iter(queries.values()))))


def mean_reciprocal_rank(by_seed: Sequence[Sequence[float]], encodings: int) -> Interval:
    """Return the mean reciprocal rank with its 95 % interval over seeds, given each seed's reciprocal ranks on the same
    tasks.

    Reciprocal ranks of n encodings lie between 1 / n and 1. Scaled to 0 and 1, they are treated as shares
    of as many examples as there are comparisons with other encodings: n − 1 in each task.
    """
    lowest = 1 / max(encodings, 2)
    means = [(math.fsum(values) / len(values) - lowest) / (1 - lowest) for values in by_seed]
    shares = [
        Estimate(mean=min(1.0, max(0.0, mean)), n=len(values) * max(encodings - 1, 1))
        for mean, values in zip(means, by_seed, strict=True)
    ]
    share = interval_of(shares, share=True)
    mean, low, high = (lowest + (1 - lowest) * value for value in (share.mean, share.low, share.high))
    return replace(share, mean=mean, low=low, high=high, half_width=(1 - lowest) * share.half_width)
