"""How different two distributions over keys are, in nats."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor
from torch.special import entr


def jensen_shannon(p: Float[Tensor, "*#n j"], q: Float[Tensor, "*#n j"]) -> Float[Tensor, "*n"]:
    """½ KL(P‖M) + ½ KL(Q‖M) with M = (P + Q) / 2: from 0, for equal ones, to ln 2, for those that share no key.

    Computed as H(M) − ½ H(P) − ½ H(Q), with H the entropy in nats: exact to rounding, zeros included.

    >>> jensen_shannon(torch.tensor([0.9, 0.1]), torch.tensor([0.1, 0.9]))  # 0.9 ln(0.9/0.5) + 0.1 ln(0.1/0.5)
    tensor(0.3681)
    """
    apart: Tensor = entr((p + q) / 2).sum(-1) - (entr(p).sum(-1) + entr(q).sum(-1)) / 2
    return apart.clamp(min=0)  # rounding alone would go below


def published_divergence(p: Float[Tensor, "*#n j"], q: Float[Tensor, "*#n j"]) -> Float[Tensor, "*n"]:
    """½ KL(M‖P) + ½ KL(M‖Q) with M = (P + Q) / 2: what the published code computes instead of `jensen_shannon`.

    It is from 0 as well, but has no upper bound, and is infinite where one of the two has a zero that the other has not.
    """
    m = (p + q) / 2
    cross = (m * (p.log() + q.log())).masked_fill(m == 0, 0)
    apart: Tensor = -entr(m).sum(-1) - cross.sum(-1) / 2
    return apart.clamp(min=0)  # as above: no divergence is negative


Divergence = Callable[[Tensor, Tensor], Tensor]

VARIANTS: dict[str, Divergence] = {"jensen-shannon": jensen_shannon, "published": published_divergence}
"""What distances between models are made of. "published" also pairs heads as the published code does, see `pair_distances`."""
