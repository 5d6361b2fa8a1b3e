"""The base classes of functions of clauses (conjunction, disjunction and their normal forms), with balanced inputs."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import BooleanFunction, draw_rows, literals
from lengthwise.tasks.functions.prompts import Functions


@dataclass(kw_only=True, eq=False, repr=False)
class ClauseFunction(BooleanFunction):
    """Functions of one or more clauses of literals x_i and ¬x_i.

    A clause with literals w (w_i is +1 for x_i, -1 for ¬x_i and 0 for neither) and k = |w|_1 has the value

        conjunction  sign(w·x - (k - 1)),      the label is the maximum over several clauses (their disjunction)
        disjunction  sign(w·x + (k - 1)),      the label is the minimum over several clauses (their conjunction)

    Inputs are balanced: for each prompt one clause is drawn, and each input is changed with probability `share` so that all
    literals of this clause are true (conjunctions: the clause is +1) or all are false (disjunctions: it is -1).

    `mismatched_balance`: balance x for one function and label it with another new one, as in a public evaluation of position
    encodings. Then the balance fits the wrong function: only 7 % of the labels of conjunctions are +1 at 16 dims (35 % otherwise),
    and always predicting -1 is correct in 93 % of the cases. This setting exists only to explain such published numbers.

    Source: the code of Bhattamishra et al. 2023.
    """

    conjunctive: ClassVar[bool]  # clauses are conjunctions of literals
    clauses: ClassVar[int] = 1
    share: ClassVar[float] = 0.3

    mismatched_balance: bool = False

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions  # [b, clauses, d]
        sums, others = xs @ w.mT, (w.abs().sum(2) - 1)[:, None]
        return (sums - others).sign().amax(2) if self.conjunctive else (sums + others).sign().amin(2)

    def inputs_for(self, generator: torch.Generator, functions: Functions, length: int) -> Float[Tensor, "b n d"]:
        (w,) = functions
        xs = super().inputs_for(generator, functions, length)
        clause = torch.randint(self.clauses, (len(w),), generator=generator)
        target = w[torch.arange(len(w)), clause][:, None]
        if not self.conjunctive:
            target = -target
        changed = torch.rand(*xs.shape[:2], 1, generator=generator) < self.share
        return torch.where(changed & (target != 0), target, xs)

    def label_functions(self, generator: torch.Generator, functions: Functions) -> Functions:
        return self.functions(generator, len(functions[0]), self.dims) if self.mismatched_balance else functions


@dataclass(kw_only=True, eq=False, repr=False)
class RandomClauses(ClauseFunction):
    """Clauses in which each coordinate occurs with probability `literal_probability`, and then is negated with probability 1/2.

    `resample_empty`: draw clauses again that have no literal. The published code keeps them (False), which makes functions
    constant: with three clauses at 16 dims, 8 % of the functions have an empty one.
    """

    literal_probability: ClassVar[float]

    resample_empty: bool = True

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, clauses, d]."""

        def draw(rows: int) -> Float[Tensor, "b d"]:
            return literals(generator, rows, self.dims, self.literal_probability)

        w = draw_rows(draw, count * self.clauses, self.resample_empty)
        return (w.view(count, self.clauses, self.dims),)
