"""Attention logits of a trained model, layer by layer, in blocks of queries, so that no full matrix is stored."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.attention import Mask
from lengthwise.attention.backends import reference
from lengthwise.config import ConfigError
from lengthwise.forms import AttentionModifiers, table_dtype
from lengthwise.models import Model, require_decoder
from lengthwise.span import PairBlock, Span

MAX_NUMBERS = {"cpu": 1 << 18, "other": 1 << 24}  # in a block of rows of all heads


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of one layer's attention."""

    modifiers: AttentionModifiers
    span: Span
    mask: Mask
    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b g j d"]
    scale: float

    @property
    def heads(self) -> int:
        return self.q.shape[1]

    def blocks(self, rows: int) -> Iterator[tuple[slice, slice, Float[Tensor, "b h i j"]]]:
        """Yield for each block of `rows` queries: the queries, the keys that they may see, and the logits, −inf at
        masked keys.

        Logits have the dtype `forms.table_dtype`, and are computed from products in float32 or a higher precision.
        """
        yield from self._logits(self.mask.query_blocks(rows))

    def row(self, query: int) -> Float[Tensor, "b h j"]:
        """Return the logits of one query for all keys, −inf at masked keys. Those of other queries are not computed."""
        block = PairBlock(queries=slice(query, query + 1), keys=slice(0, self.mask.keys))
        ((_, _, logits),) = self._logits([block])
        return logits[:, :, 0]

    def _logits(self, blocks: Iterable[PairBlock]) -> Iterator[tuple[slice, slice, Float[Tensor, "b h i j"]]]:
        dtype = torch.promote_types(self.q.dtype, torch.float32)
        q, k = self.q.to(dtype), self.k.to(dtype).repeat_interleave(self.heads // self.k.shape[1], 1)
        for block in blocks:
            queries, keys = block.queries, block.keys
            modifiers, span = self.modifiers.select(block), self.span.select(block)
            visible = self.mask.visible(q.device, queries, keys)[:, None]
            logits = reference.logits(modifiers, q[:, :, queries], k[:, :, keys], span, visible, self.scale)
            yield queries, keys, logits.to(table_dtype(q.device)).masked_fill(~visible, -math.inf)


def attention_calls(
    model: Model,
    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
    positions: Int[Tensor, "#b t"] | None = None,
) -> list[AttentionCall]:
    """Return the arguments of every layer's attention when the model reads `inputs`, in the order of the layers."""
    model = require_decoder(model)
    if model.training:
        raise ConfigError("the model must be in evaluation mode for a probe; call model.eval() first")
    calls: list[AttentionCall] = []

    def watch(
        layer: int, modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, scale: float
    ) -> None:
        calls.append(AttentionCall(modifiers, span, mask, q, k, scale))

    model(inputs, positions=positions, watch=watch)
    return calls


def block_rows(device: torch.device, numbers_per_row: int) -> int:
    """Return the number of queries in a block, if each query needs `numbers_per_row` numbers."""
    limit = MAX_NUMBERS["cpu" if device.type == "cpu" else "other"]
    return min(max(limit // max(1, numbers_per_row), 1), 256)
