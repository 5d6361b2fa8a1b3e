"""Some queries of a call of attention, and the keys that they may see, as a call of its own: for what works in
O(T · block) memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from lengthwise.attention.masks import Mask
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
    DenseBias,
    PiecewiseLinearBias,
    QueryGain,
    Rotation,
    Term,
)
from lengthwise.span import Span

Slices = tuple[slice, slice]  # of queries, and of keys


def blocks_of(mask: Mask, rows: int) -> Iterator[Slices]:
    """Blocks of `rows` queries, and the keys that a query of the block sees if they are of its document."""
    offset = mask.keys - mask.queries
    for start in range(0, mask.queries, rows):
        stop = min(mask.queries, start + rows)
        first, last = 0, offset + stop if mask.causal else mask.keys
        if mask.window is not None:
            first = max(0, offset + start - mask.window + 1)
            last = min(last, offset + stop - 1 + mask.window)
        yield slice(start, stop), slice(first, last)


def sliced(
    modifiers: AttentionModifiers, span: Span, slices: Sequence[Slices]
) -> list[tuple[AttentionModifiers, Span]]:
    """What of the modifiers and a span belongs to each block; the blocks hold all queries, in their order."""
    sizes = [rows.stop - rows.start for rows, _ in slices]
    split = [_split(term, sizes) for term in modifiers.terms]
    made = []
    for n, (rows, keys) in enumerate(slices):
        some = replace(
            modifiers,
            terms=tuple(_of_keys(terms[n], keys) for terms in split),
            rotation=_turn(modifiers.rotation, rows, keys),
            gain=_gain(modifiers.gain, rows),
        )
        made.append((some, Span(span.q[:, rows], span.k[:, keys], span.length, first=span.first)))
    return made


def _split(term: Term, sizes: list[int]) -> Sequence[Term]:
    """A term for each block of queries."""
    match term:
        case PiecewiseLinearBias():
            return [replace(term, w=w) for w in term.w.split(sizes, 1)]
        case ContentBias():
            return [replace(term, content=some) for some in term.content.split(sizes, 2)]
        case DenseBias(bias) if bias.shape[2] > 1:
            # The gradients of what is split are joined; those of slices would each be as large as the bias.
            return [replace(term, bias=some) for some in bias.split(sizes, 2)]
    return [term] * len(sizes)


def _of_keys(term: Term, keys: slice) -> Term:
    if isinstance(term, DenseBias) and term.bias.shape[3] > 1:
        return replace(term, bias=term.bias[..., keys])
    if isinstance(term, CumulativeBias):  # causal, so that a block's queries are the last of its keys
        return replace(term, total=term.total[..., keys])
    return term


def _turn(rotation: Rotation | None, rows: slice, keys: slice) -> Rotation | None:
    if rotation is None:
        return None

    def cut(angle: Tensor | None, gain: Tensor | float | None, at: slice) -> tuple[Any, Any]:
        if angle is None:
            return None, None
        return angle[:, at], gain.expand_as(angle)[:, at] if isinstance(gain, Tensor) else gain

    angle_q, gain_q = cut(rotation.angle_q, rotation.gain_q, rows)
    angle_k, gain_k = cut(rotation.angle_k, rotation.gain_k, keys)
    return replace(rotation, angle_q=angle_q, gain_q=gain_q, angle_k=angle_k, gain_k=gain_k)


def _gain(gain: QueryGain | None, rows: slice) -> QueryGain | None:
    return replace(gain, gain=gain.gain[..., rows]) if gain and gain.gain.shape[-1] > 1 else gain
