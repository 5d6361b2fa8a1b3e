"""Transformer-XL: content and distance meet in four terms."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.base import PositionEncoding, at_least, columns, distances, positive, some_at_a_time
from lengthwise.forms import AttentionModifiers, KeyBias, RelativeKeyBias, table_dtype
from lengthwise.span import Span
from lengthwise.values import require_bool

_AT_ONCE = 32_768  # distances whose sines and cosines are in memory together


class TransformerXL(PositionEncoding):
    """scale · (<q_i, k_j> + <q_i, W_R R_d> + <u, k_j> + <v, W_R R_d>), d = i - j, with W_R, u and v learned for each head.

    R_d = [sin(d ω_0), ..., sin(d ω_(c/2-1)), cos(d ω_0), ...], ω_p = base^(-2p/c) radians, c = d_model: fixed. At first
    W_R ~ N(0, 1/d_model) and u, v ~ N(0, 0.02²). `max_distance`: farther keys get the R of that distance.
    `bidirectional` adds vectors for keys after the query, the same formula with d < 0: twice the table, so only on demand.
    Without it a key at a higher position than its query (position scheme `Digits`, under a causal mask) gets the R of distance 0.

    Past the trained length: slow sines reach angles never seen; a `max_distance` keeps to those that were.

    The table W_R R has num_heads · head_dim numbers for each distance and takes d_model / 2 products for each of them, and the
    products of all queries with it cost as much as those with all keys: 1 GB in float64 for 2^18 distances and 512 dims.

    Source: Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context", section 3.3.
    Code: the authors' has W_R for each layer, and one u and v for all; here u and v are a layer's own, as in the NoPE
    paper's code, unless layers share one module.
    Differs: the NoPE paper's code clamps distances at 1000 (`max_distance=1000`), drops out parts of R, draws u and v
    with std 0.2 and has scale 1; the paper does none of these.

    >>> xl = TransformerXL(num_heads=1, head_dim=4, d_model=4); _ = nn.init.eye_(xl.W_R.data[0])
    >>> xl.vectors(1, 2).detach()     # sin 1, sin 0.01, cos 1, cos 0.01
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
        at_least("TransformerXL", num_heads=num_heads, head_dim=head_dim, d_model=d_model)
        positive("TransformerXL", base=base)
        require_bool("TransformerXL", bidirectional=bidirectional)
        if max_distance is not None:
            at_least("TransformerXL", max_distance=max_distance)
        if d_model % 2:
            raise ConfigError(f"TransformerXL: d_model is {d_model}; sines and cosines come in pairs, so make it even")
        self.head_dim, self.base, self.max_distance, self.bidirectional = head_dim, base, max_distance, bidirectional
        self.W_R = nn.Parameter(torch.randn(num_heads, head_dim, d_model) * d_model**-0.5)
        self.u = nn.Parameter(torch.randn(num_heads, head_dim) * 0.02)
        self.v = nn.Parameter(torch.randn(num_heads, head_dim) * 0.02)

    def angles(self, distance: Int[Tensor, "*n"]) -> Float[Tensor, "*n pairs"]:
        """The angles of R in radians: d · ω_p."""
        width = self.W_R.shape[-1]
        pair = torch.arange(0, width, 2, dtype=table_dtype(distance.device), device=distance.device)
        return distance[..., None] * self.base ** -(pair / width)

    def vectors(self, first: int, end: int, device: torch.device | str = "cpu") -> Float[Tensor, "h n d"]:
        """W_R R of the distances first, first + 1, ..., end - 1.

        With c in their middle, W_R R of c + r is even + odd and that of c - r even - odd, even = Σ_p cos(r ω_p) a_p and
        odd = Σ_p sin(r ω_p) b_p, a and b being W_R turned by c: half the products.
        """
        distance = distances(first, end, torch.device(device))
        of_sin, of_cos = self.W_R.to(table_dtype(distance.device)).flatten(0, 1).chunk(2, 1)
        found = []
        for part in some_at_a_time(distance, _AT_ONCE):
            half = part.shape[0] // 2
            turn = self.angles(part[half])
            angle = self.angles(part[half] - part[: half + 1].flip(0))
            even = angle.cos() @ (turn.sin() * of_sin + turn.cos() * of_cos).T
            odd = angle.sin() @ (turn.cos() * of_sin - turn.sin() * of_cos).T
            found += [(even - odd)[1:].flip(0), (even + odd)[: part.shape[0] - half]]
        rows = torch.cat(found)
        return rows.unflatten(1, self.W_R.shape[:2]).transpose(0, 1)

    def modifiers(self, span: Span) -> AttentionModifiers:
        last = span.reach - 1 if self.max_distance is None else torch.sym_min(span.reach - 1, self.max_distance)
        first = -torch.sym_max(1, last) if self.bidirectional else 0
        at = columns(span, first, last + 1, lambda: self.W_R.shape[0] * self.head_dim)
        table = self._vectors_at(at.distance) if at.listed else self.vectors(first, last + 1, span.q.device)
        return AttentionModifiers(terms=(RelativeKeyBias(table, first, self.v, at.distances), KeyBias(self.u)))

    def _vectors_at(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n d"]:
        """W_R R of any distances."""
        of_sin, of_cos = self.W_R.to(table_dtype(distance.device)).flatten(0, 1).chunk(2, 1)
        angles = map(self.angles, some_at_a_time(distance, _AT_ONCE))
        rows = torch.cat([angle.sin() @ of_sin.T + angle.cos() @ of_cos.T for angle in angles])
        return rows.unflatten(1, self.W_R.shape[:2]).transpose(0, 1)
