"""The base class of Boolean functions of a weighted sum."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import BooleanFunction, draw_rows
from lengthwise.tasks.functions.prompts import Functions


@dataclass(kw_only=True, eq=False, repr=False)
class WeightedFunction(BooleanFunction):
    """y = sign(w·x - 1/2) with integer weights w, unless a subclass defines another function of w. The inputs are uniform.

    `resample_empty`: draw functions again whose weights are all 0, because they are constant. The published code keeps them
    (False).
    """

    resample_empty: bool = True

    @abstractmethod
    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        """Draw w for each function; it may be 0 everywhere."""

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        return (draw_rows(lambda rows: self.weights(generator, rows), count, self.resample_empty),)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return ((xs @ w[..., None])[..., 0] - 0.5).sign()
