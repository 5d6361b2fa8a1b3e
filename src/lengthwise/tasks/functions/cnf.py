"""Conjunctive normal forms."""

from lengthwise.tasks.functions.clauses import RandomClauses


class CNF(RandomClauses):
    """All of three disjunctions are true. `length` counts the examples. Of 3 examples in 5 dims, the function being
    (x_2 ∨ x_3) ∧ (¬x_1 ∨ x_4) ∧ x_5:

        0 0 1 0 1 -> 1; 1 1 1 0 1 -> 0; 0 1 1 0 0 -> ?        target  0

    In each clause a coordinate occurs with probability 0.2, half of the time negated. For each prompt one clause is drawn, and
    30 % of the inputs are changed so that it is false, see `ClauseFunction`. An empty clause makes the function false everywhere;
    8.2 % of the published functions have one at 16 dims and 3.4 % at 20, see `RandomClauses`. P(y = 1) is 0.379 at 16 dims and
    0.474 at 20 with them; 0.412 and 0.491 without.

    Source: Bhattamishra et al. 2023 and its code.
    """

    conjunctive = False
    literal_probability = 0.2
    clauses = 3
