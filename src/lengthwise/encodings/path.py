"""PaTH, alone and with forget gates.

PaTH: every token between query and key reflects the query, in a direction that is computed from the content.
PaTHFoX: PaTH together with FoX's forget gates.
"""

from typing import Any, ClassVar, Required, TypedDict, Unpack

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.documents import shifted
from lengthwise.encodings.fox import FoX
from lengthwise.forms import CumulativeBias, HouseholderProduct
from lengthwise.span import Span


class PaTHArguments(TypedDict, total=False):
    """The arguments of `PaTH`, which PaTH-FoX takes too."""

    num_heads: Required[int]
    head_dim: Required[int]
    d_model: Required[int]
    key_heads: int | None
    rank: int
    width: int


class PaTH(PositionEncoding):
    """The product of q_i and k_j is <q_i, H_i H_i-1 ... H_j+1 k_j> with a matrix H_t = I - β_t w_t w_tᵀ for each token
    and head.

    β_t = 2 sigmoid(<u_h, x_t> + b_h) is between 0 and 2, where x_t is the attention layer's input: with β_t = 1, H_t
    removes the part of a vector along w_t, and with β_t = 2 it reflects it. w_t = y_t / sqrt(|y_t|² + 1e-6), y_t =
    silu(c_0 z_t + c_1 z_t-1 + ...) and z_t = A_h B x_t. The causal convolution has `width` numbers c for each head and
    dimension, and B has `rank` rows. Convolution and product go over the tokens of one document. The query's own H is
    among the factors, and the key's is not. All weights are initialized from N(0, 0.02²) and b with 0, so at first β_t
    is near 1. Position IDs are not used.

    By default every head has its own H_t. `key_heads` is a number of groups of heads that share them, as heads with the
    same key do in the published code.

    Beyond the training length: the product has more factors. None of them makes a vector longer, and where β is not 2,
    each takes something off it, so products with distant keys shrink.

    Source: Yang et al. 2025, "PaTH Attention: Position Encoding via Accumulating Householder Transformations".
    Code: fla, layers/path_attn.py.
    Differs: fla has H_t for each key head, which is `key_heads` here. Instead of A B it can use one matrix, which a
    larger `rank` contains. Its option of a norm of q and k belongs to the model.

    >>> path = PaTH(num_heads=1, head_dim=2, d_model=2, rank=2, width=1)
    >>> _ = path.A.data.copy_(100 * torch.eye(2)), path.B.data.copy_(torch.eye(2)), path.c.data.fill_(1.0)
    >>> _ = path.u.data.zero_()                                            # every β is 1
    >>> z = path.features(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))        # w: (1, 0), (0, 1)
    >>> (product,) = path.content(z, Span.of(2), None)
    >>> product.w[0, 0].detach(), product.beta[0, 0].detach()
    (tensor([[1., 0.],
            [0., 1.]]), tensor([1., 1.]))
    """

    shared_across_layers: ClassVar[bool] = False
    num_axes = None
    # Other numbers of key heads do not divide every number of heads.
    alternatives: ClassVar[dict[str, tuple[Any, ...]]] = {"key_heads": (1,)}

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        d_model: int,
        key_heads: int | None = None,
        rank: int = 32,
        width: int = 3,
    ):
        super().__init__()
        name = type(self).__name__
        require_positive_int(name, rank=rank, width=width)
        groups = num_heads if key_heads is None else key_heads
        require_positive_int(name, key_heads=groups)
        if num_heads % groups:
            raise ConfigError(
                f"{name}: key_heads must divide the number of heads, or be None for one per head, got {groups} and "
                f"{num_heads}"
            )
        self.num_heads, self.head_dim = num_heads, head_dim
        self.A = nn.Parameter(torch.randn(groups, head_dim, rank) * 0.02)
        self.B = nn.Parameter(torch.randn(rank, d_model) * 0.02)
        self.c = nn.Parameter(torch.randn(groups, head_dim, width) * 0.02)
        self.u = nn.Parameter(torch.randn(groups, d_model) * 0.02)
        self.b = nn.Parameter(torch.zeros(groups))

    @classmethod
    def nominal(cls, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
        # Which numbers of key heads are valid depends on the number of heads of the model.
        sizes, settings = super().nominal(settings)
        return {**sizes, "num_heads": max(1, settings.get("key_heads") or 1)}, settings

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t r"]:
        """Return z of all heads, concatenated, and β of every head."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(dtype)
            z = F.linear(F.linear(x, self.B.to(dtype)), self.A.to(dtype).flatten(0, 1))
            beta = 2 * torch.sigmoid(F.linear(x, self.u.to(dtype), self.b.to(dtype)))
            return torch.cat([z, beta], -1)

    def content(
        self, features: Float[Tensor, "b j r"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[HouseholderProduct | CumulativeBias, ...]:
        groups, head_dim, width = self.c.shape
        z, beta = features.mT.split([groups * head_dim, groups], 1)  # [b, heads, j]
        weights = self.c.to(z.dtype).flatten(0, 1)
        total = z * weights[:, :1]
        for n in range(1, width):
            total = total + shifted(z, n, documents) * weights[:, n : n + 1]
        y = F.silu(total).unflatten(1, (groups, head_dim)).mT  # [b, heads, j, d]
        w = y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6)
        w, beta = (x.repeat_interleave(self.num_heads // groups, 1) for x in (w, beta))
        return (HouseholderProduct(w, beta, documents),)


class PaTHFoX(PaTH):
    """PaTH-FoX: the product of PaTH plus the bias of FoX, b(h, i, j) = ln f_j+1 + ... + ln f_i nats.

    f_t = sigmoid(<w_h, x_t> + b_h) is a gate of each token and head, with parameters initialized as those of FoX. The
    bias is added to the scaled product. With `scaled_gate` it is added before scaling, as in the published code: it is
    then divided by √d, like the products of attention with the usual scale.

    Beyond the training length: each token between query and key takes something off their product, as in PaTH, and
    lowers the weight of the key by its gate.

    Source: Yang et al. 2025, "PaTH Attention: Position Encoding via Accumulating Householder Transformations".
    Code: fla, layers/path_attn.py with `use_forget_gate`; `scaled_gate=True` here.
    Differs: the code scales the gates, but FoX does not, and nor does its code; so that is the default here. As in
    PaTH, every head has its own H_t by default.

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
