"""Compare two measurements: which ratios to NoPE changed beyond the noise, and by how much. Imports no torch.

The ratios of the rounds of A and B are two samples. Their ranks are compared by the exact two-sided test of Mann and Whitney 1947,
which makes no assumption about the distribution of the noise. The p-values of all encodings, lengths and kinds of one
comparison are corrected by Holm's method, which holds for tests that depend on each other, as these do through NoPE. So if
the rounds of A and B have the same distribution, the probability that the comparison claims any change is at most 5 %.

Two runs of the same program differ a little more than their rounds do, because each process places its memory and threads
differently, and no number of rounds averages that out. Therefore a change also has to be at least `SMALLEST_CHANGE`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lengthwise.speed.results import BASELINE, KINDS, Cell, Kind, Results
from lengthwise.speed.summary import Ratio, median_ratio
from lengthwise.values import join_names, shown

LEVEL = 0.05  # largest probability of any false claim in one comparison
SMALLEST_CHANGE = 0.05  # of a ratio, in either direction
MAX_EXACT = 10_000  # product of the numbers of rounds up to which p-values are exact; beyond, they are asymptotic

Verdict = Literal["slower", "faster", "no change"]


@dataclass(frozen=True)
class Change:
    """One encoding at one length: its ratios to NoPE in A and in B. `change`: that of the medians, B / A − 1. `p`: after Holm."""

    encoding: str
    length: int
    kind: Kind
    before: Ratio
    after: Ratio
    change: float
    p: float

    @property
    def verdict(self) -> Verdict:
        """Return "no change" unless the change is beyond the noise and at least `SMALLEST_CHANGE`."""
        if self.p > LEVEL or abs(math.log1p(self.change)) < math.log1p(SMALLEST_CHANGE):
            return "no change"
        return "slower" if self.change > 0 else "faster"


@dataclass(frozen=True)
class Comparison:
    """The changes of everything that both measurements have, and notes about what was not compared or limits the result."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def claimed(self) -> list[Change]:
        """Return the changes beyond the noise, the largest first."""
        beyond = [change for change in self.changes if change.verdict != "no change"]
        return sorted(beyond, key=lambda change: -abs(math.log1p(change.change)))


def compare(before: Results, after: Results) -> Comparison:
    """Return how the ratios of `after` (B) differ from those of `before` (A)."""
    if different := _different(before.question.comparable(), after.question.comparable()):
        return Comparison((), (f"Nothing is compared, because the questions differ: {different}.",))
    pairs = list(_pairs(before, after))
    samples = [(before.ratios(a, kind), after.ratios(b, kind)) for a, b in pairs for kind in KINDS]
    corrected = holm(p_values(samples))
    changes = []
    for (cell, kind), (old, new), p in zip(((a, k) for a, _ in pairs for k in KINDS), samples, corrected, strict=True):
        a, b = median_ratio(old), median_ratio(new)
        assert a is not None and b is not None  # `_pairs` yields only cells with times
        changes.append(Change(cell.encoding, cell.length, kind, a, b, b.median / a.median - 1, p))
    return Comparison(tuple(changes), tuple(_notes(before, after, samples)))


def _pairs(before: Results, after: Results) -> Iterator[tuple[Cell, Cell]]:
    """Yield the cells of encodings with the same settings at the same length that have times in both measurements."""
    for cell in before.cells:
        other = after.cell(cell.encoding, cell.length)
        if cell.encoding == BASELINE or other is None or not cell.forward or not other.forward:
            continue
        if settings(cell) == settings(other):
            yield cell, other


def settings(cell: Cell) -> list[dict[str, Any]]:
    """Return the settings of the encoding in each layer of its pattern.

    The version of its class is left out, because a changed class is what is to be compared.
    """
    others = cell.settings.get("remaining_layers")
    layers = [cell.settings, *(others if isinstance(others, (list, tuple)) else ())]
    skipped = ("class", "remaining_layers")
    return [{k: v for k, v in layer.items() if k not in skipped} for layer in layers if isinstance(layer, Mapping)]


