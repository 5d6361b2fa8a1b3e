"""The base class of real functions: normal or other inputs, scored by squared error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.metrics import SQUARED_ERROR
from lengthwise.tasks.base import Batch
from lengthwise.tasks.functions.inputs import LAST, Inputs, change_last, mix_covariance
from lengthwise.tasks.functions.prompts import LINEAR_BASELINES, FunctionTask

MAX_SCALE = 1e6  # the smallest scale is its inverse


@dataclass(kw_only=True, eq=False, repr=False)
class Regression(FunctionTask):
    """Real functions of x ~ N(0, I). Loss and score are the squared error of a prediction.

    y = label_scale · f(x) + noise · ε, where x is input_scale times a draw of `inputs`, and ε ~ N(0, 1) for every label including
    the predicted one. A test can differ from training in these settings (`EvaluationConfig.shifts`):

    - `inputs`: "normal", "half-subspace", "skewed", "quadrants", "orthogonal" or "overlapping", see `functions.inputs`. With
      the last three the last input has another distribution than those before it, so every length has its own prompts; with
      "orthogonal" a prompt has at most `dims` examples.
    - `input_scale`, `label_scale`: above 0; the published tests use 0.333, 0.5, 2 and 3 for one of them at a time.
    - `noise`: the standard deviation. The published noise test (standard deviation 1, labels rescaled to variance d) corresponds to
      noise = label_scale = √(d / (d + 1)).

    Source: Garg et al. 2022, sections 3 and 4.
    """

    metric = SQUARED_ERROR
    baseline_names: ClassVar[Sequence[str]] = (*LINEAR_BASELINES, "3 nearest neighbours", "mean label", "zero")

    noise: float = 0.0
    inputs: Inputs = "normal"
    input_scale: float = 1.0
    label_scale: float = 1.0

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings, name = super().check(settings), cls.__name__
        inputs, noise = settings["inputs"], settings["noise"]
        if inputs == "half-subspace" and settings["dims"] < 2:
            raise ConfigError(f"{name}: dims must be at least 2 with inputs='half-subspace', got {settings['dims']}")
        if not 0 <= noise <= MAX_SCALE:
            raise ConfigError(
                f"{name}: noise, a standard deviation, must be between 0 and {MAX_SCALE:,.0f}, got {noise}"
            )
        for scale in ("input_scale", "label_scale"):
            if not 1 / MAX_SCALE <= settings[scale] <= MAX_SCALE:
                raise ConfigError(
                    f"{name}: {scale} must be between {1 / MAX_SCALE:g} and {MAX_SCALE:,.0f}, so that squares fit into float32, "
                    f"got {settings[scale]}"
                )
        return settings

    def draw(
        self, generator: torch.Generator, count: int, length: int, dims: int
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
        self._require_room(length, dims)
        xs = self._inputs(generator, count, length, dims)
        ys = self.label_scale * self.apply(self.functions(generator, count, dims), xs)
        if self.noise:
            ys = ys + self.noise * torch.randn(ys.shape, generator=generator)
        return xs, ys

    def loss(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, ""]:
        """Return the mean squared error of all predictions."""
        return (self.predictions(logits).float() - self.examples_of(batch)[1]).square().mean()

    def score_predictions(self, predicted: Float[Tensor, "b n"], ys: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        return (predicted - ys).square()

    def prefixes_are_examples(self) -> bool:
        return self.inputs not in LAST

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        self._require_room(length, self.dims)

    def _inputs(self, generator: torch.Generator, count: int, length: int, dims: int) -> Float[Tensor, "b n d"]:
        xs = torch.randn(count, length, self.dims, generator=generator)
        if self.inputs in ("half-subspace", "skewed"):
            xs = mix_covariance(generator, xs, self.inputs)
        xs[:, :, dims:] = 0
        if self.inputs in LAST:
            xs = change_last(generator, xs, self.inputs)
        return xs * self.input_scale

    def _require_room(self, length: int, dims: int) -> None:
        if self.inputs == "orthogonal" and length > dims:
            raise ConfigError(
                f"length must be at most {dims} for {type(self).__name__} with inputs='orthogonal' and {dims} open dims, got "
                f"{length}: no more inputs can be orthogonal"
            )
