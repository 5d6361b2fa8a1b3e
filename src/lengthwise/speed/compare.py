"""Compare two measurements: which ratios to NoPE changed beyond the noise, and by how much. Imports no torch.

The ratios of the rounds of A and B are two samples. Their ranks are compared by the exact two-sided test of Mann and
Whitney 1947, which makes no assumption about the distribution of the noise. The p-values of all encodings, lengths and
kinds of one comparison are corrected by Holm's method, which holds for tests that depend on each other, as these do
through NoPE. So if the rounds of A and B have the same distribution, the probability that the comparison claims any
change is at most 5 %.

Two runs of the same program differ a little more than their rounds do, because each process places its memory and
threads differently, and no number of rounds averages that out. Therefore a change also has to be at least
`SMALLEST_CHANGE`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lengthwise.analysis.differences import flat
from lengthwise.analysis.estimates import Interval, over_rounds
from lengthwise.analysis.statistics import holm
from lengthwise.measurements.answer_file import FileAnswer
from lengthwise.measurements.speed import BASELINE, KINDS, Kind
from lengthwise.values import join_names

LEVEL = 0.05  # largest probability of any false claim in one comparison
SMALLEST_CHANGE = 0.05  # of a ratio, in either direction
MAX_EXACT = 10_000  # product of the numbers of rounds up to which p-values are exact; beyond, they are asymptotic
COMPARABLE = (
    "d_model",
    "num_layers",
    "num_heads",
    "batch_tokens",
    "dtype",
    "backend",
    "threads",
)  # and the kind of device
COMMIT = ("commit", "uncommitted_changes")  # differ in most comparisons, whose aim is to see the effect of a change

Verdict = Literal["slower", "faster", "no change"]
Cell = tuple[str, int]  # an encoding and a length


@dataclass(frozen=True)
class Change:
    """An encoding's ratios to NoPE at one length. `change`: of the medians, B / A − 1. `p`: after Holm's correction."""

    encoding: str
    length: int
    kind: Kind
    before: Interval
    after: Interval
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
    """The changes of what both measurements have, and notes on what was not compared or limits the result."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def claimed(self) -> list[Change]:
        """Return the changes beyond the noise, the largest first."""
        beyond = [change for change in self.changes if change.verdict != "no change"]
        return sorted(beyond, key=lambda change: -abs(math.log1p(change.change)))


class _Measured:
    """The content of a file: each cell's ratios by kind, in the order of the rounds, and encodings' settings."""

    def __init__(self, answer: FileAnswer) -> None:
        self.ratios: dict[Cell, dict[Kind, list[float]]] = {}
        self.settings: dict[Cell, Any] = {}
        for row in answer.measurement.derive(answer.table, answer.origin):
            cell = row["encoding"], row["length"]
            if row.get("settings"):
                self.settings[cell] = _settings(row["settings"])
            for kind in KINDS:
                if (ratio := row.get(f"{kind}_ratio")) is not None:
                    self.ratios.setdefault(cell, {}).setdefault(kind, []).append(ratio)


def _settings(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of the encoding in each layer of its pattern.

    The version of its class is left out, because a changed class is what is to be compared.
    """
    layers = [settings, *(settings.get("remaining_layers") or ())]
    return [{k: v for k, v in layer.items() if k not in ("class", "remaining_layers")} for layer in layers]


def compare(before: FileAnswer, after: FileAnswer) -> Comparison:
    """Return how the ratios of `after` (B) differ from those of `before` (A)."""
    if different := _different(_comparable(before), _comparable(after)):
        return Comparison((), (f"Nothing is compared, because the questions differ: {different}.",))
    a, b = _Measured(before), _Measured(after)
    cells = [c for c in a.ratios if c[0] != BASELINE and c in b.ratios and a.settings.get(c) == b.settings.get(c)]
    places = [(cell, kind) for cell in cells for kind in KINDS]
    samples = [(a.ratios[cell][kind], b.ratios[cell][kind]) for cell, kind in places]
    changes = []
    for ((encoding, length), kind), sample, p in zip(places, samples, holm(p_values(samples)), strict=True):
        old, new = map(over_rounds, sample)
        changes.append(Change(encoding, length, kind, old, new, new.mean / old.mean - 1, p))
    return Comparison(tuple(changes), tuple(_notes(before, after, a, b, samples)))


def _comparable(answer: FileAnswer) -> dict[str, Any]:
    """Return what has to be equal in two measurements so that their ratios mean the same."""
    device = str(answer.question["device"]).partition(":")[0]
    return {"device": device, **{name: answer.question[name] for name in COMPARABLE}}


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
        p_values = mannwhitneyu(*both, alternative="two-sided", method=method, axis=1).pvalue
        for n, p in zip(numbers, p_values, strict=True):
            result[n] = min(1.0, float(p))
    return result


# ---- notes --------------------------------------------------------------------------------------------------------


def _notes(
    before: FileAnswer,
    after: FileAnswer,
    a: _Measured,
    b: _Measured,
    samples: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> Iterator[str]:
    about = [{k: v for k, v in flat(file.subject).items() if k not in COMMIT} for file in (before, after)]
    if different := _different(*about):
        yield f"The machines or the versions differ, so a change may come from them: {different}."
    for one, other, name in ((a, b, "A"), (b, a, "B")):
        if only := _listed(cell for cell in one.ratios if cell not in other.ratios):
            yield f"Not compared, because only {name} has it: {only}."
    both = set(a.ratios) & set(b.ratios)
    if changed := _listed(c for c in a.ratios if c in both and a.settings.get(c) != b.settings.get(c)):
        yield f"Not compared, because the settings differ: {changed}."
    if not samples:
        yield "The two files have no encoding and length in common, other than NoPE."
    elif (rounds := rounds_needed(len(samples))) > min(len(times) for sample in samples for times in sample):
        yield (
            f"With {len(samples)} comparisons, a change can only be claimed from {rounds} rounds in each file; measure "
            f"with --rounds {rounds}."
        )


def rounds_needed(comparisons: int) -> int:
    """Return the rounds from which the smallest p-value, 2 / C(2n, n), is at most 5 % after Holm's correction."""
    rounds = 1
    while comparisons * 2 / math.comb(2 * rounds, rounds) > LEVEL:
        rounds += 1
    return rounds


def _different(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Return `threads 1 and 2` for what differs, or an empty string."""
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    return join_names([f"{name} {a.get(name, 'none')} and {b.get(name, 'none')}" for name in names])


def _listed(cells: Iterable[Cell]) -> str:
    """Return the encodings with their lengths: `FIRE at 256 and 512`, and how many more there are."""
    lengths: dict[str, list[str]] = {}
    for encoding, length in cells:
        lengths.setdefault(encoding, []).append(f"{length:,}")
    texts = [f"{name} at {join_names(of)}" for name, of in lengths.items()]
    return "; ".join(texts if len(texts) <= 8 else [*texts[:8], f"and {len(texts) - 8} more"])
