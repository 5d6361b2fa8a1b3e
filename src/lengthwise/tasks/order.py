"""A pseudo-random order of any number of things, computed place by place: no list of them is ever made."""

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.splits import mixed

ROUNDS = 8


def shuffled(places: Int[Tensor, " b"], size: int, generator: torch.Generator) -> Int[Tensor, " b"]:
    """What lies at each of these places in a random order of 0 ... size - 1, which the generator alone decides.

    A Feistel network permutes the numbers of the next even number of bits; what it puts at `size` or beyond goes through it again
    until it lies below (Black & Rogaway 2002, "Ciphers with Arbitrary Finite Domains").
    """
    assert 0 < size <= 2**62, "the arithmetic is that of 64 bits"
    half = max(1, -(-(size - 1).bit_length() // 2))
    keys = torch.randint(-(2**62), 2**62, (ROUNDS,), generator=generator)
    found, open_ = places, torch.ones_like(places, dtype=torch.bool)
    while bool(open_.any()):
        found = torch.where(open_, _permuted(found, keys, half), found)
        open_ = found >= size
    return found


def _permuted(numbers: Int[Tensor, " b"], keys: Int[Tensor, " r"], half: int) -> Int[Tensor, " b"]:
    """A bijection of the numbers of 2 * half bits."""
    mask = (1 << half) - 1
    left, right = numbers >> half, numbers & mask
    for key in keys:
        left, right = right, left ^ (mixed(right + key) & mask)
    return (left << half) | right
