"""Baselines that predict the next symbol from counts of the symbols so far, for every prefix of a sequence.

Source: Akyürek et al. 2024, "In-Context Language Learning", which compares models with n-grams of the prompt.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

MAX_COUNTS = 1 << 24  # counts held in memory at once


def uniform(inputs: ArrayLike, vocab: int) -> Array:
    """Return the same probability for every symbol: float64 [b, t, v]."""
    return np.full((*np.shape(inputs), vocab), 1 / vocab)


def ngram(inputs: ArrayLike, vocab: int, order: int = 2) -> Array:
    """Return the share of each symbol among those that followed the last `order` - 1 symbols so far: float64 [b, t, v].

    Slot t predicts the symbol after `inputs[:, t]`, from `inputs[:, : t + 1]` alone. If this context is new, it backs
    off to a context that is one symbol shorter, and finally to the uniform distribution. Counts are not smoothed. Order
    1 counts symbols, order 2 pairs.
    """
    tokens = np.asarray(inputs, np.int64)
    probabilities = uniform(tokens, vocab)
    for n in range(order):
        step = max(1, MAX_COUNTS // vocab ** (n + 1))
        for start in range(0, len(tokens), step):
            _count(tokens[start : start + step], vocab, n, probabilities[start : start + step])
    return probabilities


Predictor = Callable[[ArrayLike, int], Array]  # (sequences, number of symbols) -> probabilities of the next symbol

NGRAMS: Mapping[str, Predictor] = {
    "every symbol alike": uniform,
    "counts of symbols": partial(ngram, order=1),
    "counts of pairs": partial(ngram, order=2),
    "counts of triples": partial(ngram, order=3),
}
WITHOUT_ORDER = ("every symbol alike", "counts of symbols")  # do not depend on the order of symbols


def _count(tokens: NDArray[np.int64], vocab: int, context: int, probabilities: Array) -> None:
    """Set `probabilities` to the shares of the followers where the last `context` symbols occurred before."""
    count, length = tokens.shape
    counts = np.zeros((count, vocab**context, vocab))
    rows, last = np.arange(count), np.zeros(count, np.int64)  # the last symbols as digits of one number
    for t in range(length):
        if t >= max(context, 1):  # the first symbol has no context
            counts[rows, last, tokens[:, t]] += 1
        last = (last * vocab + tokens[:, t]) % vocab**context
        if t + 1 < context:
            continue
        followers = counts[rows, last]
        total = followers.sum(1, keepdims=True)
        np.divide(followers, total, out=probabilities[:, t], where=total > 0)
