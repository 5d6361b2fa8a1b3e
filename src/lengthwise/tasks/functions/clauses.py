"""What functions of clauses have in common: conjunction, disjunction and their normal forms, with balanced inputs."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import BooleanFunction, literals, not_empty
from lengthwise.tasks.functions.prompts import Functions
from lengthwise.values import require_bool


class ClauseFunction(BooleanFunction):
    """One clause or several of literals x_i and ¬x_i.

    Of a clause with the literals w (w_i is +1 for x_i, -1 for ¬x_i and 0 for none) and k = |w|_1, the value is

        conjunction  sign(w·x - (k - 1)),      of several the largest is the label (their disjunction)
        disjunction  sign(w·x + (k - 1)),      of several the smallest is the label (their conjunction)

    Balanced inputs: of each prompt one clause is drawn, and each of its inputs is with probability `share` changed so that all
    literals of this clause are true (conjunctions: the clause is +1) or all false (disjunctions: it is -1).

    `mismatched_balance`: one function draws x, another one, drawn afresh, labels them, as in a public evaluation of position
    encodings. Then the balance fits the wrong function: of conjunctions only 7 % of the labels are +1 at 16 dims (35 %
    otherwise), and whoever always says -1 is right 93 % of the time. By name only, to explain such figures.

    Source: the program of Bhattamishra et al. 2023.
    """

    conjunctive: ClassVar[bool]  # clauses are conjunctions of literals
    clauses: ClassVar[int] = 1
    share: ClassVar[float] = 0.3

    def __init__(self, *, dims: int, noise: float, mismatched_balance: bool):
        self.mismatched_balance = mismatched_balance
        super().__init__(dims=dims, noise=noise)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        require_bool(cls.__name__, mismatched_balance=settings["mismatched_balance"])
        return settings

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions  # [b, clauses, d]
        sums, others = xs @ w.mT, (w.abs().sum(2) - 1)[:, None]
        return (sums - others).sign().amax(2) if self.conjunctive else (sums + others).sign().amin(2)

    def inputs_for(self, generator: torch.Generator, functions: Functions, length: int) -> Float[Tensor, "b n d"]:
        (w,) = functions
        xs = super().inputs_for(generator, functions, length)
        which = torch.randint(self.clauses, (len(w),), generator=generator)
        forced = w[torch.arange(len(w)), which][:, None]
        if not self.conjunctive:
            forced = -forced
        changed = torch.rand(*xs.shape[:2], 1, generator=generator) < self.share
        return torch.where(changed & (forced != 0), forced, xs)

    def labelling(self, generator: torch.Generator, functions: Functions) -> Functions:
        return self.functions(generator, len(functions[0]), self.dims) if self.mismatched_balance else functions


class RandomClauses(ClauseFunction):
    """Clauses in which each coordinate occurs with probability `chance`, half of the time negated.

    `resample_empty`: clauses without any literal are drawn anew. The published programs keep them (False), and their functions
    are constant: of three clauses at 16 dims, one is empty in 8 % of the functions.
    """

    chance: ClassVar[float]

    def __init__(
        self, *, dims: int = 16, resample_empty: bool = True, mismatched_balance: bool = False, noise: float = 0.0
    ):
        self.resample_empty = resample_empty
        super().__init__(dims=dims, noise=noise, mismatched_balance=mismatched_balance)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        require_bool(cls.__name__, resample_empty=settings["resample_empty"])
        return settings

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """w [b, clauses, d]."""
        w = not_empty(
            lambda rows: literals(generator, rows, self.dims, self.chance), count * self.clauses, self.resample_empty
        )
        return (w.view(count, self.clauses, self.dims),)
