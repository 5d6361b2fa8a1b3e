"""What the questions of `duplicates` and `lost-in-the-middle` have in common."""

from dataclasses import dataclass

from lengthwise.probes.base import LENGTH, ModelQuestion, option
from lengthwise.probes.in_context import POINTS


@dataclass(frozen=True, kw_only=True)
class RepeatedExamplesQuestion(ModelQuestion):
    """Scores on prompts of `length` examples that are taken from `points` examples."""

    length: int = option(LENGTH, times_training=8, minimum=2)
    points: int = option(POINTS, times_training=1)
    resamples: int = option("Number of bootstrap resamples for intervals over prompts.", 100)
