"""Numbers as digit words, for whole batches."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.pairs import NO_WORD


def digits(values: Int[Tensor, "*s"], width: int) -> Int[Tensor, "*s width"]:
    """Return the decimal digits of numbers from 0 to 10^width − 1, units last, with -1 instead of leading zeros; 0 is one digit."""
    powers = 10 ** torch.arange(width - 1, -1, -1)
    rest = values[..., None] // powers
    return (rest % 10).masked_fill((rest == 0) & (powers > 1), NO_WORD)


def split(words: Sequence[str], separator: str) -> list[list[str]]:
    """Split a list of words at every separator."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == separator:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts
