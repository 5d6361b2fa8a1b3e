"""Halfspaces with integer weights."""

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.weights import WeightedFunction

LARGEST = 3


class IntegerHalfspace(WeightedFunction):
    """y = sign(w·x - 1/2), with each w_i uniform in -3 ... 3. `length` counts the examples. Of 3 examples in 5 dims, the function
    being w = (3, -2, 1, 0, -1):

        1 1 0 0 0 -> 1; 0 0 1 1 1 -> 0; 0 1 1 0 0 -> ?        target  0

    P(y = 1) is 0.475 at 16 dims and 0.478 at 20.

    Source: Bhattamishra et al. 2023 and its code.
    """

    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        return torch.randint(-LARGEST, LARGEST + 1, (count, self.dims), generator=generator).float()
