"""How a trained model is evaluated."""

from dataclasses import dataclass
from typing import Any

from lengthwise.config.base import Config
from lengthwise.values import ConfigError


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Config):
    """How a trained model is evaluated. Each length is stored separately, so adding lengths repeats no training."""

    lengths: tuple[int, ...]
    examples: int = 256
    """Test examples at each length, for tasks that are scored per example."""
    tokens: int = 65_536
    """Test tokens at each length, for tasks that are scored per token (text)."""
    seed: int = 0
    prompt: int | None = None
    """For in-context learning: the number of examples in the prompts, whose prefixes are the lengths. None: the longest
    length.
    """
    shifts: tuple[dict[str, Any], ...] = ()
    """Task settings that differ from training, as in ({"inputs": "skewed"}, {"input_scale": 3.0}); all lengths are
    evaluated for each shift and for the task as trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("examples", "tokens")
        if not self.lengths or min(self.lengths) < 1:
            raise ConfigError(f"lengths must be one or more numbers of at least 1, got {list(self.lengths)}")
        if len(set(self.lengths)) < len(self.lengths):
            raise ConfigError(f"lengths must differ, got {list(self.lengths)}; remove the repeated one")
        if self.prompt is not None and self.prompt < max(self.lengths):
            raise ConfigError(f"prompt must be at least the longest length {max(self.lengths)}, got {self.prompt}")
        for n, shift in enumerate(self.shifts):
            if not shift:
                raise ConfigError(f"shifts[{n}] changes no setting; remove it, the task as trained is always evaluated")
            if shift in self.shifts[:n]:
                raise ConfigError(f"shifts must differ, got {shift} twice; remove one of them")
