"""Parities of few coordinates."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import BooleanFunction
from lengthwise.tasks.functions.parity import odd
from lengthwise.tasks.functions.prompts import Functions, random_subset


@dataclass(kw_only=True, eq=False, repr=False)
class SparseParity(BooleanFunction):
    """The number of ones among `bits` coordinates is odd. `length` counts the examples. Of 3 examples in 5 dims, the function
    being the parity of x_2 and x_5:

        1 1 0 0 1 -> 0; 0 0 1 1 1 -> 1; 0 1 1 0 0 -> ?        target  1

    The coordinates are uniform without repetition. P(y = 1) = 1/2.

    Source: Bhattamishra et al. 2023 and its code.
    """

    at_most_dims = ("bits",)

    bits: int = 2

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        return (random_subset(generator, count, self.bits, self.dims, self.dims),)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return odd(w, xs)
