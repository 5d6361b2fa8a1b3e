"""Transformer-XL: logits with four terms of content and distance."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.base import PositionEncoding, distance_chunks, table_columns
from lengthwise.forms import AttentionModifiers, KeyBias, RelativeKeyBias, table_dtype
from lengthwise.span import Span

_CHUNK_SIZE = 32_768  # distances whose sines and cosines are in memory together


class TransformerXL(PositionEncoding):
    """Logits are scale · (<q_i, k_j> + <q_i, W_R R_d> + <u, k_j> + <v, W_R R_d>), d = i - j; each head learns W_R, u
    and v.

    R_d = [sin(d ω_0), ..., sin(d ω_(c/2-1)), cos(d ω_0), ...] is fixed, with ω_p = base^(-2p/c) radians and c =
    d_model. Initially W_R ~ N(0, 1/d_model) and u, v ~ N(0, 0.02²). Keys farther than `max_distance` get the R of that
    distance.

    `bidirectional` adds vectors for keys after the query, by the same formula with d < 0. It is off by default because
    it doubles the table. Without it, a key whose position ID is higher than its query's gets the R of distance 0
    (position scheme `Digits`, under a causal mask).

    Beyond the training length: slow sines reach angles never seen in training, unless `max_distance` limits them.

    The table W_R R has num_heads · head_dim numbers for each distance, and each number takes d_model / 2 products. It
    takes 1 GB in float64 for 2^18 distances and 512 dimensions. The products of all queries with it cost as much as
    those with all keys.

    Source: Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context", section 3.3.
    Code: the authors' code has W_R for each layer, and one u and v for all layers. Here each layer has its own u and v,
    as in the NoPE paper's code, unless layers share one module.
    Differs: the NoPE paper's code clamps distances at 1000 (`max_distance=1000`), applies dropout to R, initializes u
    and v with std 0.2 and has scale 1; the paper does none of these.

    >>> xl = TransformerXL(num_heads=1, head_dim=4, d_model=4); _ = nn.init.eye_(xl.W_R.data[0])
    >>> xl.vectors(torch.tensor([1])).detach()     # sin 1, sin 0.01, cos 1, cos 0.01
    tensor([[[0.8415, 0.0100, 0.5403, 1.0000]]], dtype=torch.float64)
    """

    shared_across_layers: ClassVar[bool] = False

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        d_model: int,
        base: float = 10_000.0,
        max_distance: int | None = None,
        bidirectional: bool = False,
    ):
        super().__init__()
        require_positive("TransformerXL", base=base)
        if max_distance is not None:
            require_positive_int("TransformerXL", max_distance=max_distance)
        if d_model % 2:
            raise ConfigError(
                f"TransformerXL: d_model must be even, because sines and cosines come in pairs, got {d_model}"
            )
        self.head_dim, self.base, self.max_distance, self.bidirectional = head_dim, base, max_distance, bidirectional
        self.W_R = nn.Parameter(torch.randn(num_heads, head_dim, d_model) * d_model**-0.5)
        self.u = nn.Parameter(torch.randn(num_heads, head_dim) * 0.02)
        self.v = nn.Parameter(torch.randn(num_heads, head_dim) * 0.02)

    def angles(self, distance: Int[Tensor, "*n"]) -> Float[Tensor, "*n pairs"]:
        """Return the angles of R, d · ω_p, in radians."""
        width = self.W_R.shape[-1]
        pair = torch.arange(0, width, 2, dtype=table_dtype(distance.device), device=distance.device)
        return distance[..., None] * self.base ** -(pair / width)

    def vectors(self, distance: Int[Tensor, " n"], consecutive: bool = True) -> Float[Tensor, "h n d"]:
        """Return W_R R of each distance.

        If the distances are `consecutive`, each chunk is computed from its centre c, with half the products: W_R R of
        c + r is even + odd and that of c - r is even - odd, where even = Σ_p cos(r ω_p) a_p and odd = Σ_p sin(r ω_p)
        b_p. a and b are W_R rotated by c.
        """
        sin_weight, cos_weight = self.W_R.to(table_dtype(distance.device)).flatten(0, 1).chunk(2, 1)
        blocks = []
        for chunk in distance_chunks(distance, _CHUNK_SIZE):
            if not consecutive:
                angle = self.angles(chunk)
                blocks.append(angle.sin() @ sin_weight.T + angle.cos() @ cos_weight.T)
                continue
            half = chunk.shape[0] // 2
            centre = self.angles(chunk[half])
            angle = self.angles(chunk[half] - chunk[: half + 1].flip(0))
            even = angle.cos() @ (centre.sin() * sin_weight + centre.cos() * cos_weight).T
            odd = angle.sin() @ (centre.cos() * sin_weight - centre.sin() * cos_weight).T
            blocks += [(even - odd)[1:].flip(0), (even + odd)[: chunk.shape[0] - half]]
        return torch.cat(blocks).unflatten(1, self.W_R.shape[:2]).transpose(0, 1)

    def modifiers(self, span: Span) -> AttentionModifiers:
        last = span.distance_bound - 1
        if self.max_distance is not None:
            last = torch.sym_min(last, self.max_distance)
        first = -torch.sym_max(1, last) if self.bidirectional else 0
        cols = table_columns(span, first, last + 1, lambda: self.W_R.shape[0] * self.head_dim)
        table = self.vectors(cols.distance, consecutive=not cols.sparse)
        return AttentionModifiers(terms=(RelativeKeyBias(table, first, self.v, cols.distances), KeyBias(self.u)))
