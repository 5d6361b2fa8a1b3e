"""Random permutations of any size, computed element by element without storing the permutation."""

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.splits import mix_bits

ROUNDS = 8


def shuffled(indices: Int[Tensor, " b"], size: int, generator: torch.Generator) -> Int[Tensor, " b"]:
    """Return the elements at these indices of a random permutation of 0 ... size - 1. The generator alone decides it.

    A Feistel network permutes the numbers of the next even number of bits. Results that are not below `size` go through the network
    again until they are (Black & Rogaway 2002, "Ciphers with Arbitrary Finite Domains").
    """
    assert 0 < size <= 2**62, "the arithmetic has 64 bits"
    half = max(1, -(-(size - 1).bit_length() // 2))
    keys = torch.randint(-(2**62), 2**62, (ROUNDS,), generator=generator)
    elements, out_of_range = indices, torch.ones_like(indices, dtype=torch.bool)
    while bool(out_of_range.any()):
        elements = torch.where(out_of_range, _permute(elements, keys, half), elements)
        out_of_range = elements >= size
    return elements


def _permute(numbers: Int[Tensor, " b"], keys: Int[Tensor, " r"], half: int) -> Int[Tensor, " b"]:
    """Apply a bijection of the numbers of 2 * half bits."""
    mask = (1 << half) - 1
    left, right = numbers >> half, numbers & mask
    for key in keys:
        left, right = right, left ^ (mix_bits(right + key) & mask)
    return (left << half) | right
