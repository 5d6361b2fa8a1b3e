"""The `reference` backend: every form by its definition, in float64 too. All other backends agree with it."""

import math
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lengthwise import forms
from lengthwise.attention.backends.base import Attend, Backend, Measurement, in_compute_dtype
from lengthwise.attention.masks import Mask
from lengthwise.forms.tables import scatter_columns
from lengthwise.span import Span

BLOCK_LOGITS = {"cpu": 1 << 18, "other": 1 << 25}  # logits that statistics process together


class Reference(Backend):
    """Every form by its definition, `dense`, with tensors of all pairs of queries and keys."""

    name = "reference"
    supports_transforms = True

    def unsupported_reason(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
        """Return None: this backend supports all modifiers."""
        return None

    def prepare(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask) -> Attend:
        """Return attention for one span: softmax(scale · <rotated q, rotated k> + terms) v, as the papers write it."""
        return partial(in_compute_dtype, partial(_attend, modifiers, span, mask))

    def statistics_unsupported_reason(
        self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor
    ) -> str | None:
        """Return None: this backend supports all modifiers."""
        return None

    def statistics(self, measurement: Measurement, q: Tensor, k: Tensor) -> Float[Tensor, "b h i m"]:
        """Return the statistics of every query, computed for some queries at a time."""
        mask, scale = measurement.mask, measurement.scale
        with torch.autocast(q.device.type, enabled=False):  # autocast would compute products in half precision
            compute, device = torch.promote_types(q.dtype, torch.float32), q.device
            q, k = q.to(compute), k.to(compute).repeat_interleave(q.shape[1] // k.shape[1], 1)
            max_logits = BLOCK_LOGITS["cpu" if device.type == "cpu" else "other"]
            rows_per_block = max_logits // max(1, len(q) * q.shape[1] * mask.keys)
            edges, rank = torch.tensor(measurement.edges, dtype=torch.long, device=device), measurement.rank(device)
            out = torch.empty(*q.shape[:3], len(edges) + 4, dtype=forms.table_dtype(device), device=device)
            product = measurement.modifiers.product
            in_blocks = None if product is None else product.in_blocks(k, mask.queries)
            for block in mask.query_blocks(min(max(rows_per_block, 1), 256)):
                rows, keys = block.queries, block.keys
                modifiers, span = measurement.modifiers.select(block), measurement.span.select(block)
                visible = mask.visible(device, rows, keys)[:, None]
                products = None if in_blocks is None else in_blocks.logits(q[:, :, rows], rows, keys)
                block_logits = logits(modifiers, q[:, :, rows], k[:, :, keys], span, visible, scale, products)
                weights = weights_of(modifiers, block_logits.masked_fill(~visible, -math.inf))
                weights = weights.to(forms.table_dtype(device))
                column_of_pair = torch.bucketize(span.distance(), edges, right=True)[:, None].expand_as(weights)
                query_rank = rank[:, mask.keys - mask.queries :][:, rows, None]
                key_rank = rank[:, None, keys]
                lag = query_rank - key_rank
                selections = [key_rank < measurement.first, (lag >= 0) & (lag < measurement.last)]
                row = out[:, :, rows]
                row[..., :-3] = scatter_columns(weights, column_of_pair, len(edges) + 1)
                row[..., -3] = torch.special.entr(weights).sum(-1)
                for n, selected in enumerate(selections):
                    row[..., n - 2] = (weights * selected[:, None]).sum(-1)
            return out


def _attend(
    modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, v: Tensor, *, scale: float
) -> Tensor:
    return attention(modifiers, q, k, v, span, mask.visible(q.device)[:, None], scale)


def attention(
    modifiers: forms.AttentionModifiers,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    v: Float[Tensor, "b h j d"],
    span: Span,
    visible: Bool[Tensor, "#b 1 i j"],
    scale: float,
    product: Float[Tensor, "b h i j"] | None = None,
) -> Float[Tensor, "b h i d"]:
    """Return the attention output. q, k and v have the same number of heads and the compute dtype.

    `product`: that of `modifiers.product` for all pairs, before scaling, if it has been computed in another way.
    """
    all_logits = logits(modifiers, q, k, span, visible, scale, product)
    weights = weights_of(modifiers, all_logits.masked_fill(~visible, -math.inf))
    out = weights @ v
    for value in modifiers.values:
        out = out + value.dense(weights, span)
    return out


def logits(
    modifiers: forms.AttentionModifiers,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    span: Span,
    visible: Bool[Tensor, "#b 1 i j"],
    scale: float,
    product: Float[Tensor, "b h i j"] | None = None,
) -> Float[Tensor, "b h i j"]:
    """Return the logits of all pairs before masking, in float32 or higher. q and k have the same number of heads.

    `product`: see `attention`.
    """
    compute = torch.promote_types(q.dtype, torch.float32)
    if modifiers.product is None:
        product = forms.rotated_product(modifiers.rotation, q, k)
    elif product is None:
        product = modifiers.product.dense(q, k, span)
    out = product * scale
    gain = modifiers.gain.gain[..., None].to(compute) if modifiers.gain else None
    scales_terms = modifiers.gain is not None and modifiers.gain.scales_terms
    if gain is not None and not scales_terms:
        out = out * gain
    q, k = q.to(compute), k.to(compute)
    for term in modifiers.terms:
        out = out + term.dense(q, k, span, scale).to(compute)
    if gain is not None and scales_terms:
        out = out * gain
    return modifiers.logit_transform.function(out, q, visible, scale, span) if modifiers.logit_transform else out


def weights_of(modifiers: forms.AttentionModifiers, logits: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i j"]:
    """Return the weights of the keys, from logits that are -inf for hidden keys."""
    if modifiers.logit_transform and not modifiers.logit_transform.softmax:
        return logits.exp()
    return softmax(logits, modifiers.sink)


def softmax(logits: Float[Tensor, "b h i j"], sink: forms.SinkLogit | None) -> Float[Tensor, "b h i j"]:
    """Return the weights of the keys. With a sink they sum to less than 1."""
    if sink is None:
        return logits.softmax(-1)
    column_of_sink = sink.logit.to(logits.dtype)[:, None, None].expand(*logits.shape[:-1], 1)
    return torch.cat([logits, column_of_sink], -1).softmax(-1)[..., :-1]
