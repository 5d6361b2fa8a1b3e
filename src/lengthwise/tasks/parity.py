"""Parity: whether the number of ones is even."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.sequences import Pairs, SequenceTask, combinations

WORDS = ("0", "1", "No", "Yes")


class Parity(SequenceTask):
    """Say whether the number of ones is even. `length` counts the bits.

    Length 4, the scored targets underlined (the answer and EOS):

        inputs   BOS 1  0  1  1  SEP No
        targets  1   0  1  1  SEP No EOS
                                  ‾‾‾‾‾‾

    The bits are uniform and independent; `Yes` if the number of ones is even (none at all is even). The score is exact match;
    chance is 1/2. Train and test share no question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 and appendix D.1.
    """

    unit = "bits"

    def __init__(self) -> None:
        super().__init__(WORDS)

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        return self._write(torch.randint(2, (count, length), generator=generator))

    def every(self, length: int) -> Pairs | None:
        chosen = combinations([2] * length)
        return None if chosen is None else self._write(chosen)

    def widths(self, length: int) -> tuple[int, int]:
        return length, 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question)

    def bits(self, question: Sequence[str]) -> list[int]:
        """The bits to count."""
        return [int(word) for word in question]

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        prompt = f"Is the number of 1's even in the sequence [ {', '.join(question)} ] ? "
        return prompt, f"The answer is {' '.join(answer)}."

    def _write(self, bits: Int[Tensor, "b n"]) -> Pairs:
        no, yes = self.ids(["No", "Yes"])
        return Pairs(bits, torch.where(bits.sum(1, keepdim=True) % 2 == 0, yes, no))
