"""ALiBi: a fixed penalty, linear in the distance."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.encodings.base import DistanceBias
from lengthwise.forms import table_dtype


def slopes(num_heads: int) -> list[float]:
    """Return the slope of each of H heads: 2^(-8h/H) for h = 1 ... H if H is a power of two.

    Otherwise return the slopes of the largest power of two P below H, then every second slope (1st, 3rd, ...) of 2P
    heads.
    """
    power = 1 << (num_heads.bit_length() - 1)
    first = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return first + between[: num_heads - power]


class ALiBi(DistanceBias):
    """b(h, i, j) = -m_h (i - j) nats, with fixed slopes m_h = 2^(-8h/H) for heads h = 1 ... H.

    If H is not a power of two, the slopes are those of the largest power of two P below H, then every second slope of
    2P heads. `bidirectional`: b = -m_h |i - j|, which is also defined for keys after the query. `learned`: m_h =
    exp(log_slopes_h), initialized with the fixed slopes and always above 0. Unless it is bidirectional, a key whose
    position ID is higher than its query's (position scheme `Digits`) counts as distance 0.

    Beyond the training length: the bias continues on the same line, so distant keys get almost no weight, as with a
    window.

    Source: Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
    Extrapolation".
    Code: the authors' code adds m_h · j, which is equal under a causal softmax; this class adds the bias as published.
    Learned slopes are in the NoPE paper's code and not in the paper: exp(log m_h), one set for all layers.
    Differs: the NoPE paper's eq. 13 has a sign error in the slopes (its code is correct).

    >>> ALiBi(num_heads=2).bias(torch.tensor([0, 1, 16]))   # slopes 1/16, 1/256
    tensor([[ 0.0000, -0.0625, -1.0000],
            [ 0.0000, -0.0039, -0.0625]], dtype=torch.float64)
    """

    def __init__(self, *, num_heads: int, bidirectional: bool = False, learned: bool = False):
        super().__init__()
        self.bidirectional = bidirectional
        self.fixed_slopes = slopes(num_heads)  # not a buffer, which would be rounded to the model's dtype
        self.log_slopes = nn.Parameter(torch.tensor(self.fixed_slopes).log()) if learned else None

    def _slopes(self, device: torch.device) -> Float[Tensor, " h"]:
        if self.log_slopes is not None:
            return self.log_slopes.to(table_dtype(device)).exp()
        return torch.tensor(self.fixed_slopes, dtype=table_dtype(device), device=device)

    @property
    def slopes(self) -> tuple[float, ...]:
        """The current slope m_h of each head."""
        device = torch.device("cpu") if self.log_slopes is None else self.log_slopes.device
        return tuple(self._slopes(device).tolist())

    def tracked(self) -> dict[str, Tensor]:
        """Return the learned slope of each head, in nats per token; nothing if the slopes are fixed."""
        return {} if self.log_slopes is None else {"slope": self.log_slopes.exp()}

    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        distance = distance.abs() if self.bidirectional else distance
        return self._slopes(distance.device)[:, None] * -distance
