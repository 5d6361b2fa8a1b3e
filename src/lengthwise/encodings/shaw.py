"""Shaw: a learned vector for each distance, added to keys and to values."""

from typing import ClassVar

import torch
from torch import nn

from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, RelativeKeyBias, RelativeValues, table_dtype
from lengthwise.span import Span


class Shaw(PositionEncoding):
    """Logits are scale · <q_i, k_j + w^K_r> and the output is Σ_j weight_ij (v_j + w^V_r), r = clip(j - i, -clip,
    clip).

    w^K and w^V have 2 clip + 1 rows of head_dim numbers, with row r + clip for r. The heads of a layer share them;
    layers do not. Both are initialized from U(-a, a), a² = 6 / (2 clip + 1 + head_dim). Under a causal mask, rows with
    r > 0 are used only if position IDs decrease (position scheme `Digits`). `values=False` omits w^V.

    Beyond the training length: all distances from `clip` on have the same vector.

    Source: Shaw et al. 2018, "Self-Attention with Relative Position Representations", eq. 3-5 (clip 16 in the base
    model).
    Code: tensor2tensor (`dot_product_attention_relative`).
    Differs: the paper does not say how the vectors are initialized; this is the default of tensor2tensor for a matrix.

    >>> shaw = Shaw(head_dim=1, clip=2); _ = nn.init.zeros_(shaw.key_vectors.data)[3:].fill_(7.0)
    >>> shaw.modifiers(Span.of(3)).terms[0].table[0, :, 0].detach()     # distances i - j from -2 to 2
    tensor([7., 7., 0., 0., 0.], dtype=torch.float64)
    """

    shared_across_layers: ClassVar[bool] = False

    def __init__(self, *, head_dim: int, clip: int = 16, values: bool = True):
        super().__init__()
        require_positive_int("Shaw", clip=clip)
        self.head_dim, self.clip = head_dim, clip
        self.key_vectors = self._initial_vectors()
        self.value_vectors = self._initial_vectors() if values else None

    def _initial_vectors(self) -> nn.Parameter:
        return nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * self.clip + 1, self.head_dim)))

    def modifiers(self, span: Span) -> AttentionModifiers:
        # Rows are ordered by j - i, a form's table by i - j.
        dtype = table_dtype(span.q.device)
        vectors = [rows for rows in (self.key_vectors, self.value_vectors) if rows is not None]
        keys, *values = (rows.to(dtype).flip(0)[None] for rows in vectors)
        return AttentionModifiers(
            terms=(RelativeKeyBias(keys, first=-self.clip),),
            values=tuple(RelativeValues(table, first=-self.clip) for table in values),
        )
