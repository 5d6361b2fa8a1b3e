"""Reverse: repeat a sequence in reverse order."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.copy import MAX_SYMBOLS, NEXT
from lengthwise.tasks.coupling import Coupling, first_index
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask, combinations, symbol_names


class Reverse(SequenceTask):
    """Reverse a sequence of random symbols. `length` counts the symbols to reverse.

    Length 3, the scored targets underlined (the answer and EOS):

        inputs   BOS a  b  c  SEP c  b  a
        targets  a   b  c  SEP c  b  a  EOS
                               ‾‾‾‾‾‾‾‾‾‾‾‾

    `answer`: `once` (c b a), `twice` (c b a [NEXT] c b a) or `back` (c b a [NEXT] a b c: reversed, and back again).

    The score is exact match: 1 if the whole answer and EOS are correct. Symbols are uniform and independent; train and
    test share no question, see `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 (their names: mc, mc2x, mcrv).
    """

    unit = "symbols"
    separator = "[SEP] "

    def __init__(self, *, symbols: int = 26, answer: Literal["once", "twice", "back"] = "once"):
        self.check({"symbols": symbols})
        self.symbols, self.answer = symbols, answer
        super().__init__([*symbol_names(symbols), *([NEXT] if answer != "once" else [])])

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if not 2 <= settings["symbols"] <= MAX_SYMBOLS:
            raise ConfigError(f"Reverse.symbols must be between 2 and {MAX_SYMBOLS}, got {settings['symbols']}")
        return settings

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        return self.make_pairs(torch.randint(self.symbols, (count, length), generator=generator))

    def all_examples(self, length: int) -> Pairs | None:
        symbols = combinations([self.symbols] * length)
        return None if symbols is None else self.make_pairs(symbols)

    def widths(self, length: int) -> tuple[int, int]:
        return length, length if self.answer == "once" else 2 * length + 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question)

    def coupling(self) -> Coupling:
        """Couple each symbol with its copy: the n-th symbol (from 1) has place n, and SEP is one place after the last symbol."""
        if self.answer != "once":
            raise ConfigError(f"Reverse couples positions only with answer=once, got {self.answer}; use answer=once")
        return Coupling(self._places, lambda tokens: max(1, tokens // 2))

    def _places(self, inputs: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        sep = first_index(inputs, self.sep)
        index = torch.arange(inputs.shape[1], device=inputs.device)
        places = torch.where(index < sep, index, (2 * sep - index).clamp(min=0))
        return places.masked_fill((inputs == self.bos) | (inputs == self.eos), 0)

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Reverse: {' '.join(question)} ", " ".join(answer)

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str] | None:
        if self.answer != "once":
            return None
        return f"Reverse the following words: {' '.join(question)} .", " ".join(answer)

    def make_pairs(self, symbols: Int[Tensor, "b n"]) -> Pairs:
        reverse = symbols.flip(1)
        if self.answer == "once":
            return Pairs(symbols, reverse)
        next_mark = torch.full((len(symbols), 1), self.symbols)
        return Pairs(symbols, torch.cat([reverse, next_mark, reverse if self.answer == "twice" else symbols], 1))
