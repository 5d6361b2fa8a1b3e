"""Results of probes of functions learned in context: what the last question attends to, repeated examples, induction."""

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
HALF = 0.5  # smallest share of the weights with which a head counts as an induction head

Shares = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class RecencySeries:
    """An encoding's attention weights of the last x.

    `layers` [layer][label]: on the labels before it, farthest first, as means over heads and seeds. `recent`: in each layer, the
    share on the most recent tenth of the labels; 0.1 if all weights are equal. `best`: the largest such share of a head. `heads`
    [head][x]: for each kind of prompt, the weights on the x's, in the last layer of the first seed.
    """

    label: str
    seeds: int
    layers: tuple[Shares, ...]
    recent: tuple[Interval, ...]
    best: Interval
    heads: Mapping[str, tuple[Shares, ...]]


@dataclass(frozen=True, kw_only=True)
class Recency:
    """Weights in prompts of `length` examples; `heads` also in prompts of `trained` examples and of `points` repeated ones."""

    length: int
    trained: int
    points: int
    repeats: int
    prompts: int
    series: tuple[RecencySeries, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """An encoding's scores, one for each condition of a panel; None where there is none."""

    label: str
    seeds: int
    scores: tuple[Interval | None, ...]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The scores on the relevant part of prompts of one kind.

    `at`: what differs between the prompts (counts, positions, or begin/middle/end). `starts`: the index of the first example of the
    relevant part, from 0.
    """

    kind: str
    at: tuple[int | str, ...]
    starts: tuple[int, ...]
    series: tuple[Curve, ...]


@dataclass(frozen=True, kw_only=True)
class Places:
    """The mean score at every example of one prompt, by encoding. Its relevant part is `start` up to, not including, `stop`."""

    kind: str
    at: int | str
    start: int
    stop: int
    series: Mapping[str, Shares]


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """Scores of prompts with repeated examples. `probe`: `duplicates` or `lost-in-the-middle`."""

    probe: str
    length: int
    points: int
    prompts: int
    panels: tuple[Panel, ...]
    places: tuple[Places, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class InductionSeries:
    """An encoding's induction scores.

    `layers`: the best head of each layer. `prefix`, `nearest`: the published scores, means over all layers and heads. `heads`: the
    number of heads, over all seeds, with at least half of their weight on the labels of earlier occurrences of the same x.
    """

    label: str
    seeds: int
    layers: tuple[Interval, ...]
    prefix: Interval
    nearest: Interval
    heads: int


@dataclass(frozen=True, kw_only=True)
class Induction:
    """Induction scores of all encodings. `uniform`: the scores of equal weights, for induction and for nearest neighbours."""

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
    """All probe results of functions learned in context, with one entry for each question."""

    recency: tuple[Recency, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    induction: tuple[Induction, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.recency or self.repeated or self.induction)


def in_context(
    labels: Mapping[str, str], probes: Iterable["ProbeRow"], bounds: tuple[float, float] | None
) -> InContext:
    """Return the stored results of the runs in `labels` (by key). Runs with the same question are combined.

    `bounds`: the limits of the task's metric.
    """
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
    """Return the share of the weights on the most recent tenth."""
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
    for kind in dict.fromkeys(prompt["kind"] for prompt in first):
        numbers = [n for n, prompt in enumerate(first) if prompt["kind"] == kind]
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
            kind=prompt["kind"],
            at=prompt["at"],
            start=prompt["start"],
            stop=prompt["stop"],
            series={
                label: _mean_of([_known(result["prompts"][n]["curve"]["mean"]) for result in results])
                for label, results in by_label
            },
        )
        for n, prompt in enumerate(first)
        if "curve" in prompt
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
    """Yield the results of each encoding's runs."""
    by_run = {row.key: row.result for row in rows}
    for label, keys in _by_label(labels, by_run).items():
        yield label, [by_run[key] for key in keys]


def _score(prompts: Sequence[Mapping[str, Any]], bounds: tuple[float, float] | None) -> Interval | None:
    """Return the score on a prompt's relevant part as an interval over seeds, which answered the same prompts."""
    means = _known([prompt["score"] for prompt in prompts])
    if not all(map(math.isfinite, means)):
        return None
    return of_scores(means, [_known(prompt["groups"]) for prompt in prompts], math.nan, bounds)


def _over(values: Sequence[float]) -> Interval:
    """Return the interval over seeds. A single seed has none, because prompts of one model are not independent samples."""
    return over_seeds(values, (0.0, 1.0)) if len(values) > 1 else over_examples(values[0], math.nan)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _mean_of(rows: Sequence[Sequence[float]]) -> Shares:
    return tuple(_mean(column) for column in zip(*rows, strict=True))


def _known(values: Iterable[float | None]) -> Shares:
    return tuple(math.nan if value is None else value for value in values)
