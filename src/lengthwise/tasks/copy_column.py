"""CopyColumn: a column of a grid that is written row by row, a test of positions with several axes."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.coordinates import Coordinates
from lengthwise.tasks.coupling import first_index
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask, combinations, symbol_names

MAX_SYMBOLS = 65_536
MAX_COLUMNS = 1024


class CopyColumn(SequenceTask):
    """Copy one column of a grid of symbols. `length` counts the rows.

    Length 2 with `columns=3`, the scored targets underlined (the second column and EOS):

        inputs   BOS a b c d e f [2] SEP b e
        targets  a   b c d e f [2] SEP b e EOS
                                       ‾‾‾‾‾‾‾

    The grid is a b c over d e f, row by row. Symbols and the column that is asked for are uniform and independent.

    The position scheme `Grid` gives every symbol its row and column (`coordinates`). With consecutive positions, the symbols of a
    column are `columns` tokens apart.

    The score is exact match: 1 if the whole column and EOS are correct. Train and test share no question, see `SequenceTask`.
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
        """Give row r and column c, counted from 1, the coordinates (r, c), and the answer the column to the right of the grid.

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
