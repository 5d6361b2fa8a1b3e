"""A run for tests of configurations."""

from typing import Any

from lengthwise.config import Run, TrainingConfig, choose
from lengthwise.encodings import FIRE
from lengthwise.tasks import Copy


def run(**settings: Any) -> Run:
    return Run(
        **{"encoding": choose(FIRE), "task": choose(Copy), "training": TrainingConfig(train_length=8), **settings}
    )
