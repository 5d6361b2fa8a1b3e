"""N-gram models of bytes: counts from one text, which predict the next byte of another text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

BYTES = 256
BYTE = np.uint32(8)  # bits
MAX_ORDER = 4  # bytes in an n-gram, because its code must fit into 32 bits
PORTION = 1 << 22  # bytes that are counted at once, so that the memory for counting does not grow with the text


@dataclass(frozen=True)
class _Table:
    """The distinct n-grams of one order, sorted, and their distinct contexts (all bytes but the last)."""

    grams: NDArray[np.uint32]
    counts: NDArray[np.int64]
    contexts: NDArray[np.uint32]
    totals: NDArray[np.int64]  # c(h): how often each context was followed by a byte
    distinct: NDArray[np.int64]  # T(h): by how many different bytes it was followed


class NgramModel:
    """Interpolated Witten-Bell estimates of the next byte, from counts of n-grams in a text.

    With c(h) the count of a context h, T(h) the number of different bytes that followed it, and h' the context without its
    first byte:

        P(w | h) = (c(h w) + T(h) P(w | h')) / (c(h) + T(h)),        below the unigram: 1 / 256

    A context that does not occur in the text has P(w | h) = P(w | h'). Memory is proportional to the number of distinct n-grams (12
    bytes each, and 20 for each context), not to the length of the text.

    Source: Witten and Bell 1991, "The Zero-Frequency Problem" (method C); in this interpolated form Chen and Goodman 1999, "An
    Empirical Study of Smoothing Techniques for Language Modeling", section 2.5. It has no parameter to tune. Kneser-Ney's
    discounts are estimated from the numbers of n-grams that occur once or twice, which is unreliable with only 256 symbols.
    """

    def __init__(self, text: ArrayLike, sizes: Sequence[int] | None = None, *, order: int = 3):
        """Count the n-grams of 1 to `order` bytes.

        `text` [n]: bytes. `sizes`: the sizes of its documents (None: one document). N-grams across documents are not counted.
        """
        data = np.ascontiguousarray(text)
        if data.ndim != 1 or data.dtype != np.uint8 or not len(data):
            raise ValueError(
                f"text must be at least 1 byte (uint8) in one dimension, got {data.dtype} of shape {list(data.shape)}"
            )
        if not 1 <= order <= MAX_ORDER:
            raise ValueError(f"order must be between 1 and {MAX_ORDER}, got {order}")
        ends = np.cumsum([len(data)] if sizes is None else np.asarray(sizes, np.int64))
        if ends[-1] != len(data):
            raise ValueError(f"sizes must add up to the text's {len(data)} bytes, got {ends[-1]}")
        self.order = order
        self._tables = [_table(*_count(data, ends, n)) for n in range(1, order + 1)]

    def nats(self, pieces: ArrayLike, order: int | None = None) -> Array:
        """Return -log P of every byte of the pieces [b, t], float64 [b, t], from the bytes before it in its own piece.

        `order`: use at most the last `order` - 1 bytes. None stands for the model's order; 0 makes all bytes equally probable.
        """
        order = self.order if order is None else order
        if not 0 <= order <= self.order:
            raise ValueError(f"order must be between 0 and {self.order}, the order of the model, got {order}")
        tokens = np.asarray(pieces)
        if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
            raise ValueError(f"pieces must be integers [b, t], got {tokens.dtype} of shape {list(tokens.shape)}")
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < BYTES:
            raise ValueError(f"bytes must be between 0 and {BYTES - 1}, got {tokens.min()} to {tokens.max()}")
        tokens = tokens.astype(np.uint32)
        probabilities = np.full(tokens.shape, 1 / BYTES)
        for n, table in enumerate(self._tables[:order], 1):
            grams = _codes(tokens, n)
            count = _look_up(table.grams, table.counts, grams)
            total = _look_up(table.contexts, table.totals, grams >> BYTE)
            distinct = _look_up(table.contexts, table.distinct, grams >> BYTE)
            shorter = probabilities[:, n - 1 :]
            np.divide(count + distinct * shorter, total + distinct, out=shorter, where=total > 0)
        return -np.log(probabilities)


def _codes(tokens: NDArray[np.integer], n: int) -> NDArray[np.uint32]:
    """Return the n-gram that starts at each index of the last dimension, with its bytes as digits of one number."""
    length = tokens.shape[-1] - n + 1
    if length <= 0:
        return np.zeros((*tokens.shape[:-1], 0), np.uint32)
    codes = tokens[..., :length].astype(np.uint32)
    for offset in range(1, n):
        codes = (codes << BYTE) | tokens[..., offset : offset + length].astype(np.uint32)
    return codes


def _count(data: NDArray[np.uint8], ends: NDArray[np.int64], n: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the distinct n-grams of documents that end at `ends`, sorted, and their counts."""
    grams, counts = np.zeros(0, np.uint32), np.zeros(0, np.int64)
    for start in range(0, len(data), PORTION):
        codes = _codes(data[start : start + PORTION + n - 1], n)
        inside = np.ones(len(codes), bool)
        nearby = ends[np.searchsorted(ends, start, "right") : np.searchsorted(ends, start + PORTION + n, "right")]
        for offset in range(1, n):  # an n-gram that starts fewer than n bytes before an end crosses it
            crossing = nearby - offset - start
            inside[crossing[(crossing >= 0) & (crossing < len(codes))]] = False
        new_grams, new_counts = np.unique(codes[inside], return_counts=True)
        grams, counts = _merge(grams, counts, new_grams, new_counts.astype(np.int64))
    return grams, counts


def _merge(
    grams: NDArray[np.uint32], counts: NDArray[np.int64], new_grams: NDArray[np.uint32], new_counts: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    if not len(grams):
        return new_grams, new_counts
    merged, indices = np.unique(np.concatenate([grams, new_grams]), return_inverse=True)
    sums = np.zeros(len(merged), np.int64)
    sums[indices[: len(grams)]] = counts
    sums[indices[len(grams) :]] += new_counts
    return merged, sums


def _table(grams: NDArray[np.uint32], counts: NDArray[np.int64]) -> _Table:
    contexts, first = np.unique(grams >> BYTE, return_index=True)
    totals = np.add.reduceat(counts, first) if len(first) else counts
    return _Table(grams, counts, contexts, totals, np.diff(np.append(first, len(grams))))


def _look_up(keys: NDArray[np.uint32], values: NDArray[np.int64], queries: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the value of each query in a sorted table of keys and values, or 0 if the table does not have it."""
    if not len(keys):
        return np.zeros(queries.shape, np.int64)
    indices = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[indices] == queries, values[indices], 0)
