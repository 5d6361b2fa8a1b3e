"""Every backend against the reference in float64: every form, sums, masks, positions, documents, lengths, dtypes."""

import itertools

import pytest

from lengthwise.attention import BACKENDS
from tests.attention.agreement import (
    CASES,
    KERNELS,
    LENGTHS,
    MASKS,
    PLACES,
    Draw,
    Sizes,
    as_supported,
    build,
    call_of,
    inputs,
    require_agreement,
)
from tests.pairwise import cover

FACTORS = list(KERNELS), CASES, list(MASKS), PLACES, LENGTHS
# Rows that together contain every pair of values of two factors; the full product would be half a million.
ROWS = [
    tuple(values[n] for values, n in zip(FACTORS, row, strict=True))
    for row in cover([len(values) for values in FACTORS])
]


def require(kernel, words, mask, place, lengths):
    kernel = KERNELS[kernel]
    queries, keys = (min(n, kernel.longest) for n in lengths)
    sizes = Sizes(queries, keys, dim=kernel.dim)
    span, visible = call_of(place, mask, sizes)
    visible = as_supported(words, Draw(sizes, span), visible)
    q = inputs(sizes, kernel.dtype)[0]
    reason = BACKENDS[kernel.backend].unsupported_reason(build(words, Draw(sizes, span)), span, visible, q)
    assert (reason is not None) == kernel.unsupported(words), reason
    if reason is None:
        require_agreement(kernel, words, sizes, span, visible)


@pytest.mark.parametrize(("kernel", "words", "mask", "place", "lengths"), ROWS)
def test_output_and_every_gradient(kernel, words, mask, place, lengths):
    require(kernel, words, mask, place, lengths)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("words", CASES)
def test_every_mask_at_every_place(words):
    """With kernels and lengths in turn."""
    kernels, lengths = itertools.cycle(KERNELS), itertools.cycle(LENGTHS)
    for mask, place in itertools.product(MASKS, PLACES):
        require(next(kernels), words, mask, place, next(lengths))
