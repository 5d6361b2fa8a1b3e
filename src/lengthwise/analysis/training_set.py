"""Describe the training examples of a run: new ones at every step, or a fixed set."""

from collections.abc import Mapping
from typing import Any


def training_set(training: Mapping[str, Any]) -> str:
    """Return a description of a run's training examples from its stored settings: `100,000 fixed examples, 25.6
    epochs`.
    """
    count = training.get("train_examples")
    if count is None:
        return "new examples at every step"
    epochs = training.get("steps", 0) * training.get("batch_size", 0) / count
    return f"{count:,} fixed examples, {epochs:.3g} epochs"
