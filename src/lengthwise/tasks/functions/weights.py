"""What Boolean functions of a sum of weights have in common."""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import BooleanFunction, not_empty
from lengthwise.tasks.functions.prompts import Functions
from lengthwise.values import require_bool


class WeightedFunction(BooleanFunction):
    """y = sign(w·x - 1/2) for whole weights w; a subclass may say otherwise what w does. The inputs are uniform, not balanced.

    `resample_empty`: a function whose weights are all 0, which is constant, is drawn anew. The published programs keep them
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
        """w of each function, empty ones among them."""

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """w [b, d]."""
        return (not_empty(lambda rows: self.weights(generator, rows), count, self.resample_empty),)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return ((xs @ w[..., None])[..., 0] - 0.5).sign()
