"""GrapeA: ALiBi whose slope depends on the query and on the key."""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.alibi import slopes
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, GatedDistanceBias, table_dtype
from lengthwise.span import Span


class GrapeA(PositionEncoding):
    """b(h, i, j) = -(i - j) m_h softplus(ω_h) (softplus(<v_h, q_i> / √d) + softplus(<u_h, k_j> / √d)) nats.

    m_h are ALiBi's slopes. q and k are read before any rotation, and u and v are divided by their lengths. `gates` omits one of the
    two summands: with `"query"` or `"key"`, only that of the query or the key is left. ω is initialized so that softplus(ω) = 1,
    and u and v from N(0, 1/d). If q and k are 0, this is ALiBi with slopes 2 m_h softplus(ω_h) ln 2.

    Beyond the training length: the bias continues on the same line for each pair of query and key, so distant keys lose weight.

    Source: Zhang et al. 2025, "Group Representational Position Encoding", eq. 4.6.
    Code: model-architectures/GRAPE, llama-mha-grape-a-querykeygated.py, -querygated.py and -keygated.py.
    Differs: the paper has one number ω instead of m_h softplus(ω_h), and does not divide u and v by their lengths
    (`normalized=False`). The norm of q and k in the code belongs to the model.

    >>> grape = GrapeA(num_heads=1, head_dim=4, gates="query"); _ = grape.v.data.copy_(torch.tensor([[0.0, 3.0, 0.0, 0.0]]))
    >>> (term,) = grape.modifiers(Span.of(2)).terms
    >>> term.query_vector.detach(), term.slope.detach() / grape.slopes[0]      # (0, 1, 0, 0) / √4
    (tensor([[0.0000, 0.5000, 0.0000, 0.0000]], dtype=torch.float64), tensor([1.0000], dtype=torch.float64))
    """

    shared_across_layers: ClassVar[bool] = False

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        gates: Literal["both", "query", "key"] = "both",
        normalized: bool = True,
    ):
        super().__init__()
        self.head_dim, self.normalized, self.slopes = head_dim, normalized, slopes(num_heads)
        self.omega = nn.Parameter(torch.full((num_heads,), math.log(math.e - 1)))
        self.v = None if gates == "key" else nn.Parameter(torch.randn(num_heads, head_dim) * head_dim**-0.5)
        self.u = None if gates == "query" else nn.Parameter(torch.randn(num_heads, head_dim) * head_dim**-0.5)

    def tracked(self) -> dict[str, Tensor]:
        """Return the learned slope of each head, m_h softplus(ω_h)."""
        return {"slope": self._slope()}

    def _slope(self) -> Tensor:
        omega = self.omega.to(table_dtype(self.omega.device))
        return F.softplus(omega) * torch.tensor(self.slopes, dtype=omega.dtype, device=omega.device)

    def _vector(self, x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        x = x.to(table_dtype(x.device))
        return (F.normalize(x, dim=-1, eps=1e-6) if self.normalized else x) * self.head_dim**-0.5

    def modifiers(self, span: Span) -> AttentionModifiers:
        term = GatedDistanceBias(self._slope(), self._vector(self.v), self._vector(self.u))
        return AttentionModifiers(terms=(term,))
