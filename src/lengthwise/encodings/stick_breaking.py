"""Stick-breaking attention: each key, from the nearest on, takes a share of what nearer keys have left."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, LogitTransform, table_dtype
from lengthwise.span import Span

_NEVER = -1e5  # nats; the weight is exactly 0, and a row of only such keys has no NaN


class StickBreaking(PositionEncoding):
    """The weight of key j is σ(z_ij) · Π_l (1 - σ(z_il)), for all keys l between j and the query i; σ is the sigmoid, z
    the logits.

    There is no softmax. The nearest key takes the share σ(z) of the whole, the next one its share of the rest, and so
    on, so of keys with equal logits the nearest has the largest weight. The weights sum to at most 1; what is left has
    no value. By default the query's own key has no weight, so the first token of a text attends to nothing. With
    `current` it is the nearest key. Keys that a mask hides take no share. There are no parameters, and position IDs are
    not used.

    Beyond the training length: more keys change nothing for those that are nearer. Keys that are far away share what is
    left.

    Source: Tan et al. 2025, "Scaling Stick-Breaking Attention: An Efficient Implementation and In-depth Study".
    Code: shawntan/stickbreaking-attention; fla, layers/stickbreaking_attn.py; the authors' model is in
    IBM/dolomite-engine (`SBAttention`).
    Differs: what is left is multiplied by a learned vector of each head in the authors' model, and by the query's own
    value in the tests of their kernels; here, as in fla, it has no value. The model also normalizes the output of each
    head, which would belong to a model. Products are sums of logarithms, added up in float64.

    >>> stick = StickBreaking()
    >>> visible, q = torch.ones(1, 1, 4, 4).tril().bool(), torch.zeros(1, 1, 4, 1)
    >>> stick.log_weights(torch.zeros(1, 1, 4, 4), q, visible, 1.0).exp()[0, 0, 3]       # the rest is 1/8
    tensor([0.1250, 0.2500, 0.5000, 0.0000])
    """

    num_axes = None
    has_softmax: ClassVar[bool] = False

    def __init__(self, *, current: bool = False):
        super().__init__()
        self.current = current

    def log_weights(self, logits: Tensor, q: Tensor, visible: Tensor, scale: float) -> Tensor:
        """Return the logarithms of the weights [b, h, i, j]. The arguments are those of `LogitTransform`."""
        queries, keys = logits.shape[-2:]
        seen = visible if self.current else visible.tril(keys - queries - 1)  # the queries are the last of the keys
        z = torch.where(seen, logits, 0.0).to(table_dtype(logits.device))
        left = torch.where(seen, F.logsigmoid(-z), 0.0)  # ln of what a key leaves to keys that are further away
        nearer = F.pad(left.flip(-1).cumsum(-1), (1, -1)).flip(-1)
        return torch.where(seen, F.logsigmoid(z) + nearer, _NEVER).to(logits.dtype)

    def modifiers(self, span: Span) -> AttentionModifiers:
        transform = LogitTransform(
            lambda logits, q, visible, scale, _: self.log_weights(logits, q, visible, scale), softmax=False
        )
        return AttentionModifiers(logit_transform=transform)
