"""Which examples are held out for tests: a hash of the question alone decides, the same on every machine and for all time."""

from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

HELD_OUT = 8  # one in so many questions is a test example


def held_out(words: Int[Tensor, "b n"]) -> Bool[Tensor, " b"]:
    """Which questions belong to the test split: the `hashed` word ids are a multiple of 8."""
    return of_test(hashed(words))


def of_test(hashes: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
    return hashes.bitwise_and(HELD_OUT - 1) == 0


def hashed(words: Int[Tensor, "b n"]) -> Int[Tensor, " b"]:
    """A multilinear 64-bit hash of each question's word ids, mixed.

    A row may have -1s at its end or as gaps; they change nothing.
    """
    factors = _multipliers(words.shape[1])
    there = words >= 0
    if not bool(there.all()):  # each word counts at the place that it has without the gaps
        factors = pad(factors, (1, 0)).expand(len(words), -1).gather(1, there.cumsum(1))
    value = ((words + 1) * factors).sum(1)  # int64 wraps around: arithmetic modulo 2^64
    return mixed(value)


@lru_cache(maxsize=256)
def _multipliers(length: int) -> Tensor:
    """Fixed odd pseudo-random numbers, one per place (splitmix64), so that order matters and no generator is drawn."""
    return mixed(torch.arange(1, length + 1) * _signed(0x9E3779B97F4A7C15)) | 1


def mixed(value: Tensor) -> Tensor:
    """splitmix64's finaliser: every bit of the result depends on every bit of `value`."""
    value = (value ^ _shift(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shift(value, 31)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's own keeps the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits
