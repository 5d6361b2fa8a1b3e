"""Copy: repeat a sequence."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.coupling import Coupling, first_index
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import ENUMERABLE, SequenceTask, combinations, symbol_names

MAX_SYMBOLS = 65_536
NEXT = "[NEXT]"


class Copy(SequenceTask):
    """Copy symbols. `length` counts the symbols to copy.

    Length 3, the scored targets underlined (the copy and EOS):

        inputs   BOS a  b  c  SEP a  b  c
        targets  a   b  c  SEP a  b  c  EOS
                               ‾‾‾‾‾‾‾‾‾‾‾‾

    `pattern`, with uniform and independent symbols:

        random    a b c        → a b c        (times=2: a b c [NEXT] a b c)
        repeated  a a a        → a a a        (times=2: a a a a a a)
        replaced  a b : a a a  → b b b        (b differs from a)

    The score is exact match: 1 if the whole answer and EOS are correct. Train and test share no question, see
    `SequenceTask`.

    Source: Kazemnejad et al. 2023, section 3 (their names: cmc, cmc2x, rsc, rsc2x, rdc).
    Differs: each symbol is one token and survives encoding and decoding. The published symbols came from a tokenizer, and one
    in 100 did not survive, so no model could copy n of them in more than 0.99^n of all cases.
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
        pattern, times = settings.get("pattern"), settings.get("times", 1)  # a subclass may lack them
        if not 2 <= symbols <= MAX_SYMBOLS:
            raise ConfigError(f"Copy.symbols must be between 2 and {MAX_SYMBOLS}, got {symbols}")
        if times not in (1, 2):
            raise ConfigError(f"Copy.times must be 1 or 2, got {times}")
        if pattern == "replaced" and times == 2:
            raise ConfigError("Copy.times must be 1 with pattern=replaced, got 2; leave times out")
        return settings

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        if self.pattern == "random":
            return self.make_pairs(torch.randint(self.symbols, (count, length), generator=generator), length)
        if self.pattern == "repeated":
            return self.make_pairs(torch.randint(self.symbols, (count, 1), generator=generator), length)
        first = torch.randint(self.symbols, (count, 1), generator=generator)
        other = torch.randint(self.symbols - 1, (count, 1), generator=generator)
        return self.make_pairs(torch.cat([first, other + (other >= first)], 1), length)

    def all_examples(self, length: int) -> Pairs | None:
        if self.pattern == "random":
            symbols = combinations([self.symbols] * length)
        elif self.pattern == "repeated":
            symbols = combinations([self.symbols])
        else:
            symbols = combinations([self.symbols] * 2, limit=ENUMERABLE + self.symbols)
            symbols = None if symbols is None else symbols[symbols[:, 0] != symbols[:, 1]]
        return None if symbols is None else self.make_pairs(symbols, length)

    def widths(self, length: int) -> tuple[int, int]:
        question = length + 3 if self.pattern == "replaced" else length
        return question, self.times * length + (self.pattern == "random" and self.times == 2)

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question) - 3 if self.pattern == "replaced" else len(question)

    def coupling(self) -> Coupling:
        """Couple each symbol with its copy: the n-th symbol (from 1) and its copy have place n + 1, SEP has place 1."""
        if self.pattern == "replaced" or self.times > 1:
            raise ConfigError(
                f"Copy couples positions only of one copy of the symbols, got pattern={self.pattern}, times={self.times}; use "
                "times=1 with pattern=random or pattern=repeated"
            )
        return Coupling(self._places, lambda tokens: max(1, tokens // 2))

    def _places(self, inputs: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        sep = first_index(inputs, self.sep)
        index = torch.arange(inputs.shape[1], device=inputs.device)
        places = torch.where(index < sep, index + 1, index - sep + 1)
        return places.masked_fill((inputs == self.bos) | (inputs == self.eos), 0)

    def repository_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str]:
        target = " ".join(answer)
        if self.pattern == "replaced":
            return f"Replace {question[0]} with {question[1]} in {' '.join(question[3:])} ", target
        return f"Copy: {' '.join(question)} ", target

    def paper_text(self, question: Sequence[str], answer: Sequence[str]) -> tuple[str, str] | None:
        if self.pattern == "replaced" or self.times > 1:
            return None
        return f"Copy the following words: {' '.join(question)} .", " ".join(answer)

    def make_pairs(self, symbols: Int[Tensor, "b n"], length: int) -> Pairs:
        """Make an example of each row of symbols.

        A row holds the symbols to copy (random), the symbol to repeat (repeated), or a symbol and its replacement (replaced).
        """
        if self.pattern == "replaced":
            colon = torch.full((len(symbols), 1), self.symbols)
            questions = torch.cat([symbols, colon, symbols[:, :1].expand(-1, length)], 1)
            return Pairs(questions, symbols[:, 1:].expand(-1, length))
        if self.pattern == "repeated":
            return Pairs(symbols.expand(-1, length), symbols.expand(-1, self.times * length))
        if self.times == 1:
            return Pairs(symbols, symbols)
        next_mark = torch.full((len(symbols), 1), self.symbols)
        return Pairs(symbols, torch.cat([symbols, next_mark, symbols], 1))
