"""Parities of random coordinates."""

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import literals
from lengthwise.tasks.functions.prompts import Functions
from lengthwise.tasks.functions.weights import WeightedFunction


def odd(w: Float[Tensor, "b d"], xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
    """Return +1 if the number of +1 among the coordinates of w is odd, else -1."""
    ones = ((xs > 0).float() @ w[..., None])[..., 0]
    return 2 * (ones % 2) - 1


class ParityFunction(WeightedFunction):
    """The number of ones among a random set of coordinates is odd. `length` counts the examples. Of 3 examples in 5 dims, the
    function being the parity of x_1, x_2 and x_3:

        1 1 0 0 0 -> 0; 0 0 1 1 1 -> 1; 0 1 1 0 0 -> ?        target  0

    Every set of coordinates is equally likely: each coordinate is in it with probability 1/2. P(y = 1) = 1/2, but 0 for the
    empty set (see `WeightedFunction`). Not to be confused with `Parity`, the parity of the bits of one sequence.

    Source: Bhattamishra et al. 2023 and its code.
    """

    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        return literals(generator, count, self.dims, 0.5, negated=False)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return odd(w, xs)
