"""DAPE: a bias that an MLP adapts to the logits it meets."""

from collections.abc import Callable
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.alibi import ALiBi
from lengthwise.encodings.base import DistanceBias, PositionEncoding, at_least, columns
from lengthwise.encodings.fire import FIRE
from lengthwise.encodings.kerple_log import KerpleLog
from lengthwise.forms import AttentionModifiers, LogitTransform, column
from lengthwise.span import Span

_Base = Literal["alibi", "kerple_log", "fire"]


class DAPE(PositionEncoding):
    """logit(h, i, j) = A + B + f(A, B)_h with A = scaled <q_i, k_j>, B = the bias of `base`, in nats, and f an MLP across heads:

        f(A, B) = W2 leaky(W1 [A_1 ... A_H, B_1 ... B_H] + b1) + b2,     leaky(x) = max(x, 0.01 x), `width` between

    f sees one pair of tokens at a time, all heads of it, so a pair that is masked changes no other. A key at a higher
    position than its query (position scheme `Digits`) is at distance 0. W and b are drawn as torch draws those of nn.Linear.

    Past the trained length: B as its base has it, and f at values of B that it has not met ("fire" stays in its range, and
    there goes by the query's position too, so that moving all positions changes what it does).

    Source: Zheng et al. 2024, "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation"; DAPE-ALiBi, -Kerple, -FIRE.
    Code: chuanyang-Zheng/DAPE (32 wide).
    Differs: in the code FIRE's own MLP is leaky as well; here it is FIRE with one hidden layer as there, and relu. Its L begins at
    half the trained length, where the authors' training code has 256 for 512.

    >>> dape = DAPE(num_heads=1, train_length=8, base="alibi", width=1)      # slope 1/256
    >>> for p in dape.parameters(): _ = p.data.fill_(1.0)
    >>> dape.mix(torch.tensor([[[[2.0]]]]), dape.bias(Span.of(1)))[0, 0].detach()     # 2 + 0 + (1 · (2 + 0 + 1) + 1)
    tensor([[6.]])
    """

    version: ClassVar[int] = 2
    shared_across_layers: ClassVar[bool] = False

    def __init__(self, *, num_heads: int, train_length: int, base: _Base = "kerple_log", width: int = 32):
        super().__init__()
        at_least("DAPE", num_heads=num_heads, train_length=train_length, width=width)
        if base not in get_args(_Base):
            raise ConfigError(f"DAPE: base is {base!r}; it is one of {', '.join(get_args(_Base))}")
        self.base: ALiBi | KerpleLog | FIRE
        if base == "fire":
            self.base = FIRE(num_heads=num_heads, hidden_layers=1, width=width, L=train_length / 2)
        else:
            self.base = (ALiBi if base == "alibi" else KerpleLog)(num_heads=num_heads)
        self.shift_invariant = self.base.shift_invariant  # type: ignore[misc]  # the base decides
        self.first, self.second = nn.Linear(2 * num_heads, width), nn.Linear(width, num_heads)

    def bias(self, span: Span) -> Float[Tensor, "b h i j"]:
        """B of every pair; what it is for keys after the query does not matter."""
        return self._bias(span)(span)

    def _bias(self, span: Span) -> Callable[[Span], Float[Tensor, "b h i j"]]:
        """B of the pairs of parts of a span.

        A bias of distance is computed once for the whole span: its parameters may have bounds, at which `project` goes by the
        sign of their gradient, and a part's gradient may have another sign than the sum.
        """
        if not isinstance(self.base, DistanceBias):
            return self._fire
        at = columns(span, 0, span.reach, lambda: self.second.out_features)
        table = self.base.bias(at.distance)

        def of(some: Span) -> Float[Tensor, "b h i j"]:
            return table[:, column(some.distance(), len(at.distance), 0, at.distances)].transpose(0, 1)

        return of

    def _fire(self, span: Span) -> Float[Tensor, "b h i j"]:
        assert isinstance(self.base, FIRE)
        query = span.q[:, :, None]
        return self.base.f(self.base.coordinate(query, span.k[:, None].minimum(query))[..., None]).permute(0, 3, 1, 2)

    def mix(self, logits: Float[Tensor, "b h i j"], bias: Float[Tensor, "#b g i j"]) -> Float[Tensor, "b h i j"]:
        """A + B + f(A, B)."""
        if logits.shape[1] != self.second.out_features:
            heads = self.second.out_features
            raise ConfigError(f"DAPE was made for {heads} heads, and q has {logits.shape[1]}; set num_heads to that")
        bias = bias.to(logits.dtype)
        pairs = torch.cat([logits, bias.expand_as(logits)], 1).movedim(1, -1)
        (w1, b1), (w2, b2) = ((p.to(logits.dtype) for p in (m.weight, m.bias)) for m in (self.first, self.second))
        return logits + bias + F.linear(F.leaky_relu(F.linear(pairs, w1, b1)), w2, b2).movedim(-1, 1)

    def modifiers(self, span: Span) -> AttentionModifiers:
        # B is no term: at far distances it is so large that the logits could not be had back from the sum.
        bias = self._bias(span)
        return AttentionModifiers(
            rewrite=LogitTransform(lambda logits, q, visible, scale, some: self.mix(logits, bias(some)))
        )
