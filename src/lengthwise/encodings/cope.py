"""CoPE: positions that the content counts."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from lengthwise.encodings.base import PositionEncoding, at_least
from lengthwise.forms import AttentionModifiers, LogitTransform, table_dtype
from lengthwise.span import Span


class CoPE(PositionEncoding):
    """logit(h, i, j) += <q_i, e[p_ij]> nats, with gates g_il = sigmoid(logit(h, i, l)) and p_ij = g_ij + ... + g_ii, counted
    over the keys that i sees from j to i, at most `max_position` - 1.

    e has `max_position` rows, and between rows the product is interpolated: e[p] = (1 - w) e[floor p] + w e[ceil p], w = p -
    floor p. The rows serve all heads; a head's own q makes the difference. They begin at 0, so that a new model has no position
    at all. The gates read the logits with their scale; the product with e has none. The positions that tokens claim are
    never read.

    Past the trained length: what has been counted decides and not how many tokens there were; where a head counts more than
    `max_position` - 1, all further keys share the last row.

    Source: Golovneva et al. 2024, "Contextual Position Encoding: Learning to Count What's Important".
    Code: the listing in the paper's appendix B (rows shared by the heads, zeros at first, gates from masked logits).
    Differs: nothing known. The sum over gates is in float64.

    >>> cope = CoPE(head_dim=1, max_position=3); _ = cope.e.data.copy_(torch.tensor([[0.0], [1.0], [5.0]]))
    >>> seen, q = torch.ones(2, 2).tril().bool()[None, None], torch.tensor([[[[1.0], [2.0]]]])
    >>> cope.rewrite(torch.zeros(1, 1, 2, 2), q, seen, 1.0)[0, 0].detach().tril()     # p = 0.5; then 1.0 and 0.5
    tensor([[0.5000, 0.0000],
            [2.0000, 1.0000]])
    """

    shared_across_layers: ClassVar[bool] = False

    def __init__(self, *, head_dim: int, max_position: int = 64):
        super().__init__()
        at_least("CoPE", head_dim=head_dim, max_position=max_position)
        self.head_dim = head_dim
        self.e = nn.Parameter(torch.zeros(max_position, head_dim))

    def rewrite(self, logits: Tensor, q: Tensor, visible: Tensor, scale: float) -> Tensor:
        """[b, h, i, j] -> [b, h, i, j], see `LogitTransform`."""
        gates = torch.where(visible, logits, -torch.inf).sigmoid().to(table_dtype(logits.device))
        p = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.e) - 1)
        below, above = p.detach().floor(), p.detach().ceil()
        rows = q @ self.e.to(q.dtype).T  # [b, h, i, max_position]
        # Where a query sees NaN, p is NaN, which is no row; any row will do, as the weight between them is NaN.
        low, high = (rows.gather(-1, at.nan_to_num(nan=0.0).long()) for at in (below, above))
        return logits + torch.lerp(low, high, (p - below).to(rows.dtype))

    def modifiers(self, span: Span) -> AttentionModifiers:
        return AttentionModifiers(
            rewrite=LogitTransform(lambda logits, q, visible, scale, _: self.rewrite(logits, q, visible, scale))
        )
