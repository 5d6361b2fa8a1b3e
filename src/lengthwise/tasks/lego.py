"""LEGO: follow a chain of variables, each equal to the one before it or its opposite."""

import itertools
import string
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.scratchpad import COMPONENTS, ScratchpadTask, Step

VARIABLES = string.ascii_lowercase
LOW, HIGH, OPPOSITE, SAME, QUERY = "-1", "+1", "-", "+", "?"


class LEGO(ScratchpadTask):
    """Find the value of a variable in a chain. `length` counts the variables: 2 to 26, because their names are letters.

    Length 3, a = −1, b = −a, c = +b, what is c? The scored targets are underlined (the value and EOS):

        inputs   BOS a  -1 b  -  a  c  +  b  ?  c  SEP +1
        targets  a   -1 b  -  a  c  +  b  ?  c  SEP +1 EOS
                                                    ‾‾‾‾‾‾

    The names are a random selection in random order; the values +1 and −1 are uniform and independent. The queried
    variable is uniform over the second half of the chain: of n variables, counted from 0, those from ceil(n / 2) to n −
    1.

    With a scratchpad (`ScratchpadTask`) there is a step for each variable up to the queried one. The steps have no
    component
    `variables`:

        in a comp out -1 re b - a c + b # in b comp - a = - -1 out +1 re c + b # in c comp + b = + +1 out +1 re thus +1

    The score is exact match; chance is 1/2. Train and test share no question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1, after Zhang et al. 2022, "Unveiling Transformers with
    LEGO".
    Differs: each chain has one random query; the published sets query each variable of the second half, in one example
    each.
    """

    unit = "variables"

    components = tuple(name for name in COMPONENTS if name != "variables")
    step_words = ("=",)

    def __init__(self, *, scratchpad: str = "none"):
        super().__init__([*VARIABLES, LOW, HIGH, OPPOSITE, SAME, QUERY], scratchpad)

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        if length < 2:
            raise ConfigError("length must be at least 2 variables for LEGO, got 1: a single variable is no chain")
        if length > len(VARIABLES):
            raise ConfigError(
                f"length must be at most {len(VARIABLES)} variables for LEGO, whose names are letters, got {length}"
            )

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        order = torch.rand((count, len(VARIABLES)), generator=generator, dtype=torch.float64).argsort(
            dim=1, stable=True
        )
        positive = torch.randint(2, (count, length), generator=generator)
        query = torch.randint(-(-length // 2), length, (count, 1), generator=generator)
        return self._make_pairs(order[:, :length], positive, query)

    def all_examples(self, length: int) -> Pairs | None:
        if length != 2:
            return None  # there are more than a hundred thousand
        letters = range(len(VARIABLES))
        names = torch.tensor(list(itertools.permutations(letters, 2))).repeat_interleave(4, 0)
        positive = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).repeat(len(names) // 4, 1)
        return self._make_pairs(names, positive, torch.ones_like(names[:, :1]))

    def widths(self, length: int) -> tuple[int, int]:
        return 3 * length + 1, 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(self.chain(question)[0])

    def chain(self, question: Sequence[str]) -> tuple[list[tuple[str, str, str]], str]:
        """Return the clauses (variable, sign, previous variable, or "1" in the first), and the queried one."""
        clauses = [(question[0], question[1][0], question[1][1:])]
        for n in range(2, len(question) - 2, 3):
            variable, sign, previous = question[n : n + 3]
            clauses.append((variable, sign, previous))
        return clauses, question[-1]

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        (first, *others), query = self.chain(question)
        clauses = [
            f"{first[0]} = {first[1]}{first[2]}",
            *(f"{name} = {sign} {previous}" for name, sign, previous in others),
        ]
        return f"If {', '.join(clauses)}. Then, what is the value of {query}? ", f"The answer is {' '.join(answer)}."

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        clauses, query = self.chain(question)
        chain = "; ".join(f"{name} = {sign}{previous}" for name, sign, previous in clauses)
        return f"If {chain}. Then what is {query}?", f"The answer is {' '.join(answer)}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        return [
            Step((name,), computation, (value,), (), tuple(word for clause in rest for word in clause))
            for name, computation, value, rest in self._solve(question)
        ]

    def repository_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        return [
            {
                "input": name,
                "computation": " ".join(computation),
                "output": value,
                "remaining": ", ".join(f"{name} = {sign} {previous}" for name, sign, previous in rest),
            }
            for name, computation, value, rest in self._solve(question)
        ]

    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        rest = 3 * length * (length - 1) // 2
        return length, {"input": length, "computation": 5 * (length - 1), "output": length, "remaining": rest}

    def _solve(self, question: Sequence[str]) -> list[tuple[str, tuple[str, ...], str, list[tuple[str, str, str]]]]:
        """Return for each variable up to the queried one: its name, computation, value, and the remaining clauses."""
        clauses, query = self.chain(question)
        steps, value = [], ""
        for n, (name, sign, previous) in enumerate(clauses):
            computation: tuple[str, ...] = (sign, previous, "=", sign, value) if n else ()
            value = (HIGH if (sign == SAME) == (value == HIGH) else LOW) if n else sign + previous
            steps.append((name, computation, value, clauses[n + 1 :]))
            if name == query:
                break
        return steps

    def _make_pairs(
        self, names: Int[Tensor, "b n"], positive: Int[Tensor, "b n"], query: Int[Tensor, "b one"]
    ) -> Pairs:
        """Return the chains with these names and values (1: +1, 0: −1) that query the variable with index `query`."""
        opposite, same, mark = self.ids([OPPOSITE, SAME, QUERY])
        signs = torch.where(positive[:, 1:] == positive[:, :-1], same, opposite)
        clauses = torch.stack([names[:, 1:], signs, names[:, :-1]], 2).flatten(1)
        first = [names[:, :1], self._values(positive[:, :1])]
        asked = [torch.full((len(names), 1), mark), names.gather(1, query)]
        return Pairs(torch.cat([*first, clauses, *asked], 1), self._values(positive.gather(1, query)))

    def _values(self, positive: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        low, high = self.ids([LOW, HIGH])
        return torch.where(positive == 1, high, low)
