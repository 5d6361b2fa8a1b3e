"""What classes of real functions have in common: normal inputs, squared error."""

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.base import Batch
from lengthwise.tasks.functions.prompts import FunctionTask


class Regression(FunctionTask):
    """Real functions of x ~ N(0, I). Loss and score: the squared error of a prediction."""

    metric = "squared error"
    better = "lower"
    baselines = ("least squares", "averaging", "3 nearest neighbours", "zero")

    def draw(
        self, generator: torch.Generator, count: int, length: int, dims: int
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
        xs = torch.randn(count, length, self.dims, generator=generator)
        xs[:, :, dims:] = 0
        return xs, self.label(generator, xs, dims)

    @abstractmethod
    def label(self, generator: torch.Generator, xs: Float[Tensor, "b n d"], dims: int) -> Float[Tensor, "b n"]:
        """Draw a function for each prompt, and apply it."""

    def loss(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, ""]:
        """Mean squared error of all predictions."""
        return (self.predictions(logits).float() - self.examples_of(batch)[1]).square().mean()

    def worth(self, predicted: Float[Tensor, "b n"], ys: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        return (predicted - ys).square()
