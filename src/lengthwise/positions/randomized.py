"""Randomized positions: a sorted random subset of a longer range, so that no position of a long sequence is new."""

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.positions.base import RandomPositions, require_number

BLOCK = 1 << 22  # numbers drawn at a time: 32 MiB; a longer range is not drawn as a whole


class Randomized(RandomPositions):
    """p_1 < p_2 < ... < p_t, a uniformly random subset of {0, ..., max_length - 1}, drawn anew for every sequence.

    Training at length t shows every position below `max_length`, and distances up to it, so that a longer sequence brings
    no position that was never seen; one longer than `max_length` is refused. `at_evaluation="consecutive"` has 0, 1, 2, ...
    there, as where positions are randomised to augment training.

    Source: Ruoss et al. 2023, "Randomized Positional Encodings Boost Length Generalization of Transformers".
    Code: google-deepmind/randomized_positional_encodings, models/positional_encodings.py (0 ... max_length - 1; the paper
    counts from 1), drawn in evaluation too.
    Differs: the code shares one subset among the sequences of a batch, and its relative methods draw distances, not
    positions; here every sequence draws its own, so that a score does not hang on one draw. mcleish7/arithmetic (FIRE)
    draws in training alone: `at_evaluation="consecutive"`.

    >>> scheme = Randomized(max_length=3)   # all of 0, 1, 2: the only subset of 3 tokens
    >>> scheme.draw(1, 3, torch.Generator())
    tensor([[0, 1, 2]])
    """

    def __init__(self, *, max_length: int = 2048, at_evaluation: Literal["random", "consecutive"] = "random"):
        require_number("Randomized", 1, max_length=max_length)
        if at_evaluation not in ("random", "consecutive"):
            raise ConfigError(f"Randomized: at_evaluation is {at_evaluation!r}; it is 'random' or 'consecutive'")
        self.max_length, self.at_evaluation = max_length, at_evaluation

    def draw(self, rows: int, tokens: int, generator: torch.Generator) -> Int[Tensor, "b t"]:
        found = torch.empty(rows, tokens, dtype=torch.int64)
        if self.max_length > max(BLOCK, 2 * tokens):
            for row in found:
                row.copy_(self._drawn(tokens, generator))
            return found
        # The places of the greatest of `max_length` random numbers; with 53 bits each no two are equal (1 in 10^9 rows).
        for part in found.split(max(1, BLOCK // self.max_length)):
            numbers = torch.rand(len(part), self.max_length, dtype=torch.float64, generator=generator)
            part.copy_(numbers.topk(tokens, dim=1, sorted=False).indices)
        return found.sort(dim=1).values

    def _drawn(self, tokens: int, generator: torch.Generator) -> Tensor:
        """One row. What is new in each round is, of all that was not there, any subset alike; so is what there is at the end."""
        found = torch.empty(0, dtype=torch.int64)
        while len(found) < tokens:
            # Remainders of 62 random bits are uniform to 1 in 10^9.
            bits = torch.randint(1 << 62, (tokens - len(found),), generator=generator)
            found = torch.cat([found, bits % self.max_length]).unique()
        return found

    def num_positions(self, tokens: int, training: bool) -> int:
        return self.max_length if self.draws(training) else tokens

    def require(self, tokens: int, training: bool) -> None:
        if self.draws(training) and tokens > self.max_length:
            raise ConfigError(
                f"Randomized: {tokens} tokens cannot have {tokens} different positions below max_length "
                f"{self.max_length}; make it larger, or the sequences shorter"
            )
