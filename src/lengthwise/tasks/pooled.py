"""The interface of tasks with one score for all examples together."""

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.base import Batch, Task


class PooledTask(Task):
    """A task whose score belongs to all examples of an evaluation together, such as an F1, and is no mean over
    examples.
    """

    @abstractmethod
    def counts(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b k"]:
        """Return the numbers of each example that the score is computed from, float64."""

    @abstractmethod
    def pooled(self, counts: Float[Tensor, "b k"]) -> tuple[Float[Tensor, " b"], dict[str, float]]:
        """Return a number for each example, whose mean is the score, and further scores by name.

        The numbers are those of `ratio_of_sums`, so they may lie beyond the limits of the metric.
        """

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        """Return numbers whose mean is the score of this batch alone."""
        return self.pooled(self.counts(logits, batch))[0]


def ratio_of_sums(numerators: Float[Tensor, " b"], denominators: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """Return numbers whose mean is Σ numerators / Σ denominators, or 0 if all denominators are 0.

    Each is the ratio plus the first-order influence of its example, so the standard error of their mean is that of the
    ratio by the delta method.
    """
    mean = denominators.mean()
    if mean == 0:
        return torch.zeros_like(numerators)
    ratio = numerators.sum() / denominators.sum()
    return ratio + (numerators - ratio * denominators) / mean
