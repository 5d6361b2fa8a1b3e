"""Functions learned in context, from the store's probes: where the last question looks, repeated examples, induction."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.attention import _by_label, _canonical, _facts, of_one_shape
from lengthwise.analysis.intervals import Interval, of_scores, over_examples, over_seeds

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow

RECENCY, DUPLICATES, MIDDLE, INDUCTION = "recency", "duplicates", "lost-in-the-middle", "induction"
HALF = 0.5  # of its weights, from which a head counts as one that looks for induction

Shares = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class RecencySeries:
    """An encoding's weights of the last x. `layers` [layer][label]: on the labels before it, the farthest first, the mean over
    heads and seeds. `recent`: in each layer the share of them on the most recent tenth, which an even layer has 0.1 of. `best`: the
    largest share of a head. `heads`: of the last layer and the first seed, on the x's, [head][x] of each kind of prompt."""

    label: str
    seeds: int
    layers: tuple[Shares, ...]
    recent: tuple[Interval, ...]
    best: Interval
    heads: Mapping[str, tuple[Shares, ...]]


@dataclass(frozen=True, kw_only=True)
class Recency:
    """Prompts of `length` examples, and in `heads` of the trained length (`trained`) and of `points` repeated."""

    length: int
    trained: int
    points: int
    repeats: int
    prompts: int
    series: tuple[RecencySeries, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """An encoding's scores; a place where it has none is None."""

    label: str
    seeds: int
    scores: tuple[Interval | None, ...]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The scores on what prompts of one kind are about, by what differs (`at`: counts, positions, begin/middle/end). `starts`:
    where that begins, in examples from 0."""

    kind: str
    at: tuple[int | str, ...]
    starts: tuple[int, ...]
    series: tuple[Curve, ...]


@dataclass(frozen=True, kw_only=True)
class Places:
    """The mean score at every place of one prompt, by encoding. The places from `start` up to `stop` are what it is about."""

    kind: str
    at: int | str
    start: int
    stop: int
    series: Mapping[str, Shares]


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """Scores of prompts with repeated examples: of `duplicates` or `lost-in-the-middle`."""

    probe: str
    length: int
    points: int
    prompts: int
    panels: tuple[Panel, ...]
    places: tuple[Places, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class InductionSeries:
    """An encoding's induction: the best head of each layer, and the published scores, means over all layers and heads. `heads`: how
    many have at least half of their weights on what followed the same x before; of all seeds together."""

    label: str
    seeds: int
    layers: tuple[Interval, ...]
    prefix: Interval
    nearest: Interval
    heads: int


@dataclass(frozen=True, kw_only=True)
class Induction:
    """`uniform`: what equal weights would have, for induction and for nearest neighbours."""

    length: int
    start: int
    points: int
    repeats: int
    neighbours: int
    prompts: int
    uniform: Mapping[str, float]
    series: tuple[InductionSeries, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class InContext:
    """All that was found, each a tuple by what was asked."""

    recency: tuple[Recency, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    induction: tuple[Induction, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.recency or self.repeated or self.induction)


def in_context(
    labels: Mapping[str, str], probes: Iterable["ProbeRow"], bounds: tuple[float, float] | None
) -> InContext:
    """Of the runs in `labels` (by key) what is stored: the runs that were asked the same, together. `bounds`: of the task's
    metric."""
    groups: dict[str, list[ProbeRow]] = defaultdict(list)
    for row in probes:
        if row.key in labels and row.asked["probe"] in (RECENCY, DUPLICATES, MIDDLE, INDUCTION):
            groups[_canonical(row.asked)].append(row)
    found: dict[str, list[Any]] = defaultdict(list)
    for rows in map(of_one_shape, groups.values()):
        found[rows[0].asked["probe"]].append(rows)
    return InContext(
        recency=tuple(_recency(labels, rows) for rows in found[RECENCY]),
        repeated=tuple(_repeated(labels, rows, bounds) for rows in found[DUPLICATES] + found[MIDDLE]),
        induction=tuple(_induction(labels, rows) for rows in found[INDUCTION]),
    )


def recent(weights: Sequence[float], share: float = 0.1) -> float:
    """How much of the weights is on the most recent tenth."""
    total = math.fsum(weights)
    return math.fsum(weights[-max(1, round(share * len(weights))) :]) / total if total else math.nan


# ---- groups -------------------------------------------------------------------------------------------------------


def _recency(labels: Mapping[str, str], rows: Sequence["ProbeRow"]) -> Recency:
    series = []
    for label, results in _results(labels, rows):
        layers = [[[_known(head) for head in layer] for layer in result["layers"]] for result in results]
        means = [[_mean_of(layer) for layer in run] for run in layers]  # [run][layer][label]
        shares = [[[recent(head) for head in layer] for layer in run] for run in layers]
        series.append(
            RecencySeries(
                label=label,
                seeds=len(results),
                layers=tuple(_mean_of([run[n] for run in means]) for n in range(len(means[0]))),
                recent=tuple(_over([_mean(run[n]) for run in shares]) for n in range(len(shares[0]))),
                best=_over([max(max(layer) for layer in run) for run in shares]),
                heads={kind: tuple(_known(head) for head in heads) for kind, heads in results[0]["last"].items()},
            )
        )
    asked = rows[0].asked
    return Recency(
        length=asked["length"],
        trained=rows[0].result["train_length"],
        points=asked["points"],
        repeats=asked["repeats"],
        prompts=rows[0].result["n"],
        series=tuple(series),
        facts=_facts(rows),
    )


def _repeated(labels: Mapping[str, str], rows: Sequence["ProbeRow"], bounds: tuple[float, float] | None) -> Repeated:
    first = rows[0].result["prompts"]
    by_label = list(_results(labels, rows))
    panels = []
    for kind in dict.fromkeys(made["kind"] for made in first):
        numbers = [n for n, made in enumerate(first) if made["kind"] == kind]
        panels.append(
            Panel(
                kind=kind,
                at=tuple(first[n]["at"] for n in numbers),
                starts=tuple(first[n]["start"] for n in numbers),
                series=tuple(
                    Curve(
                        label=label,
                        seeds=len(results),
                        scores=tuple(_score([result["prompts"][n] for result in results], bounds) for n in numbers),
                    )
                    for label, results in by_label
                ),
            )
        )
    places = [
        Places(
            kind=made["kind"],
            at=made["at"],
            start=made["start"],
            stop=made["stop"],
            series={
                label: _mean_of([_known(result["prompts"][n]["curve"]["mean"]) for result in results])
                for label, results in by_label
            },
        )
        for n, made in enumerate(first)
        if "curve" in made
    ]
    asked = rows[0].asked
    return Repeated(
        probe=asked["probe"],
        length=asked["length"],
        points=asked["points"],
        prompts=rows[0].result["n"],
        panels=tuple(panels),
        places=tuple(places),
        facts=_facts(rows),
    )


def _induction(labels: Mapping[str, str], rows: Sequence["ProbeRow"]) -> Induction:
    series = []
    for label, results in _results(labels, rows):
        layers = [[max(_known(layer)) for layer in result["induction"]] for result in results]
        heads = [head for result in results for layer in result["induction"] for head in _known(layer)]
        series.append(
            InductionSeries(
                label=label,
                seeds=len(results),
                layers=tuple(_over([run[n] for run in layers]) for n in range(len(layers[0]))),
                prefix=_over(_known([result["prefix_score"] for result in results])),
                nearest=_over(_known([result["nearest_score"] for result in results])),
                heads=sum(head >= HALF for head in heads),
            )
        )
    asked, result = rows[0].asked, rows[0].result
    return Induction(
        length=asked["length"],
        start=result["start"],
        points=asked["points"],
        repeats=asked["repeats"],
        neighbours=asked["neighbours"],
        prompts=result["n"],
        uniform=result["uniform"],
        series=tuple(series),
        facts=_facts(rows),
    )


# ---- over runs ----------------------------------------------------------------------------------------------------


def _results(labels: Mapping[str, str], rows: Sequence["ProbeRow"]) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    """What was found of each encoding's runs."""
    by_run = {row.key: row.result for row in rows}
    for label, keys in _by_label(labels, by_run).items():
        yield label, [by_run[key] for key in keys]


def _score(made: Sequence[Mapping[str, Any]], bounds: tuple[float, float] | None) -> Interval | None:
    """The score on what a prompt is about, over the seeds; each has answered the same prompts."""
    means = _known([one["score"] for one in made])
    if not all(map(math.isfinite, means)):
        return None
    return of_scores(means, [_known(one["groups"]) for one in made], math.nan, bounds)


def _over(values: Sequence[float]) -> Interval:
    """Of shares of weights. Prompts of one model are no sample that an interval could be over: a single seed has none."""
    return over_seeds(values, (0.0, 1.0)) if len(values) > 1 else over_examples(values[0], math.nan)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _mean_of(rows: Sequence[Sequence[float]]) -> Shares:
    return tuple(_mean(column) for column in zip(*rows, strict=True))


def _known(values: Iterable[float | None]) -> Shares:
    return tuple(math.nan if value is None else value for value in values)
