"""Conjunctions."""

from lengthwise.tasks.functions.boolean import ONE_NEIGHBOUR
from lengthwise.tasks.functions.clauses import RandomClauses


class Conjunction(RandomClauses):
    """All literals of a random set are true. `length` counts the examples. Of 3 examples in 5 dims, the function being
    x_2 ∧ x_3 ∧ ¬x_4:

        1 1 0 0 0 -> 0; 0 1 1 1 0 -> 0; 0 1 1 0 0 -> ?        target  1

    Each coordinate occurs with probability 0.3, half of the time negated. 30 % of the inputs are changed so that the function is
    true, see `ClauseFunction`. An empty conjunction (0.33 % of the published ones at 16 dims) is always true, see `RandomClauses`.
    P(y = 1) is 0.352 at 16 dims and 0.327 at 20 with empty ones; 0.350 and 0.327 without.

    Source: Bhattamishra et al. 2023, section 2 and its code.
    """

    baseline_names = ONE_NEIGHBOUR
    conjunctive = True
    literal_probability = 0.3
