"""Summation: the sum of many digits, modulo 10."""

from collections.abc import Sequence

from lengthwise.tasks.running_sum import RunningSum
from lengthwise.tasks.scratchpad import Step
from lengthwise.tasks.sequences import DIGITS


class Summation(RunningSum):
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
