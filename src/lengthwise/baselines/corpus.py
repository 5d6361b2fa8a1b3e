"""N-gram models of bytes or tokens: counts from one text, which predict the next symbol of another text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

BYTES = 256
PORTION = 1 << 22  # symbols that are counted at once, so that the memory for counting does not grow with the text

Codes = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class _Table:
    """The distinct n-grams of one order, sorted, and their distinct contexts (all symbols but the last)."""

    grams: Codes
    counts: NDArray[np.int64]
    contexts: Codes
    totals: NDArray[np.int64]  # c(h): how often each context was followed by a symbol
    distinct: NDArray[np.int64]  # T(h): by how many different symbols it was followed


class NgramModel:
    """Interpolated Witten-Bell estimates of the next symbol (a byte or a token), from counts of n-grams in a text.

    With c(h) the count of a context h, T(h) the number of different symbols that followed it, h' the context without
    its first symbol, and V the number of symbols:

        P(w | h) = (c(h w) + T(h) P(w | h')) / (c(h) + T(h)),        below the unigram: 1 / V

    A context that does not occur in the text has P(w | h) = P(w | h'). Memory is proportional to the number of distinct
    n-grams (12 bytes each, and 20 for each context; 4 more if V^n exceeds 2^32), not to the length of the text.

    Source: Witten and Bell 1991, "The Zero-Frequency Problem" (method C); in this interpolated form Chen and Goodman
    1999, "An Empirical Study of Smoothing Techniques for Language Modeling", section 2.5. It has no parameter to tune.
    Kneser-Ney's discounts are estimated from the numbers of n-grams that occur once or twice, which is unreliable with
    only 256 bytes.
    """

    def __init__(self, text: ArrayLike, sizes: Sequence[int] | None = None, *, order: int = 3, symbols: int = BYTES):
        """Count the n-grams of 1 to `order` symbols.

        `text` [n]: at least one byte, or tokens as unsigned integers below `symbols`. `symbols` to the power of `order`
        is at most 2^63. `sizes`: the sizes of its documents (None: one document). N-grams across documents are not
        counted.
        """
        data = np.ascontiguousarray(text)
        ends = np.cumsum([len(data)] if sizes is None else sizes)
        self.symbols = symbols
        self._base = (np.uint32 if symbols**order <= 1 << 32 else np.uint64)(symbols)  # of the codes, and their type
        self._tables = [_table(*_count(data, ends, n, self._base), self._base) for n in range(1, order + 1)]

    def nats(self, pieces: ArrayLike, order: int | None = None) -> Array:
        """Return -log P of every symbol of the pieces [b, t], float64 [b, t], from those before it in its own piece.

        `order`: use at most the last `order` - 1 symbols; 0 makes all equally probable, None is the model's order.
        """
        tokens = np.asarray(pieces)
        probabilities = np.full(tokens.shape, 1 / self.symbols)
        for n, table in enumerate(self._tables[:order], 1):
            grams = _codes(tokens, n, self._base)
            count = _look_up(table.grams, table.counts, grams)
            total = _look_up(table.contexts, table.totals, grams // self._base)
            distinct = _look_up(table.contexts, table.distinct, grams // self._base)
            shorter = probabilities[:, n - 1 :]
            np.divide(count + distinct * shorter, total + distinct, out=shorter, where=total > 0)
        return -np.log(probabilities)


def _codes(tokens: NDArray[np.integer], n: int, base: np.unsignedinteger) -> Codes:
    """Return the n-gram that starts at each index of the last dimension, with its symbols as digits of one number."""
    length = tokens.shape[-1] - n + 1
    if length <= 0:
        return np.zeros((*tokens.shape[:-1], 0), base.dtype)
    codes: Codes = tokens[..., :length].astype(base.dtype)
    for offset in range(1, n):
        codes = codes * base + tokens[..., offset : offset + length].astype(base.dtype)
    return codes


def _count(data: Codes, ends: NDArray[np.int64], n: int, base: np.unsignedinteger) -> tuple[Codes, NDArray[np.int64]]:
    """Return the distinct n-grams of documents that end at `ends`, sorted, and their counts."""
    grams: Codes = np.zeros(0, base.dtype)
    counts = np.zeros(0, np.int64)
    for start in range(0, len(data), PORTION):
        codes = _codes(data[start : start + PORTION + n - 1], n, base)
        inside = np.ones(len(codes), bool)
        nearby = ends[np.searchsorted(ends, start, "right") : np.searchsorted(ends, start + PORTION + n, "right")]
        for offset in range(1, n):  # an n-gram that starts fewer than n bytes before an end crosses it
            crossing = nearby - offset - start
            inside[crossing[(crossing >= 0) & (crossing < len(codes))]] = False
        new_grams, new_counts = np.unique(codes[inside], return_counts=True)
        grams, counts = _merge(grams, counts, new_grams, new_counts.astype(np.int64))
    return grams, counts


def _merge(
    grams: Codes, counts: NDArray[np.int64], new_grams: Codes, new_counts: NDArray[np.int64]
) -> tuple[Codes, NDArray[np.int64]]:
    if not len(grams):
        return new_grams, new_counts
    merged, indices = np.unique(np.concatenate([grams, new_grams]), return_inverse=True)
    sums = np.zeros(len(merged), np.int64)
    sums[indices[: len(grams)]] = counts
    sums[indices[len(grams) :]] += new_counts
    return merged, sums


def _table(grams: Codes, counts: NDArray[np.int64], base: np.unsignedinteger) -> _Table:
    contexts, first = np.unique(grams // base, return_index=True)
    totals = np.add.reduceat(counts, first) if len(first) else counts
    return _Table(grams, counts, contexts, totals, np.diff(np.append(first, len(grams))))


def _look_up(keys: Codes, values: NDArray[np.int64], queries: Codes) -> NDArray[np.int64]:
    """Return the value of each query in a sorted table of keys and values, or 0 if the table does not have it."""
    if not len(keys):
        return np.zeros(queries.shape, np.int64)
    indices = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[indices] == queries, values[indices], 0)
