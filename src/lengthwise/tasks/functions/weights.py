"""The base class of Boolean functions of a weighted sum."""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import BooleanFunction, draw_rows
from lengthwise.tasks.functions.prompts import Functions
from lengthwise.values import require_bool


class WeightedFunction(BooleanFunction):
    """y = sign(w·x - 1/2) with integer weights w, unless a subclass defines another function of w. The inputs are uniform.

    `resample_empty`: draw functions again whose weights are all 0, because they are constant. The published code keeps them
    (False).
    """

    def __init__(self, *, dims: int = 16, resample_empty: bool = True, noise: float = 0.0):
        self.resample_empty = resample_empty
        super().__init__(dims=dims, noise=noise)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        require_bool(cls.__name__, resample_empty=settings["resample_empty"])
        return settings

    @abstractmethod
    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        """Draw w for each function; it may be 0 everywhere."""

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        return (draw_rows(lambda rows: self.weights(generator, rows), count, self.resample_empty),)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return ((xs @ w[..., None])[..., 0] - 0.5).sign()
