"""LEGO: follow a chain of variables, each said to be the one before it or its opposite."""

import string
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.pairs import Draft, Pairs
from lengthwise.tasks.scratchpad import COMPONENTS, ScratchpadTask, Step
from lengthwise.tasks.sequences import combinations

VARIABLES = string.ascii_lowercase
LOW, HIGH, OPPOSITE, SAME, ASKED = "-1", "+1", "-", "+", "?"


class LEGO(ScratchpadTask):
    """Say the value of a variable in a chain. `length` counts the variables: 2 to 26, for their names are letters.

    Length 3, a = −1, b = −a, c = +b, what is c? The scored targets are underlined (the value and EOS):

        inputs   BOS a  -1 b  -  a  c  +  b  ?  c  SEP +1
        targets  a   -1 b  -  a  c  +  b  ?  c  SEP +1 EOS
                                                    ‾‾‾‾‾‾

    The names are a random selection in random order, the values +1 and −1 uniform and independent. What is asked is uniform
    over the later half of the chain: of n variables, counted from 0, those from ceil(n / 2) to n − 1.

    With a scratchpad (`ScratchpadTask`), a step for each variable up to the one that is asked; it has no variables of its own:

        in a comp out -1 re b - a c + b # in b comp - a = - -1 out +1 re c + b # in c comp + b = + +1 out +1 re thus +1

    The score is exact match; chance is 1/2. Train and test share no question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1, after Zhang et al. 2022, "Unveiling Transformers with LEGO".
    Differs: of a chain one variable is asked, drawn for each; the published sets ask each of the later half, in one example each.
    """

    unit = "variables"

    components = tuple(name for name in COMPONENTS if name != "variables")
    step_words = ("=",)

    def __init__(self, *, scratchpad: str = "none"):
        super().__init__([*VARIABLES, LOW, HIGH, OPPOSITE, SAME, ASKED], scratchpad)

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        if length < 2:
            raise ConfigError("LEGO has no chain of 1 variable: there is nothing to follow; it takes at least 2")
        if length > len(VARIABLES):
            raise ConfigError(
                f"LEGO has no chain of {length} variables: their names are the {len(VARIABLES)} letters; "
                f"take lengths up to {len(VARIABLES)}"
            )

    def draw(self, generator: torch.Generator, count: int, length: int) -> Draft:
        order = torch.rand((count, len(VARIABLES)), generator=generator, dtype=torch.float64).argsort(
            dim=1, stable=True
        )
        positive = torch.randint(2, (count, length), generator=generator)
        asked = torch.randint(-(-length // 2), length, (count, 1), generator=generator)
        return Draft((order[:, :length], positive, asked), self._question, self._answer)

    def every(self, length: int) -> Pairs | None:
        if length != 2:
            return None  # more than a hundred thousand
        chosen = combinations([len(VARIABLES)] * 2 + [2, 2])
        chosen = chosen if chosen is None else chosen[chosen[:, 0] != chosen[:, 1]]
        if chosen is None:
            return None
        rows = chosen[:, :2], chosen[:, 2:], torch.ones(len(chosen), 1).long()
        return Draft(rows, self._question, self._answer).write()

    def widths(self, length: int) -> tuple[int, int]:
        return 3 * length + 1, 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(self.chain(question)[0])

    def chain(self, question: Sequence[str]) -> tuple[list[tuple[str, str, str]], str]:
        """The clauses (variable, sign, what it is the same as or the opposite of: "1" in the first), and what is asked."""
        clauses = [(question[0], question[1][0], question[1][1:])]
        for n in range(2, len(question) - 2, 3):
            variable, sign, other = question[n : n + 3]
            clauses.append((variable, sign, other))
        return clauses, question[-1]

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        (first, *others), asked = self.chain(question)
        clauses = [f"{first[0]} = {first[1]}{first[2]}", *(f"{name} = {sign} {of}" for name, sign, of in others)]
        return f"If {', '.join(clauses)}. Then, what is the value of {asked}? ", f"The answer is {' '.join(answer)}."

    def published_in_paper(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        clauses, asked = self.chain(question)
        chain = "; ".join(f"{name} = {sign}{of}" for name, sign, of in clauses)
        return f"If {chain}. Then what is {asked}?", f"The answer is {' '.join(answer)}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        return [
            Step((name,), reckoned, (value,), (), tuple(word for clause in rest for word in clause))
            for name, reckoned, value, rest in self._followed(question)
        ]

    def published_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        return [
            {
                "input": name,
                "computation": " ".join(reckoned),
                "output": value,
                "remaining": ", ".join(f"{name} = {sign} {of}" for name, sign, of in rest),
            }
            for name, reckoned, value, rest in self._followed(question)
        ]

    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        rest = 3 * length * (length - 1) // 2
        return length, {"input": length, "computation": 5 * (length - 1), "output": length, "remaining": rest}

    def _followed(self, question: Sequence[str]) -> list[tuple[str, tuple[str, ...], str, list[tuple[str, str, str]]]]:
        """Up to the variable that is asked: its name, how its value comes about, the value, and the clauses that remain."""
        clauses, asked = self.chain(question)
        found, value = [], ""
        for n, (name, sign, of) in enumerate(clauses):
            reckoned: tuple[str, ...] = (sign, of, "=", sign, value) if n else ()
            value = (HIGH if (sign == SAME) == (value == HIGH) else LOW) if n else sign + of
            found.append((name, reckoned, value, clauses[n + 1 :]))
            if name == asked:
                break
        return found

    def _question(
        self, names: Int[Tensor, "b n"], positive: Int[Tensor, "b n"], asked: Int[Tensor, "b one"]
    ) -> Int[Tensor, "b w"]:
        """The chains with these names and values (1 or 0), where the variable at the place `asked` is asked for."""
        opposite, same, mark = self.ids([OPPOSITE, SAME, ASKED])
        signs = torch.where(positive[:, 1:] == positive[:, :-1], same, opposite)
        clauses = torch.stack([names[:, 1:], signs, names[:, :-1]], 2).flatten(1)
        question = [names[:, :1], self._values(positive[:, :1]), clauses]
        return torch.cat([*question, torch.full((len(names), 1), mark), names.gather(1, asked)], 1)

    def _answer(self, names: Int[Tensor, "b n"], positive: Int[Tensor, "b n"], asked: Int[Tensor, "b one"]) -> Tensor:
        return self._values(positive.gather(1, asked))

    def _values(self, positive: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        low, high = self.ids([LOW, HIGH])
        return torch.where(positive == 1, high, low)
