"""Consecutive positions: 0, 1, 2, ... from the start of each document."""

import torch
from jaxtyping import Int
from torch import Tensor


def consecutive(documents: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
    """Positions that restart at 0 wherever the document id changes along a row.

    `documents` [0 0 0 1 1] gives [0 1 2 0 1]; left padding is a document of its own: [-1 -1 0 0 0] gives [0 1 0 1 2].
    """
    index = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    starts = torch.ones_like(documents, dtype=torch.bool)
    starts[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return index - torch.where(starts, index, 0).cummax(1).values
