"""SelectiveRoPE: every token turns queries and keys by angles that are computed from the content."""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.documents import cumulative_sum, shifted
from lengthwise.encodings.rope import pair_frequencies, require_rotary
from lengthwise.forms import Rotation, table_dtype
from lengthwise.span import Span


class SelectiveRoPE(PositionEncoding):
    """Pair p of q_t and k_t is rotated by base^(-2p/d) · (φ_1 + ... + φ_t) radians, φ_s = g_s · f(c_0 y_s + ... + c_w-1
    y_s-w+1).

    φ_s is the step of token s: a causal convolution, of `width` w, of numbers y that are computed from the content. φ,
    c and y have a number for each head and pair. The product of q_i and k_j depends on the steps φ_j+1 + ... + φ_i of
    the tokens between them. If all φ are 1, this is RoPE at the positions 1, 2, 3, ... f is the `activation`, by
    default none, and g is 1 without a `gate`.

    u_s is the attention layer's input at token s, divided by its length separately in each head's d_model / num_heads
    numbers (1e-6 is added to the sum of squares). There are two projections, and `rank` selects one:

    - By default, y_s = A B u_s, where B has `rank` rows. Every head reads all of u_s.
    - `rank=None` is the full-rank projection with weight normalization: y_s = s_h v_hp u_sh / |v_hp|. u_sh is the part
      of u_s of head h, v_hp is a vector for each head and pair, and s_h is a number for each head.

    A `gate` is a number for each token and head, g_s = sigmoid(<G_h, u_s> + b_h). Both sums go over the tokens of one
    document. A, B, c and G are initialized from N(0, 0.02^2), s with 1, b with 0, and v from a uniform distribution. So
    a new model rotates very little. Position IDs are not used.

    Beyond the training length: steps add up over more tokens and reach angles never seen in training.

    Source: Movahedi et al. 2025, "Selective Rotary Position Embedding".
    Code: timurcarstensen/selective-rope, modules/rotary.py. The defaults are those of its configuration
    `selective_rope` (low rank, `rank` 32, `width` 4, no gate, no activation, no bias). The run of its language models
    (configs/language_modeling) changes three of them, which is `selectiverope(rank=none,gate=true,activation=silu)`.
    Differs: the code has no grouped-query attention; here each query head rotates the key that it shares with others by
    its own angle. The code adds up the steps in float32, whose rounding error grows with the number of tokens; here
    they are added up in float64. Its other options (a bias, gates of other shapes, differences instead of the
    convolution) are not included.

    >>> selective = SelectiveRoPE(num_heads=1, head_dim=2, d_model=1, rank=1, width=2)
    >>> _ = selective.A.data.fill_(1.0), selective.B.data.fill_(1.0)
    >>> _ = selective.c.data.copy_(torch.tensor([[[1.0, 0.5]]]))
    >>> y = selective.features(torch.tensor([[[3.0], [-3.0], [3.0]]]))     # 1, -1, 1; φ = 1, -0.5, 0.5
    >>> (rotation,) = selective.content(y, Span.of(3), None)
    >>> rotation.angle_k.flatten().detach()
    tensor([1.0000, 0.5000, 1.0000], dtype=torch.float64)
    """

    shared_across_layers: ClassVar[bool] = False
    num_axes = None
    # Values for the conformance suite.
    alternatives: ClassVar[dict[str, Any]] = {"rank": (3, None), "activation": ("silu", None)}

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        d_model: int,
        rank: int | None = 32,
        width: int = 4,
        gate: bool = False,
        activation: Literal["silu"] | None = None,
        base: float = 500_000.0,
        layout: Literal["interleaved", "half"] = "interleaved",
    ):
        super().__init__()
        require_rotary("SelectiveRoPE", head_dim, base)
        require_positive_int("SelectiveRoPE", width=width)
        if d_model % num_heads:
            raise ConfigError(
                "SelectiveRoPE: d_model must be a multiple of num_heads, because each head normalizes its own part of "
                f"the input, got {d_model} and {num_heads}"
            )
        self.num_heads, self.head_dim, self.d_model, self.base, self.layout = num_heads, head_dim, d_model, base, layout
        self.gate, self.activation, pairs = gate, activation, head_dim // 2
        self.low_rank = rank is not None
        if rank is not None:
            require_positive_int("SelectiveRoPE", rank=rank)
            self.A = nn.Parameter(torch.randn(num_heads, pairs, rank) * 0.02)
            self.B = nn.Parameter(torch.randn(rank, d_model) * 0.02)
        else:
            # Only the direction of v matters. Its length, that of the code, determines how fast training turns it.
            limit = (6 / pairs) ** 0.5
            self.v = nn.Parameter(torch.empty(num_heads, pairs, d_model // num_heads).uniform_(-limit, limit))
            self.s = nn.Parameter(torch.ones(num_heads))
        self.c = nn.Parameter(torch.randn(num_heads, pairs, width) * 0.02)
        if gate:
            self.G = nn.Parameter(torch.randn(num_heads, d_model) * 0.02)
            self.b = nn.Parameter(torch.zeros(num_heads))

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t r"]:
        """Return y of every head and pair, concatenated, and with a gate also g of every head."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(dtype).unflatten(-1, (self.num_heads, -1))
            u = x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
            if self.low_rank:
                y = F.linear(F.linear(u.flatten(-2), self.B.to(dtype)), self.A.to(dtype).flatten(0, 1))
            else:
                weight = self.s.to(dtype)[:, None, None] * F.normalize(self.v.to(dtype), dim=-1)
                y = torch.einsum("bthc,hpc->bthp", u, weight).flatten(-2)
            if not self.gate:
                return y
            return torch.cat([y, torch.sigmoid(F.linear(u.flatten(-2), self.G.to(dtype), self.b.to(dtype)))], -1)

    def content(
        self, features: Float[Tensor, "b j r"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[Rotation, ...]:
        y = features.to(table_dtype(features.device)).mT  # [b, hp, j], and with a gate [b, hp + h, j]
        weights = self.c.to(y.dtype).flatten(0, 1)
        y, gate = y[:, : len(weights)], y[:, len(weights) :]
        phase = y * weights[:, :1]
        for n in range(1, weights.shape[1]):
            phase = phase + shifted(y, n, documents) * weights[:, n : n + 1]
        if self.activation == "silu":
            phase = F.silu(phase)
        if self.gate:
            phase = phase * gate.repeat_interleave(self.head_dim // 2, 1)
        angle = cumulative_sum(phase, documents).unflatten(1, self.c.shape[:2]).mT  # [b, h, j, pairs]
        angle = angle * pair_frequencies(self.head_dim, self.base, y.device)
        return (Rotation(angle[:, :, -span.q.shape[1] :], angle, layout=self.layout),)
