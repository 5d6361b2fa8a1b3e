"""GRAPE: biases whose slopes depend on the content.

GrapeA: ALiBi whose slope depends on the query and on the key.
GrapeAP: a bias that adds up, over the tokens from key to query, how well each of them matches the query.
"""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.alibi import slopes
from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, DenseBias, GatedDistanceBias, Rotation, table_dtype
from lengthwise.span import Span


class GrapeA(PositionEncoding):
    """b(h, i, j) = -(i - j) m_h softplus(ω_h) (softplus(<v_h, q_i> / √d) + softplus(<u_h, k_j> / √d)) nats.

    m_h are ALiBi's slopes. q and k are read before any rotation, and u and v are divided by their lengths. `gates`
    omits one of the two summands: with `"query"` or `"key"`, only that of the query or the key is left. ω is
    initialized so that softplus(ω) = 1, and u and v from N(0, 1/d). If q and k are 0, this is ALiBi with slopes 2 m_h
    softplus(ω_h) ln 2.

    Beyond the training length: the bias continues on the same line for each pair of query and key, so distant keys lose
    weight.

    Source: Zhang et al. 2025, "Group Representational Position Encoding", eq. 4.6.
    Code: model-architectures/GRAPE, llama-mha-grape-a-querykeygated.py, -querygated.py and -keygated.py.
    Differs: the paper has one number ω instead of m_h softplus(ω_h), and does not divide u and v by their lengths
    (`normalized=False`). The norm of q and k in the code belongs to the model.

    >>> grape = GrapeA(num_heads=1, head_dim=4, gates="query")
    >>> _ = grape.v.data.copy_(torch.tensor([[0.0, 3.0, 0.0, 0.0]]))
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


_EPSILON = 2.0**-23  # added to the mean square, as torch's rms_norm does in float32


class GrapeAP(PositionEncoding):
    """b(h, i, j) = m_h (ψ_i,j+1 + ... + ψ_i,i) nats, ψ_il = ln sigmoid(<a_i, R_l p_l> / w), p_l = W_h x_l / its root
    mean square.

    x_l is the attention layer's input at token l, W_h has w = `probe_dim` rows, and m_h are ALiBi's slopes. R_l rotates
    the pairs (c, c + w/2) by l radians, the same for all pairs, where l is the position ID. The sum goes over the
    tokens of the query's document, in float64. Each of its terms depends on the query too, so there is a number for
    every pair of tokens. 2^-23 is added to the mean square of W_h x_l. W is initialized from N(0, 1 / (4 d_model)).

    Sources differ in the vector a_i of the query. `variant` selects it: W_h x_i (`"code"`), p_i (`"paper"`) or R_i p_i
    (`"relative"`). In the first two only keys are rotated, so the bias depends on where the text begins. In the last
    one it depends on distances alone.

    Beyond the training length: every token between key and query lowers the bias, so distant keys lose weight, as with
    ALiBi. R_l makes a turn every 2π tokens, so no angle is new.

    Source: Zhang et al. 2025, "Group Representational Position Encoding", eq. 5.1 and 5.2.
    Code: model-architectures/GRAPE, llama-mha-grape-ap-v1.py (`p_head_dim` 8 in its configurations).
    Differs: the code's Rotary turns by -l, which is the same with other signs in W. It computes angles, and the sums
    over tokens, in float32.

    >>> grape = GrapeAP(num_heads=1, d_model=2, probe_dim=2, variant="relative")
    >>> _ = grape.W.data.copy_(torch.eye(2)[None])
    >>> p = grape.features(torch.tensor([[[1.0, 0.0]] * 3]))      # normalized: (√2, 0); <R_i p, R_l p> / 2 = cos(i - l)
    >>> (term,) = grape.content(p, Span.of(3), None)
    >>> term.bias[0, 0, 2].detach() / grape.slopes[0]      # ln sigmoid(cos 1) + ln sigmoid(1), ln sigmoid(1), 0
    tensor([-0.7723, -0.3133,  0.0000], dtype=torch.float64)
    """

    shared_across_layers: ClassVar[bool] = False
    content_is_local: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = False  # unless variant is "relative"

    def __init__(
        self,
        *,
        num_heads: int,
        d_model: int,
        probe_dim: int = 8,
        variant: Literal["code", "paper", "relative"] = "code",
    ):
        super().__init__()
        require_positive_int("GrapeAP", probe_dim=probe_dim)
        if probe_dim % 2:
            raise ConfigError(f"GrapeAP: probe_dim must be even, because it is rotated in pairs, got {probe_dim}")
        self.variant = variant
        self.shift_invariant = variant == "relative"  # type: ignore[misc]
        self.slopes = slopes(num_heads)
        self.W = nn.Parameter(torch.randn(num_heads, probe_dim, d_model) * 0.5 * d_model**-0.5)

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t hw"]:
        """Return W_h x of all heads, concatenated."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x.to(dtype), self.W.to(dtype).flatten(0, 1))

    def content(
        self, features: Float[Tensor, "b j hw"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[DenseBias, ...]:
        dtype, queries, width = table_dtype(features.device), span.q.shape[1], self.W.shape[1]
        probes = features.unflatten(-1, self.W.shape[:2]).transpose(1, 2)  # [b, h, j, w]
        p = F.rms_norm(probes, (width,), eps=_EPSILON)
        angle = span.k.to(dtype)[:, None, :, None].expand(-1, -1, -1, width // 2)
        rotated = Rotation(None, angle, layout="half").rotate_key(p)
        ends = {"code": probes, "paper": p, "relative": rotated}[self.variant][:, :, -queries:]
        edges = F.logsigmoid((ends @ rotated.mT).to(dtype) / width)  # [b, h, i, j]
        edges = torch.where(_between(queries, span.k.shape[1], documents, edges.device), edges, 0.0)
        total = edges.flip(-1).cumsum(-1).flip(-1) - edges  # of the tokens after each key
        return (DenseBias(total * torch.tensor(self.slopes, dtype=dtype, device=total.device)[:, None, None]),)


def _between(queries: int, keys: int, documents: Tensor | None, device: torch.device) -> Tensor:
    """Return which tokens belong to a query's document and are not after it, [b|1, 1, i, j]."""
    index = torch.arange(keys, device=device)
    seen = (index <= index[keys - queries :, None])[None]
    if documents is not None:
        seen = seen & (documents[:, keys - queries :, None] == documents[:, None])
    return seen[:, None]
