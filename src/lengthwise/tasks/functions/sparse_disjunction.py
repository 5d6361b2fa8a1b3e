"""Disjunctions of few coordinates."""

from dataclasses import dataclass

import torch

from lengthwise.tasks.functions.clauses import ClauseFunction
from lengthwise.tasks.functions.prompts import Functions, random_subset


@dataclass(kw_only=True, eq=False, repr=False)
class SparseDisjunction(ClauseFunction):
    """At least one of `literals` coordinates is true; none is negated. `length` counts the examples. Of 3 examples in 5 dims, the
    function being x_4 ∨ x_5:

        0 0 0 1 0 -> 1; 1 1 1 0 1 -> 1; 0 1 1 0 0 -> ?        target  0

    The coordinates are uniform without repetition. 30 % of the inputs are changed so that the function is false, see
    `ClauseFunction`. P(y = 1) = 0.7 (1 - 2^-literals), which is 0.656 for 4 literals.

    Source: Bhattamishra et al. 2023 and its code. Differs: the thesis on position encodings says 3 literals; its code
    has 4.
    """

    conjunctive = False

    at_most_dims = ("literals",)

    literals: int = 4

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, 1, d]."""
        return (random_subset(generator, count, self.literals, self.dims, self.dims)[:, None],)
