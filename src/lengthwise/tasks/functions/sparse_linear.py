"""Linear regression with few nonzero weights."""

from dataclasses import dataclass

import torch

from lengthwise.tasks.functions.linear import LinearRegression
from lengthwise.tasks.functions.prompts import LINEAR_BASELINES, Functions, random_subset


@dataclass(kw_only=True, eq=False, repr=False)
class SparseLinearRegression(LinearRegression):
    """y = w·x, w ~ N(0, I) at `nonzero` random coordinates, 0 at the others. `length` counts the examples. Of 3 examples in 3
    dims, the function being w = (0, -2, 0):

        (1.00, 1.00, 0.00) -> -2.00; (0.00, 0.00, 1.00) -> 0.00; (1.00, 0.50, 0.00) -> ?        target  -1.00

    While a curriculum has only some coordinates open, the nonzero weights are chosen among them (all, while fewer than
    `nonzero` are open). `Regression` describes noise and other inputs.

    Source: Garg et al. 2022, section 4.
    Differs: during a curriculum, the code of the study of position encodings chooses among all coordinates, so most of its first
    labels are 0.
    """

    baseline_names = (*LINEAR_BASELINES, "3 nearest neighbours", "lasso", "mean label", "zero")
    at_most_dims = ("nonzero",)

    nonzero: int = 3

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        (w,) = super().functions(generator, count, dims)
        return (w * random_subset(generator, count, min(self.nonzero, dims), dims, self.dims),)
