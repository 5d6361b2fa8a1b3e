"""Summation: many digits, modulo 10."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.sequences import DIGITS, Pairs, SequenceTask, combinations


class Summation(SequenceTask):
    """Sum digits modulo 10. `length` counts the digits to sum.

    Length 3, the scored targets underlined (the sum modulo 10, and EOS):

        inputs   BOS 3  9  8  SEP 0
        targets  3   9  8  SEP 0  EOS
                               ‾‾‾‾‾‾

    The digits are uniform over 1 ... 9 and independent. The score is exact match; chance is 1/10. Train and test share no
    question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1.
    """

    unit = "operands"
    separator = "[SEP] "

    def __init__(self) -> None:
        super().__init__(DIGITS)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        return self._write(torch.randint(1, 10, (count, length), generator=generator))

    def every(self, length: int) -> Pairs | None:
        chosen = combinations([9] * length)
        return None if chosen is None else self._write(chosen + 1)

    def widths(self, length: int) -> tuple[int, int]:
        return length, 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question)

    def operands(self, question: Sequence[str]) -> list[int]:
        """The digits to sum."""
        return [int(word) for word in question]

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Compute: {' + '.join(question)} .", f"The answer is {' '.join(answer)} ."

    def _write(self, operands: Int[Tensor, "b n"]) -> Pairs:
        return Pairs(operands, operands.sum(1, keepdim=True) % 10)  # a digit's id is the digit