def p_values(samples: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """Return the two-sided p-values of the test of Mann and Whitney: exact, or asymptotic for very many rounds.

    >>> p_values([([1.0, 1.1, 1.2], [2.0, 2.1, 2.2])])
    [0.1]
    """
    import numpy as np
    from scipy.stats import mannwhitneyu  # type: ignore[import-untyped] # imported here because it takes a second

    result = [1.0] * len(samples)
    by_size: dict[tuple[int, int], list[int]] = {}
    for n, (a, b) in enumerate(samples):
        by_size.setdefault((len(a), len(b)), []).append(n)
    for (size_a, size_b), numbers in by_size.items():  # samples of equal sizes together, which is much faster
        both = (np.array([samples[n][side] for n in numbers]) for side in (0, 1))
        method = "exact" if size_a * size_b <= MAX_EXACT else "asymptotic"
        found = mannwhitneyu(*both, alternative="two-sided", method=method, axis=1).pvalue
        for n, p in zip(numbers, found, strict=True):
            result[n] = min(1.0, float(p))
    return result


def holm(values: Sequence[float]) -> list[float]:
    """Return the p-values corrected by the method of Holm 1979, in the same order.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(values), 0.0
    for rank, n in enumerate(sorted(range(len(values)), key=lambda n: values[n])):
        largest = max(largest, min(1.0, (len(values) - rank) * values[n]))
        corrected[n] = largest
    return corrected


# ---- notes --------------------------------------------------------------------------------------------------------


def _notes(
    before: Results, after: Results, samples: Sequence[tuple[Sequence[float], Sequence[float]]]
) -> Iterator[str]:
    if before.origin.device != after.origin.device or before.origin.cores != after.origin.cores:
        machines = [f"{r.origin.device} with {r.origin.cores} cores" for r in (before, after)]
        yield f"The machines differ ({machines[0]}; {machines[1]}), so a change may come from the machine."
    if before.origin.clock != after.origin.clock:
        yield f"The clocks differ ({before.origin.clock}; {after.origin.clock})."
    if different := _different(before.origin.versions, after.origin.versions):
        yield f"The versions differ: {different}."
    if different := _different({"library": before.origin.matmul_library}, {"library": after.origin.matmul_library}):
        yield f"The libraries of matrix products differ: {different}."
    for results, other, name in ((before, after, "A"), (after, before, "B")):
        if only := [cell for cell in results.cells if not _has_times(other, cell)]:
            yield f"Not compared, because only {name} has it: {_listed(only)}."
        if not results.complete:
            yield f"{name} was stopped early, so some rounds or lengths are missing."
    both = [(c, after.cell(c.encoding, c.length)) for c in before.cells]
    if changed := [c for c, other in both if other is not None and settings(c) != settings(other)]:
        yield f"Not compared, because the settings differ: {_listed(changed)}."
    if not samples:
        yield "The two files have no encoding and length in common, other than NoPE."
    elif (rounds := rounds_needed(len(samples))) > min(len(part) for sample in samples for part in sample):
        yield (
            f"With {len(samples)} comparisons, a change can only be claimed from {rounds} rounds in each file; measure with "
            f"--rounds {rounds}."
        )


def rounds_needed(comparisons: int) -> int:
    """Return the rounds from which the smallest possible p-value, 2 / C(2n, n), is at most 5 % after Holm's correction."""
    rounds = 1
    while comparisons * 2 / math.comb(2 * rounds, rounds) > LEVEL:
        rounds += 1
    return rounds


def _different(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Return `threads 1 and 2` for what differs, or an empty string."""
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    return join_names([f"{name} {_short(a.get(name))} and {_short(b.get(name))}" for name in names])


def _short(value: Any) -> str:
    return (value if isinstance(value, str) else "none" if value is None else shown(value))[:80]


def _has_times(results: Results, cell: Cell) -> bool:
    """Return whether the other measurement has times of this cell, or neither has."""
    other = results.cell(cell.encoding, cell.length)
    return not cell.forward or (other is not None and bool(other.forward))


def _listed(cells: Sequence[Cell]) -> str:
    """Return the encodings with their lengths: `FIRE at 256 and 512`, and how many more there are."""
    lengths: dict[str, list[str]] = {}
    for cell in cells:
        lengths.setdefault(cell.encoding, []).append(f"{cell.length:,}")
    texts = [f"{name[:60]} at {join_names(of)}" for name, of in lengths.items()]
    return "; ".join(texts if len(texts) <= 8 else [*texts[:8], f"and {len(texts) - 8} more"])
