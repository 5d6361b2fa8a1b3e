"""Counts of n-grams of bytes in a text, and the probability that they give to the next byte of another text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

BYTES = 256
BYTE = np.uint32(8)  # bits
LONGEST = 4  # bytes of an n-gram: its code has to fit into 32 bits
PORTION = 1 << 22  # places of the text that are counted at once: what this takes does not grow with the text


@dataclass(frozen=True)
class _Table:
    """The different n-grams of one order, sorted, and their different contexts (all but the last byte)."""

    grams: NDArray[np.uint32]
    counts: NDArray[np.int64]
    contexts: NDArray[np.uint32]
    totals: NDArray[np.int64]  # how often each context was followed by something
    kinds: NDArray[np.int64]  # by how many different bytes


class NgramModel:
    """Interpolated Witten-Bell estimates of the next byte, from counts of n-grams in a text.

    With c(h) the count of a context h, T(h) the number of different bytes that followed it, and h' the context without its
    first byte:

        P(w | h) = (c(h w) + T(h) P(w | h')) / (c(h) + T(h)),        below the unigram: 1 / 256

    A context that the text does not have passes P(w | h') on. Memory is proportional to the number of different n-grams (12 bytes
    each, and 20 for each context), not to the text.

    Source: Witten and Bell 1991, "The Zero-Frequency Problem" (method C); in this interpolated form Chen and Goodman 1999, "An
    Empirical Study of Smoothing Techniques for Language Modeling", section 2.5. It has no parameter to tune. Kneser-Ney's
    discounts come from how many n-grams occur once or twice, which says little where there are only 256 symbols.
    """

    def __init__(self, text: ArrayLike, sizes: Sequence[int] | None = None, *, order: int = 3):
        """Count the n-grams of 1 to `order` bytes. `text` [n], bytes; `sizes`: those of its documents, across whose borders no
        n-gram is counted (None: it is one document)."""
        data = np.ascontiguousarray(text)
        if data.ndim != 1 or data.dtype != np.uint8 or not len(data):
            raise ValueError(
                f"a text is a row of bytes (uint8), at least 1, not {data.dtype} of shape {list(data.shape)}"
            )
        if not 1 <= order <= LONGEST:
            raise ValueError(f"order is {order}; it has to lie in 1 ... {LONGEST}")
        ends = np.cumsum([len(data)] if sizes is None else np.asarray(sizes, np.int64))
        if ends[-1] != len(data):
            raise ValueError(f"documents of {ends[-1]} bytes altogether are not a text of {len(data)}")
        self.order = order
        self._tables = [_table(*_count(data, ends, n)) for n in range(1, order + 1)]

    def nats(self, pieces: ArrayLike, order: int | None = None) -> Array:
        """-log P of every byte of some pieces [b, t], each from at most the last `order` - 1 bytes of its own piece (None: those
        that were counted; 0: every byte is as probable). Float64 [b, t]."""
        order = self.order if order is None else order
        if not 0 <= order <= self.order:
            raise ValueError(f"order is {order}; n-grams of up to {self.order} bytes were counted")
        tokens = np.asarray(pieces)
        if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
            raise ValueError(f"pieces are whole numbers [b, t], not {tokens.dtype} of shape {list(tokens.shape)}")
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < BYTES:
            raise ValueError(f"numbers from {tokens.min()} to {tokens.max()}; bytes lie in 0 ... {BYTES - 1}")
        tokens = tokens.astype(np.uint32)
        found = np.full(tokens.shape, 1 / BYTES)
        for n, table in enumerate(self._tables[:order], 1):
            grams = _codes(tokens, n)
            count = _look_up(table.grams, table.counts, grams)
            total = _look_up(table.contexts, table.totals, grams >> BYTE)
            kinds = _look_up(table.contexts, table.kinds, grams >> BYTE)
            shorter = found[:, n - 1 :]
            np.divide(count + kinds * shorter, total + kinds, out=shorter, where=total > 0)
        return -np.log(found)


def _codes(tokens: NDArray[np.integer], n: int) -> NDArray[np.uint32]:
    """The n-grams that begin at each place of the last dimension, the bytes as digits of one number."""
    last = tokens.shape[-1] - n + 1
    if last <= 0:
        return np.zeros((*tokens.shape[:-1], 0), np.uint32)
    codes = tokens[..., :last].astype(np.uint32)
    for place in range(1, n):
        codes = (codes << BYTE) | tokens[..., place : place + last].astype(np.uint32)
    return codes


def _count(data: NDArray[np.uint8], ends: NDArray[np.int64], n: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The different n-grams of documents that end at `ends`, sorted, and how often each occurs."""
    grams, counts = np.zeros(0, np.uint32), np.zeros(0, np.int64)
    for start in range(0, len(data), PORTION):
        codes = _codes(data[start : start + PORTION + n - 1], n)
        inside = np.ones(len(codes), bool)
        borders = ends[np.searchsorted(ends, start, "right") : np.searchsorted(ends, start + PORTION + n, "right")]
        for over in range(1, n):  # what begins so many bytes before an end reaches past it
            places = borders - over - start
            inside[places[(places >= 0) & (places < len(codes))]] = False
        more, often = np.unique(codes[inside], return_counts=True)
        grams, counts = _added(grams, counts, more, often.astype(np.int64))
    return grams, counts


def _added(
    grams: NDArray[np.uint32], counts: NDArray[np.int64], more: NDArray[np.uint32], often: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Two sorted counts as one."""
    if not len(grams):
        return more, often
    whole, places = np.unique(np.concatenate([grams, more]), return_inverse=True)
    sums = np.zeros(len(whole), np.int64)
    sums[places[: len(grams)]] = counts
    sums[places[len(grams) :]] += often
    return whole, sums


def _table(grams: NDArray[np.uint32], counts: NDArray[np.int64]) -> _Table:
    contexts, first = np.unique(grams >> BYTE, return_index=True)
    totals = np.add.reduceat(counts, first) if len(first) else counts
    return _Table(grams, counts, contexts, totals, np.diff(np.append(first, len(grams))))


def _look_up(keys: NDArray[np.uint32], values: NDArray[np.int64], wanted: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The value of each key; 0 where it is not there."""
    if not len(keys):
        return np.zeros(wanted.shape, np.int64)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)
