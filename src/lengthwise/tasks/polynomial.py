"""Polynomial: evaluate a sum of terms, modulo 10."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.pairs import NO_WORD, Pairs, split
from lengthwise.tasks.scratchpad import ScratchpadTask, Step
from lengthwise.tasks.sequences import DIGITS, combinations

DEGREES = 4  # 0 ... 3
LARGEST = 3  # coefficients -3 ... 3
LARGEST_X = 2  # x in -2 ... 2
MINUS, PLUS, TIMES, COLON = "-", "+", "x", ":"


class Polynomial(ScratchpadTask):
    """Evaluate a polynomial modulo 10. `length` counts its terms.

    Length 3, −2x² + 3x⁰ + 1x³ at x = −2, the scored targets underlined (the value modulo 10, and EOS):

        inputs   BOS -  2  :  -  2  x  2  +  3  x  0  +  1  x  3  SEP 7
        targets  -   2  :  -  2  x  2  +  3  x  0  +  1  x  3  SEP 7  EOS
                                                                   ‾‾‾‾‾‾

    With a scratchpad (`ScratchpadTask`) there is a step for each term, with the sum so far, modulo 10, in brackets:

        in - 2 x 2 comp - 2 * - 2 ** 2 = - 2 * 4 out - 8 [ 2 ] re 3 x 0 + 1 x 3 # in 3 x 0 comp ...

    The coefficient of each term is uniform over −3 ... 3 and its degree over 0 ... 3, so terms come in any order and
    may repeat; x is uniform over −2 ... 2. 0⁰ is 1. The answer is the value modulo 10, from 0 to 9 (7 for −13).

    The score is exact match. Train and test share no question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1. Its example has no negative number; here they are
    written with a sign.
    """

    unit = "terms"

    step_words = ("*", "**", "=")

    def __init__(self, *, scratchpad: str = "none"):
        super().__init__([*DIGITS, MINUS, PLUS, TIMES, COLON], scratchpad)
        self.digit_tokens = tuple(self.ids(DIGITS))

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        x = torch.randint(-LARGEST_X, LARGEST_X + 1, (count, 1), generator=generator)
        coefficients = torch.randint(-LARGEST, LARGEST + 1, (count, length), generator=generator)
        degrees = torch.randint(DEGREES, (count, length), generator=generator)
        return self._make_pairs(x, coefficients, degrees)

    def all_examples(self, length: int) -> Pairs | None:
        choices = combinations([2 * LARGEST_X + 1] + [2 * LARGEST + 1] * length + [DEGREES] * length)
        if choices is None:
            return None
        x, coefficients, degrees = choices.split([1, length, length], 1)
        return self._make_pairs(x - LARGEST_X, coefficients - LARGEST, degrees)

    def widths(self, length: int) -> tuple[int, int]:
        return 3 + 5 * length - 1, 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(self.terms(question)[1])

    def terms(self, question: Sequence[str]) -> tuple[int, list[tuple[int, int]]]:
        """Return x, and the coefficient and degree of each term."""
        x, polynomial = split(question, COLON)
        terms = [split(term, TIMES) for term in split(polynomial, PLUS)]
        return int("".join(x)), [(int("".join(coefficient)), int(degree)) for coefficient, (degree,) in terms]

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        x, terms = self.terms(question)
        return f"Evaluate at x = {_spaced(x)} in {_sum_text(terms, '* x **')} ? ", f"The answer is {' '.join(answer)}."

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        x, terms = self.terms(question)
        polynomial = " + ".join(f"{coefficient} x ** {degree}" for coefficient, degree in terms)
        return f"Evaluate x = {x} in ({polynomial}) % 10 ?", f"The answer is {' '.join(answer)}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        x, terms = self.terms(question)
        steps, so_far = [], 0
        for n, (coefficient, degree) in enumerate(terms):
            value = coefficient * x**degree
            so_far = (so_far + value) % 10
            computation = (
                f"{_spaced(coefficient)} * {_spaced(x)} ** {degree} = {_spaced(coefficient)} * {_spaced(x**degree)}"
            )
            this_term, other_terms = _sum_text([terms[n]], "x"), _sum_text(terms[n + 1 :], "x")
            fields = (this_term, computation, _spaced(value), f"{so_far}", other_terms)
            steps.append(Step(*(tuple(field.split()) for field in fields)))
        return steps

    def repository_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        _, terms = self.terms(question)
        steps, so_far = [], "0"
        for n, step in enumerate(self.steps(question)):
            output = " ".join(step.output)
            steps.append(
                {
                    "input": _sum_text([terms[n]], "* x **"),
                    "computation": " ".join(step.computation),
                    "output": output,
                    "variables": f"sum: {so_far} + {output} = {step.variables[0]}",
                    "remaining": _sum_text(terms[n + 1 :], "* x **"),
                }
            )
            so_far = step.variables[0]
        return steps

    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        each = {"input": 4 * length, "computation": 13 * length, "output": 3 * length, "variables": length}
        return length, {**each, "remaining": (length - 1) * (5 * length - 2) // 2}

    def _make_pairs(
        self, x: Int[Tensor, "b one"], coefficients: Int[Tensor, "b n"], degrees: Int[Tensor, "b n"]
    ) -> Pairs:
        minus, plus, times, colon = self.ids([MINUS, PLUS, TIMES, COLON])

        def signed(values: Tensor) -> list[Tensor]:
            return [torch.where(values < 0, minus, NO_WORD), values.abs()]

        first = torch.cat([*signed(x), torch.full_like(x, colon)], 1)
        marks = [torch.full_like(degrees, mark) for mark in (times, plus)]
        terms = torch.stack([*signed(coefficients), marks[0], degrees, marks[1]], 2).flatten(1)[:, :-1]
        return Pairs(torch.cat([first, terms], 1), (coefficients * x**degrees).sum(1, keepdim=True) % 10)


def _spaced(number: int) -> str:
    """Return a number with spaces between its characters: `- 1 2`."""
    return " ".join(str(number))


def _sum_text(terms: Sequence[tuple[int, int]], power: str) -> str:
    """Return a sum of terms as text: `- 2 * x ** 2 + 3 * x ** 0` with the power `* x **`."""
    return " + ".join(f"{_spaced(coefficient)} {power} {degree}" for coefficient, degree in terms)
