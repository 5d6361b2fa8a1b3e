"""Disjunctions."""

from lengthwise.tasks.functions.boolean import ONE_NEIGHBOUR
from lengthwise.tasks.functions.clauses import RandomClauses


class Disjunction(RandomClauses):
    """At least one literal of a random set is true. `length` counts the examples. Of 3 examples in 5 dims, the function being
    x_1 ∨ ¬x_2 ∨ x_4:

        1 1 0 0 0 -> 1; 0 0 1 0 0 -> 1; 0 1 1 0 0 -> ?        target  0

    Each coordinate occurs with probability 0.3, half of the time negated. 30 % of the inputs are changed so that the function is
    false, see `ClauseFunction`. An empty disjunction (0.33 % of the published ones at 16 dims) is never true, see `RandomClauses`.
    P(y = 1) is 0.648 at 16 dims and 0.673 at 20 with empty ones; 0.650 and 0.673 without.

    Source: Bhattamishra et al. 2023, section 2 and its code.
    """

    baseline_names = ONE_NEIGHBOUR
    conjunctive = False
    literal_probability = 0.3
