"""Parity: whether the number of ones is even."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.scratchpad import ScratchpadTask, Step
from lengthwise.tasks.sequences import combinations

WORDS = ("0", "1", "No", "Yes")


class Parity(ScratchpadTask):
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

    step_words = ("xor",)

    def __init__(self, *, scratchpad: str = "none"):
        super().__init__(WORDS, scratchpad)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        return self._make_pairs(torch.randint(2, (count, length), generator=generator))

    def all_examples(self, length: int) -> Pairs | None:
        bits = combinations([2] * length)
        return None if bits is None else self._make_pairs(bits)

    def widths(self, length: int) -> tuple[int, int]:
        return length, 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question)

    def bits(self, question: Sequence[str]) -> list[int]:
        """Return the bits of a question."""
        return [int(word) for word in question]

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        prompt = f"Is the number of 1's even in the sequence [ {', '.join(question)} ] ? "
        return prompt, f"The answer is {' '.join(answer)}."

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Is the number of 1's even in [{' '.join(question)}] ?", f"The answer is {' '.join(answer)}."

    def steps(self, question: Sequence[str]) -> list[Step]:
        return [
            Step((f"{bit}",), (f"{bit}", "xor", f"{odd}"), (f"{bit ^ odd}",), (f"{bit ^ odd}",), tuple(rest))
            for bit, odd, rest in self._partial_parities(question)
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
            for bit, odd, rest in self._partial_parities(question)
        ]

    def step_sizes(self, length: int) -> tuple[int, dict[str, int]]:
        each = {"input": length, "computation": 3 * length, "output": length, "variables": length}
        return length, {**each, "remaining": length * (length - 1) // 2}

    def _partial_parities(self, question: Sequence[str]) -> list[tuple[int, int, list[str]]]:
        """Return for each bit: the bit, the parity of those before it, and the words after it."""
        bits = self.bits(question)
        return [(bit, sum(bits[:n]) % 2, list(question[n + 1 :])) for n, bit in enumerate(bits)]

    def _make_pairs(self, bits: Int[Tensor, "b n"]) -> Pairs:
        no, yes = self.ids(["No", "Yes"])
        return Pairs(bits, torch.where(bits.sum(1, keepdim=True) % 2 == 0, yes, no))
