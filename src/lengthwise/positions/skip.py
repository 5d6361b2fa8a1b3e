"""Skip (PoSE): chunks with gaps between them, so that a short sequence has the distances of a long one."""

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.positions.base import RandomPositions, require_number


class Skip(RandomPositions):
    """PoSE: training sequences are divided into chunks, between which positions skip a random number of places.

    Token i of chunk c has position i + u_c, where u_0 = 0 and u_c is uniform in {u_(c-1), ..., target_length - t}. The
    t tokens of a sequence are divided into `chunks` chunks: all but the last have a length uniform in {1, ..., about t
    / chunks}, and the last has the rest. So positions stay below `target_length`, are consecutive within a chunk, and
    each distance below `target_length` occurs in some sequence. Evaluation uses 0, 1, 2, ...

    Source: Zhu et al. 2023, "PoSE: Efficient Context Window Extension of LLMs via Positional Skip-wise Training", with
    two chunks.
    Code: dwzhu-pku/PoSE, src/train_pose.py, whose first of two chunks has 1 ... ceil(t / 2) tokens, as here.
    Differs: the authors take the chunks from different places of a longer text; here the tokens are the task's own, and
    only their positions change. A packed document with fewer tokens than `chunks` has chunks of one token.

    >>> Skip(target_length=3).draw(1, 3, torch.Generator())   # no gap fits
    tensor([[0, 1, 2]])
    """

    def __init__(self, *, target_length: int = 2048, chunks: int = 2):
        require_number("Skip", 1, target_length=target_length)
        require_number("Skip", 2, chunks=chunks)
        if chunks > target_length:
            raise ConfigError(f"Skip: chunks must be at most target_length {target_length}, got {chunks}")
        self.target_length, self.chunks = target_length, chunks

    def draw(self, rows: int, tokens: int, generator: torch.Generator) -> Int[Tensor, "b t"]:
        cuts = min(self.chunks, tokens) - 1
        longest = min(-(-tokens // self.chunks), (tokens - 1) // cuts) if cuts > 0 else 1
        # Remainders of 62 random bits are uniform to 1 in 10^12 for any possible length.
        bits = torch.randint(1 << 62, (rows, 2, cuts), generator=generator)
        ends = (bits[:, 0] % longest + 1).cumsum(1)
        index = torch.arange(tokens).expand(rows, -1)
        room = self.target_length - tokens
        skipped, positions = torch.zeros(rows, dtype=torch.int64), index.clone()
        for cut in range(cuts):
            gap = bits[:, 1, cut] % (room - skipped + 1)
            positions += gap[:, None] * (index >= ends[:, cut, None])
            skipped += gap
        return positions

    def num_positions(self, tokens: int, training: bool) -> int:
        return max(tokens, self.target_length) if self.draws(training) else tokens

    def require(self, tokens: int, training: bool) -> None:
        if not self.draws(training):
            return
        if tokens < self.chunks:
            raise ConfigError(
                f"Skip: chunks must be at most the number of tokens, {tokens}, got {self.chunks}; use fewer chunks, or "
                "train on longer sequences"
            )
        if tokens > self.target_length:
            raise ConfigError(
                f"Skip: target_length must be at least the number of tokens, {tokens}, got {self.target_length}; make "
                "it larger, or train on shorter sequences"
            )
