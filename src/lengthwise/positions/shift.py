"""Shift (SHAPE): shift the whole sequence by a random offset, so that absolute positions cannot be memorized."""

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.positions.base import RandomPositions, require_number


class Shift(RandomPositions):
    """SHAPE: token i has position i + k, with k uniform in {0, ..., max_shift} for each training sequence.

    In evaluation k = 0. A shift-invariant encoding is not affected; with an absolute encoding the model learns shift
    invariance. Training at length t covers the positions 0 ... t - 1 + max_shift.

    Source: Kiyono et al. 2021, "SHAPE: Shifted Absolute Position Embedding for Transformers" (max_shift is its K;
    500 as in the authors' configuration for WMT 16).
    Code: butsugiri/shape.

    >>> p = Shift(max_shift=9).draw(1, 3, torch.Generator())
    >>> p - p[:, :1]    # neighbours stay neighbours
    tensor([[0, 1, 2]])
    """

    def __init__(self, *, max_shift: int = 500):
        require_number("Shift", 0, max_shift=max_shift)
        self.max_shift = max_shift

    def draw(self, rows: int, tokens: int, generator: torch.Generator) -> Int[Tensor, "b t"]:
        return torch.arange(tokens) + torch.randint(self.max_shift + 1, (rows, 1), generator=generator)

    def num_positions(self, tokens: int, training: bool) -> int:
        return tokens + self.max_shift if self.draws(training) else tokens
