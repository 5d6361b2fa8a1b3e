"""Blocks of queries as pairs of slices, for the probes. Other code uses `Mask.query_blocks` and `AttentionModifiers.select`."""

from collections.abc import Iterator, Sequence

from lengthwise.attention.masks import Mask
from lengthwise.forms import AttentionModifiers
from lengthwise.span import PairBlock, Span

Slices = tuple[slice, slice]  # queries, keys


def query_blocks(mask: Mask, rows: int) -> Iterator[Slices]:
    """Yield the queries and the keys of `mask.query_blocks(rows)`."""
    return ((block.queries, block.keys) for block in mask.query_blocks(rows))


def slice_modifiers(
    modifiers: AttentionModifiers, span: Span, slices: Sequence[Slices]
) -> list[tuple[AttentionModifiers, Span]]:
    """Return the modifiers and the span of each block."""
    blocks = [PairBlock(queries=queries, keys=keys) for queries, keys in slices]
    return [(modifiers.select(block), span.select(block)) for block in blocks]
