"""Sandwich: a fixed penalty, the inner product of two sinusoidal vectors."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.base import DistanceBias, at_least, positive, some_at_a_time
from lengthwise.forms import table_dtype

_AT_ONCE = 512  # distances whose sines are in memory together: few, so that the C library keeps that memory


class Sandwich(DistanceBias):
    """b(h, i, j) = (Σ_{p=1}^{D/2} cos((i - j) / base^(2p/D)) - D/2) / (8h/H) nats for heads h = 1 ... H, D = `dim`.

    The sum is the inner product of the sinusoidal vectors of i and j; D/2 less, it is 0 for the query itself and never
    above 0. Nothing is learned.

    Past the trained length: the same curve goes on, falling with ln d up to about `base` and swaying beyond.

    Source: Chi et al. 2023, "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis".
    Code: no official code was found; NVIDIA NeMo has one, with D the dims of a head.
    Differs: D is 128 whatever the heads are. Sandwich counts frequencies from p = 1, a sinusoidal table from 0.

    >>> Sandwich(num_heads=8).bias(torch.tensor([0, 1, 10]))[0]
    tensor([ -0.0000,  -1.4466, -19.3409], dtype=torch.float64)
    """

    def __init__(self, *, num_heads: int, dim: int = 128, base: float = 10_000.0):
        super().__init__()
        at_least("Sandwich", num_heads=num_heads, dim=dim)
        positive("Sandwich", base=base)
        if dim % 2:
            raise ConfigError(f"Sandwich: dim is {dim}; sines and cosines come in pairs, so make it even")
        self.num_heads, self.dim, self.base = num_heads, dim, base

    def frequencies(self, device: torch.device) -> Float[Tensor, " pairs"]:
        """Radians per position: base^(-2p/D), p = 1 ... D/2."""
        p = torch.arange(2, self.dim + 1, 2, dtype=table_dtype(device), device=device)
        return self.base ** -(p / self.dim)

    def divisors(self, device: torch.device) -> Float[Tensor, " h"]:
        """8h/H, h = 1 ... H."""
        return torch.arange(1, self.num_heads + 1, dtype=table_dtype(device), device=device) * (8 / self.num_heads)

    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        halves = self.frequencies(distance.device) / 2
        # cos x - 1 = -2 sin²(x/2) loses no digits where the angle is small.
        parts = [torch.sin(part[:, None] * halves).square().sum(-1) for part in some_at_a_time(distance, _AT_ONCE)]
        return -2 * torch.cat(parts) / self.divisors(distance.device)[:, None]
