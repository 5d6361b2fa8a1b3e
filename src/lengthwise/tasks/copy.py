"""Copy, Reverse and CopyColumn: repeat a sequence, or a part of it."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.places import Coordinates, Coupling, first_index
from lengthwise.tasks.sequences import ENUMERABLE, SequenceTask, combinations, symbol_names

MAX_SYMBOLS = 65_536
MAX_COLUMNS = 1024
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
    Differs: each symbol is one token and survives encoding and decoding. The published symbols came from a tokenizer,
    and one in 100 did not survive, so no model could copy n of them in more than 0.99^n of all cases.
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
                f"Copy couples positions only of one copy of the symbols, got pattern={self.pattern}, "
                f"times={self.times}; use times=1 with pattern=random or pattern=repeated"
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

        A row holds the symbols to copy (random), the symbol to repeat (repeated), or a symbol and its replacement
        (replaced).
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
        """Couple each symbol with its copy: the n-th symbol (from 1) has place n, and SEP has the next place."""
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


class CopyColumn(SequenceTask):
    """Copy one column of a grid of symbols. `length` counts the rows.

    Length 2 with `columns=3`, the scored targets underlined (the second column and EOS):

        inputs   BOS a b c d e f [2] SEP b e
        targets  a   b c d e f [2] SEP b e EOS
                                       ‾‾‾‾‾‾‾

    The grid is a b c over d e f, row by row. Symbols and the column that is asked for are uniform and independent.

    The position scheme `Grid` gives every symbol its row and column (`coordinates`). With consecutive positions, the
    symbols of a column are `columns` tokens apart.

    The score is exact match: 1 if the whole column and EOS are correct. Train and test share no question, see
    `SequenceTask`.
    """

    unit = "rows"

    def __init__(self, *, symbols: int = 26, columns: int = 4):
        self.check({"symbols": symbols, "columns": columns})
        self.symbols, self.columns = symbols, columns
        super().__init__([*symbol_names(symbols), *(f"[{column}]" for column in range(1, columns + 1))])

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name, low, high in (("symbols", 2, MAX_SYMBOLS), ("columns", 1, MAX_COLUMNS)):
            if not low <= settings[name] <= high:
                raise ConfigError(f"CopyColumn.{name} must be between {low} and {high}, got {settings[name]}")
        return settings

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        cells = torch.randint(self.symbols, (count, length * self.columns), generator=generator)
        return self._make_pairs(cells, torch.randint(self.columns, (count, 1), generator=generator))

    def all_examples(self, length: int) -> Pairs | None:
        numbers = combinations([self.columns] + [self.symbols] * (length * self.columns))
        return None if numbers is None else self._make_pairs(numbers[:, 1:], numbers[:, :1])

    def widths(self, length: int) -> tuple[int, int]:
        return length * self.columns + 1, length

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question) // self.columns if self.columns > 1 else len(question) - 1

    def coordinates(self) -> Coordinates:
        """Give row r and column c, counted from 1, the coordinates (r, c), and the answer the column to the right of
        the grid.

        SEP is above the answer, in row 0. BOS and the number of the column have the coordinates (0, 0).
        """
        return Coordinates(2, self._coordinates, lambda tokens: max(tokens // (self.columns + 1), self.columns + 1))

    def _coordinates(self, inputs: Int[Tensor, "b t"]) -> Int[Tensor, "b t 2"]:
        index = torch.arange(inputs.shape[1], device=inputs.device).expand(inputs.shape)
        cell, sep = index - 1, first_index(inputs, self.sep)
        in_answer = index >= sep
        row = torch.where(in_answer, index - sep, cell // self.columns + 1)
        column = torch.where(in_answer, self.columns + 1, cell % self.columns + 1)
        is_outside = (inputs == self.bos) | (~in_answer & (inputs >= self.symbols))
        return torch.stack([row, column], -1).masked_fill(is_outside[..., None], 0)

    def _make_pairs(self, cells: Int[Tensor, "b cells"], column: Int[Tensor, "b 1"]) -> Pairs:
        rows = cells.unflatten(1, (-1, self.columns))
        answers = rows.gather(2, column[:, None].expand(-1, rows.shape[1], -1))[..., 0]
        return Pairs(torch.cat([cells, column + self.symbols], 1), answers)
