"""Digits (Abacus): a digit's position is its index within its number."""

from copy import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.positions.base import PositionScheme, require_number

BYTES = tuple(range(48, 58))  # "0" ... "9"


class Digits(PositionScheme):
    """Abacus: the digits of every number have positions k + 1, k + 2, k + 3, ..., and all other tokens have position 0.

    In training k is uniform in {0, ..., max_offset}, the same for the whole batch; in evaluation k is 0. So positions
    of longer numbers are trained too, up to max_offset + the longest number. Equal positions mean equal place values
    only if the task writes the lowest digit first. Addition, Polynomial and Sorting of numbers write the highest digit
    first, as the NoPE study does (`Addition(reverse=true)` only in its numbers): there, first digits share a position,
    whatever their place values. Counting from the end of a number is impossible, because its length is not known while
    an answer is generated (`Coupled` counts from the end in questions only).

    Digits are the ten token IDs from `zero` on. None: the task's `digit_tokens`, or else the bytes 48 ... 57. Positions
    repeat and decrease, so their distances do not reflect order. Attention is still causal by index. Causal encodings
    that use distances (ALiBi, T5, KERPLE, Sandwich, FIRE, DAPE, Transformer-XL) treat a key at a higher position than
    its query as distance 0. The scheme is meant for a table that is added to the embeddings, such as `Learned`, which
    has as many positions as rows.

    Source: McLeish et al. 2024, "Transformers Can Do Arithmetic with the Right Embeddings".
    Code: mcleish7/arithmetic, abacus.py (max_k = 99, one offset for the batch).
    Differs: the paper combines Abacus with another encoding (FIRE, RoPE) in one model; here a model has one encoding.

    >>> Digits().positions(torch.tensor([list(b"12+345=")]), None, torch.Generator(), training=False)
    tensor([[1, 2, 0, 1, 2, 3, 0]])
    """

    def __init__(self, *, max_offset: int = 99, zero: int | None = None):
        require_number("Digits", 0, max_offset=max_offset)
        if zero is not None:
            require_number("Digits", 0, zero=zero)
        self.max_offset, self.zero = max_offset, zero
        self.digits = BYTES if zero is None else tuple(range(zero, zero + 10))

    def for_task(self, task: Any) -> PositionScheme:
        scheme, size = copy(self), task.vocab_size
        if self.zero is None:
            scheme.digits = tuple(getattr(task, "digit_tokens", BYTES))
        if size is None or not scheme.digits or max(scheme.digits) >= size:
            vocabulary = "has vectors, not tokens" if size is None else f"has the token IDs 0 ... {size - 1}"
            raise ConfigError(
                f"Digits: the task {type(task).__name__} {vocabulary}, and the digits would be "
                f"{_listed(scheme.digits)}; give zero=... (the ID of digit 0), or use another position scheme"
            )
        return scheme

    def can_decode(self) -> bool:
        return True

    def positions(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        documents: Int[Tensor, "#b t"] | None,
        generator: torch.Generator,
        training: bool,
    ) -> Int[Tensor, "b t"] | None:
        if inputs.ndim != 2:
            raise ConfigError(
                "Digits: inputs must be token IDs, got vectors; use another position scheme for this task"
            )
        is_digit = torch.isin(inputs, torch.tensor(self.digits, device=inputs.device))
        place = _index_in_run(is_digit, None if documents is None else documents.expand(inputs.shape))
        if training:
            offset = int(torch.randint(self.max_offset + 1, (), generator=generator))
            place = place + offset * is_digit
        return place

    def num_positions(self, tokens: int, training: bool) -> int:
        """Return a bound for the case that all tokens are digits of one number."""
        return tokens + 1 + (self.max_offset if training else 0)


def _index_in_run(digit: Tensor, documents: Tensor | None) -> Tensor:
    """Return 1, 2, 3, ... inside every run of True of each document, and 0 elsewhere."""
    order = None
    if documents is not None:  # a document need not be contiguous: sort by document, count, and restore the order
        documents, order = documents.sort(dim=1, stable=True)
        digit = digit.gather(1, order)
    index = torch.arange(digit.shape[1], device=digit.device).expand(digit.shape)
    before = torch.where(digit, -1, index)  # the last token before the run
    if documents is not None:
        begins = documents[:, 1:] != documents[:, :-1]
        before[:, 1:] = torch.where(begins & digit[:, 1:], index[:, :-1], before[:, 1:])
    place = (index - before.cummax(1).values) * digit
    return place if order is None else torch.empty_like(place).scatter_(1, order, place)


def _listed(digits: tuple[int, ...]) -> str:
    consecutive = digits and digits == tuple(range(digits[0], digits[-1] + 1))
    return f"{digits[0]} ... {digits[-1]}" if consecutive else ", ".join(map(str, digits)) or "none"
