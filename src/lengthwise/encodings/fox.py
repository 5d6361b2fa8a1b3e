"""FoX: a forget gate for every token, computed from its content."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.documents import cumulative_sum
from lengthwise.forms import CumulativeBias, table_dtype
from lengthwise.span import Span


class FoX(PositionEncoding):
    """b(h, i, j) = ln f_j+1 + ... + ln f_i nats, with one gate f_t = sigmoid(<w_h, x_t> + b_h) for each token and head.

    x_t is the attention layer's input. The sum goes over the tokens between key and query in the query's document, in
    float64. A query's own bias is 0. w is initialized from N(0, 0.02^2) and b with 0, so at first every token halves
    the weight of all tokens before it. If the gate does not depend on x, this is ALiBi with learned slopes, -b(h, i, j)
    = slope · (i - j). Position IDs are not used.

    Beyond the training length: the gates act in the same way. A key's weight decreases with every token whose gate is
    below 1.

    Source: Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate".
    Code: zhixuan-lin/forgetting-transformer, gate of type "full".
    Differs: the gate is that of the authors. Their Pro block (output gate, norms, shift of keys and values) is not
    included, and their sum goes over the whole sequence instead of one document.

    >>> fox = FoX(num_heads=1, d_model=1); _ = fox.w.data.fill_(1.0)
    >>> log_f = fox.features(torch.zeros(1, 3, 1))    # every gate is 1/2
    >>> (term,) = fox.content(log_f, Span.of(3), None)      # b(i, j) = entry i - entry j
    >>> term.prefix_sum[0, 0].detach()
    tensor([-0.6931, -1.3863, -2.0794], dtype=torch.float64)
    """

    shared_across_layers: ClassVar[bool] = False
    num_axes = None
    content_is_local: ClassVar[bool] = True

    def __init__(self, *, num_heads: int, d_model: int):
        super().__init__()
        self.w = nn.Parameter(torch.randn(num_heads, d_model) * 0.02)
        self.b = nn.Parameter(torch.zeros(num_heads))

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t h"]:
        """Return ln f_t of every head."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            return F.logsigmoid(F.linear(x.to(dtype), self.w.to(dtype), self.b.to(dtype)))

    def content(
        self, features: Float[Tensor, "b j h"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[CumulativeBias, ...]:
        log_f = features.to(table_dtype(features.device)).mT
        return (CumulativeBias(cumulative_sum(log_f, documents)),)
