"""Paired comparisons of encodings: pairs are the scores of two encodings with the same seed.

The test is the paired t test. A permutation test makes no assumption on the distribution of the differences, but with S
seeds its smallest two-sided p value is 2 / 2^S: 0.25 for three seeds, 0.0625 for five. It could never reject anything
there, and Holm's correction for many pairs would need more than ten seeds. The t test assumes that the differences are
roughly normal.

The effect size is Cohen's d of the differences (their mean divided by their standard deviation) with Hedges' correction
for few seeds. Its interval follows from the noncentral t distribution. The probability of superiority, that the first
encoding is better with a new seed, is the normal distribution function of d.

SciPy's special functions are enough for this; importing `scipy.stats` takes longer than a whole command. SciPy has no
Holm correction, and statsmodels, which has one, would be a large dependency for a function of five lines.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lengthwise.analysis.estimates import CONFIDENCE, Interval, over_seeds, sample_variance

LEVEL = 1 - CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two encodings compared over common seeds. `first` has the better mean.

    `difference`: the score of `first` minus that of `second`, with its interval over seeds, not corrected for several
    comparisons.
    `p`: of the paired t test, two-sided; `p_holm`: corrected for all pairs of the family. `effect`: Cohen's d with
    Hedges' correction, positive if `first` is better, and its interval. `superiority`: the probability that `first` is
    better with a new seed, and its interval. All are None with fewer than two seeds or if the differences do not vary,
    and effect sizes also with two seeds. `deviation`: the standard deviation of the differences; NaN with one seed.
    """

    first: str
    second: str
    seeds: tuple[int, ...]
    difference: Interval
    deviation: float
    p: float | None = None
    p_holm: float | None = None
    effect: float | None = None
    effect_interval: tuple[float, float] | None = None

    @property
    def superiority(self) -> tuple[float, float, float] | None:
        """Return the probability of superiority and the ends of its interval."""
        if self.effect is None or self.effect_interval is None:
            return None
        low, high = self.effect_interval
        normal = statistics.NormalDist()
        return normal.cdf(self.effect), normal.cdf(low), normal.cdf(high)

    @property
    def resolved(self) -> bool:
        """Return whether the difference is significant after Holm's correction."""
        return self.p_holm is not None and self.p_holm < LEVEL


def compare_all(scores: Mapping[str, Mapping[int, float]], better: str) -> tuple[Comparison, ...]:
    """Compare all pairs of encodings, given the score of each by seed. Pairs without a common seed are left out.

    Holm's correction is for all pairs that could be tested. The order is that of the corrected p values.
    """
    labels = [label for label, values in scores.items() if values]
    comparisons = []
    for place, label in enumerate(labels):
        for other in labels[place + 1 :]:
            common = sorted(scores[label].keys() & scores[other].keys())
            if common:
                pairs = [(seed, scores[label][seed], scores[other][seed]) for seed in common]
                comparisons.append(_compare(label, other, pairs, better))
    tested = [c for c in comparisons if c.p is not None]
    corrected = dict(zip(map(id, tested), holm([c.p for c in tested if c.p is not None]), strict=True))
    comparisons = [replace(c, p_holm=corrected.get(id(c))) for c in comparisons]
    return tuple(sorted(comparisons, key=lambda c: (c.p_holm is None, c.p_holm or 0.0, c.p or 0.0)))


def _compare(label: str, other: str, pairs: Sequence[tuple[int, float, float]], better: str) -> Comparison:
    sign = 1 if better == "higher" else -1
    gains = [sign * (a - b) for _, a, b in pairs]
    if math.fsum(gains) < 0:
        label, other, gains = other, label, [-gain for gain in gains]
    differences = [sign * gain for gain in gains]
    mean, seeds = math.fsum(differences) / len(differences), tuple(seed for seed, *_ in pairs)
    if len(pairs) < 2:
        alone = Interval(mean, mean, mean, math.nan, "none")
        return Comparison(first=label, second=other, seeds=seeds, difference=alone, deviation=math.nan)
    deviation = math.sqrt(sample_variance(differences))
    interval = over_seeds(differences)
    if deviation <= 1e-12 * max(map(abs, differences), default=0.0):  # equal up to rounding: nothing to test with
        return Comparison(first=label, second=other, seeds=seeds, difference=interval, deviation=0.0)
    t = sign * mean / deviation * math.sqrt(len(pairs))
    return Comparison(
        first=label,
        second=other,
        seeds=seeds,
        difference=interval,
        deviation=deviation,
        p=p_value(t, len(pairs) - 1),
        effect=hedges_factor(len(pairs) - 1) * t / math.sqrt(len(pairs)) if len(pairs) > 2 else None,
        effect_interval=effect_interval(t, len(pairs)) if len(pairs) > 2 else None,
    )


def p_value(t: float, degrees: int) -> float:
    """Return the two-sided p value of Student's t."""
    from scipy.special import stdtr  # type: ignore[import-untyped]

    return float(2 * stdtr(degrees, -abs(t)))


def hedges_factor(degrees: int) -> float:
    """Return what removes the bias of Cohen's d: Γ(m / 2) / (√(m / 2) Γ((m − 1) / 2)) for m degrees of freedom.

    It is 0.564 for two degrees of freedom (three seeds). With one (two seeds), d has no mean, so there is no factor.
    """
    return math.exp(math.lgamma(degrees / 2) - math.lgamma((degrees - 1) / 2)) / math.sqrt(degrees / 2)


def effect_interval(t: float, seeds: int) -> tuple[float, float]:
    """Return the 95 % interval of Cohen's d: the noncentrality parameters for which t is an extreme value."""
    from scipy.special import nctdtrinc

    tail, root = LEVEL / 2, math.sqrt(seeds)
    low, high = (float(nctdtrinc(seeds - 1, share, t)) / root for share in (1 - tail, tail))
    return low, high


def holm(values: Sequence[float]) -> list[float]:
    """Return Holm's corrected p values: the k-th smallest of m times m − k + 1, and not below that of a smaller one."""
    order = sorted(range(len(values)), key=values.__getitem__)
    corrected, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = largest
    return corrected
