"""Thresholds of literals."""

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import literals
from lengthwise.tasks.functions.prompts import Functions
from lengthwise.tasks.functions.weights import WeightedFunction


class Threshold(WeightedFunction):
    """0-1 threshold: y = sign(w·x - b), where each w_i is 0, +1 or -1. `length` counts the examples. Of 3 examples in 5 dims, the
    function being w = (1, 0, -1, 0, 1), b = 1/2:

        1 1 0 0 0 -> 1; 1 0 1 1 0 -> 0; 0 1 1 0 0 -> ?        target  0

    Each w_i is 0 with probability 0.7, and +1 or -1 with probability 0.15 each; b is uniform over -5/2, -3/2, -1/2, 1/2, 3/2, 5/2.
    Functions with w = 0 are constant, see `WeightedFunction`. A few others, with |w|_1 less than |b|, are constant too and are
    never drawn again. P(y = 1) = 1/2.

    Source: Bhattamishra et al. 2023 and its code. Differs: the thesis on position encodings says that b is one of -3 ... 3;
    its code draws half-integers.
    """

    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        return literals(generator, count, self.dims, 0.3)

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d] and b [b]."""
        return *super().functions(generator, count, dims), torch.randint(-3, 3, (count,), generator=generator) + 0.5

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        w, b = functions
        return ((xs @ w[..., None])[..., 0] - b[:, None]).sign()
