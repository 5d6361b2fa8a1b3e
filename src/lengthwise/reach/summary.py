"""Scores with their intervals, and effective lengths by the rule of the package. Imports no torch.

The rule is that of `analysis.statistics.effective_length`. For the task text, its scores are losses: by how much the mean
cross-entropy of the same target tokens is above that of the model as it is (the method `own`) at the shortest tested length, or of
the method itself, if `own` was not measured. At most `MARGIN` nats pass. For a retrieval task, at least the share `PASS` of the
answers has to be correct. The effective length of a model is the smaller of those of the tasks text and needle.

All intervals are over examples: a bootstrap over the texts for losses, and Wilson's for shares. The unit is the example: of one
with answers at several depths, the share of correct ones counts.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lengthwise.analysis.intervals import Interval, over_seeds_and_groups, with_wilson
from lengthwise.analysis.statistics import EffectiveLength, longest_passing
from lengthwise.reach.plan import MARGIN, OWN, PASS, TEXT
from lengthwise.reach.results import Results, Unit

HEADLINE = (TEXT, "needle")


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


def effective(results: Results, method: str, task: str, reference: Results | None = None) -> EffectiveLength | None:
    """Return the effective length of a method for a task; None if the shortest length was not measured.

    `reference`: the measurement whose method `own` cross-entropies are compared with, on the same texts. None: `results`.
    """
    return _effective(results, method, task, measured_lengths(results, method, task), reference)


def headline(results: Results, method: str, reference: Results | None = None) -> EffectiveLength | None:
    """Return the effective length of a model: the smaller of those of the tasks text and needle, of those that were measured."""
    tasks = [task for task in HEADLINE if task in results.plan.tasks]
    lengths = min((measured_lengths(results, method, task) for task in tasks), key=len, default=())
    parts = [part for task in tasks if (part := _effective(results, method, task, lengths, reference)) is not None]
    if not parts:
        return None
    low, high = min(part.low for part in parts), min(part.high for part in parts)
    if any(math.isnan(part.low) for part in parts):
        low = high = math.nan
    return replace(min(parts, key=lambda part: part.value), low=low, high=high)


def _effective(
    results: Results, method: str, task: str, lengths: Sequence[int], reference: Results | None
) -> EffectiveLength | None:
    if not lengths:
        return None
    if task != TEXT:
        shares = [found[0] for length in lengths if (found := score(results.find(method, task, length))) is not None]
        return longest_passing(lengths, shares, PASS, "higher")
    losses = [results.find(method, TEXT, length)[0].scores for length in lengths]
    own = (reference or results).find(OWN, TEXT, lengths[0])
    start = own[0].scores if own else losses[0]
    changes = [over_texts([a - b for a, b in zip(values, start, strict=True)]) for values in losses]
    return longest_passing(lengths, changes, MARGIN, "lower")
