"""Digits (Abacus): a digit's position is its place in its number, so that digits of equal value meet."""

from copy import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.positions.base import PositionScheme, require_number

BYTES = tuple(range(48, 58))  # "0" ... "9"


class Digits(PositionScheme):
    """Abacus: p_i = k + 1, k + 2, k + 3, ... inside every run of digits, and 0 at every other token; k = 0 in evaluation.

    In training k is uniform in {0, ..., max_offset}, one for the batch, so that the positions of longer numbers are trained
    too: up to max_offset + the longest number. Numbers have to be written with their lowest digit first for equal
    positions to mean equal values; that is the task's business. Addition, Polynomial and Sorting of numbers write the highest
    digit first, as the NoPE study does: there first digits meet first digits, whatever they are worth. Counting from a
    number's end is not possible: while an answer is said, nobody knows how long it gets.

    Digits are the ten token ids from `zero` on; None: what the task says (its `digit_tokens`), and otherwise the
    bytes 48 ... 57. Positions repeat and go back, so distances between them are not order; attention is causal by index all the
    same, and what goes by distances one way (ALiBi, T5, KERPLE, Sandwich, FIRE, DAPE, Transformer-XL) has a key at a higher
    position than its query at distance 0. Meant for a table added to the embeddings: `Learned`, which has no more
    positions than rows.

    Source: McLeish et al. 2024, "Transformers Can Do Arithmetic with the Right Embeddings".
    Code: mcleish7/arithmetic, abacus.py (max_k = 99, one offset for the batch).
    Differs: the paper has Abacus beside another encoding (FIRE, RoPE) in one model; here a model has one.

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
        made, size = copy(self), task.vocab_size
        if self.zero is None:
            made.digits = tuple(getattr(task, "digit_tokens", BYTES))
        if size is None or not made.digits or max(made.digits) >= size:
            has = "reads no tokens" if size is None else f"has the token ids 0 ... {size - 1}"
            raise ConfigError(
                f"Digits: the task {type(task).__name__} {has}, and the digits would be {_listed(made.digits)}; "
                "give zero=... (the id of digit 0), or take another position scheme"
            )
        return made

    def positions(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        documents: Int[Tensor, "#b t"] | None,
        generator: torch.Generator,
        training: bool,
    ) -> Int[Tensor, "b t"] | None:
        if inputs.ndim != 2:
            raise ConfigError("Digits: vectors have no digits; take another position scheme for this task")
        digit = torch.isin(inputs, torch.tensor(self.digits, device=inputs.device))
        place = _places(digit, None if documents is None else documents.expand(inputs.shape))
        if training:
            offset = int(torch.randint(self.max_offset + 1, (), generator=generator))
            place = place + offset * digit
        return place

    def num_positions(self, tokens: int, training: bool) -> int:
        """All tokens may be one number."""
        return tokens + 1 + (self.max_offset if training else 0)


def _places(digit: Tensor, documents: Tensor | None) -> Tensor:
    """1, 2, 3, ... inside every run of True of each document, 0 elsewhere."""
    order = None
    if documents is not None:  # a document may be scattered: gather it, count, and put everything back
        documents, order = documents.sort(dim=1, stable=True)
        digit = digit.gather(1, order)
    index = torch.arange(digit.shape[1], device=digit.device).expand(digit.shape)
    before = torch.where(digit, -1, index)  # the last token that is not of the run
    if documents is not None:
        begins = documents[:, 1:] != documents[:, :-1]
        before[:, 1:] = torch.where(begins & digit[:, 1:], index[:, :-1], before[:, 1:])
    place = (index - before.cummax(1).values) * digit
    return place if order is None else torch.empty_like(place).scatter_(1, order, place)


def _listed(digits: tuple[int, ...]) -> str:
    whole = digits and digits == tuple(range(digits[0], digits[-1] + 1))
    return f"{digits[0]} ... {digits[-1]}" if whole else ", ".join(map(str, digits)) or "none"
