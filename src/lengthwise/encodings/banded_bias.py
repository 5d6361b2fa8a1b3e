"""BandedBias: a bias for nearby distances, computed from the query's content."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import ContentBias
from lengthwise.span import Span


class BandedBias(PositionEncoding):
    """b(h, i, j) = <W_h x_i, P[:, i - j]> nats for 0 <= i - j < `band`, and 0 outside.

    x_i is the attention layer's input at the query. The `rank` rows of P are functions of the distance that all heads
    share. Each head combines them with the weights W_h x_i. W is initialized from N(0, 1 / d_model), P from N(0,
    0.02^2).

    Beyond the training length: distances from `band` on have no bias, and neither have keys after the query. Beyond the
    band, only content decides.

    Source: Thinking Machines Lab 2026, the relative logits of the Inkling model; no paper is known, and the name is
    ours.
    Code: huggingface/transformers, models/inkling (`rel_extent` is `band`, 1024 and 512 in sliding layers; `d_rel` is
    `rank`).
    Differs: the model's config may set a length n for log scaling. Then the model also multiplies q and this bias by
    1 + 0.1 ln(max(1, (i + 1) / n)). It also normalizes q and k. Neither is part of the bias. transformers initializes W
    from N(0, 0.02^2), which at its width is about 1.6 times wider than here.

    >>> banded = BandedBias(num_heads=1, d_model=1, band=2, rank=1)
    >>> _ = banded.W.data.fill_(2.0), banded.P.data.copy_(torch.tensor([[0.5, 3.0]]))
    >>> features = banded.features(torch.tensor([[[1.0], [1.0], [-1.0]]]))      # 2, 2, -2
    >>> (term,) = banded.content(features, Span.of(3), None)
    >>> (term.content @ term.table.mT)[0, 0].detach()      # one row for each query: distances -1, 0, 1, 2
    tensor([[ 0.,  1.,  6.,  0.],
            [ 0.,  1.,  6.,  0.],
            [ 0., -1., -6.,  0.]])
    """

    shared_across_layers: ClassVar[bool] = False
    content_is_local: ClassVar[bool] = True

    def __init__(self, *, num_heads: int, d_model: int, band: int = 1024, rank: int = 16):
        super().__init__()
        require_positive_int("BandedBias", band=band, rank=rank)
        self.W = nn.Parameter(torch.randn(num_heads, rank, d_model) * d_model**-0.5)
        self.P = nn.Parameter(torch.randn(rank, band) * 0.02)

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t hr"]:
        """Return W_h x_t of all heads, concatenated."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x.to(dtype), self.W.to(dtype).flatten(0, 1))

    def content(
        self, features: Float[Tensor, "b j hr"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[ContentBias, ...]:
        curves = F.pad(self.P[:, : span.distance_bound], (1, 1))  # 0 at both ends, for all distances outside the table
        coefficients = features[:, -span.q.shape[1] :].unflatten(-1, self.W.shape[:2]).transpose(1, 2)  # [b, h, i, r]
        return (ContentBias(coefficients, curves.to(coefficients.dtype).mT[None], first=-1),)
