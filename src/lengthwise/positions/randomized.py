"""Randomized positions: a sorted random subset of a longer range, so that long sequences have trained positions."""

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.positions.base import RandomPositions, require_number

BLOCK = 1 << 22  # random numbers drawn at a time (32 MiB); a longer range is not drawn as a whole


class Randomized(RandomPositions):
    """The positions of a sequence are a uniformly random subset of {0, ..., max_length - 1}, in ascending order.

    Training at length t covers every position below `max_length`, and distances up to it, so a longer sequence has no
    untrained positions. Sequences longer than `max_length` raise `ConfigError`. `at_evaluation="consecutive"` uses 0,
    1, 2, ... in evaluation, for studies that randomize positions only to augment training.

    Source: Ruoss et al. 2023, "Randomized Positional Encodings Boost Length Generalization of Transformers".
    Code: google-deepmind/randomized_positional_encodings, models/positional_encodings.py (0 ... max_length - 1; the
    paper counts from 1), drawn in evaluation too.
    Differs: the code shares one subset among the sequences of a batch, and its relative methods draw distances, not
    positions. Here every sequence draws its own subset, so that a score does not depend on a single draw.
    mcleish7/arithmetic (FIRE) draws only in training: `at_evaluation="consecutive"`.

    >>> scheme = Randomized(max_length=3)   # all of 0, 1, 2: the only subset of 3 tokens
    >>> scheme.draw(1, 3, torch.Generator())
    tensor([[0, 1, 2]])
    """

    def __init__(self, *, max_length: int = 2048, at_evaluation: Literal["random", "consecutive"] = "random"):
        require_number("Randomized", 1, max_length=max_length)
        self.max_length, self.at_evaluation = max_length, at_evaluation

    def draw(self, rows: int, tokens: int, generator: torch.Generator) -> Int[Tensor, "b t"]:
        positions = torch.empty(rows, tokens, dtype=torch.int64)
        if self.max_length > max(BLOCK, 2 * tokens):
            for row in positions:
                row.copy_(self._draw_row(tokens, generator))
            return positions
        # The indices of the largest of `max_length` random numbers; with 53 bits, ties are rare (1 in 10^9 rows).
        for chunk in positions.split(max(1, BLOCK // self.max_length)):
            numbers = torch.rand(len(chunk), self.max_length, dtype=torch.float64, generator=generator)
            chunk.copy_(numbers.topk(tokens, dim=1, sorted=False).indices)
        return positions.sort(dim=1).values

    def _draw_row(self, tokens: int, generator: torch.Generator) -> Tensor:
        """Return the positions of one sequence.

        In each round, every subset of the positions not drawn before is equally likely to be added, so the result is
        uniform.
        """
        positions = torch.empty(0, dtype=torch.int64)
        while len(positions) < tokens:
            # Remainders of 62 random bits are uniform to 1 in 10^9.
            bits = torch.randint(1 << 62, (tokens - len(positions),), generator=generator)
            positions = torch.cat([positions, bits % self.max_length]).unique()
        return positions

    def num_positions(self, tokens: int, training: bool) -> int:
        return self.max_length if self.draws(training) else tokens

    def require(self, tokens: int, training: bool) -> None:
        if self.draws(training) and tokens > self.max_length:
            raise ConfigError(
                f"Randomized: max_length must be at least the number of tokens, {tokens}, got {self.max_length}; make "
                "it larger, or the sequences shorter"
            )
