"""Wall: every channel of the product of query and key decays by itself, by the content of the tokens between them."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.documents import cumulative_sum
from lengthwise.encodings.fox import FoX
from lengthwise.forms import CumulativeBias, DecayProduct, table_dtype
from lengthwise.span import Span

# Of all gates: sigmoid(8) = 0.99966, so at first a channel loses a third of a thousandth for every token.
_INITIAL_BIAS = 8.0


class Wall(PositionEncoding):
    """The product of q_i and k_j is Σ_n q_in k_jn f_j+1,n ... f_i,n, with a gate f_tn for each token and channel n.

    f_tn = sigmoid(<w_hn, x_t> + b_hn), where x_t is the attention layer's input. The gates are those of the tokens
    after the key, up to the query, in the query's document. So every channel (dimension of a head) forgets at a pace of
    its own, and a product fades to 0, while FoX lowers the logit itself. w is initialized from N(0, 0.02²) and b with
    8, so that a new model forgets very little: f = 0.99966. With `gate`, FoX's bias with one more gate for each head is
    added to the scaled product; its b starts at 8 too. Position IDs are not used.

    Beyond the training length: the gates act in the same way. What is left of a channel decreases with every token
    whose gate is below 1, and a key of which nothing is left has the logit 0.

    Source: Tilde Research 2026, "Wall Attention" (blog.tilderesearch.com/blog/wall-attn).
    Code: fla, layers/wall_attn.py; `gate` is its `use_scalar_gate`.
    Differs: no known difference. The logarithms of gates are added up in float64. The layer's options of an output gate
    and of a norm of q and k belong to the model.

    >>> wall = Wall(num_heads=1, head_dim=2, d_model=1)
    >>> _ = wall.b.data.copy_(torch.tensor([[0.0, -3.0]]).exp().reciprocal().log())     # sigmoid: 1/2, 0.9526
    >>> (product,) = wall.content(wall.features(torch.zeros(1, 2, 1)), Span.of(2), None)
    >>> product.prefix_sum[0, 0].detach()               # ln f of the first token, and of both
    tensor([[-0.6931, -0.0486],
            [-1.3863, -0.0972]], dtype=torch.float64)
    """

    shared_across_layers: ClassVar[bool] = False
    num_axes = None
    content_is_local: ClassVar[bool] = True

    def __init__(self, *, num_heads: int, head_dim: int, d_model: int, gate: bool = False):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.w = nn.Parameter(torch.randn(num_heads, head_dim, d_model) * 0.02)
        self.b = nn.Parameter(torch.full((num_heads, head_dim), _INITIAL_BIAS))
        self.gate = FoX(num_heads=num_heads, d_model=d_model) if gate else None
        if self.gate is not None:
            nn.init.constant_(self.gate.b, _INITIAL_BIAS)

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t r"]:
        """Return ln f_t of every head and channel, and with `gate` that of every head's own gate."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            log_f = F.logsigmoid(F.linear(x.to(dtype), self.w.to(dtype).flatten(0, 1), self.b.to(dtype).flatten()))
        return log_f if self.gate is None else torch.cat([log_f, self.gate.features(x)], -1)

    def content(
        self, features: Float[Tensor, "b j r"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[DecayProduct | CumulativeBias, ...]:
        channels = self.num_heads * self.head_dim
        log_f = features[..., :channels].to(table_dtype(features.device)).mT
        total = cumulative_sum(log_f, documents).unflatten(1, (self.num_heads, self.head_dim)).mT
        product = DecayProduct(total, documents)
        return (
            (product,)
            if self.gate is None
            else (product, *self.gate.content(features[..., channels:], span, documents))
        )
