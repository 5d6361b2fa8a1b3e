"""Reverse: say a sequence from its end."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.copy import MOST_SYMBOLS, NEXT
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask, combinations, symbol_names


class Reverse(SequenceTask):
    """Reverse random symbols. `length` counts the symbols to reverse.

    Length 3, the scored targets underlined (the answer and EOS):

        inputs   BOS a  b  c  SEP c  b  a
        targets  a   b  c  SEP c  b  a  EOS
                               ‾‾‾‾‾‾‾‾‾‾‾‾

    `answer`: `once` (c b a), `twice` (c b a [NEXT] c b a) or `back` (c b a [NEXT] a b c: reversed, and back again).

    The score is exact match: 1 where the whole answer and EOS are right. Symbols are uniform and independent; train and
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
        if not 2 <= settings["symbols"] <= MOST_SYMBOLS:
            raise ConfigError(f"Reverse.symbols is {settings['symbols']}; it has to lie in 2 ... {MOST_SYMBOLS}")
        return settings

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        return self._write(torch.randint(self.symbols, (count, length), generator=generator))

    def every(self, length: int) -> Pairs | None:
        chosen = combinations([self.symbols] * length)
        return None if chosen is None else self._write(chosen)

    def widths(self, length: int) -> tuple[int, int]:
        return length, length if self.answer == "once" else 2 * length + 1

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question)

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        return f"Reverse: {' '.join(question)} ", " ".join(answer)

    def published_in_paper(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str] | None:
        if self.answer != "once":
            return None
        return f"Reverse the following words: {' '.join(question)} .", " ".join(answer)

    def _write(self, symbols: Int[Tensor, "b n"]) -> Pairs:
        reverse = symbols.flip(1)
        if self.answer == "once":
            return Pairs(symbols, reverse)
        following = torch.full((len(symbols), 1), self.symbols)
        return Pairs(symbols, torch.cat([reverse, following, reverse if self.answer == "twice" else symbols], 1))
