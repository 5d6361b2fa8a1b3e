"""Functions of one pair of a query and a key, of which FlexAttention's `score_mod` and `mask_mod` are made.

FlexAttention counts the arguments of a mod and traces everything that it calls, so these functions must not be wrapped
in type checks. They capture lengths as tensors: a plain int would become a constant of the graph, and every other
length would recompile it.
"""

from collections.abc import Callable
from typing import no_type_check

import torch
from torch import Tensor

from lengthwise.span import Span

Pair = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (b, h, i, j) -> a number


def reader(x: Tensor) -> Callable[..., Tensor]:
    """Return a function of indices that reads `x`, where axes of size 1 are broadcast."""
    axes = [axis for axis, size in enumerate(x.shape) if size != 1]
    # Before 2.14 torch has no gradient for captured tensors without axes.
    flat = x.squeeze() if axes else x.reshape(1)

    @no_type_check
    def read(*index: Tensor) -> Tensor:
        return flat[tuple(index[axis] for axis in axes)] if axes else flat[0]

    return read


def key_index(queries: int, keys: int, device: torch.device | str | None) -> Callable[[Tensor], Tensor]:
    """Return a function from the index of a query to its index among the keys."""
    if queries == keys:
        return lambda i: i
    before = torch.full((), keys - queries, device=device)
    return lambda i: i + before


def column_of_pair(span: Span, first: int, columns: int) -> Pair:
    """Return a function from a pair to its column in a table over distances, clamped at either end."""
    last = torch.full((), columns - 1, device=span.q.device)
    if span.consecutive:
        offset = torch.full((), span.k.shape[1] - span.q.shape[1] - first, device=span.q.device)
        return lambda b, h, i, j: torch.minimum((i - j + offset).clamp(min=0), last)
    read_q, read_k = reader(span.q - first), reader(span.k)
    return lambda b, h, i, j: torch.minimum((read_q(b, i) - read_k(b, j)).clamp(min=0), last)
