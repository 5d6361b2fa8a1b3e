"""PaTHFoX: PaTH together with FoX's forget gates."""

from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.encodings.fox import FoX
from lengthwise.encodings.path import PaTH, PaTHArguments
from lengthwise.forms import CumulativeBias, HouseholderProduct
from lengthwise.span import Span


class PaTHFoX(PaTH):
    """PaTH-FoX: the product of PaTH plus the bias of FoX, b(h, i, j) = ln f_j+1 + ... + ln f_i nats.

    f_t = sigmoid(<w_h, x_t> + b_h) is a gate of each token and head, with parameters initialized as those of FoX. The bias is added
    to the scaled product. With `scaled_gate` it is added before scaling, as in the published code: it is then divided by √d, like
    the products of attention with the usual scale.

    Beyond the training length: each token between query and key takes something off their product, as in PaTH, and lowers the
    weight of the key by its gate.

    Source: Yang et al. 2025, "PaTH Attention: Position Encoding via Accumulating Householder Transformations".
    Code: fla, layers/path_attn.py with `use_forget_gate`; `scaled_gate=True` here.
    Differs: the code scales the gates, but FoX does not, and nor does its code; so that is the default here. As in PaTH, every head
    has its own H_t by default.

    >>> path = PaTHFoX(num_heads=1, head_dim=4, d_model=1, scaled_gate=True); _ = path.gate.w.data.fill_(1.0)
    >>> features = path.features(torch.zeros(1, 3, 1))               # every gate is 1/2
    >>> product, bias = path.content(features, Span.of(3), None)
    >>> bias.prefix_sum[0, 0].detach()                               # -ln 2 / √4 for every token
    tensor([-0.3466, -0.6931, -1.0397], dtype=torch.float64)
    """

    def __init__(self, *, scaled_gate: bool = False, **path: Unpack[PaTHArguments]):
        super().__init__(**path)
        self.gate = FoX(num_heads=path["num_heads"], d_model=path["d_model"])
        self.gate_scale = path["head_dim"] ** -0.5 if scaled_gate else 1.0

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t r"]:
        """Return the features of PaTH, and the logarithm of every head's gate, scaled if it is to be."""
        return torch.cat([super().features(x), self.gate.features(x) * self.gate_scale], -1)

    def content(
        self, features: Float[Tensor, "b j r"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[HouseholderProduct | CumulativeBias, ...]:
        of_path, log_f = features.split([features.shape[-1] - self.num_heads, self.num_heads], -1)
        return (*super().content(of_path, span, documents), *self.gate.content(log_f, span, documents))
