"""The base class of functions to learn in context: prompts x_1, y_1, x_2, y_2, ... of real vectors."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.baselines.in_context import CONSTANTS, FITTED, predictions, require
from lengthwise.config import ConfigError, settings_of
from lengthwise.tasks.base import Baseline, Batch, PrefixTask
from lengthwise.values import require_at_most, require_bool, require_integer

BASELINE_PROMPTS = 64  # prompts per call of a baseline that is fitted one by one; evaluation can stop between two calls
MAX_WIDTH = 100_000  # of a prompt's vectors, or of a network; larger ones exceed the memory
LINEAR_BASELINES = ("least squares", "averaging")
Functions = tuple[Tensor, ...]
"""The parameters of one function for each prompt; the first dimension of each tensor is that of the prompts."""


@dataclass(kw_only=True, eq=False, repr=False)
class FunctionTask(PrefixTask):
    """Predict y_n after the examples (x_1, f(x_1)), ..., (x_{n-1}, f(x_{n-1})) and x_n. `length` n counts the examples,
    including the predicted one.

    A prompt of n examples is 2n vectors of `dims` numbers: x_1, y_1, ..., x_n, y_n, where y_i is (y_i, 0, ..., 0). The
    model predicts y_i at the slot of x_i. The loss covers all n predictions, also the first, before which there are no
    examples. For 3 examples, with the scored slots underlined:

        inputs   x_1 y_1 x_2 y_2 x_3 y_3
        targets  y_1  0  y_2  0  y_3  0
                 ‾‾‾     ‾‾‾     ‾‾‾

    Every prompt has a new random function from the class, so training and test share none. One forward pass of a long
    prompt scores all its prefixes: the score at length n is that of the n-th prediction.

    A subclass draws functions, applies them, draws xs and ys with them, and scores predictions. Its settings are fields
    of a dataclass.

    Source: Garg et al. 2022, "What Can Transformers Learn In-Context?", section 2.
    """

    unit = "examples"
    per_token = False
    vocab_size = None
    output_size = 1
    baseline_names: ClassVar[Sequence[str]] = ()  # names in `baselines.in_context`
    largest: ClassVar[Mapping[str, int]] = {}  # further settings that count something, and their largest values
    at_most_dims: ClassVar[tuple[str, ...]] = ()  # settings that count coordinates

    dims: int = 16

    def __post_init__(self) -> None:
        self.check({name: getattr(self, name) for name in settings_of(type(self))})
        self.input_width = self.curriculum_dims = self.dims

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        task, dims = cls.__name__, settings["dims"]
        for name, high in {"dims": MAX_WIDTH, **cls.largest}.items():
            require_integer(task, 1, **{name: settings[name]})
            require_at_most(task, high, **{name: settings[name]})
        for name in cls.at_most_dims:
            require_integer(task, 1, **{name: settings[name]})
            if settings[name] > dims:
                raise ConfigError(
                    f"{task}: {name} must be at most dims={dims}, got {settings[name]}; raise dims or lower {name}"
                )
        switches = [name for name, p in settings_of(cls).items() if isinstance(p.default, bool)]
        require_bool(task, **{name: settings[name] for name in switches})
        return settings

    @abstractmethod
    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw a function for each of `count` prompts, for inputs whose first `dims` coordinates are open."""

    @abstractmethod
    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        """Return the value of each prompt's function at each of its inputs."""

    @abstractmethod
    def draw(
        self, generator: torch.Generator, count: int, length: int, dims: int
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
        """Draw xs and ys of `count` prompts, float32; the first `dims` coordinates of the inputs are open."""

    @abstractmethod
    def score_predictions(self, predicted: Float[Tensor, "b n"], ys: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        """Return the score of each prediction, float64."""

    def tokens(self, length: int) -> int:
        return 2 * length

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        self.check_length(length, split)
        return self.pack(*self.draw(generator, batch, length, self.dims))

    def training_batch(
        self, generator: torch.Generator, batch: int, shortest: int, longest: int, *, dims: int | None = None
    ) -> Batch:
        if dims is None or dims == self.dims:
            return super().training_batch(generator, batch, shortest, longest)
        return self.pack(*self.draw(generator, batch, longest, dims))

    def fixed_examples(self, seed: int, numbers: Sequence[int], shortest: int, longest: int) -> Batch:
        if shortest < longest:
            raise ConfigError(
                f"the prompts of {type(self).__name__} in a fixed training set must have one length, got {shortest} to "
                f"{longest}; leave min_length out"
            )
        return super().fixed_examples(seed, numbers, shortest, longest)

    def pack(self, xs: Float[Tensor, "b n d"], ys: Float[Tensor, "b n"]) -> Batch:
        """Return prompts as a batch."""
        count, length, _ = xs.shape
        inputs = xs.new_zeros(count, length, 2, self.dims)
        inputs[:, :, 0], inputs[:, :, 1, 0] = xs, ys
        targets = ys.new_zeros(count, length, 2)
        targets[:, :, 0] = ys
        scored = torch.tensor([True, False]).expand(count, length, 2)
        return Batch(inputs.flatten(1, 2), targets.flatten(1), scored.flatten(1))

    @staticmethod
    def examples_of(batch: Batch) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
        """Return xs and ys of a batch (the inverse of `pack`)."""
        return batch.inputs[:, 0::2], batch.targets[:, 0::2]

    @staticmethod
    def predictions(logits: Float[Tensor, "b t 1"]) -> Float[Tensor, "b n"]:
        """Return the model's prediction of each y."""
        return logits[:, 0::2, 0]

    def curve(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b n"]:
        return self.score_predictions(self.predictions(logits).double(), self.examples_of(batch)[1].double())

    def baselines(self) -> list[Baseline]:
        require(self.baseline_names)
        return [
            Baseline(
                name=name,
                scores=partial(self._baseline, name),
                floor=name in CONSTANTS,
                examples_per_call=BASELINE_PROMPTS if name in FITTED else None,
                fit_per_length=name in FITTED,
            )
            for name in self.baseline_names
        ]

    def _baseline(self, name: str, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b n"]:
        """Return the score of a baseline's prediction of y_n from the examples before it, for each n in `lengths`."""
        xs, ys = self.examples_of(batch)
        columns = [n - 1 for n in lengths]
        predicted = torch.from_numpy(predictions(name, xs.numpy(), ys.numpy(), columns))
        return self.score_predictions(predicted, ys.double()[:, columns])

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        rows = []
        for xs, ys in zip(*(tensor.tolist() for tensor in self.examples_of(batch)), strict=True):
            pairs = [(self.input_text(x), self.label_text(y)) for x, y in zip(xs, ys, strict=True)]
            examples = "; ".join(f"{x} -> {y}" for x, y in pairs[:-1])
            query, answer = pairs[-1]
            rows.append({"input": f"{examples}; {query} -> ?".lstrip("; "), "target": answer, "length": len(xs)})
        return rows

    def input_text(self, x: list[float]) -> str:
        """Return an input as readable text."""
        return f"({', '.join(f'{number:.2f}' for number in x)})"

    def label_text(self, y: float) -> str:
        """Return a label as readable text."""
        return f"{y:.2f}"


def random_subset(
    generator: torch.Generator, count: int, size: int, candidates: int, width: int
) -> Float[Tensor, "b w"]:
    """Return rows of `width` zeros with ones at `size` random columns among the first `candidates`."""
    columns = torch.rand(count, candidates, generator=generator).topk(size, 1).indices
    return torch.zeros(count, width).scatter_(1, columns, 1.0)
