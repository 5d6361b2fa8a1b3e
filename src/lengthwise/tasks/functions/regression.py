"""What classes of real functions have in common: normal inputs, or others by name, and squared error."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.config import ConfigError, near_miss
from lengthwise.tasks.base import Batch
from lengthwise.tasks.functions.inputs import INPUTS, LAST, Inputs, changed_last, mixed
from lengthwise.tasks.functions.prompts import FunctionTask

LARGEST = 1e6  # and its inverse: of a scale


class Regression(FunctionTask):
    """Real functions of x ~ N(0, I). Loss and score: the squared error of a prediction.

    y = label_scale · f(x) + noise · ε, x being input_scale times what `inputs` says, ε ~ N(0, 1) for every label, the asked one
    too. So a test may differ from the training by a setting (`EvaluationConfig.shifts`):

    - `inputs`: "normal", or "half-subspace", "skewed", "quadrants", "orthogonal" or "overlapping", see `functions.inputs`. The
      last three ask the last input in another way than those before it, and every length has prompts of its own; for
      "orthogonal" a prompt has at most `dims` examples.
    - `input_scale`, `label_scale`: above 0; published are 0.333, 0.5, 2 and 3, one of them at a time.
    - `noise`: the standard deviation. The published test of noise (of standard deviation 1, labels scaled back to variance d) is
      noise = label_scale = √(d / (d + 1)).

    Source: Garg et al. 2022, sections 3 and 4.
    """

    metric = "squared error"
    better = "lower"
    baseline_names: ClassVar[tuple[str, ...]] = (
        "least squares",
        "averaging",
        "3 nearest neighbours",
        "mean label",
        "zero",
    )

    def __init__(
        self,
        *,
        dims: int = 16,
        noise: float = 0.0,
        inputs: Inputs = "normal",
        input_scale: float = 1.0,
        label_scale: float = 1.0,
    ):
        self.noise, self.inputs = noise, inputs
        self.input_scale, self.label_scale = input_scale, label_scale
        super().__init__(dims=dims)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings, name = super().check(settings), cls.__name__
        inputs, noise = settings["inputs"], settings["noise"]
        if inputs not in INPUTS:
            raise ConfigError(
                f"{name}: inputs is {inputs!r}{near_miss(str(inputs), INPUTS)}; it is one of: {', '.join(INPUTS)}"
            )
        if inputs == "half-subspace" and settings["dims"] < 2:
            raise ConfigError(f"{name}: inputs is 'half-subspace' with dims=1, which has no half; give dims at least 2")
        if not 0 <= noise <= LARGEST:
            raise ConfigError(
                f"{name}: noise is {noise}; it is a standard deviation, 0 or more, at most {LARGEST:,.0f}"
            )
        for scale in ("input_scale", "label_scale"):
            if not 1 / LARGEST <= settings[scale] <= LARGEST:
                raise ConfigError(
                    f"{name}: {scale} is {settings[scale]}; it has to be more than 0, and in {1 / LARGEST:g} ... {LARGEST:,.0f}: "
                    "squares of more, or of less, are no float32"
                )
        return settings

    def draw(
        self, generator: torch.Generator, count: int, length: int, dims: int
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
        self._require_room(length, dims)
        xs = self._inputs(generator, count, length, dims)
        ys = self.apply(self.functions(generator, count, dims), xs)
        if self.label_scale != 1:
            ys = ys * self.label_scale
        if self.noise:
            ys = ys + self.noise * torch.randn(ys.shape, generator=generator)
        return xs, ys

    def loss(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, ""]:
        """Mean squared error of all predictions."""
        return (self.predictions(logits).float() - self.examples_of(batch)[1]).square().mean()

    def worth(self, predicted: Float[Tensor, "b n"], ys: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        return (predicted - ys).square()

    def one_forward(self) -> bool:
        return self.inputs not in LAST

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        self._require_room(length, self.dims)

    def _inputs(self, generator: torch.Generator, count: int, length: int, dims: int) -> Float[Tensor, "b n d"]:
        xs = torch.randn(count, length, self.dims, generator=generator)
        if self.inputs in ("half-subspace", "skewed"):
            xs = mixed(generator, xs, self.inputs)
        xs[:, :, dims:] = 0
        if self.inputs in LAST:
            xs = changed_last(generator, xs, self.inputs)
        return xs if self.input_scale == 1 else xs * self.input_scale

    def _require_room(self, length: int, dims: int) -> None:
        if self.inputs == "orthogonal" and length > dims:
            raise ConfigError(
                f"{type(self).__name__} with inputs='orthogonal' asks at an input at right angles to all before it, and {dims} "
                f"open dims have room for {dims} inputs; a length of {length} cannot be, ask at most {dims}"
            )
