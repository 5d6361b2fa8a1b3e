"""PoPE: only positions decide the angles of queries and keys, and only content their magnitudes."""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lengthwise.encodings.arguments import require_positive
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, Rotation, table_dtype
from lengthwise.span import Span


class PoPE(PositionEncoding):
    """logit(h, i, j) = scale · Σ_c softplus(q_ic) softplus(k_jc) cos((j - i) base^(-c/d) + δ_hc), c = 0 ... d - 1.

    Each dimension is a magnitude, softplus(x) = ln(1 + e^x), and has an angle of its own: d frequencies, twice as many
    as RoPE. So the product of q and k takes twice the time. δ is learned and initialized with 0 (`initial="zero"`) or
    uniformly between -2π and 0 (`"uniform"`).

    `clamp=True` limits δ to -2π ... 0, as published. Outside of these bounds its gradient is 0, so a δ that leaves them
    stays at the bound for ever; from 0, one step upwards is enough. Without `clamp`, δ has no bounds. This loses
    nothing, because cosines repeat after 2π.

    Beyond the training length: slow pairs reach angles never seen in training, as in RoPE.

    Source: Gopalakrishnan et al. 2025, "Decoupling the 'What' and 'Where' With Polar Coordinate Positional Embeddings".
    Code: lucidrains/PoPE-pytorch. The authors' code is not known.
    Differs: there is a δ for each query head; the code has one for each key head, which is the same without
    grouped-query attention. The code has the frequencies in a persistent buffer, which `model.to(bfloat16)` rounds;
    here angles are float64.

    >>> pope = PoPE(num_heads=1, head_dim=2, base=10_000.0)
    >>> rotation = pope.modifiers(Span.of(4)).rotation
    >>> q = k = torch.zeros(1, 1, 4, 2)      # softplus(0) = ln 2; base^(-c/d) is 1 and 0.01
    >>> (rotation.rotate_query(q) @ rotation.rotate_key(k).mT)[0, 0, 3, 1]      # ln(2)² (cos 2 + cos 0.02)
    tensor(0.2804, grad_fn=<SelectBackward0>)
    """

    shared_across_layers: ClassVar[bool] = False

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        base: float = 10_000.0,
        initial: Literal["zero", "uniform"] = "zero",
        clamp: bool = True,
    ):
        super().__init__()
        require_positive("PoPE", base=base)
        self.head_dim, self.base, self.clamp = head_dim, base, clamp
        start = (
            torch.zeros(num_heads, head_dim) if initial == "zero" else -2 * math.pi * torch.rand(num_heads, head_dim)
        )
        self.delta = nn.Parameter(start)

    def modifiers(self, span: Span) -> AttentionModifiers:
        dtype = table_dtype(span.q.device)
        dim = torch.arange(self.head_dim, dtype=dtype, device=span.q.device)
        angle_q, angle_k = (p[:, None, :, None] * self.base ** -(dim / self.head_dim) for p in (span.q, span.k))
        return AttentionModifiers(rotation=Rotation(angle_q - self.phase()[None, :, None], angle_k, polar=True))

    def phase(self) -> Float[Tensor, "h d"]:
        """Return δ in radians, within its bounds if it has any."""
        delta = self.delta.to(table_dtype(self.delta.device))
        return delta.clamp(-2 * math.pi, 0.0) if self.clamp else delta

    def tracked(self) -> Mapping[str, Tensor]:
        return {"δ": self.phase()}
