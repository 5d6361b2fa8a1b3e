"""Disjunctions of few coordinates."""

from typing import Any

import torch

from lengthwise.tasks.functions.clauses import ClauseFunction
from lengthwise.tasks.functions.prompts import Functions, random_subset, require_at_most_dims


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

    def __init__(self, *, dims: int = 16, literals: int = 4, mismatched_balance: bool = False, noise: float = 0.0):
        self.literals = literals
        super().__init__(dims=dims, noise=noise, mismatched_balance=mismatched_balance)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        require_at_most_dims(cls.__name__, settings, "literals")
        return settings

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, 1, d]."""
        return (random_subset(generator, count, self.literals, self.dims, self.dims)[:, None],)
