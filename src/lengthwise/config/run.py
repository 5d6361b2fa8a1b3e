"""A run: the complete description of one training, whose hash is its key."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Annotated, Any

from lengthwise.config.base import Config
from lengthwise.config.choice_data import ChoiceOf
from lengthwise.config.choices import Choice
from lengthwise.config.mixers import MIXERS, Mixer
from lengthwise.config.model import ModelConfig
from lengthwise.config.training import TrainingConfig
from lengthwise.values import ConfigError

MAX_LINEAGE = 16  # ancestors of a run


@dataclass(frozen=True, kw_only=True)
class Run(Config):
    """A complete description of one training. Evaluations and training curves are stored under its `key`."""

    encoding: Annotated[Choice, ChoiceOf("encoding")]
    task: Annotated[Choice, ChoiceOf("task")]
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig
    seed: int = 0
    parent: "Run | None" = None
    """The run whose trained weights this one starts from. The parameters of another class of encoding keep their
    initial values, and so do the norms of queries and keys if only this run has them. With 0 training steps the
    parent's weights are evaluated as they are, for example with another encoding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encoding.require_layers(self.model.num_layers)
        if self.parent is not None:
            self._require_parent(self.parent)
        elif self.training.steps == 0:
            raise ConfigError(
                "steps must be at least 1 for a run without a parent, got 0; train it, or give it a parent"
            )
        if self.model.mixer is not None:
            self._require_encoding_of(MIXERS[self.model.mixer])
            return
        if self.model.share_encoding is None and not self.encoding.remaining_layers:
            # The encodings of a pattern keep None, and so do a temperature and an encoding: each one follows its own
            # source.
            shared = self.encoding.shared_across_layers
            object.__setattr__(self, "model", dataclasses.replace(self.model, share_encoding=shared))

    def _require_parent(self, parent: "Run") -> None:
        """Require that the parent's weights fit this run's model, and that there are few ancestors."""
        # The mixer first, because the defaults of other settings depend on it.
        for name in ("mixer", *(f.name for f in dataclasses.fields(self.model))):
            ours, inherited = getattr(self.model, name), getattr(parent.model, name)
            is_added = name == "qk_norm" and ours  # the norms begin with weights of 1
            if ours != inherited and name not in ("dropout", "share_encoding") and not is_added:
                raise ConfigError(
                    f"a run must have the model of its parent, got {name} {ours!r}, but {parent.label} has "
                    f"{inherited!r}; use the parent's model"
                )
        if len(parent.lineage) >= MAX_LINEAGE:
            raise ConfigError(
                f"a run must have at most {MAX_LINEAGE} ancestors, got {len(parent.lineage)}; start from an earlier one"
            )

    def _require_encoding_of(self, mixer: Mixer) -> None:
        """Require an encoding, and a position scheme, that the mixer can take."""
        encoding = self.encoding
        if encoding.remaining_layers or encoding.layer.non_defaults or encoding.name not in mixer.encodings:
            raise ConfigError(
                f"{mixer.label} has no attention, so its encoding must be {' or '.join(mixer.encodings)}, got "
                f"{encoding.label}; choose {mixer.encodings[0]}"
            )
        if (scheme := self.training.positions) is not None and encoding.name == "NoPE":
            raise ConfigError(f"{mixer.label} does not use positions, got the position scheme {scheme.label}; omit it")

    def to_data(self) -> dict[str, Any]:
        data = super().to_data()
        if self.parent is None:
            del data["parent"]
        return data

    def identity(self) -> dict[str, Any]:
        data = {**self.to_data(), "encoding": self.encoding.identity(), "task": self.task.identity()}
        return data | ({"parent": self.parent.key} if self.parent is not None else {})

    @property
    def key(self) -> str:
        """Return 16 hex digits: the hash of everything that determines the training, including all defaults."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def data_seed(self) -> int:
        """Return the seed of the training examples and of their order."""
        return self.seed if self.training.data_seed is None else self.training.data_seed

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Return the choices of the run and its ancestors: encodings, tasks and position schemes."""
        scheme = self.training.positions
        inherited = self.parent.choices if self.parent is not None else ()
        encodings = (choice for layer in self.encoding.layers for choice in layer.parts)
        return (*encodings, self.task, *([scheme] if scheme is not None else []), *inherited)

    @property
    def lineage(self) -> "tuple[Run, ...]":
        """Return this run, its parent, the parent's parent, and so on. The last one began with random weights."""
        return (self, *(self.parent.lineage if self.parent is not None else ()))

    @property
    def label(self) -> str:
        """Return the encoding's label with the position scheme, such as `RoPE with Randomized(max_length=512)`, or
        "Mamba".

        `-S` means that the layers share one encoding module and `-per-layer` that they do not, where the source
        differs. A run with a parent names it: `YaRN(factor=4.0) from RoPE`, or `YaRN(factor=4.0) from RoPE (100 steps
        at 1024)`.
        """
        scheme = self.training.positions
        if self.model.mixer is None:
            label = self._encoding_label()
        else:
            mixer = MIXERS[self.model.mixer].label
            label = mixer if self.encoding.name == "NoPE" else f"{mixer} with {self.encoding.label}"
        label += f" with {scheme.label}" if scheme is not None else ""
        if self.parent is None:
            return label
        inherited = self.parent.label if self.parent.parent is None else f"({self.parent.label})"
        steps, length = self.training.steps, self.training.train_length
        at = f" at {length}" if length != self.parent.training.train_length else ""
        return f"{label} from {inherited}" + (f" ({steps} step{'s' if steps > 1 else ''}{at})" if steps else "")

    def _encoding_label(self) -> str:
        name, label, is_pattern = self.encoding.name, self.encoding.label, bool(self.encoding.remaining_layers)
        default = None if is_pattern else self.encoding.shared_across_layers
        if self.model.share_encoding == default:
            return label
        suffix = "-S" if self.model.share_encoding else "-per-layer"
        return f"({label}){suffix}" if is_pattern else name + suffix + label.removeprefix(name)
