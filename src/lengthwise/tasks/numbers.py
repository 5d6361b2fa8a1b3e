"""Numbers as words, digit by digit, a whole batch at a time."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.tasks.pairs import NOTHING


def digits(values: Int[Tensor, "*s"], places: int) -> Int[Tensor, "*s places"]:
    """The decimal digits of numbers from 0 to 10^places − 1, units last, with -1 in place of leading zeros; 0 is one digit."""
    powers = 10 ** torch.arange(places - 1, -1, -1)
    rest = values[..., None] // powers
    return (rest % 10).masked_fill((rest == 0) & (powers > 1), NOTHING)


def split(words: Sequence[str], mark: str) -> list[list[str]]:
    """The words between the marks."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == mark:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts
