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

    Up to 4 symbols: d, -d, (d) or (-d), with a uniform digit d. Longer: (left sign right), with a uniform size of the left part and
    a uniform one of the first `signs` of +, − and *.

    Each round splits all parts of all expressions of that depth at once. Values are computed in the opposite order.
    """
    words = np.full((count, length), -1)
    rows, starts = np.arange(count), np.zeros(count, np.int64)
    sizes = np.full(count, length)
    rounds = []
    while len(rows):
        digits = torch.randint(MODULUS, (len(rows),), generator=generator).numpy()
        is_short = sizes < SMALLEST_SPLIT
        values = _write_short(words, rows, starts, np.where(is_short, sizes, 0), digits)
        rows, starts, sizes = (part[~is_short] for part in (rows, starts, sizes))
        uniform = torch.rand(len(rows), dtype=torch.float64, generator=generator).numpy()
        left = 1 + (uniform * (sizes - 4)).astype(np.int64)  # 1 ... sizes - 4, so that 1 is left for the right part
        sign = PLUS + torch.randint(signs, (len(rows),), generator=generator).numpy()
        words[rows, starts], words[rows, starts + sizes - 1] = OPEN, CLOSE
        words[rows, starts + 1 + left] = sign
        rounds.append((values, is_short, sign))
        rows, starts = np.tile(rows, 2), np.concatenate([starts + 1, starts + 2 + left])
        sizes = np.concatenate([left, sizes - 3 - left])
    parts = np.empty(0, np.int64)
    for values, is_short, sign in reversed(rounds):
        values[~is_short] = _combined(sign, *np.split(parts, 2))
        parts = values
    return torch.from_numpy(words), torch.from_numpy(parts % MODULUS)


def _write_short(
    words: np.ndarray, rows: np.ndarray, starts: np.ndarray, sizes: np.ndarray, digits: np.ndarray
) -> np.ndarray:
    """Write the parts of 1 to 4 symbols into `words`; return their values (that of another size is not used)."""
    negative, in_brackets = sizes % 2 == 0, sizes > 2
    digit_places = starts + negative + in_brackets
    is_part = sizes > 0
    words[rows[is_part], digit_places[is_part]] = digits[is_part]
    is_negative = is_part & negative
    words[rows[is_negative], digit_places[is_negative] - 1] = MINUS
    words[rows[in_brackets], starts[in_brackets]] = OPEN
    words[rows[in_brackets], digit_places[in_brackets] + 1] = CLOSE
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
