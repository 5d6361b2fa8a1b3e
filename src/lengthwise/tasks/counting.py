"""Counting: how often a symbol occurs."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.pairs import NO_WORD, Pairs
from lengthwise.tasks.sequences import DIGITS, SequenceTask, combinations

MAX_SYMBOLS = 26
ASK = "?"


class Counting(SequenceTask):
    """Count a symbol in a sequence of symbols. `length` counts the symbols of the sequence.

    Length 5, the scored targets underlined (the number and EOS):

        inputs   BOS a  c  a  b  a  ?  a  SEP 3
        targets  a   c  a  b  a  ?  a  SEP 3  EOS
                                           ‾‾‾‾‾‾

    The number is written in decimal digits, the highest first. It is drawn uniformly from 0 ... length, so that no
    answer is right often. The places of the symbol are uniform, and the other symbols are uniform among the remaining
    ones. At lengths with up to 4,096 questions, all questions are equally probable instead.

    The score is exact match. On long sequences, chance is about 1 / (length + 1). It is more on short ones, because a
    test has different questions, and numbers with few questions run out: with 2 symbols and length 12, 6 is the answer
    to 0.15 of 400 questions, and 12, which has `symbols` questions, to none. Up to 16 different answers, models are
    compared with the most frequent one. Train and test share no question, see `SequenceTask`.

    Source: counting is in many studies of length generalization; this form, with its uniform numbers, is ours.
    """

    unit = "symbols"

    def __init__(self, *, symbols: int = 4):
        self.check({"symbols": symbols})
        self.symbols = symbols
        super().__init__([*(chr(ord("a") + n) for n in range(symbols)), ASK, *DIGITS])
        self.digit_tokens = tuple(self.ids(DIGITS))

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if not 2 <= settings["symbols"] <= MAX_SYMBOLS:
            raise ConfigError(f"Counting.symbols must be between 2 and {MAX_SYMBOLS}, got {settings['symbols']}")
        return settings

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        number = torch.randint(length + 1, (count, 1), generator=generator)
        symbol = torch.randint(self.symbols, (count, 1), generator=generator)
        others = torch.randint(self.symbols - 1, (count, length), generator=generator)
        rank = torch.rand(count, length, generator=generator).argsort(1).argsort(1)
        return self._make_pairs(torch.where(rank < number, symbol, others + (others >= symbol)), symbol)

    def all_examples(self, length: int) -> Pairs | None:
        numbers = combinations([self.symbols] * (length + 1))
        return None if numbers is None else self._make_pairs(numbers[:, :-1], numbers[:, -1:])

    def widths(self, length: int) -> tuple[int, int]:
        return length + 2, len(str(length))

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question) - 2

    def _make_pairs(self, symbols: Int[Tensor, "b n"], symbol: Int[Tensor, "b 1"]) -> Pairs:
        number = (symbols == symbol).sum(1, keepdim=True)
        powers = 10 ** torch.arange(len(str(symbols.shape[1]))).flip(0)
        digits = number // powers % 10 + self.digit_tokens[0]
        digits = digits.masked_fill((number < powers) & (powers > 1), NO_WORD)  # no leading zeros
        return Pairs(torch.cat([symbols, torch.full_like(symbol, self.symbols), symbol], 1), digits)
