"""What a run trained on, in words: fresh examples or a fixed set."""

from collections.abc import Mapping
from typing import Any


def training_set(training: Mapping[str, Any]) -> str:
    """Where the examples of a run's training came from, from its stored settings: `100,000 fixed ones, 25.6 epochs`."""
    count = training.get("train_examples")
    if count is None:
        return "drawn anew at every step"
    epochs = training.get("steps", 0) * training.get("batch_size", 0) / count
    return f"{count:,} fixed ones, {epochs:.3g} epochs"
