"""Where the tokens of an example belong, for the position schemes `Grid` and `Coupled`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Coordinates:
    """The coordinates of the tokens of a task's examples.

    `axes`: how many coordinates a token has, for example two for row and column.
    `of`: for examples of equally many token slots, or their beginnings with the whole question, the coordinates of each
    token [b, t] -> [b, t, axes], at least 0. An additional token at the end changes those of no other token, so that
    generated tokens get theirs.
    `highest`: the highest coordinate, on any axis, in an example of so many token slots.
    """

    axes: int
    of: Callable[[Int[Tensor, "b t"]], Int[Tensor, "b t axes"]]
    highest: Callable[[int], int]


@dataclass(frozen=True)
class Coupling:
    """The places of the tokens of a task's examples. Tokens with equal places share a position ID.

    `places`: for examples of equally many token slots, or their beginnings with the whole question, the place of each
    token [b, t] -> [b, t]. Places count from 1; a token with place 0, such as BOS, has the position 0. An additional
    token at the end changes no other place, so that generated tokens get theirs.
    `highest`: the highest place in an example of so many token slots.
    """

    places: Callable[[Int[Tensor, "b t"]], Int[Tensor, "b t"]]
    highest: Callable[[int], int]


def first_index(inputs: Int[Tensor, "b t"], token: int) -> Int[Tensor, "b 1"]:
    """Return the index of the first occurrence of a token in each row, or the number of columns if there is none."""
    index = torch.arange(inputs.shape[1], device=inputs.device)
    none = torch.full_like(inputs[:, :1], inputs.shape[1])
    return torch.cat([torch.where(inputs == token, index, inputs.shape[1]), none], 1).amin(1, keepdim=True)
