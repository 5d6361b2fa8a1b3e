"""A run: the complete description of one training, whose hash is its key."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from lengthwise.config.base import Config
from lengthwise.config.choices import Choice
from lengthwise.config.model import ModelConfig
from lengthwise.config.training import TrainingConfig
from lengthwise.values import ConfigError


@dataclass(frozen=True, kw_only=True)
class Run(Config):
    """A complete description of one training. Evaluations and training curves are stored under its `key`."""

    encoding: Choice = field(metadata={"kind": "encoding"})
    task: Choice = field(metadata={"kind": "task"})
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encoding.require_layers(self.model.num_layers)
        if self.model.mixer is not None:
            self._require_no_positions()
            return
        if self.model.share_encoding is None and not self.encoding.remaining_layers:
            # The encodings of a pattern keep None: each one follows its own source.
            shared = bool(getattr(self.encoding.cls, "shared_across_layers", False))
            object.__setattr__(self, "model", dataclasses.replace(self.model, share_encoding=shared))

    def _require_no_positions(self) -> None:
        if self.encoding.remaining_layers or self.encoding.name != "NoPE":
            raise ConfigError(
                f"Mamba has no attention, so its encoding must be NoPE, got {self.encoding.label}; choose NoPE"
            )
        if (scheme := self.training.positions) is not None:
            raise ConfigError(f"Mamba does not use positions, got the position scheme {scheme.label}; omit it")

    def identity(self) -> dict[str, Any]:
        return {**self.to_data(), "encoding": self.encoding.identity(), "task": self.task.identity()}

    @property
    def key(self) -> str:
        """Return 16 hex digits: the hash of everything that determines the training, including all defaults."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Return the choices of the run: its encodings, its task and its position scheme."""
        scheme = self.training.positions
        return (*self.encoding.layers, self.task, *([scheme] if scheme is not None else []))

    @property
    def label(self) -> str:
        """Return the encoding's label with the position scheme, such as `RoPE with Randomized(max_length=512)`, or "Mamba".

        `-S` means that the layers share one encoding module and `-per-layer` that they do not, where the source differs.
        """
        if self.model.mixer is not None:
            return "Mamba"
        scheme = self.training.positions
        return self._encoding_label() + (f" with {scheme.label}" if scheme is not None else "")

    def _encoding_label(self) -> str:
        name, label, is_pattern = self.encoding.name, self.encoding.label, bool(self.encoding.remaining_layers)
        default = None if is_pattern else bool(getattr(self.encoding.cls, "shared_across_layers", False))
        if self.model.share_encoding == default:
            return label
        suffix = "-S" if self.model.share_encoding else "-per-layer"
        return f"({label}){suffix}" if is_pattern else name + suffix + label.removeprefix(name)
