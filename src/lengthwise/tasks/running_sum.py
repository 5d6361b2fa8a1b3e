"""The base class of sums of digits modulo a number, computed digit by digit."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.scratchpad import ScratchpadTask
from lengthwise.tasks.sequences import combinations


class RunningSum(ScratchpadTask):
    """The answer is the word of the sum of all digits modulo `modulus`. `length` counts the digits."""

    digits: ClassVar[tuple[int, int]]  # the smallest and the largest digit, whose ids are the digits themselves
    modulus: ClassVar[int]
    answers: ClassVar[Sequence[str]]  # the word of each sum

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        low, high = self.digits
        return self._with_answers(torch.randint(low, high + 1, (count, length), generator=generator))

    def all_examples(self, length: int) -> Pairs | None:
        low, high = self.digits
        numbers = combinations([high + 1 - low] * length)
        return None if numbers is None else self._with_answers(numbers + low)

    def widths(self, length: int) -> tuple[int, int]:
        return length, 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question)

    def operands(self, question: Sequence[str]) -> list[int]:
        """Return the digits to sum."""
        return [int(word) for word in question]

    def partial_sums(self, question: Sequence[str]) -> list[tuple[int, int, list[str]]]:
        """Return for each digit: the digit, the sum of those before it modulo `modulus`, and the words after it."""
        operands = self.operands(question)
        return [(d, sum(operands[:n]) % self.modulus, list(question[n + 1 :])) for n, d in enumerate(operands)]

    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        digits_of_a_sum = len(f"{self.digits[1] + self.modulus - 1}")
        each = {"input": length, "computation": 3 * length, "output": digits_of_a_sum * length, "variables": length}
        return length, {**each, "remaining": length * (length - 1) // 2}

    def _with_answers(self, digits: Int[Tensor, "b n"]) -> Pairs:
        sums = digits.sum(1, keepdim=True) % self.modulus
        return Pairs(digits, torch.tensor(self.ids(self.answers))[sums])
