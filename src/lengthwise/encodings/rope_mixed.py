"""RoPEMixed: each pair of each head rotates by a learned mixture of the positions on all axes."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import NOMINAL_SIZES, require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.rope import pair_frequencies, require_rotary
from lengthwise.forms import AttentionModifiers, Rotation, table_dtype
from lengthwise.span import Span, all_axes


class RoPEMixed(PositionEncoding):
    """Pair p of q and k in head h is rotated by x_0 f_0hp + x_1 f_1hp + ... radians, where x_a is the position on axis a.

    All f are learned, [axes, heads, d/2], in each layer. For each head, they begin as one random rotation of the axes of
    `AxialRoPE`: in part n of the pairs, pair p has f_a = base^(-2p/m) · u_na, m = d / axes, and the vectors u_0, u_1, ... of a head
    are orthonormal. So diagonal directions have frequencies of their own too. With two axes, u_0 = (cos α, sin α) and
    u_1 = (-sin α, cos α), with α uniform between 0 and 2π. With one axis, this is RoPE with frequencies learned for each head.

    The product of rotated q and k depends only on the differences on each axis. Positions are [batch, tokens, axes]. A token with a
    single position ID, such as a word, has this ID on every axis.

    Beyond the training length: slow pairs reach angles never seen in training, unless training has made them slower.

    Source: Heo et al. 2024, "Rotary Position Embedding for Vision Transformer" (RoPE-Mixed).
    Code: naver-ai/rope-vit, deit/models_v2_rope.py (column first, `layout="interleaved"`).
    Differs: the code's function has the base 10 by default and its model class 100, but all mixed models of that file pass 10, as
    here. The code is for two axes, and has angles in float32; here they are float64. It does not rotate the class token, which is
    position 0 on every axis.

    >>> mixed = RoPEMixed(num_heads=1, head_dim=4)
    >>> _ = mixed.f.data.copy_(torch.tensor([[[1.0, 0.5]], [[0.0, 2.0]]]))
    >>> row_and_column = torch.tensor([[[3, 1]]])
    >>> mixed.angle(torch.tensor([[3]]), row_and_column).flatten().detach()      # 3 · 1 + 1 · 0 and 3 · 0.5 + 1 · 2
    tensor([3.0000, 3.5000], dtype=torch.float64)
    """

    shared_across_layers: ClassVar[bool] = False

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        axes: int = 2,
        base: float = 10.0,
        layout: Literal["interleaved", "half"] = "interleaved",
    ):
        super().__init__()
        require_rotary("RoPEMixed", head_dim, base)
        require_positive_int("RoPEMixed", axes=axes)
        if head_dim % (2 * axes):
            raise ConfigError(
                f"RoPEMixed: head_dim must be a multiple of {2 * axes}, because each of {axes} directions begins with as many "
                f"pairs, got {head_dim}; change head_dim or axes"
            )
        self.num_axes, self.base, self.layout = axes, base, layout
        magnitudes = pair_frequencies(head_dim // axes, base, torch.get_default_device()).float()
        directions = _random_directions(num_heads, axes).permute(2, 0, 1)  # [axis, head, direction]
        self.f = nn.Parameter((directions[..., None] * magnitudes).flatten(-2))

    @classmethod
    def nominal_sizes(cls, settings: dict[str, Any]) -> dict[str, int]:
        # Whether a number of axes is valid depends on the model's head_dim.
        require_positive_int("RoPEMixed", axes=settings.get("axes", 2))
        return {**NOMINAL_SIZES, "head_dim": 2 * settings.get("axes", 2)}

    def angle(
        self, positions: Int[Tensor, "b t"], axes: Int[Tensor, "b t axes"] | None
    ) -> Float[Tensor, "b h t pairs"]:
        """Return the angle of every head and pair in radians. `axes` is None if all axes of a token are its position ID."""
        axes = all_axes(positions, len(self.f)) if axes is None else axes
        x = axes.to(table_dtype(positions.device))[:, None]
        f = self.f.to(x.dtype)[:, :, None]
        angle = x[..., :1] * f[0]
        for axis in range(1, len(f)):
            angle = angle + x[..., axis : axis + 1] * f[axis]
        return angle

    def modifiers(self, span: Span) -> AttentionModifiers:
        angle_k = self.angle(span.k, span.axes_k)
        same = span.consecutive and span.q.shape == span.k.shape
        angle_q = angle_k if same else self.angle(span.q, span.axes_q)
        return AttentionModifiers(rotation=Rotation(angle_q, angle_k, layout=self.layout))

    def tracked(self) -> Mapping[str, Tensor]:
        return {f"f of axis {axis}": f for axis, f in enumerate(self.f)}


def _random_directions(heads: int, axes: int) -> Float[Tensor, "h n axes"]:
    """Return for each head a random rotation of `axes` dimensions: orthonormal rows with determinant 1."""
    if axes == 2:
        alpha = 2 * math.pi * torch.rand(heads)
        cos, sin = alpha.cos(), alpha.sin()
        return torch.stack([cos, sin, -sin, cos], -1).unflatten(-1, (2, 2))
    rows, scale = torch.linalg.qr(torch.randn(heads, axes, axes))
    rows = rows * scale.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # otherwise some rotations are more frequent
    return torch.cat([rows[:, :1] * rows.det()[:, None, None], rows[:, 1:]], 1)
