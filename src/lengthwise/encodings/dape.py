"""DAPE: a bias that an MLP adapts to the products of queries and keys."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.alibi import ALiBi
from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import PositionEncoding, table_columns
from lengthwise.encodings.fire import FIRE
from lengthwise.encodings.kerple import KerpleLog
from lengthwise.forms import AttentionModifiers, LogitTransform, column
from lengthwise.span import Span

_Base = Literal["alibi", "kerple_log", "fire"]


class DAPE(PositionEncoding):
    """logit(h, i, j) = A + B + f(A, B)_h with A = scaled <q_i, k_j>, B = the bias of `base`, in nats, and f an MLP
    across heads:

        f(A, B) = W2 leaky(W1 [A_1 ... A_H, B_1 ... B_H] + b1) + b2,     leaky(x) = max(x, 0.01 x)

    The hidden layer has `width` units. f reads all heads of one pair of tokens, so a masked pair does not affect
    others. A key whose position ID is higher than its query's (position scheme `Digits`) counts as distance 0. W and b
    are initialized like those of nn.Linear.

    Beyond the training length: B behaves as in its base encoding, and f gets values of B that it did not see in
    training. With "fire", B stays in the range of training but also depends on the query's position, so shifting all
    positions changes the result.

    Source: Zheng et al. 2024, "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation"; DAPE-ALiBi, -Kerple,
    -FIRE.
    Code: chuanyang-Zheng/DAPE (with 32 hidden units).
    Differs: in the code, FIRE's own MLP has a leaky relu too. Here FIRE has one hidden layer as there, and relu. Its L
    is initialized with half the training length; the authors' training code has 256 for 512.

    >>> dape = DAPE(num_heads=1, train_length=8, base="alibi", width=1)      # slope 1/256
    >>> for p in dape.parameters(): _ = p.data.fill_(1.0)
    >>> dape.mix(torch.tensor([[[[2.0]]]]), dape.bias(Span.of(1)))[0, 0].detach()     # 2 + 0 + (1 · (2 + 0 + 1) + 1)
    tensor([[6.]])
    """

    version: ClassVar[int] = 2
    shared_across_layers: ClassVar[bool] = False

    def __init__(self, *, num_heads: int, train_length: int, base: _Base = "kerple_log", width: int = 32):
        super().__init__()
        require_positive_int("DAPE", width=width)
        self.base: ALiBi | KerpleLog | FIRE
        if base == "fire":
            self.base = FIRE(num_heads=num_heads, hidden_layers=1, width=width, L=train_length / 2)
        else:
            self.base = (ALiBi if base == "alibi" else KerpleLog)(num_heads=num_heads)
        self.shift_invariant = self.base.shift_invariant  # type: ignore[misc]
        self.first, self.second = nn.Linear(2 * num_heads, width), nn.Linear(width, num_heads)

    def tracked(self) -> Mapping[str, Tensor]:
        """Return those of the base encoding."""
        return self.base.tracked()

    def bias(self, span: Span) -> Float[Tensor, "b h i j"]:
        """Return B of every pair. Its values for keys after the query are arbitrary."""
        return self._bias_function(span)(span)

    def _bias_function(self, span: Span) -> Callable[[Span], Float[Tensor, "b h i j"]]:
        """Return a function that computes B for a part of the span.

        A distance bias is computed once, for the whole span. If its parameters have bounds, `project` uses the sign of
        their gradient, and the gradient of one part may differ in sign from that of the whole.
        """
        if isinstance(self.base, FIRE):
            return self.base.pairwise_bias
        cols = table_columns(span, 0, span.distance_bound, lambda: self.second.out_features)
        table = self.base.checked_bias(cols.distance)
        return lambda block: table[:, column(block.distance(), len(cols.distance), 0, cols.distances)].transpose(0, 1)

    def mix(self, logits: Float[Tensor, "b h i j"], bias: Float[Tensor, "#b g i j"]) -> Float[Tensor, "b h i j"]:
        """Return A + B + f(A, B), with `logits` = A and `bias` = B."""
        heads, got = self.second.out_features, logits.shape[1]
        if got != heads:
            raise ConfigError(f"DAPE: q must have num_heads = {heads} heads, got {got}; set num_heads to that")
        bias = bias.to(logits.dtype)
        pairs = torch.cat([logits, bias.expand_as(logits)], 1).movedim(1, -1)
        (w1, b1), (w2, b2) = ((p.to(logits.dtype) for p in (m.weight, m.bias)) for m in (self.first, self.second))
        return logits + bias + F.linear(F.leaky_relu(F.linear(pairs, w1, b1)), w2, b2).movedim(-1, 1)

    def modifiers(self, span: Span) -> AttentionModifiers:
        # B is not a separate term: at large distances it is so large that A could not be recovered from A + B.
        bias_of = self._bias_function(span)
        transform = LogitTransform(lambda logits, q, visible, scale, block: self.mix(logits, bias_of(block)))
        return AttentionModifiers(logit_transform=transform)
