"""Majorities."""

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import ONE_NEIGHBOUR, literals
from lengthwise.tasks.functions.weights import WeightedFunction


class SparseMajority(WeightedFunction):
    """More than half of a random set of coordinates are true; a tie is false. `length` counts the examples. Of 3 examples in 5
    dims, the function being the majority of x_1, x_2 and x_4:

        1 1 0 0 0 -> 1; 0 0 1 1 1 -> 0; 0 1 1 0 0 -> ?        target  0

    y = sign(w·x - 1/2); each coordinate is in the set with probability 0.3, and none is negated. The majority of an empty set
    (0.33 % of the published functions at 16 dims) is never true, see `WeightedFunction`. P(y = 1) is 0.410 at 16 dims and 0.419
    at 20 (0.409 and 0.418 with empty sets).

    Source: Bhattamishra et al. 2023 and its code. Differs: the thesis on position encodings shows a majority with a negated
    coordinate; its code has none.
    """

    baseline_names = ONE_NEIGHBOUR

    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        return literals(generator, count, self.dims, 0.3, negated=False)
