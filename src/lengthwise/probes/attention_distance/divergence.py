"""Divergences between two distributions over keys, in nats."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor
from torch.special import entr


def jensen_shannon(p: Float[Tensor, "*#n j"], q: Float[Tensor, "*#n j"]) -> Float[Tensor, "*n"]:
    """Return ½ KL(P‖M) + ½ KL(Q‖M) with M = (P + Q) / 2: 0 for equal distributions, ln 2 for those without a common key.

    Computed as H(M) − ½ H(P) − ½ H(Q), with H the entropy in nats: exact to rounding, zeros included.

    >>> jensen_shannon(torch.tensor([0.9, 0.1]), torch.tensor([0.1, 0.9]))  # 0.9 ln(0.9/0.5) + 0.1 ln(0.1/0.5)
    tensor(0.3681)
    """
    divergence: Tensor = entr((p + q) / 2).sum(-1) - (entr(p).sum(-1) + entr(q).sum(-1)) / 2
    return divergence.clamp(min=0)  # rounding can make it negative


def published_divergence(p: Float[Tensor, "*#n j"], q: Float[Tensor, "*#n j"]) -> Float[Tensor, "*n"]:
    """Return ½ KL(M‖P) + ½ KL(M‖Q) with M = (P + Q) / 2, which the published code computes instead of `jensen_shannon`.

    It is at least 0, has no upper bound, and is infinite if only one of the two distributions is zero at some key.
    """
    m = (p + q) / 2
    cross = (m * (p.log() + q.log())).masked_fill(m == 0, 0)
    divergence: Tensor = -entr(m).sum(-1) - cross.sum(-1) / 2
    return divergence.clamp(min=0)  # rounding can make it negative


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "jensen-shannon": jensen_shannon,
    "published": published_divergence,
}
"""The divergence of each variant of `attention_distance`. "published" also pairs heads as the published code does; see
`pair_distances`."""
