"""KERPLE: learned penalties that grow with the distance.

KerpleLog: a learned penalty that grows with the logarithm of the distance.
KerplePower: a learned penalty that grows with a power of the distance.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.encodings.base import DistanceBias, project


class KerpleLog(DistanceBias):
    """b(h, i, j) = -r1 ln(1 + r2 (i - j)) nats, with r1, r2 >= 0.01 learned for each head.

    They are initialized from r1 ~ U(0, 2) and r2 ~ U(0, 1). A key whose position ID is higher than its query's
    (position scheme `Digits`) counts as distance 0.

    Beyond the training length: the bias continues on the same curve. It is close to -r1 ln(d) plus a constant at large
    distances d, so a weight decreases like d^-r1.

    Source: Chi et al. 2022, "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation".
    Code: the authors share one module among all layers and clamp the parameters in place before use.
    Differs: here a forward pass clamps a copy and does not modify the parameters (see `project`).

    >>> k = KerpleLog(num_heads=1); _ = nn.init.ones_(k.r1), nn.init.ones_(k.r2)
    >>> k.bias(torch.tensor([0, 1, 3])).detach()    # 0, -ln 2, -ln 4
    tensor([[-0.0000, -0.6931, -1.3863]], dtype=torch.float64)
    """

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.r1 = nn.Parameter(torch.rand(num_heads) * 2)
        self.r2 = nn.Parameter(torch.rand(num_heads))

    def tracked(self) -> dict[str, Tensor]:
        """Return r1 and r2 of each head, within their bounds."""
        return {"r1": self.r1.clamp(min=0.01), "r2": self.r2.clamp(min=0.01)}

    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        r1, r2 = project(self.r1, 0.01)[:, None], project(self.r2, 0.01)[:, None]
        return -r1 * torch.log1p(r2 * distance)


class KerplePower(DistanceBias):
    """b(h, i, j) = -r1 (i - j)^r2 nats, with r1 >= 0.01 and 0.01 <= r2 <= 2 learned for each head.

    They are initialized from r1 ~ U(0, 1) and r2 ~ U(0, 2). A key whose position ID is higher than its query's
    (position scheme `Digits`) counts as distance 0.

    Beyond the training length: the bias continues on the same curve.

    Source: Chi et al. 2022, "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation".
    Code: the authors share one module among all layers and clamp the parameters in place before use.
    Differs: here a forward pass clamps a copy and does not modify the parameters (see `project`). The bias at distance
    0 is set to 0 without the power, whose gradient there is 0 · ln 0, not a number.

    >>> k = KerplePower(num_heads=1); _ = nn.init.ones_(k.r1), nn.init.constant_(k.r2, 0.5)
    >>> k.bias(torch.tensor([0, 1, 100])).detach()
    tensor([[ -0.,  -1., -10.]], dtype=torch.float64)
    """

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.r1 = nn.Parameter(torch.rand(num_heads))
        self.r2 = nn.Parameter(torch.rand(num_heads) * 2)

    def tracked(self) -> dict[str, Tensor]:
        """Return r1 and r2 of each head, within their bounds."""
        return {"r1": self.r1.clamp(min=0.01), "r2": self.r2.clamp(0.01, 2.0)}

    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        r1, r2 = project(self.r1, 0.01)[:, None], project(self.r2, 0.01, 2.0)[:, None]
        power = distance.clamp(min=1).to(r1.dtype) ** r2
        return -r1 * torch.where(distance > 0, power, 0.0)
