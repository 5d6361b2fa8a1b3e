"""CoPE: positions that are counted by gates on the content."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, LogitTransform, table_dtype
from lengthwise.span import Span


class CoPE(PositionEncoding):
    """logit(h, i, j) += <q_i, e[p_ij]> nats, with gates g_il = sigmoid(logit(h, i, l)) and p_ij = g_ij + ... + g_ii.

    The sum is over the keys from j to i that query i attends to. p_ij is at most `max_position` - 1.

    e has `max_position` rows. Between rows it is interpolated: e[p] = (1 - a) e[floor p] + a e[ceil p], a = p - floor
    p. All heads share the rows; they differ because each head has its own q. The rows are initialized with 0, so a new
    model has no position information. The gates read the scaled logits; the product with e is not scaled. Position IDs
    are not used.

    Beyond the training length: the bias depends on the counts and not on the number of tokens. If a head counts more
    than `max_position` - 1, all further keys share the last row.

    Source: Golovneva et al. 2024, "Contextual Position Encoding: Learning to Count What's Important".
    Code: the listing in the paper's appendix B (rows shared by the heads, initialized with 0, gates from masked
    logits).
    Differs: no known difference. The sum over gates is in float64.

    >>> cope = CoPE(head_dim=1, max_position=3); _ = cope.e.data.copy_(torch.tensor([[0.0], [1.0], [5.0]]))
    >>> visible, q = torch.ones(2, 2).tril().bool()[None, None], torch.tensor([[[[1.0], [2.0]]]])
    >>> cope.add_bias(torch.zeros(1, 1, 2, 2), q, visible, 1.0)[0, 0].detach().tril()     # p = 0.5; then 1.0 and 0.5
    tensor([[0.5000, 0.0000],
            [2.0000, 1.0000]])
    """

    shared_across_layers: ClassVar[bool] = False
    num_axes = None

    def __init__(self, *, head_dim: int, max_position: int = 64):
        super().__init__()
        require_positive_int("CoPE", max_position=max_position)
        self.head_dim = head_dim
        self.e = nn.Parameter(torch.zeros(max_position, head_dim))

    def add_bias(self, logits: Tensor, q: Tensor, visible: Tensor, scale: float) -> Tensor:
        """Return the logits [b, h, i, j] plus their bias. The arguments are those of `LogitTransform`."""
        gates = torch.where(visible, logits, -torch.inf).sigmoid().to(table_dtype(logits.device))
        p = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.e) - 1)
        below, above = p.detach().floor(), p.detach().ceil()
        rows = q @ self.e.to(q.dtype).T  # [b, h, i, max_position]
        # If a query sees NaN, p is NaN. Any row will do then, because the interpolation weight is NaN too.
        low, high = (rows.gather(-1, row.nan_to_num(nan=0.0).long()) for row in (below, above))
        return logits + torch.lerp(low, high, (p - below).to(rows.dtype))

    def modifiers(self, span: Span) -> AttentionModifiers:
        transform = LogitTransform(lambda logits, q, visible, scale, _: self.add_bias(logits, q, visible, scale))
        return AttentionModifiers(logit_transform=transform)
