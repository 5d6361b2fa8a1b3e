"""The test split and random orders, which are computed from hashes and need no storage.

A hash of the question alone decides whether it is held out, so the test split never changes.
"""

from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

HELD_OUT = 8  # one in this many questions is a test example


def held_out(words: Int[Tensor, "b n"]) -> Bool[Tensor, " b"]:
    """Return which questions belong to the test split: those whose `hash_words` is a multiple of 8."""
    return is_test_hash(hash_words(words))


def is_test_hash(hashes: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
    return hashes.bitwise_and(HELD_OUT - 1) == 0


def hash_words(words: Int[Tensor, "b n"]) -> Int[Tensor, " b"]:
    """Return a mixed multilinear 64-bit hash of each question's word ids.

    Entries of -1 (padding at the end of a row, or gaps) do not change it.
    """
    factors = _multipliers(words.shape[1])
    is_word = words >= 0
    if not bool(is_word.all()):  # a word's factor is that of its index without the gaps
        factors = pad(factors, (1, 0)).expand(len(words), -1).gather(1, is_word.cumsum(1))
    value = ((words + 1) * factors).sum(1)  # int64 wraps around: arithmetic modulo 2^64
    return mix_bits(value)


@lru_cache(maxsize=256)
def _multipliers(length: int) -> Tensor:
    """Return a fixed odd pseudo-random number for each index (splitmix64), so that the order of words counts."""
    return mix_bits(torch.arange(1, length + 1) * _to_signed(0x9E3779B97F4A7C15)) | 1


def mix_bits(value: Tensor) -> Tensor:
    """Apply splitmix64's finaliser: every bit of the result depends on every bit of `value`."""
    value = (value ^ _shift_right(value, 30)) * _to_signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift_right(value, 27)) * _to_signed(0x94D049BB133111EB)
    return value ^ _shift_right(value, 31)


def _shift_right(value: Tensor, bits: int) -> Tensor:
    """Shift without keeping the sign (a logical shift); torch's own shift keeps it."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _to_signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


ROUNDS = 8


def shuffled(indices: Int[Tensor, " b"], size: int, generator: torch.Generator) -> Int[Tensor, " b"]:
    """Return the elements at these indices of a random permutation of 0 ... size - 1. The generator alone decides it.

    A Feistel network permutes the numbers of the next even number of bits. Results that are not below `size` go through
    the network again until they are (Black & Rogaway 2002, "Ciphers with Arbitrary Finite Domains").
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
