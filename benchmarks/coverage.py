"""Measure how often the 95 % intervals of the report and of `lengthwise statistics` contain the true value.

    python benchmarks/coverage.py [--studies 4000] [--only "effective length"]

Each case is a population of seeds with a known true value. A study draws 3, 5 or 10 seeds from it, each with the noise
of its test examples, and computes an interval; the figure is the share of studies whose interval contains the true
value, with the standard error of that share. It must not be below 0.92 in `CASES` and `HELD_OUT`. The cases of
`LIMITED` are outside of what few seeds can show, and are stored to say how far: no limit applies to them.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is there

import numpy as np
from record import save

from lengthwise.analysis.estimates import Estimate, interval_of, over_seeds_and_groups
from lengthwise.analysis.ranks import mean_reciprocal_rank, reciprocal_ranks
from lengthwise.analysis.statistics import (
    Curve,
    area,
    area_weights,
    compare_all,
    effective_length,
    interquartile,
)
from lengthwise.analysis.statistics.seeds import deviation_interval
from lengthwise.metrics import CROSS_ENTROPY, EXACT_MATCH, Metric

SEEDS = (3, 5, 10)
# Slow intervals have fewer studies, divided by:
FEWER = {"interquartile mean": 4, "mean reciprocal rank": 2}
EXAMPLES = 512
LENGTHS = (64, 128, 256, 512)
Chance = np.random.Generator
Contains = Callable[[Chance, int], bool]  # whether the interval of one simulated study contains the true value


@dataclass(frozen=True)
class Shares:
    """Shares of correct answers: seeds from a beta distribution, examples from a binomial one. `deviation` 0: equal
    seeds.
    """

    mean: float
    deviation: float
    examples: int = EXAMPLES

    def draw(self, chance: Chance, seeds: int, at: float | None = None) -> list[float]:
        mean = self.mean if at is None else at
        if self.deviation == 0:
            return (chance.binomial(self.examples, mean, seeds) / self.examples).tolist()
        size = self.mean * (1 - self.mean) / self.deviation**2 - 1
        return (
            chance.binomial(self.examples, chance.beta(mean * size, (1 - mean) * size, seeds)) / self.examples
        ).tolist()


def inside(low: float, high: float, true: float) -> bool:
    return bool(low - 1e-9 <= true <= high + 1e-9)


def score_of_shares(shares: Shares) -> Contains:
    def contains(chance: Chance, seeds: int) -> bool:
        scores = [Estimate(mean=mean, n=shares.examples) for mean in shares.draw(chance, seeds)]
        found = interval_of(scores, EXACT_MATCH.limits, share=EXACT_MATCH.share)
        return inside(found.low, found.high, shares.mean)

    return contains


def score_of_losses(of_seed: float, of_examples: float, skew: float = 0.0) -> Contains:
    """Losses whose seeds are normal, or skewed: gamma distributed with that skewness."""

    def contains(chance: Chance, seeds: int) -> bool:
        means = 2 + of_seed * standard(chance, seeds, skew) + of_examples * chance.standard_normal(seeds)
        found = interval_of([Estimate(mean=mean) for mean in means.tolist()])
        return inside(found.low, found.high, 2.0)

    return contains


def score_of_common_texts(of_seed: float, of_texts: float) -> Contains:
    """Losses of seeds on the same texts: the true value is the mean over seeds on these texts, not on others."""

    def contains(chance: Chance, seeds: int) -> bool:
        true = 2 + of_texts * chance.standard_normal()
        means = true + of_seed * chance.standard_normal(seeds)
        found = interval_of([Estimate(mean=mean) for mean in means.tolist()])
        return inside(found.low, found.high, true)

    return contains


def standard(chance: Chance, size: int, skew: float) -> np.ndarray:
    """Return random numbers with mean 0, deviation 1 and a skewness."""
    if not skew:
        return chance.standard_normal(size)
    shape = 4 / skew**2
    return (chance.gamma(shape, size=size) - shape) / shape**0.5


def score_of_groups(of_seed: float, of_group: float, of_both: float, groups: int = 40) -> Contains:
    def contains(chance: Chance, seeds: int) -> bool:
        values = of_seed * chance.standard_normal((seeds, 1)) + of_group * chance.standard_normal(groups)
        found = over_seeds_and_groups((values + of_both * chance.standard_normal((seeds, groups))).tolist())
        return inside(found.low, found.high, 0.0)

    return contains


def curves(values: np.ndarray, errors: float) -> list[Curve]:
    """Return the curves of seeds, from their scores [seeds, lengths]."""
    return [
        tuple(Estimate(seed=seed, mean=v, standard_error=errors, n=EXAMPLES) for v in row)
        for seed, row in enumerate(values.tolist())
    ]


@dataclass(frozen=True)
class Losses:
    """Losses at `LENGTHS`. A seed's deviation has a part for all lengths and one for each, and each score one of its
    examples.
    """

    means: tuple[float, ...]
    all_lengths: float
    each_length: float
    examples: float

    def draw(self, chance: Chance, seeds: int) -> list[Curve]:
        shape = (seeds, len(LENGTHS))
        values = np.array(self.means) + self.all_lengths * chance.standard_normal((seeds, 1))
        values = values + self.each_length * chance.standard_normal(shape)
        return curves(values + self.examples * chance.standard_normal(shape), self.examples)


@dataclass(frozen=True)
class SharesByLength:
    """Shares at `LENGTHS`, from beta distributions. A seed has one quantile at all lengths, so a good seed is good
    everywhere;
    `independent`: it has one for each length."""

    means: tuple[float, ...]
    concentration: float
    independent: bool = False

    def draw(self, chance: Chance, seeds: int) -> list[Curve]:
        from scipy.special import betaincinv

        quantile = chance.random((seeds, len(LENGTHS) if self.independent else 1))
        means, size = np.array(self.means), self.concentration
        shares = betaincinv(means * size, (1 - means) * size, quantile)
        return curves(chance.binomial(EXAMPLES, shares) / EXAMPLES, 0.01)


def in_area(population: Losses | SharesByLength, metric: Metric) -> Contains:
    true = float(np.dot(area_weights(LENGTHS), population.means))

    def contains(chance: Chance, seeds: int) -> bool:
        found = area(LENGTHS, population.draw(chance, seeds), metric)
        return found is not None and inside(found.low, found.high, true)

    return contains


def true_length(means: Sequence[float], threshold: float, metric: Metric) -> float:
    """Return where means that never get better fail, with linear interpolation over the logarithm of the length."""
    sign = 1 if metric.better == "higher" else -1
    margins = [sign * (mean - threshold) for mean in means]
    place = next((n for n, margin in enumerate(margins) if margin < 0), None)
    if place is None:
        return float("inf")
    part = margins[place - 1] / (margins[place - 1] - margins[place])
    return LENGTHS[place - 1] * (LENGTHS[place] / LENGTHS[place - 1]) ** part


def in_length(population: Losses | SharesByLength, threshold: float, metric: Metric) -> Contains:
    true = true_length(population.means, threshold, metric)

    def contains(chance: Chance, seeds: int) -> bool:
        found = effective_length(LENGTHS, population.draw(chance, seeds), threshold, metric)
        assert found is not None
        return found.low <= true * (1 + 1e-6) and true <= found.high * (1 + 1e-6)

    return contains


def in_interquartile(strata: tuple[Shares, ...]) -> Contains:
    @cache
    def true() -> float:
        sample = np.sort([s.draw(np.random.default_rng([7, n]), 400_000) for n, s in enumerate(strata)], axis=None)
        return float(sample[len(sample) // 4 : 3 * len(sample) // 4].mean())

    def contains(chance: Chance, seeds: int) -> bool:
        found = interquartile([s.draw(chance, seeds) for s in strata], (0.0, 1.0))
        return inside(found.low, found.high, true())

    return contains


def in_rank(gap: float, tasks: int, label: str = "B") -> Contains:
    """Five encodings whose mean scores are `gap` standard deviations of the seeds apart, the first two in changing
    order.
    """
    labels = "ABCDE"
    means = np.array([[gap * (4 - place) for place in range(5)] for _ in range(tasks)])
    means[1::2, :2] = means[1::2, 1::-1]

    def ranks(scores: np.ndarray) -> list[float]:
        return [
            reciprocal_ranks(dict(zip(labels, row, strict=True)), better="higher")[label] for row in scores.tolist()
        ]

    @cache
    def true() -> float:
        sample = np.random.default_rng(7).standard_normal((100_000, tasks, 5)) + means
        own = sample[..., labels.index(label)]
        return float((1 / (1 + (sample > own[..., None]).sum(-1))).mean())

    def contains(chance: Chance, seeds: int) -> bool:
        found = mean_reciprocal_rank([ranks(means + chance.standard_normal(means.shape)) for _ in range(seeds)], 5)
        return inside(found.low, found.high, true())

    return contains


def in_comparison(kind: str, effect: float, skew: float = 0.0) -> Contains:
    """The difference between two encodings, its effect size, or its standard deviation (for the number of needed
    seeds).
    """

    def contains(chance: Chance, seeds: int) -> bool:
        shared = chance.standard_normal(seeds)  # what a seed does to both
        first = shared + effect + standard(chance, seeds, skew)
        pairs = {"A": dict(enumerate(first)), "B": dict(enumerate(shared))}
        (found,) = compare_all(pairs, "higher")
        sign = 1 if found.first == "A" else -1
        if kind == "difference":
            return inside(found.difference.low, found.difference.high, sign * effect)
        if kind == "deviation":
            return inside(*deviation_interval(found.deviation, seeds), 1.0)
        assert found.effect_interval is not None
        return inside(*found.effect_interval, sign * effect)

    return contains


def difference_of_shares(first: Shares, second: Shares) -> Contains:
    def contains(chance: Chance, seeds: int) -> bool:
        pairs = {"A": dict(enumerate(first.draw(chance, seeds))), "B": dict(enumerate(second.draw(chance, seeds)))}
        (found,) = compare_all(pairs, "higher")
        sign = 1 if found.first == "A" else -1
        return inside(found.difference.low, found.difference.high, sign * (first.mean - second.mean))

    return contains


FALLING = SharesByLength((0.97, 0.9, 0.6, 0.2), 30)
HIGH = SharesByLength((0.995, 0.99, 0.98, 0.95), 60)
PLATEAU = SharesByLength((0.83, 0.82, 0.81, 0.81), 60, independent=True)
RISING = Losses((2.0, 2.02, 2.2, 3.0), 0.02, 0.02, 0.01)
CASES: dict[str, dict[str, Contains]] = {
    "score, shares": {
        "mean 0.5, sd 0.1": score_of_shares(Shares(0.5, 0.1)),
        "mean 0.5, sd 0.2": score_of_shares(Shares(0.5, 0.2)),
        "mean 0.5, equal seeds": score_of_shares(Shares(0.5, 0)),
        "mean 0.9, sd 0.03": score_of_shares(Shares(0.9, 0.03)),
        "mean 0.9, sd 0.06": score_of_shares(Shares(0.9, 0.06)),
        "mean 0.98, sd 0.01": score_of_shares(Shares(0.98, 0.01)),
        "mean 0.98, sd 0.02": score_of_shares(Shares(0.98, 0.02)),
        "mean 0.98, equal seeds": score_of_shares(Shares(0.98, 0)),
        "mean 0.995, sd 0.004": score_of_shares(Shares(0.995, 0.004)),
        "mean 0.02, sd 0.02": score_of_shares(Shares(0.02, 0.02)),
        "mean 0.999, sd 0.0005": score_of_shares(Shares(0.999, 0.0005)),
    },
    "score, losses": {
        "seeds": score_of_losses(0.1, 0.0),
        "seeds and examples": score_of_losses(0.1, 0.1),
        "examples, equal seeds": score_of_losses(0.0, 0.1),
        "seeds, skewness 1": score_of_losses(0.1, 0.02, 1.0),
        "seeds 0.01 on the same texts, standard error 0.04": score_of_common_texts(0.01, 0.04),
    },
    "score, groups of prompts": {
        "seeds 1": score_of_groups(1, 0, 0.01),
        "prompts 1, both 0.5": score_of_groups(0, 1, 0.5),
        "seeds 0.3, prompts 1, both 1": score_of_groups(0.3, 1, 1),
        "both 1": score_of_groups(0, 0, 1),
        "seeds 0.1, prompts 0.6, both 0.3": score_of_groups(0.1, 0.6, 0.3),
    },
    "effective length": {
        "shares, threshold 0.8": in_length(FALLING, 0.8, EXACT_MATCH),
        "shares, threshold 0.5": in_length(FALLING, 0.5, EXACT_MATCH),
        "shares near 1, threshold 0.97": in_length(HIGH, 0.97, EXACT_MATCH),
        "shares that stay near the threshold 0.8": in_length(PLATEAU, 0.8, EXACT_MATCH),
        "losses, threshold 2.1": in_length(RISING, 2.1, CROSS_ENTROPY),
        "losses, threshold 2.5": in_length(RISING, 2.5, CROSS_ENTROPY),
    },
    "area": {
        "shares": in_area(FALLING, EXACT_MATCH),
        "shares near 1": in_area(HIGH, EXACT_MATCH),
        "losses": in_area(RISING, CROSS_ENTROPY),
    },
    "interquartile mean": {
        "two tasks": in_interquartile((Shares(0.7, 0.08), Shares(0.75, 0.08))),
        "four tasks, some near 0 and 1": in_interquartile(
            (Shares(0.05, 0.03), Shares(0.5, 0.1), Shares(0.8, 0.07), Shares(0.97, 0.02))
        ),
        "six tasks": in_interquartile(tuple(Shares(mean, 0.08) for mean in (0.5, 0.55, 0.6, 0.65, 0.7, 0.75))),
        "four tasks near 1": in_interquartile(tuple(Shares(mean, 0.015) for mean in (0.95, 0.97, 0.98, 0.98))),
    },
    "mean reciprocal rank": {
        "four tasks, 0.5 sd apart": in_rank(0.5, 4),
        "four tasks, 1 sd apart": in_rank(1.0, 4),
        "eight tasks, 1 sd apart": in_rank(1.0, 8),
        "two tasks, 1 sd apart": in_rank(1.0, 2, "C"),
        "two tasks, 0.5 sd apart": in_rank(0.5, 2, "C"),
        "two tasks, the same rank in nearly all": in_rank(2.0, 2, "A"),
        "four tasks, nearly always last": in_rank(2.0, 4, "E"),
    },
    "difference": {
        "effect 0": in_comparison("difference", 0.0),
        "effect 1": in_comparison("difference", 1.0),
        "effect 1, skewness 1": in_comparison("difference", 1.0, 1.0),
        "shares, means 0.9 and 0.8": difference_of_shares(Shares(0.9, 0.05), Shares(0.8, 0.1)),
        "shares, means 0.98 and 0.9": difference_of_shares(Shares(0.98, 0.015), Shares(0.9, 0.05)),
    },
    "effect size": {f"effect {effect:g}": in_comparison("effect", effect) for effect in (0.0, 0.5, 2.0)},
    "standard deviation of differences": {"normal differences": in_comparison("deviation", 1.0)},
}
# Cases that were not used to choose the methods and their constants, so they show how the methods do
# elsewhere. None of them may be changed or left out because of its result.
HELD_OUT: dict[str, dict[str, Contains]] = {
    "score, shares": {
        "mean 0.3, sd 0.05": score_of_shares(Shares(0.3, 0.05)),
        "mean 0.7, sd 0.15": score_of_shares(Shares(0.7, 0.15)),
        "mean 0.95, sd 0.05": score_of_shares(Shares(0.95, 0.05)),
        "mean 0.9, sd 0.05, 64 examples": score_of_shares(Shares(0.9, 0.05, 64)),
        "mean 0.97, sd 0.01, 4,096 examples": score_of_shares(Shares(0.97, 0.01, 4096)),
    },
    "score, losses": {"seeds 0.1, examples 0.03, skewness 0.5": score_of_losses(0.1, 0.03, 0.5)},
    "score, groups of prompts": {"seeds 0.5, prompts 0.5, both 0.5, 20 groups": score_of_groups(0.5, 0.5, 0.5, 20)},
    "effective length": {
        "shares, slowly falling, threshold 0.7": in_length(SharesByLength((0.9, 0.8, 0.65, 0.5), 15), 0.7, EXACT_MATCH),
        "losses, threshold 2.08": in_length(Losses((2.0, 2.05, 2.1, 2.3), 0.03, 0.01, 0.02), 2.08, CROSS_ENTROPY),
    },
    "area": {
        "shares, slowly falling": in_area(SharesByLength((0.9, 0.8, 0.65, 0.5), 15), EXACT_MATCH),
        "losses": in_area(Losses((2.0, 2.05, 2.1, 2.3), 0.03, 0.01, 0.02), CROSS_ENTROPY),
    },
    "interquartile mean": {
        "three tasks": in_interquartile((Shares(0.4, 0.1), Shares(0.6, 0.05), Shares(0.9, 0.05))),
    },
    "mean reciprocal rank": {"five tasks, 0.7 sd apart": in_rank(0.7, 5, "D")},
    "difference": {"shares, means 0.6 and 0.45": difference_of_shares(Shares(0.6, 0.12), Shares(0.45, 0.15))},
}
LIMITED: dict[str, dict[str, Contains]] = {
    "score, shares": {
        "two kinds of seeds: mean 0.7, sd 0.35": score_of_shares(Shares(0.7, 0.35)),
    },
    "score, losses": {"seeds, skewness 2": score_of_losses(0.1, 0.0, 2.0)},
    "effect size": {"effect 1, skewness 1": in_comparison("effect", 1.0, 1.0)},
    "standard deviation of differences": {"skewness 1": in_comparison("deviation", 1.0, 1.0)},
}


PARTS = {"cases": CASES, "held out": HELD_OUT, "limited": LIMITED}


def coverage(contains: Contains, seeds: int, studies: int, start: int = 0) -> dict[str, float]:
    """Return the share of simulated studies whose interval contains the true value, and the standard error of the
    share.
    """
    chance = np.random.default_rng([start, seeds])
    share = sum(contains(chance, seeds) for _ in range(studies)) / studies
    return {"coverage": round(share, 4), "standard_error": round((share * (1 - share) / studies) ** 0.5, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--only", help="one statistic; the figures are printed and not stored")
    args = parser.parse_args()
    figures: dict[str, object] = {"settings": vars(args)}
    for part, statistics in PARTS.items():
        found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for statistic, cases in statistics.items():
            if args.only not in (None, statistic):
                continue
            found[statistic] = {}
            for case, contains in cases.items():
                studies = args.studies // FEWER.get(statistic, 1)
                start = 100 if part == "held out" else 0  # other random numbers
                shares = {f"{seeds} seeds": coverage(contains, seeds, studies, start) for seeds in SEEDS}
                found[statistic][case] = shares
                print(f"{statistic}, {case:40}", *(f"{s['coverage']:.3f}" for s in shares.values()), flush=True)
        figures[part] = found
    if args.only is None:
        save("coverage", figures)


if __name__ == "__main__":
    main()
