"""RePo: RoPE at positions that each head computes from the content."""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.rope import pair_frequencies, require_rotary
from lengthwise.forms import Rotation, table_dtype
from lengthwise.span import Span


class RePo(PositionEncoding):
    """Pair p of q_t and k_t of head h is rotated by z(t, h) · base^(-2p/d) radians, z(t, h) = <w_h, silu(U x_t) * (V
    x_t)>.

    x_t is the attention layer's input at token t, and * is the elementwise product. z is a real number without limits,
    and it may be the same for many tokens. U and V have `rank` rows. All weights are initialized from N(0, 0.02^2),
    truncated at 0.06, so at first all z are near 0, which is NoPE. If z(t, h) = t, this is RoPE. With grouped-query
    attention, each query head rotates the key that it shares with others by its own z. Position IDs are not used.

    Beyond the training length: z depends on the content and not on the number of tokens, so it need not leave the range
    of training.

    Source: Li, Zhao and Sproat 2025, "RePo: Language Models with Context Re-Positioning".
    Code: SakanaAI/repo, OLMo/olmo/model.py, `swigluex_multihead` (rank d_model / 8; base 500,000; RoPE below layer 5,
    which is the pattern `rope*5+repo*11` of 16 layers).
    Differs: the code rounds cosines and sines to the model's dtype, and, under autocast, z too. It has no cache, and no
    grouped-query attention. Here z is computed in float32 at least, angles in float64.

    >>> repo = RePo(num_heads=1, head_dim=2, d_model=1, rank=1)
    >>> _ = repo.U.data.fill_(1.0), repo.V.data.fill_(2.0), repo.w.data.fill_(3.0)
    >>> z = repo.features(torch.tensor([[[0.0], [1.0]]]))      # 1 · sigmoid(1) · 2 · 3 for the second token
    >>> (rotation,) = repo.content(z, Span.of(2), None)
    >>> rotation.angle_k.flatten().detach()
    tensor([0.0000, 4.3864], dtype=torch.float64)
    """

    shared_across_layers: ClassVar[bool] = False
    num_axes = None
    content_is_local: ClassVar[bool] = True
    alternatives: ClassVar[dict[str, Any]] = {"rank": (3, 5)}  # values for the conformance suite

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        d_model: int,
        rank: int | None = None,
        base: float = 500_000.0,
        layout: Literal["interleaved", "half"] = "interleaved",
    ):
        super().__init__()
        require_rotary("RePo", head_dim, base)
        if rank is not None:
            require_positive_int("RePo", rank=rank)
        rank = max(1, d_model // 8) if rank is None else rank
        self.head_dim, self.base, self.layout = head_dim, base, layout
        self.U, self.V = nn.Parameter(torch.empty(rank, d_model)), nn.Parameter(torch.empty(rank, d_model))
        self.w = nn.Parameter(torch.empty(num_heads, rank))
        for weight in (self.U, self.V, self.w):
            nn.init.trunc_normal_(weight, std=0.02, a=-0.06, b=0.06)

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t h"]:
        """Return z of every head."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(dtype)
            return F.linear(F.silu(F.linear(x, self.U.to(dtype))) * F.linear(x, self.V.to(dtype)), self.w.to(dtype))

    def content(
        self, features: Float[Tensor, "b j h"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[Rotation, ...]:
        z = features.to(table_dtype(features.device)).mT
        angle = z[..., None] * pair_frequencies(self.head_dim, self.base, z.device)
        return (Rotation(angle[:, :, -span.q.shape[1] :], angle, layout=self.layout),)
