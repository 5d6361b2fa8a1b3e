"""Polynomial: evaluate a sum of terms, modulo 10."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.numbers import split
from lengthwise.tasks.pairs import NOTHING, Draft, Pairs
from lengthwise.tasks.scratchpad import ScratchpadTask, Step
from lengthwise.tasks.sequences import DIGITS, combinations

DEGREES = 4  # 0 ... 3
LARGEST = 3  # coefficients -3 ... 3
FURTHEST = 2  # x in -2 ... 2
MINUS, PLUS, TIMES, AT = "-", "+", "x", ":"


class Polynomial(ScratchpadTask):
    """Evaluate a polynomial modulo 10. `length` counts its terms.

    Length 3, −2x² + 3x⁰ + 1x³ at x = −2, the scored targets underlined (the value modulo 10, and EOS):

        inputs   BOS -  2  :  -  2  x  2  +  3  x  0  +  1  x  3  SEP 7
        targets  -   2  :  -  2  x  2  +  3  x  0  +  1  x  3  SEP 7  EOS
                                                                   ‾‾‾‾‾‾

    With a scratchpad (`ScratchpadTask`), a step for each term, the sum modulo 10 so far in brackets:

        in - 2 x 2 comp - 2 * - 2 ** 2 = - 2 * 4 out - 8 [ 2 ] re 3 x 0 + 1 x 3 # in 3 x 0 comp ...

    Of each term the coefficient is uniform over −3 ... 3 and the degree over 0 ... 3, in any order and repeatedly; x is uniform
    over −2 ... 2. x⁰ is 1, of 0 too. The answer is the value modulo 10, from 0 to 9 (of −13 it is 7).

    The score is exact match. Train and test share no question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1. Its example has no negative number; ours are written with a sign.
    """

    unit = "terms"

    step_words = ("*", "**", "=")

    def __init__(self, *, scratchpad: str = "none"):
        super().__init__([*DIGITS, MINUS, PLUS, TIMES, AT], scratchpad)
        self.digit_tokens = tuple(self.ids(DIGITS))

    def draw(self, generator: torch.Generator, count: int, length: int) -> Draft:
        at = torch.randint(-FURTHEST, FURTHEST + 1, (count, 1), generator=generator)
        coefficients = torch.randint(-LARGEST, LARGEST + 1, (count, length), generator=generator)
        degrees = torch.randint(DEGREES, (count, length), generator=generator)
        return Draft((at, coefficients, degrees), self._question, _value)

    def every(self, length: int) -> Pairs | None:
        chosen = combinations([2 * FURTHEST + 1] + [2 * LARGEST + 1] * length + [DEGREES] * length)
        if chosen is None:
            return None
        at, coefficients, degrees = chosen.split([1, length, length], 1)
        return Draft((at - FURTHEST, coefficients - LARGEST, degrees), self._question, _value).write()

    def widths(self, length: int) -> tuple[int, int]:
        return 3 + 5 * length - 1, 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(self.terms(question)[1])

    def terms(self, question: Sequence[str]) -> tuple[int, list[tuple[int, int]]]:
        """x, and coefficient and degree of each term."""
        at, whole = split(question, AT)
        terms = [split(term, TIMES) for term in split(whole, PLUS)]
        return int("".join(at)), [(int("".join(coefficient)), int(degree)) for coefficient, (degree,) in terms]

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        at, terms = self.terms(question)
        return f"Evaluate at x = {_spaced(at)} in {_joined(terms, '* x **')} ? ", f"The answer is {' '.join(answer)}."

    def published_in_paper(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        at, terms = self.terms(question)
        whole = " + ".join(f"{coefficient} x ** {degree}" for coefficient, degree in terms)
        return f"Evaluate x = {at} in ({whole}) % 10 ?", f"The answer is {' '.join(answer)}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        at, terms = self.terms(question)
        found, so_far = [], 0
        for n, (coefficient, degree) in enumerate(terms):
            value = coefficient * at**degree
            so_far = (so_far + value) % 10
            reckoned = (
                f"{_spaced(coefficient)} * {_spaced(at)} ** {degree} = {_spaced(coefficient)} * {_spaced(at**degree)}"
            )
            parts = (_joined([terms[n]], "x"), reckoned, _spaced(value), f"{so_far}", _joined(terms[n + 1 :], "x"))
            found.append(Step(*(tuple(part.split()) for part in parts)))
        return found

    def published_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        _, terms = self.terms(question)
        found, so_far = [], "0"
        for n, step in enumerate(self.steps(question)):
            output = " ".join(step.output)
            found.append(
                {
                    "input": _joined([terms[n]], "* x **"),
                    "computation": " ".join(step.computation),
                    "output": output,
                    "variables": f"sum: {so_far} + {output} = {step.variables[0]}",
                    "remaining": _joined(terms[n + 1 :], "* x **"),
                }
            )
            so_far = step.variables[0]
        return found

    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        each = {"input": 4 * length, "computation": 13 * length, "output": 3 * length, "variables": length}
        return length, {**each, "remaining": (length - 1) * (5 * length - 2) // 2}

    def _question(
        self, at: Int[Tensor, "b one"], coefficients: Int[Tensor, "b n"], degrees: Int[Tensor, "b n"]
    ) -> Int[Tensor, "b w"]:
        minus, plus, times, colon = self.ids([MINUS, PLUS, TIMES, AT])

        def signed(values: Tensor) -> list[Tensor]:
            return [torch.where(values < 0, minus, NOTHING), values.abs()]

        first = torch.cat([*signed(at), torch.full_like(at, colon)], 1)
        marks = [torch.full_like(degrees, mark) for mark in (times, plus)]
        terms = torch.stack([*signed(coefficients), marks[0], degrees, marks[1]], 2).flatten(1)[:, :-1]
        return torch.cat([first, terms], 1)


def _value(at: Int[Tensor, "b one"], coefficients: Int[Tensor, "b n"], degrees: Int[Tensor, "b n"]) -> Tensor:
    return (coefficients * at**degrees).sum(1, keepdim=True) % 10


def _spaced(number: int) -> str:
    """The text of a number, its digits and a minus apart."""
    return " ".join(str(number))


def _joined(terms: Sequence[tuple[int, int]], power: str) -> str:
    """The text of a sum of terms: `- 2 * x ** 2 + 3 * x ** 0` with the power `* x **`."""
    return " + ".join(f"{_spaced(coefficient)} {power} {degree}" for coefficient, degree in terms)
