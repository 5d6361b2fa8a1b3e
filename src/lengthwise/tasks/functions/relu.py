"""Two-layer ReLU networks."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.prompts import MAX_WIDTH, Functions
from lengthwise.tasks.functions.regression import Regression


@dataclass(kw_only=True, eq=False, repr=False)
class ReLUNetwork(Regression):
    """y = √(2 / r) Σ_j a_j max(0, w_j·x), a network with r = `width` hidden units whose w and a are drawn from N(0, 1). `length`
    counts the examples. Of 3 examples in 2 dims, the network being r = 2, w = (1, 0), (1, -1), a = (1, 2):

        (1.00, 0.00) -> 3.00; (0.00, 1.00) -> 0.00; (2.00, 1.00) -> ?        target  4.00

    Labels have the variance of linear regression. `Regression` describes noise and other inputs.

    Source: Garg et al. 2022, section 5.
    """

    largest: ClassVar = {"width": MAX_WIDTH}
    version: ClassVar[int] = 2

    width: int = 100

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, r, d] and a [b, r]."""
        w = torch.randn(count, self.width, self.dims, generator=generator)
        return w, torch.randn(count, self.width, generator=generator)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        w, a = (part.double() for part in functions)  # in float32, processors differ in the last digits of these sums
        sums = (xs.double() @ w.mT).relu() @ a[..., None]
        return (math.sqrt(2 / a.shape[1]) * sums[..., 0]).to(xs.dtype)
