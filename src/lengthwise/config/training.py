"""How a model is trained."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from lengthwise.config.base import Config
from lengthwise.config.choice_data import ChoiceOf
from lengthwise.config.choices import Choice
from lengthwise.values import ConfigError


@dataclass(frozen=True, kw_only=True)
class Curriculum(Config):
    """Short sequences with few input dimensions first: both grow every `every` training steps until they reach their
    maximum.

    `length`: the initial length, which grows up to `train_length`. None: always `train_length`.
    `dims`: the initial number of nonzero input coordinates, which grows up to the task's; the others are 0. None:
    always all. At step s (from 0), the length is min(length + length_step · ⌊s / every⌋, train_length), and likewise
    for dims. Both must reach their maximum before the last step.

    Source: Garg et al. 2022, appendix A.2.
    """

    every: int = 2000
    length: int | None = None
    length_step: int = 2
    dims: int | None = None
    dims_step: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("every", "length_step", "dims_step")
        if self.length is None and self.dims is None:
            raise ConfigError("Curriculum must have a length or dims, got neither; set one, or omit the curriculum")
        self.require_positive(*(name for name in ("length", "dims") if getattr(self, name) is not None))

    def length_at(self, step: int, end: int) -> int:
        """Return the sequence length at a step (from 0); `end` is the training length."""
        return end if self.length is None else min(self.length + self.length_step * (step // self.every), end)

    def dims_at(self, step: int, end: int) -> int:
        """Return the number of nonzero coordinates at a step (from 0); `end` is the task's number of dimensions."""
        return end if self.dims is None else min(self.dims + self.dims_step * (step // self.every), end)


@dataclass(frozen=True, kw_only=True)
class StopWhenLearned(Config):
    """End training before the last step once the model has learned its task at the training length.

    After every `every` steps, the model is scored on `examples` new training examples of `train_length`, by forward
    passes alone. For an exact match this is the score of generated answers. Training ends when `times` scores in a row
    are at least `score`; for a metric where lower is better, at most. The learning rate still follows the schedule of
    all `steps`, so `constant` is the schedule under which runs of different lengths are most alike.
    """

    score: float
    every: int = 50
    times: int = 3
    examples: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("every", "times", "examples")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """How a model is trained.

    All sequences of a batch have the same length: `train_length`, or a uniform draw from `min_length ... train_length`.
    A task with a fixed data set, such as SCAN, draws each example from all its examples of these lengths instead.
    """

    train_length: int
    """Length of the training sequences, in the task's unit (bytes of text, symbols to copy)."""
    min_length: int | None = None
    """Shortest training length; lengths are drawn uniformly between it and the training length. [default: the training
    length]
    """
    steps: int = 1000
    """Number of training steps. Only a run that starts from another one may have 0."""
    batch_size: int = 32
    """Sequences per training step."""
    accumulation: int = 1
    learning_rate: float = 1e-3
    """Peak learning rate."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = 0.05
    final_learning_rate: float = 0.1
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.98
    clip: float = 1.0
    positions: Annotated[Choice, ChoiceOf("position scheme")] | None = None
    """The position scheme in training and evaluation (`choose(Randomized, max_length=512)`). None: 0, 1, 2, ..."""
    curriculum: Curriculum | None = None
    """Shorter lengths and fewer dims at first; `min_length` must then equal `train_length`."""
    train_examples: int | None = None
    """Train on a fixed set of this many examples for several epochs. [default: new examples at every step]

    Each epoch has a new order, and a batch has examples of all lengths. The set depends on the task, the lengths and
    the seed.
    """
    precision: Literal["float32", "bfloat16"] | None = None
    """Number format of the forward and backward passes of training; weights stay in float32. [default: bfloat16 on a
    GPU, otherwise float32]"""

    data_seed: int | None = None
    """Seed of the training examples and of their order. Initial weights, dropout and position schemes keep the run's
    seed. [default: the run's seed]"""
    stop: StopWhenLearned | None = None
    """End training once the task is learned, after at most `steps` steps. None: train for all of them."""

    def to_data(self) -> dict[str, Any]:
        data = super().to_data()
        for name in ("precision", "data_seed", "stop"):  # newer than stored runs, which keep their keys
            if data[name] is None:
                del data[name]
        return data

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.positions is not None and self.positions.name == "Consecutive":
            object.__setattr__(self, "positions", None)  # None means the same, and equal runs must have equal keys
        self.set_defaults(min_length=self.train_length)
        self.require_positive("train_length", "min_length", "batch_size", "accumulation")
        if self.steps < 0:
            raise ConfigError(f"TrainingConfig.steps must be at least 0, got {self.steps}")
        self.require_between(0.0, 1.0, "warmup", "final_learning_rate", "weight_decay")
        self.require_between(0.0, 0.999999, "beta1", "beta2")
        if (self.min_length or 1) > self.train_length:
            raise ConfigError(f"min_length must be at most train_length {self.train_length}, got {self.min_length}")
        if self.batch_size % self.accumulation:
            raise ConfigError(
                f"batch_size must be a multiple of accumulation {self.accumulation}, got {self.batch_size}"
            )
        if self.curriculum is not None:
            if self.min_length != self.train_length:
                raise ConfigError(
                    f"min_length {self.min_length} cannot be combined with a curriculum, which also sets lengths; omit "
                    "one of them"
                )
            if (self.curriculum.length or 1) > self.train_length:
                raise ConfigError(
                    f"the curriculum's length must be at most train_length {self.train_length}, got "
                    f"{self.curriculum.length}"
                )
        if self.train_examples is not None:
            self._require_fixed_set(self.train_examples)
        for name in ("learning_rate", "clip"):
            if (value := getattr(self, name)) <= 0:
                raise ConfigError(f"{name} must be more than 0, got {value}")

    def _require_fixed_set(self, count: int) -> None:
        if self.curriculum is not None:
            raise ConfigError(
                f"train_examples {count} cannot be combined with a curriculum, because a fixed set has all lengths "
                "from the beginning; omit one of them"
            )
        lengths = self.train_length - (self.min_length or self.train_length) + 1
        if count < max(self.batch_size, lengths):
            raise ConfigError(
                f"train_examples must be at least {max(self.batch_size, lengths)} (a batch, and an example of each "
                f"length), got {count}; omit it for new examples at every step"
            )
