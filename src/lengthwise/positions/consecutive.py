"""Consecutive positions: 0, 1, 2, ... from the start of each document."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.positions.base import PositionScheme


def consecutive(documents: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
    """Return for each token how many tokens of its own document come before it in its row.

    `documents` [0 0 0 1 1] gives [0 1 2 0 1]; left padding is a document of its own: [-1 -1 0 0 0] gives [0 1 0 1 2].
    The tokens of a document need not be contiguous: [0 1 0 1 1] gives [0 0 1 1 2].
    """
    sorted_documents, order = documents.sort(dim=1, stable=True)
    index = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    starts = torch.ones_like(documents, dtype=torch.bool)
    starts[:, 1:] = sorted_documents[:, 1:] != sorted_documents[:, :-1]
    return torch.empty_like(index).scatter_(1, order, index - torch.where(starts, index, 0).cummax(1).values)


class Consecutive(PositionScheme):
    """p_i = i: 0, 1, 2, ... from the start of each document, in training and in evaluation. This is the usual scheme.

    Past the training length there are positions and distances that did not occur in training.

    Source: Vaswani et al. 2017, "Attention Is All You Need".

    >>> Consecutive().num_positions(8, training=True)
    8
    """

    def __init__(self) -> None:
        pass

    def can_decode(self) -> bool:
        return True

    def positions(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        documents: Int[Tensor, "#b t"] | None,
        generator: torch.Generator,
        training: bool,
    ) -> Int[Tensor, "b t"] | None:
        return None

    def num_positions(self, tokens: int, training: bool) -> int:
        return tokens
