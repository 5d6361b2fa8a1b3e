"""The attention of transformers without copies of keys and values, for models whose heads share them.

With a mask, which every chunk after the first has, transformers repeats the keys and values of all groups. In a model
with few layers for its groups, these copies are as large as the cache. Here each group of heads is computed on its own,
from views.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "lengthwise_grouped"  # a name with "flash" in it has a special meaning


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **further: Any,
) -> tuple[Tensor, None]:
    """Return the attention output [b, i, h, d] and no weights, as `sdpa_attention_forward` does."""
    groups, of_all_heads = key.shape[1], attention_mask is not None and attention_mask.shape[1] == 1
    unusual = any(further.get(name) is not None for name in ("position_bias", "softcap", "s_aux", "cache"))
    if groups == query.shape[1] or query.shape[2] == 1 or not of_all_heads or dropout or unusual:
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **further
        )
        return output
    heads = query.shape[1] // groups
    outputs = [
        F.scaled_dot_product_attention(
            query[:, group * heads : (group + 1) * heads],
            key[:, group : group + 1].expand(-1, heads, -1, -1),
            value[:, group : group + 1].expand(-1, heads, -1, -1),
            attn_mask=attention_mask,
            scale=scaling,
        )
        for group in range(groups)
    ]
    return torch.cat(outputs, 1).transpose(1, 2).contiguous(), None


@contextmanager
def without_copies(model: Any) -> Iterator[Any]:
    """Let a model of transformers that uses PyTorch's fused attention compute it by groups within a `with` block."""
    if model.config._attn_implementation != "sdpa" or not model._can_set_attn_implementation():
        yield model
        return
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    try:
        yield model
    finally:
        model.set_attn_implementation("sdpa")
