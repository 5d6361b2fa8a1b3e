"""Parity: whether the number of ones is even."""

from collections.abc import Sequence

from lengthwise.tasks.running_sum import RunningSum
from lengthwise.tasks.scratchpad import Step

WORDS = ("0", "1", "No", "Yes")


class Parity(RunningSum):
    """Decide whether the number of ones is even. `length` counts the bits.

    Length 4, the scored targets underlined (the answer and EOS):

        inputs   BOS 1  0  1  1  SEP No
        targets  1   0  1  1  SEP No EOS
                                  ‾‾‾‾‾‾

    With a scratchpad (`ScratchpadTask`), for 1 0 1 1: `in 1 comp 1 xor 0 out 1 [ 1 ] re 0 1 1 # in 0 comp 0 xor 1 ...`, with the
    parity so far in brackets (1: odd).

    The bits are uniform and independent. The answer is `Yes` if the number of ones is even (zero is even). The score is exact
    match; chance is 1/2, but on the few questions of short lengths the constant answer scores higher (0.69 on the 16 of 7
    bits). Train and test share no question, see `SequenceTask`.

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
