"""Split a call of attention into blocks of queries with the keys that are visible to them, for O(T · block) memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from lengthwise import forms
from lengthwise.attention.masks import Mask
from lengthwise.span import Span

Slices = tuple[slice, slice]  # queries, keys


def query_blocks(mask: Mask, rows: int) -> Iterator[Slices]:
    """Yield blocks of `rows` queries, with the keys that are visible to a query of the block within one document."""
    offset = mask.keys - mask.queries
    for start in range(0, mask.queries, rows):
        stop = min(mask.queries, start + rows)
        first, last = 0, offset + stop if mask.causal else mask.keys
        if mask.window is not None:
            first = max(0, offset + start - mask.window + 1)
            last = min(last, offset + stop - 1 + mask.window)
        yield slice(start, stop), slice(first, last)


def slice_modifiers(
    modifiers: forms.AttentionModifiers, span: Span, slices: Sequence[Slices]
) -> list[tuple[forms.AttentionModifiers, Span]]:
    """Return the modifiers and the span of each block. The blocks contain all queries in their order."""
    sizes = [rows.stop - rows.start for rows, _ in slices]
    split = [_split(term, sizes) for term in modifiers.terms]
    blocks = []
    for n, (rows, keys) in enumerate(slices):
        block_modifiers = replace(
            modifiers,
            terms=tuple(_select_keys(terms[n], keys) for terms in split),
            rotation=modifiers.rotation and _slice_rotation(modifiers.rotation, rows, keys),
            gain=_slice_gain(modifiers.gain, rows),
            product=_slice_product(modifiers.product, rows, keys),
        )
        blocks.append((block_modifiers, span.select(rows, keys)))
    return blocks


def _split(term: forms.Term, sizes: list[int]) -> Sequence[forms.Term]:
    match term:
        case forms.PiecewiseLinearBias():
            return [replace(term, query_scale=query_scale) for query_scale in term.query_scale.split(sizes, 1)]
        case forms.ContentBias():
            return [replace(term, content=block) for block in term.content.split(sizes, 2)]
        case forms.DenseBias(bias) if bias.shape[2] > 1:
            # `split` concatenates the gradients; each gradient of a slice would be as large as the bias.
            return [replace(term, bias=block) for block in bias.split(sizes, 2)]
    return [term] * len(sizes)


def _select_keys(term: forms.Term, keys: slice) -> forms.Term:
    if isinstance(term, forms.DenseBias) and term.bias.shape[3] > 1:
        return replace(term, bias=term.bias[..., keys])
    if isinstance(term, forms.CumulativeBias):  # it is causal, so the queries of a block are the last of its keys
        return replace(term, prefix_sum=term.prefix_sum[..., keys])
    return term


def _slice_rotation(rotation: forms.TokenRotation, rows: slice, keys: slice) -> forms.TokenRotation:
    if not isinstance(rotation, forms.Rotation):
        return rotation.select(lambda x: x[:, :, rows], lambda x: x[:, :, keys])
    return _slice_angles(rotation, rows, keys)


def _slice_angles(rotation: forms.Rotation, rows: slice, keys: slice) -> forms.Rotation:
    angle_q, gain_q = _slice_angle(rotation.angle_q, rotation.gain_q, rows)
    angle_k, gain_k = _slice_angle(rotation.angle_k, rotation.gain_k, keys)
    return replace(rotation, angle_q=angle_q, gain_q=gain_q, angle_k=angle_k, gain_k=gain_k)


def _slice_product(product: forms.Product | None, rows: slice, keys: slice) -> forms.Product | None:
    match product:
        case forms.PiecewiseRotation(rotations):
            return replace(product, rotations=tuple(_slice_angles(rotation, rows, keys) for rotation in rotations))
        # These are causal, so the queries of a block are the last of its keys.
        case forms.HouseholderProduct(w, beta, documents):
            return forms.HouseholderProduct(w[:, :, keys], beta[:, :, keys], _select_documents(documents, keys))
        case forms.DecayProduct(prefix_sum, documents):
            return forms.DecayProduct(prefix_sum[:, :, keys], _select_documents(documents, keys))
    return None


def _select_documents(documents: Tensor | None, keys: slice) -> Tensor | None:
    return None if documents is None else documents[:, keys]


def _slice_angle(angle: Tensor | None, gain: Tensor | float | None, tokens: slice) -> tuple[Any, Any]:
    if angle is None:
        return None, None
    return angle[:, :, tokens], gain.expand_as(angle)[:, :, tokens] if isinstance(gain, Tensor) else gain


def _slice_gain(gain: forms.QueryGain | None, rows: slice) -> forms.QueryGain | None:
    return replace(gain, gain=gain.gain[..., rows]) if gain and gain.gain.shape[-1] > 1 else gain
