"""Parities of few coordinates."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import BooleanFunction
from lengthwise.tasks.functions.parity import odd
from lengthwise.tasks.functions.prompts import Functions, random_subset, require_at_most_dims


class SparseParity(BooleanFunction):
    """The number of ones among `bits` coordinates is odd. `length` counts the examples. Of 3 examples in 5 dims, the function
    being the parity of x_2 and x_5:

        1 1 0 0 1 -> 0; 0 0 1 1 1 -> 1; 0 1 1 0 0 -> ?        target  1

    The coordinates are uniform without repetition. P(y = 1) = 1/2.

    Source: Bhattamishra et al. 2023 and its code.
    """

    def __init__(self, *, dims: int = 16, bits: int = 2, noise: float = 0.0):
        self.bits = bits
        super().__init__(dims=dims, noise=noise)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        require_at_most_dims(cls.__name__, settings, "bits")
        return settings

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        return (random_subset(generator, count, self.bits, self.dims, self.dims),)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return odd(w, xs)
