"""Scores with their intervals, and effective lengths by a stated rule. Imports no torch.

The effective length of the task text is the longest tested length up to which no tested length makes the same target tokens harder:
their mean cross-entropy is at most `MARGIN` nats above that of the model as it is (the method `own`) at the shortest tested
length, or of the method itself, if `own` was not measured. The effective length of a retrieval task is the longest tested length
up to which, at every tested length, at least the share `PASS` of the answers is correct. That of a model is the smaller of those
of the tasks text and needle.

Its interval has the 2.5th and 97.5th percentiles of 2,000 draws. A draw of the cross-entropies is a bootstrap over the texts, with
the same texts at every length. A draw of a share comes from its posterior distribution with Jeffreys' prior, which is
Beta(correct + 1/2, wrong + 1/2) and has a width even if all answers are correct. The unit is the example: of one with answers at
several depths, the share of correct ones counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lengthwise.analysis.intervals import Interval, over_seeds_and_groups, with_wilson
from lengthwise.reach.plan import MARGIN, OWN, PASS, TEXT
from lengthwise.reach.results import Results, Unit

DRAWS = 2000
HEADLINE = (TEXT, "needle")


@dataclass(frozen=True)
class Effective:
    """An effective length. `place`, `low` and `high` are places in `lengths`; −1 is below the shortest length."""

    lengths: tuple[int, ...]
    place: int
    low: int
    high: int
    known: bool = True  # whether there is an interval

    @property
    def text(self) -> str:
        """The effective length: `4,096`, `< 1,024`, or `≥ 8,192` if the longest tested length still passes."""
        return self._text(self.place)

    @property
    def interval(self) -> str:
        """The interval: `2,048 … ≥ 8,192`, or one length if both ends are the same."""
        if not self.known:
            return "no interval"
        return " … ".join(dict.fromkeys((self._text(self.low), self._text(self.high))))

    def _text(self, place: int) -> str:
        if place < 0:
            return f"< {self.lengths[0]:,}"
        return f"≥ {self.lengths[-1]:,}" if place == len(self.lengths) - 1 else f"{self.lengths[place]:,}"

    @property
    def length(self) -> int | None:
        return None if self.place < 0 else self.lengths[self.place]


def label(results: Results, method: str) -> str:
    """Return the name of a model with a method."""
    return results.model.name if method == OWN else f"{results.model.name}, {method}"


def measured_lengths(results: Results, method: str, task: str) -> tuple[int, ...]:
    """Return the lengths up to the first one at which a task was not measured at all depths."""
    depths, found = len(results.plan.depths_of(task)), []
    for length in results.plan.lengths:
        if len(results.find(method, task, length)) < depths:
            break
        found.append(length)
    return tuple(found)


def score(units: Sequence[Unit]) -> tuple[Interval, int] | None:
    """Return the mean of the scores of some units with its 95 % interval, and the number of examples; None without scores.

    Cross-entropy has a bootstrap interval over texts, and a share has Wilson's for the number of examples. An example has the same
    text, names and numbers at every depth, so its answers at several depths count as one: they may all be right or wrong together.
    """
    values = [value for unit in units for value in unit.scores]
    if not values:
        return None
    if units[0].task == TEXT:
        return over_texts(values), len(values)
    examples = max(len(unit.scores) for unit in units)
    share = math.fsum(values) / len(values)
    return with_wilson(Interval(share, share, share, 0.0, "examples"), examples), examples


def over_texts(values: Sequence[float]) -> Interval:
    """Return the mean over texts with a bootstrap interval; without one for a single text."""
    if len(values) < 2:
        return Interval(values[0], values[0], values[0], math.nan, "none")
    return over_seeds_and_groups([list(values)])


def position_losses(results: Results, method: str) -> tuple[int, list[tuple[int, Interval, int]]] | None:
    """Return the longest measured length, and there (first position, loss, tokens per text) of each range of positions."""
    lengths = measured_lengths(results, method, TEXT) if TEXT in results.plan.tasks else ()
    if not lengths:
        return None
    (unit,) = results.find(method, TEXT, lengths[-1])
    rows = np.array(unit.bin_losses).reshape(len(unit.scores), len(unit.bins))
    cells = zip(unit.bins, rows.T.tolist(), unit.bin_tokens, strict=True)
    return lengths[-1], [(start, over_texts(values), tokens) for start, values, tokens in cells]


def effective(results: Results, method: str, task: str, reference: Results | None = None) -> Effective | None:
    """Return the effective length of a method for a task; None if the shortest length was not measured.

    `reference`: the measurement whose method `own` cross-entropies are compared with, on the same texts. None: `results`.
    """
    lengths = measured_lengths(results, method, task)
    if not lengths:
        return None
    passed, draws = (
        _text_passes(results, method, lengths, reference) if task == TEXT else _shares(results, method, task, lengths)
    )
    return _effective(lengths, _places(passed[None])[0], None if draws is None else _places(draws))


def headline(results: Results, method: str, reference: Results | None = None) -> Effective | None:
    """Return the effective length of a model: the smaller of those of the tasks text and needle, of those that were measured."""
    tasks = [task for task in HEADLINE if task in results.plan.tasks]
    common = [measured_lengths(results, method, task) for task in tasks]
    if not common or not min(common, key=len):
        return None
    lengths = min(common, key=len)
    parts = [
        _text_passes(results, method, lengths, reference) if task == TEXT else _shares(results, method, task, lengths)
        for task in tasks
    ]
    place = min(int(_places(passed[None])[0]) for passed, _ in parts)
    draws = [_places(drawn) for _, drawn in parts if drawn is not None]
    return _effective(lengths, place, np.min(draws, axis=0) if len(draws) == len(parts) else None)


def _text_passes(
    results: Results, method: str, lengths: Sequence[int], reference: Results | None
) -> tuple[Any, Any | None]:
    """Return whether the text passes at each length [lengths], and in each draw [draws, lengths]."""
    losses = np.array([results.find(method, TEXT, length)[0].scores for length in lengths])
    own = (reference or results).find(OWN, TEXT, lengths[0])
    loss = losses - (np.array(own[0].scores) if own else losses[0])
    count = loss.shape[1]
    means = loss.mean(1)
    if count < 2:
        return means <= MARGIN, None
    chosen = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    drawn = loss[:, chosen].mean(2).T
    return means <= MARGIN, means + (drawn - means) * math.sqrt(count / (count - 1)) <= MARGIN


def _shares(results: Results, method: str, task: str, lengths: Sequence[int]) -> tuple[Any, Any]:
    values = [[value for unit in results.find(method, task, length) for value in unit.scores] for length in lengths]
    examples = [max(len(unit.scores) for unit in results.find(method, task, length)) for length in lengths]
    share = np.array([math.fsum(part) / len(part) for part in values])
    correct = share * examples  # answers at several depths count as one, see `score`
    drawn = np.random.default_rng(0).beta(correct + 0.5, examples - correct + 0.5, (DRAWS, len(lengths)))
    return share >= PASS, drawn >= PASS


def _places(passed: Any) -> Any:
    """Return the place of the last length before the first that does not pass, of each row."""
    return np.cumprod(passed, axis=1).sum(1) - 1


def _effective(lengths: tuple[int, ...], place: int, draws: Any | None) -> Effective:
    if draws is None:
        return Effective(lengths, int(place), int(place), int(place), known=False)
    low, high = np.quantile(draws, [0.025, 0.975], method="inverted_cdf")
    return Effective(lengths, int(place), min(int(low), int(place)), max(int(high), int(place)))
