"""What needs no training to say the next symbol: counts of the symbols that came before, in every prefix of a sequence.

Source: Akyürek et al. 2024, "In-Context Language Learning", which compares models with n-grams of the prompt.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

CELLS = 1 << 24  # counts held at once


def uniform(inputs: ArrayLike, vocab: int) -> Array:
    """Every symbol with the same probability: float64 [b, t, v]."""
    return np.full((*_sequences(inputs, vocab).shape, vocab), 1 / vocab)


def ngram(inputs: ArrayLike, vocab: int, order: int = 2) -> Array:
    """How often each symbol followed the last `order` - 1 ones so far, as shares: float64 [b, t, v].

    Place t says what comes after `inputs[:, t]`, from `inputs[:, : t + 1]` alone. Where the last ones are seen for the first
    time it backs off to one fewer, at last to every symbol alike; nothing is smoothed. Order 1 counts symbols, 2 pairs.
    """
    tokens = _sequences(inputs, vocab)
    if order < 1:
        raise ValueError(f"order is {order}; an n-gram has at least 1 symbol")
    found = uniform(tokens, vocab)
    for n in range(order):
        step = max(1, CELLS // vocab ** (n + 1))
        for start in range(0, len(tokens), step):
            _count(tokens[start : start + step], vocab, n, found[start : start + step])
    return found


Say = Callable[[ArrayLike, int], Array]  # sequences and how many symbols there are -> probabilities of the next one

NGRAMS: Mapping[str, Say] = {
    "every symbol alike": uniform,
    "counts of symbols": partial(ngram, order=1),
    "counts of pairs": partial(ngram, order=2),
    "counts of triples": partial(ngram, order=3),
}
WITHOUT_ORDER = ("every symbol alike", "counts of symbols")  # know nothing of what follows what


def _count(tokens: NDArray[np.int64], vocab: int, context: int, found: Array) -> None:
    """Put the shares of what followed the last `context` symbols where these were seen before, in place."""
    count, length = tokens.shape
    counts = np.zeros((count, vocab**context, vocab))
    rows, last = np.arange(count), np.zeros(count, np.int64)  # the last symbols, as digits of one number
    for t in range(length):
        if t >= max(context, 1):  # the first symbol follows nothing
            counts[rows, last, tokens[:, t]] += 1
        last = (last * vocab + tokens[:, t]) % vocab**context
        if t + 1 < context:
            continue
        here = counts[rows, last]
        seen = here.sum(1, keepdims=True)
        np.divide(here, seen, out=found[:, t], where=seen > 0)


def _sequences(inputs: ArrayLike, vocab: int) -> NDArray[np.int64]:
    tokens = np.asarray(inputs)
    if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(f"sequences are whole numbers [b, t], not {tokens.dtype} of shape {list(tokens.shape)}")
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocab:
        raise ValueError(
            f"symbols from {tokens.min()} to {tokens.max()}; with {vocab} of them they lie in 0 ... {vocab - 1}"
        )
    return tokens.astype(np.int64, copy=False)
