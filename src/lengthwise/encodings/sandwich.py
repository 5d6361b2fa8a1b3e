"""Sandwich: a fixed penalty, from the inner product of two sinusoidal vectors."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.base import DistanceBias, distance_chunks
from lengthwise.forms import table_dtype

_CHUNK_SIZE = 512  # distances whose sines are in memory together: so few that the C library reuses the memory


class Sandwich(DistanceBias):
    """b(h, i, j) = (Σ_{p=1}^{D/2} cos((i - j) / base^(2p/D)) - D/2) / (8h/H) nats for heads h = 1 ... H, D = `dim`.

    The sum is the inner product of the sinusoidal vectors of i and j. After D/2 is subtracted, it is 0 for the query
    itself and at most 0 elsewhere. Nothing is learned. A key whose position ID is higher than its query's (position
    scheme `Digits`) counts as distance 0.

    Beyond the training length: the bias continues on the same curve. It decreases with ln d up to a distance d of about
    `base` and oscillates beyond.

    Source: Chi et al. 2023, "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis".
    Code: no official code was found. NVIDIA NeMo has an implementation, where D is the head dimension.
    Differs: here D is 128 for any head dimension. Frequencies are counted from p = 1 in Sandwich, and from 0 in a
    sinusoidal table.

    >>> Sandwich(num_heads=8).bias(torch.tensor([0, 1, 10]))[0]
    tensor([ -0.0000,  -1.4466, -19.3409], dtype=torch.float64)
    """

    def __init__(self, *, num_heads: int, dim: int = 128, base: float = 10_000.0):
        super().__init__()
        require_positive_int("Sandwich", dim=dim)
        require_positive("Sandwich", base=base)
        if dim % 2:
            raise ConfigError(f"Sandwich: dim must be even, because sines and cosines come in pairs, got {dim}")
        self.num_heads, self.dim, self.base = num_heads, dim, base

    def frequencies(self, device: torch.device) -> Float[Tensor, " pairs"]:
        """Return radians per position, base^(-2p/D), for p = 1 ... D/2."""
        p = torch.arange(2, self.dim + 1, 2, dtype=table_dtype(device), device=device)
        return self.base ** -(p / self.dim)

    def divisors(self, device: torch.device) -> Float[Tensor, " h"]:
        """Return 8h/H for h = 1 ... H."""
        return torch.arange(1, self.num_heads + 1, dtype=table_dtype(device), device=device) * (8 / self.num_heads)

    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        halves = self.frequencies(distance.device) / 2
        # cos x - 1 = -2 sin²(x/2) keeps its precision for small angles.
        sums = [torch.sin(chunk[:, None] * halves).square().sum(-1) for chunk in distance_chunks(distance, _CHUNK_SIZE)]
        return -2 * torch.cat(sums) / self.divisors(distance.device)[:, None]
