"""The development of the encodings' own numbers during training (`PositionEncoding.tracked`)."""

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from lengthwise.encodings import PositionEncoding
from lengthwise.encodings.contract import tracked_of
from lengthwise.models import Decoder, Model

MAX_ENTRIES = 64  # recorded entries of each head, evenly spaced
MAX_NUMBERS = 20_000  # recorded in a run, approximate; more numbers per row mean fewer rows
DIGITS = 6  # of each stored number


@dataclass(frozen=True)
class Quantity:
    """One tracked tensor. `layers`: those that share it, from 1. `entries`: those of a table that are recorded."""

    encoding: PositionEncoding
    name: str
    layers: tuple[int, ...]
    full_shape: tuple[int, ...]
    entries: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of what is recorded."""
        return (*self.full_shape[:1], len(self.entries)) if self.entries else self.full_shape

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class TrackedNumbers:
    """The tracked numbers of a model at every `interval` steps, including the step 0 and the last one.

    `numbers`: how many there are in each row; if there are none, or no steps, nothing is recorded. They are written
    into a tensor on the model's device, so recording does not wait for it.
    """

    def __init__(self, model: Model, steps: int, steps_per_row: int, device: torch.device):
        self.quantities = _quantities(model) if isinstance(model, Decoder) else []
        self.numbers = sum(quantity.size for quantity in self.quantities) if steps else 0
        rows = max(1, min(math.ceil(steps / steps_per_row), MAX_NUMBERS // max(1, self.numbers)))
        self.interval = max(1, steps_per_row * math.ceil(steps / steps_per_row / rows))
        self.steps = [*range(0, steps, self.interval), steps]
        indices = (torch.tensor(quantity.entries, dtype=torch.long, device=device) for quantity in self.quantities)
        self._quantities_and_indices = list(zip(self.quantities, indices, strict=True))
        self.rows = torch.full((len(self.steps), self.numbers), math.nan, dtype=torch.float32, device=device)

    @torch.no_grad()
    def record(self, step: int) -> None:
        """Record the numbers after `step` steps if they are due."""
        if not self.numbers or (step % self.interval and step != self.steps[-1]):
            return
        values = {encoding: tracked_of(encoding) for encoding in {q.encoding: None for q in self.quantities}}
        vectors = []
        for quantity, index in self._quantities_and_indices:
            value = values[quantity.encoding][quantity.name]
            vectors.append((value.index_select(-1, index) if quantity.entries else value).flatten().float())
        self.rows[bisect_left(self.steps, step)] = torch.cat(vectors)

    def recorded(self, step: int) -> Tensor:
        """Return the rows up to `step`, for a checkpoint."""
        return self.rows[: bisect_right(self.steps, step)]

    def restore(self, rows: Tensor) -> None:
        self.rows[: len(rows)] = rows.to(self.rows.device)

    def end(self, step: int) -> None:
        """Make `step` the last one, although more were planned, and record it."""
        place = bisect_left(self.steps, step)
        self.steps, self.rows = [*self.steps[:place], step], self.rows[: place + 1]
        self.record(step)

    def result(self) -> dict[str, Any]:
        """Return everything as plain data; {} if nothing is tracked.

        `steps`: the steps of the rows. `quantities`: for each its `name`, `layers`, `shape` and `entries`, and its
        `values`: for each step a list of numbers, those of the first head first. A number that is not finite is None.
        """
        if not self.numbers:
            return {}
        sizes = [quantity.size for quantity in self.quantities]
        columns = self.rows.cpu().double().split(sizes, 1)
        return {
            "steps": self.steps,
            "quantities": [
                {
                    "name": quantity.name,
                    "layers": list(quantity.layers),
                    "shape": list(quantity.shape),
                    "entries": list(quantity.entries),
                    "values": [[_number(value) for value in row] for row in column.tolist()],
                }
                for quantity, column in zip(self.quantities, columns, strict=True)
            ],
        }


def _quantities(model: Decoder) -> list[Quantity]:
    quantities = []
    for index, encoding in enumerate(cast(list[PositionEncoding], list(model.encodings))):
        layers = tuple(layer + 1 for layer, indices in enumerate(model.module_indices) if index in indices)
        for name, value in tracked_of(encoding).items():
            entries: tuple[int, ...] = ()
            if value.ndim == 2:
                count = min(value.shape[1], MAX_ENTRIES)
                places = torch.linspace(0, value.shape[1] - 1, count, dtype=torch.float64)
                entries = tuple(places.round().long().tolist())
            quantities.append(Quantity(encoding, name, layers, tuple(value.shape), entries))
    return quantities


def _number(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
