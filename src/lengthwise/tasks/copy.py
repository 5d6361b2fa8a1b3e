"""Copy: say a sequence again."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import ENUMERABLE, SequenceTask, combinations, symbol_names

MOST_SYMBOLS = 65_536
NEXT = "[NEXT]"


class Copy(SequenceTask):
    """Copy symbols. `length` counts the symbols to copy.

    Length 3, the scored targets underlined (the copy and EOS):

        inputs   BOS a  b  c  SEP a  b  c
        targets  a   b  c  SEP a  b  c  EOS
                               ‾‾‾‾‾‾‾‾‾‾‾‾

    `pattern`, of symbols that are uniform and independent:

        random    a b c        → a b c        (times=2: a b c [NEXT] a b c)
        repeated  a a a        → a a a        (times=2: a a a a a a)
        replaced  a b : a a a  → b b b        (b is another symbol than a)

    The score is exact match: 1 where the whole answer and EOS are right. Train and test share no question, see
    `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 (their names: cmc, cmc2x, rsc, rsc2x, rdc).
    Differs: one token per symbol, all of which round-trip; one in 100 of the published symbols did not, so that no model could
    copy n of them in more than 0.99^n of all cases. The published symbols were those of a tokenizer.
    """

    unit = "symbols"
    separator = "[SEP] "

    def __init__(
        self, *, symbols: int = 26, pattern: Literal["random", "repeated", "replaced"] = "random", times: int = 1
    ):
        self.check({"symbols": symbols, "pattern": pattern, "times": times})
        self.symbols, self.pattern, self.times = symbols, pattern, times
        marks = [":"] if pattern == "replaced" else [NEXT] if pattern == "random" and times == 2 else []
        super().__init__([*symbol_names(symbols), *marks])

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        symbols = settings["symbols"]
        pattern, times = settings.get("pattern"), settings.get("times", 1)  # a subclass may do without them
        if not 2 <= symbols <= MOST_SYMBOLS:
            raise ConfigError(f"Copy.symbols is {symbols}; it has to lie in 2 ... {MOST_SYMBOLS}")
        if times not in (1, 2):
            raise ConfigError(f"Copy.times is {times}; the copy is said 1 or 2 times")
        if pattern == "replaced" and times == 2:
            raise ConfigError("Copy.times is 2 with pattern=replaced, which is said once; leave times out")
        return settings

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        if self.pattern == "random":
            return self._write(torch.randint(self.symbols, (count, length), generator=generator), length)
        if self.pattern == "repeated":
            return self._write(torch.randint(self.symbols, (count, 1), generator=generator), length)
        first = torch.randint(self.symbols, (count, 1), generator=generator)
        other = torch.randint(self.symbols - 1, (count, 1), generator=generator)
        return self._write(torch.cat([first, other + (other >= first)], 1), length)

    def every(self, length: int) -> Pairs | None:
        if self.pattern == "random":
            chosen = combinations([self.symbols] * length)
        elif self.pattern == "repeated":
            chosen = combinations([self.symbols])
        else:
            chosen = combinations([self.symbols] * 2, most=ENUMERABLE + self.symbols)
            chosen = None if chosen is None else chosen[chosen[:, 0] != chosen[:, 1]]
        return None if chosen is None else self._write(chosen, length)

    def widths(self, length: int) -> tuple[int, int]:
        asked = length + 3 if self.pattern == "replaced" else length
        return asked, self.times * length + (self.pattern == "random" and self.times == 2)

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question) - 3 if self.pattern == "replaced" else len(question)

    def published(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        target = " ".join(answer)
        if self.pattern == "replaced":
            return f"Replace {question[0]} with {question[1]} in {' '.join(question[3:])} ", target
        return f"Copy: {' '.join(question)} ", target

    def published_in_paper(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str] | None:
        if self.pattern == "replaced" or self.times > 1:
            return None
        return f"Copy the following words: {' '.join(question)} .", " ".join(answer)

    def _write(self, chosen: Int[Tensor, "b n"], length: int) -> Pairs:
        """The example of each row: of the symbols to copy, of the one to repeat, or of the two to replace one by the other."""
        if self.pattern == "replaced":
            mark = torch.full((len(chosen), 1), self.symbols)
            asked = torch.cat([chosen, mark, chosen[:, :1].expand(-1, length)], 1)
            return Pairs(asked, chosen[:, 1:].expand(-1, length))
        if self.pattern == "repeated":
            return Pairs(chosen.expand(-1, length), chosen.expand(-1, self.times * length))
        if self.times == 1:
            return Pairs(chosen, chosen)
        following = torch.full((len(chosen), 1), self.symbols)
        return Pairs(chosen, torch.cat([chosen, following, chosen], 1))
