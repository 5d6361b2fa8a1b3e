"""Expressions with brackets, drawn for a whole batch at once, with their values modulo 5."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.chomsky.base import MODULUS

PLUS, MINUS, TIMES, OPEN, CLOSE = range(MODULUS, MODULUS + 5)  # ids of words; those of the digits are the digits
SMALLEST_SPLIT = 5  # symbols of the shortest expression of two
LONGEST_LISTED = 9  # with one more symbol there are more than 4,096


def draw_expressions(
    generator: torch.Generator, count: int, length: int, signs: int
) -> tuple[Int[Tensor, "b n"], Int[Tensor, " b"]]:
    """Draw expressions of exactly `length` symbols; return their word ids and their values.

    Up to 4 symbols: d, -d, (d) or (-d), with a uniform digit d. Longer: (left sign right), with a uniform size of the
    left part and a uniform one of the first `signs` of +, − and *.

    Each round splits all parts of all expressions of that depth at once. Digits are written after the last round, and
    values are computed in the opposite order.
    """
    words = np.full(count * length, -1)  # of all expressions, one after the other
    starts, sizes = np.arange(0, count * length, length), np.full(count, length)
    short, is_short, signs_of = [], [], []  # of each round
    while len(starts):
        is_short.append(sizes < SMALLEST_SPLIT)
        short.append((starts[is_short[-1]], sizes[is_short[-1]]))
        starts, sizes = starts[~is_short[-1]], sizes[~is_short[-1]]
        uniform = torch.rand(2, len(starts), dtype=torch.float64, generator=generator).numpy()
        left = (uniform[0] * (sizes - 4)).astype(np.int64) + 1  # 1 ... sizes - 4, so that 1 is left for the right part
        signs_of.append((uniform[1] * signs).astype(np.int64) + PLUS)
        sign_places = starts + 1 + left
        words[starts], words[sign_places], words[starts + sizes - 1] = OPEN, signs_of[-1], CLOSE
        starts, sizes = np.concatenate([starts + 1, sign_places + 1]), np.concatenate([left, sizes - 3 - left])
    short_starts, short_sizes = np.concatenate(short, axis=1)
    short_values = _write_short(words, short_starts, short_sizes, generator)
    values, end = short_values[:0], len(short_values)
    for mask, sign in zip(reversed(is_short), reversed(signs_of), strict=True):
        half, begin = len(sign), end - int(np.count_nonzero(mask))
        combined = _combined(sign, values[:half], values[half:])
        values = np.empty(len(mask), np.int64)
        values[mask], values[~mask] = short_values[begin:end], combined
        end = begin
    return torch.from_numpy(words.reshape(count, length)), torch.from_numpy(values % MODULUS)


def _write_short(words: np.ndarray, starts: np.ndarray, sizes: np.ndarray, generator: torch.Generator) -> np.ndarray:
    """Draw the parts of 1 to 4 symbols, write them into `words`, and return their values."""
    digits = torch.randint(MODULUS, (len(starts),), generator=generator).numpy()
    negative, in_brackets = sizes % 2 == 0, sizes > 2
    places = starts + negative + in_brackets
    words[places[negative] - 1] = MINUS
    words[starts[in_brackets]], words[places] = OPEN, digits
    words[places[in_brackets] + 1] = CLOSE
    return np.where(negative, -digits, digits)


def _combined(sign: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.where(sign == PLUS, left + right, np.where(sign == MINUS, left - right, left * right)) % MODULUS


def all_expressions(length: int, signs: int) -> tuple[Int[Tensor, "m n"], Int[Tensor, " m"]] | None:
    """Return the word ids and the values of all expressions of a length, or None if there are too many to list."""
    if length > LONGEST_LISTED:
        return None
    words, values = zip(*_listed(length, signs), strict=True)
    return torch.tensor(words), torch.tensor(values)


@lru_cache
def _listed(length: int, signs: int) -> tuple[tuple[tuple[int, ...], int], ...]:
    return tuple(_list(length, signs))


def _list(length: int, signs: int) -> Iterator[tuple[tuple[int, ...], int]]:
    if length < SMALLEST_SPLIT:
        for digit in range(MODULUS):
            words = (MINUS, digit) if length % 2 == 0 else (digit,)
            yield (OPEN, *words, CLOSE) if length > 2 else words, (-digit if length % 2 == 0 else digit) % MODULUS
        return
    for size in range(1, length - 3):
        for left, first in _listed(size, signs):
            for right, second in _listed(length - 3 - size, signs):
                for sign in range(PLUS, PLUS + signs):
                    value = first + second if sign == PLUS else first - second if sign == MINUS else first * second
                    yield (OPEN, *left, sign, *right, CLOSE), value % MODULUS
