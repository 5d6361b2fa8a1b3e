"""The development of an encoding's own numbers during training, which the training records."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lengthwise.probes.base import DEVELOPMENT, Probe, Question

if TYPE_CHECKING:
    from lengthwise.store.rows import ProbeRow


@dataclass(frozen=True, kw_only=True)
class DevelopmentQuestion(Question):
    """How the numbers that the encodings declare (`PositionEncoding.tracked`) develop. It has no options."""

    probe: ClassVar[str] = "development"


class Development(Probe):
    """How the encoding's own numbers develop during training. Recorded by the training, and shown by `lengthwise show KEY`.

    FIRE records c and L, ALiBi its learned slopes, KERPLE its parameters, and T5 the bias of each bucket. Runs that were trained
    before these numbers were recorded have none.
    """

    question = DevelopmentQuestion
    chapter = DEVELOPMENT
    command = "lengthwise show KEY"

    def stored_note(self, key: str, rows: "Sequence[ProbeRow]") -> str:
        """Return the first and the last value of each quantity; the mean of one with several numbers."""
        quantities = [quantity for row in rows for quantity in row.result["quantities"]]
        return f"development: {'; '.join(map(_ends, quantities))}"


def _ends(quantity: dict[str, Any]) -> str:
    first, last = (_mean(quantity["values"][n]) for n in (0, -1))
    what = "mean " if quantity["shape"] else ""
    return f"{what}{quantity['name']} in {layers_text(quantity['layers'])} from {first:.4g} to {last:.4g}"


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else math.nan


def layers_text(layers: Sequence[int]) -> str:
    """Return layers in words: `layer 3`, `layers 1 to 4`, `4 layers from 1 to 7`."""
    first, last = layers[0], layers[-1]
    if first == last:
        return f"layer {first}"
    return (
        f"layers {first} to {last}"
        if last - first + 1 == len(layers)
        else f"{len(layers)} layers from {first} to {last}"
    )
