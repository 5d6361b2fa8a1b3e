"""Sums of digits: Summation and Parity, with the steps of a running sum."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.scratchpad import ScratchpadTask, Step
from lengthwise.tasks.sequences import DIGITS, combinations


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


WORDS = ("0", "1", "No", "Yes")


class Parity(RunningSum):
    """Decide whether the number of ones is even. `length` counts the bits.

    Length 4, the scored targets underlined (the answer and EOS):

        inputs   BOS 1  0  1  1  SEP No
        targets  1   0  1  1  SEP No EOS
                                  ‾‾‾‾‾‾

    With a scratchpad (`ScratchpadTask`), for 1 0 1 1: `in 1 comp 1 xor 0 out 1 [ 1 ] re 0 1 1 # in 0 comp 0 xor 1 ...`,
    with the parity so far in brackets (1: odd).

    The bits are uniform and independent. The answer is `Yes` if the number of ones is even (zero is even). The score is
    exact match; chance is 1/2, but on the few questions of short lengths the constant answer scores higher (0.69 on the
    16 of 7 bits). Train and test share no question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1.
    """

    unit = "bits"
    digits, modulus = (0, 1), 2
    answers = ("Yes", "No")
    step_words = ("xor",)

    def __init__(self, *, scratchpad: str = "none"):
        super().__init__(WORDS, scratchpad)

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        prompt = f"Is the number of 1's even in the sequence [ {', '.join(question)} ] ? "
        return prompt, f"The answer is {' '.join(answer)}."

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Is the number of 1's even in [{' '.join(question)}] ?", f"The answer is {' '.join(answer)}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        return [
            Step((f"{bit}",), (f"{bit}", "xor", f"{odd}"), (f"{bit ^ odd}",), (f"{bit ^ odd}",), tuple(rest))
            for bit, odd, rest in self.partial_sums(question)
        ]

    def repository_steps(self, question: Sequence[str]) -> list[dict[str, str]]:
        return [
            {
                "input": f"{bit}",
                "computation": f"{bit} ** par = {bit} ** {odd}",
                "output": f"{bit ^ odd}",
                "variables": f"par: {bit ^ odd}",
                "remaining": f"[ {', '.join(rest)} ]",
            }
            for bit, odd, rest in self.partial_sums(question)
        ]


class Summation(RunningSum):
    """Sum digits modulo 10. `length` counts the digits to sum.

    Length 3, the scored targets underlined (the sum modulo 10, and EOS):

        inputs   BOS 3  9  8  SEP 0
        targets  3   9  8  SEP 0  EOS
                               ‾‾‾‾‾‾

    With a scratchpad (`ScratchpadTask`), 3 9 8 has the steps `in 3 comp 3 + 0 out 3 [ 3 ] re 9 8 # in 9 comp 9 + 3 out
    1 2 [ 2 ] re 8 # ...`, with the sum so far, modulo 10, in brackets.

    The digits are uniform over 1 ... 9 and independent. The score is exact match; chance is 1/10. Train and test share
    no question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1.
    """

    unit = "operands"
    separator = "[SEP] "
    digits, modulus = (1, 9), 10
    answers = DIGITS
    step_words = ("+",)

    def __init__(self, *, scratchpad: str = "none"):
        super().__init__(DIGITS, scratchpad)

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Compute: {' + '.join(question)} .", f"The answer is {' '.join(answer)} ."

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Compute: ({'+'.join(question)})%10?", f"The answer is {' '.join(answer)}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        return [
            Step((f"{d}",), (f"{d}", "+", f"{so_far}"), tuple(f"{d + so_far}"), (f"{(d + so_far) % 10}",), tuple(rest))
            for d, so_far, rest in self.partial_sums(question)
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
            for d, so_far, rest in self.partial_sums(question)
        ]
