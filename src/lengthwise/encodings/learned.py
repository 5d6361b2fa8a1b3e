"""Learned: one trained vector per position, added to the embeddings."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_input, require_positions, require_positive, require_positive_int
from lengthwise.encodings.base import PositionEncoding


class Learned(PositionEncoding):
    """x + P[position], P in R^{max_length x c}, initialized from N(0, std^2).

    Beyond the training length: the rows of P were never trained. Positions from `max_length` on
    have no row and raise a `ValueError`.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning"; used by GPT-2 and BERT.

    >>> Learned(d_model=4, max_length=2).embed(torch.zeros(1, 3, 4), torch.tensor([[0, 1, 2]]))
    Traceback (most recent call last):
    ConfigError: Learned: position 2 is past the 2 rows of its table; ...
    """

    shift_invariant: ClassVar[bool] = False

    def __init__(self, *, d_model: int, max_length: int = 2048, std: float = 1.0):
        super().__init__()
        require_positive_int("Learned", max_length=max_length)
        require_positive("Learned", std=std)
        self.max_length = max_length
        self.table = nn.Parameter(torch.randn(max_length, d_model) * std)

    def embed(self, x: Float[Tensor, "b t c"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t c"]:
        require_input("Learned", x, self.table.shape[1])
        require_positions("Learned", positions, x)
        self._require_rows(positions)
        return x + self.table[positions].to(x.dtype)

    def _require_rows(self, positions: Tensor) -> None:
        rows = len(self.table)
        if torch.compiler.is_compiling():  # a graph cannot read the values: here the error is a RuntimeError
            within = ((positions >= 0) & (positions < rows)).all()
            torch._assert_async(within, f"Learned: a position is below 0, or past the {rows} rows of its table")
            return
        first, last = (int(p) for p in torch.aminmax(positions)) if positions.numel() else (0, 0)
        if first < 0:
            raise ConfigError(f"Learned: positions must be at least 0, got {first}")
        if last >= rows:
            raise ConfigError(
                f"Learned: position {last} is past the {rows} rows of its table; "
                "make Learned(max_length=...) larger, or choose an encoding without a table"
            )
