"""Summation: the sum of many digits, modulo 10."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.scratchpad import ScratchpadTask, Step
from lengthwise.tasks.sequences import DIGITS, combinations


class Summation(ScratchpadTask):
    """Sum digits modulo 10. `length` counts the digits to sum.

    Length 3, the scored targets underlined (the sum modulo 10, and EOS):

        inputs   BOS 3  9  8  SEP 0
        targets  3   9  8  SEP 0  EOS
                               ‾‾‾‾‾‾

    With a scratchpad (`ScratchpadTask`), 3 9 8 has the steps `in 3 comp 3 + 0 out 3 [ 3 ] re 9 8 # in 9 comp 9 + 3 out 1 2 [ 2 ]
    re 8 # ...`, with the sum so far, modulo 10, in brackets.

    The digits are uniform over 1 ... 9 and independent. The score is exact match; chance is 1/10. Train and test share no
    question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1.
    """

    unit = "operands"
    separator = "[SEP] "

    step_words = ("+",)

    def __init__(self, *, scratchpad: str = "none"):
        super().__init__(DIGITS, scratchpad)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        return self._make_pairs(torch.randint(1, 10, (count, length), generator=generator))

    def all_examples(self, length: int) -> Pairs | None:
        numbers = combinations([9] * length)
        return None if numbers is None else self._make_pairs(numbers + 1)

    def widths(self, length: int) -> tuple[int, int]:
        return length, 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question)

    def operands(self, question: Sequence[str]) -> list[int]:
        """Return the digits to sum."""
        return [int(word) for word in question]

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Compute: {' + '.join(question)} .", f"The answer is {' '.join(answer)} ."

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Compute: ({'+'.join(question)})%10?", f"The answer is {' '.join(answer)}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        return [
            Step((f"{d}",), (f"{d}", "+", f"{so_far}"), tuple(f"{d + so_far}"), (f"{(d + so_far) % 10}",), tuple(rest))
            for d, so_far, rest in self._partial_sums(question)
        ]

    def repository_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        return [
            {
                "input": f"{d}",
                "computation": f"{d} + sum = {d} + {so_far} =",
                "output": (out := " ".join(f"{d + so_far}")),
                "variables": f"sum: {out} = {(d + so_far) % 10}",
                "remaining": " + ".join(rest),
            }
            for d, so_far, rest in self._partial_sums(question)
        ]

    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        each = {"input": length, "computation": 3 * length, "output": 2 * length, "variables": length}
        return length, {**each, "remaining": length * (length - 1) // 2}

    def _partial_sums(self, question: Sequence[str]) -> list[tuple[int, int, list[str]]]:
        """Return for each digit: the digit, the sum modulo 10 of those before it, and the words after it."""
        operands = self.operands(question)
        return [(d, sum(operands[:n]) % 10, list(question[n + 1 :])) for n, d in enumerate(operands)]

    def _make_pairs(self, operands: Int[Tensor, "b n"]) -> Pairs:
        return Pairs(operands, operands.sum(1, keepdim=True) % 10)  # a digit's id is the digit
