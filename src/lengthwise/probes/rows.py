"""The logits of a trained model's attention, layer by layer, some queries at a time: never a whole matrix of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.attention import Mask, reference
from lengthwise.attention.slices import Slices, blocks_of, sliced
from lengthwise.config import ConfigError
from lengthwise.forms import AttentionModifiers, table_dtype
from lengthwise.models import Model, attending
from lengthwise.span import Span

NUMBERS = {"cpu": 1 << 18, "other": 1 << 24}  # in a block of rows of all heads


@dataclass(frozen=True)
class Call:
    """What a layer's attention is called with."""

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
        """For each block of `rows` queries: which they are, which keys they may see, and the logits, −inf where a key is
        not seen. In `forms.table_dtype` precision, from products in float32 at least."""
        yield from self._of(list(blocks_of(self.mask, rows)))

    def row(self, query: int) -> Float[Tensor, "b h j"]:
        """The logits of one query, for all keys: −inf where it does not see them. No other query's are worked out."""
        borders = [0, query, query + 1, self.mask.queries]
        slices = [(slice(a, b), slice(0, self.mask.keys)) for a, b in pairwise(borders) if a < b]
        ((_, _, logits),) = self._of(slices, only=query)
        return logits[:, :, 0]

    def _of(
        self, slices: list[Slices], only: int | None = None
    ) -> Iterator[tuple[slice, slice, Float[Tensor, "b h i j"]]]:
        compute = torch.promote_types(self.q.dtype, torch.float32)
        q, k = self.q.to(compute), self.k.to(compute).repeat_interleave(self.heads // self.k.shape[1], 1)
        each = zip(slices, sliced(self.modifiers, self.span, slices), strict=True)
        for (queries, keys), (modifiers, span) in each:
            if only is not None and queries.start != only:
                continue
            visible = self.mask.visible(q.device, queries, keys)[:, None]
            logits = reference.logits(modifiers, q[:, :, queries], k[:, :, keys], span, visible, self.scale)
            yield queries, keys, logits.to(table_dtype(q.device)).masked_fill(~visible, -math.inf)


def calls_of(
    model: Model,
    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
    positions: Int[Tensor, "#b t"] | None = None,
) -> list[Call]:
    """What the attention of every layer is called with when the model reads `inputs`, in the order of the layers."""
    model = attending(model)
    if model.training:
        raise ConfigError("a probe needs the model in evaluation mode; call model.eval() first")
    calls: list[Call] = []

    def watch(
        layer: int, modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, scale: float
    ) -> None:
        calls.append(Call(modifiers, span, mask, q, k, scale))

    model(inputs, positions=positions, watch=watch)
    return calls


def block_rows(device: torch.device, numbers_per_row: int) -> int:
    """How many queries a block has, when each of them takes so many numbers."""
    most = NUMBERS["cpu" if device.type == "cpu" else "other"]
    return min(max(most // max(1, numbers_per_row), 1), 256)
