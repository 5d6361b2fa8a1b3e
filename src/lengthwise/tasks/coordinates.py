"""Where the tokens of an example lie in a grid, for the position scheme `Grid`."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Coordinates:
    """The coordinates of the tokens of a task's examples.

    `axes`: how many coordinates a token has, for example two for row and column.
    `of`: for examples of equally many token slots, or their beginnings with the whole question, the coordinates of each token
    [b, t] -> [b, t, axes], at least 0. An additional token at the end changes those of no other token, so that generated tokens
    get theirs.
    `highest`: the highest coordinate, on any axis, in an example of so many token slots.
    """

    axes: int
    of: Callable[[Int[Tensor, "b t"]], Int[Tensor, "b t axes"]]
    highest: Callable[[int], int]
