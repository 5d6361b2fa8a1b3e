"""Disjunctive normal forms."""

from lengthwise.tasks.functions.clauses import RandomClauses


class DNF(RandomClauses):
    """At least one of three conjunctions is true. `length` counts the examples. Of 3 examples in 5 dims, the function being
    (x_2 ∧ x_3) ∨ (¬x_1 ∧ x_4) ∨ x_5:

        1 1 0 1 0 -> 0; 0 0 1 1 0 -> 1; 0 1 1 0 0 -> ?        target  1

    In each clause a coordinate occurs with probability 0.2, half of the time negated. For each prompt one clause is drawn, and
    35 % of the inputs are changed so that it is true, see `ClauseFunction`. An empty clause makes the function true everywhere;
    8.2 % of the published functions have one at 16 dims and 3.4 % at 20, see `RandomClauses`. P(y = 1) is 0.649 at 16 dims and
    0.559 at 20 with them; 0.617 and 0.544 without.

    Source: Bhattamishra et al. 2023, section 2 and its code.
    """

    conjunctive = True
    literal_probability = 0.2
    clauses = 3
    share = 0.35
