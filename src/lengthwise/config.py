"""Configurations of runs: frozen dataclasses with strict JSON conversion and a hash that is the run key.

Nothing here imports torch. A `Run` describes one training completely, including all defaults, so that equal trainings have equal
keys on every machine. Encodings, tasks and position schemes in it are choices (`choices.py`).
"""

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lengthwise.choices import (
    Choice,
    Registry,
    alternate,
    annotation,
    choice_from_data,
    choose,
    context_of,
    settings_of,
    shown_settings,
)
from lengthwise.values import ConfigError, cast, near_miss, parse_value, require_known

__all__ = [
    "Choice",
    "ConfigError",
    "Curriculum",
    "EvaluationConfig",
    "ModelConfig",
    "Registry",
    "Run",
    "TrainingConfig",
    "alternate",
    "annotation",
    "cast",
    "choice_from_data",
    "choose",
    "context_of",
    "near_miss",
    "parse_value",
    "require_known",
    "settings_of",
    "shown_settings",
]

MAX_TRAIN_EXAMPLES = 10**12  # of a fixed training set; far more than any training uses

# ---- the parts of a run -----------------------------------------------------------------------------------------


C = typing.TypeVar("C", bound="Config")


class Config:
    """Base class of the configurations. Every field is checked against its declared type at construction."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value, where, kind = getattr(self, f.name), f"{type(self).__name__}.{f.name}", f.metadata.get("kind")
            if isinstance(value, Choice) and kind and value.kind != kind:
                raise ConfigError(f"{where} must be of kind {kind}, got the {value.kind} {value.name}")
            if not isinstance(value, (Choice, Config)):
                if kind and value is not None:
                    raise ConfigError(f"{where} must be a choice of a {kind}, got {value!r}; write choose(CLASS, ...)")
                object.__setattr__(self, f.name, cast(value, hints[f.name], where))
            elif not isinstance(value, hints[f.name]):
                raise ConfigError(f"{where} must be of type {hints[f.name].__name__}, got {value!r}")

    def set_defaults(self, **values: Any) -> None:
        """Set fields that are None to defaults that depend on other fields."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def require_positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{type(self).__name__}.{name} must be at least 1, got {getattr(self, name)}")

    def require_between(self, low: float, high: float, *names: str) -> None:
        for name in names:
            if not low <= getattr(self, name) <= high:
                raise ConfigError(
                    f"{type(self).__name__}.{name} must be from {low} to {high}, got {getattr(self, name)}"
                )

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON data with every default written out."""
        return {f.name: _data(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_data(cls: type[C], data: Mapping[str, Any]) -> C:
        """Return the object that `to_data` described. For an unknown setting, raise `ArgumentError` with a suggestion."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"{cls.__name__} must be an object with named settings, got {data!r}")
        fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        require_known(cls.__name__, data, fields)
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for name, value in data.items():
            hint, kind = hints[name], fields[name].metadata.get("kind")
            if kind and not isinstance(value, Choice) and not (value is None and fields[name].default is None):
                value = choice_from_data(kind, value)
            else:
                types = [part for part in (typing.get_args(hint) or (hint,)) if isinstance(part, type)]
                config = next((part for part in types if issubclass(part, Config)), None)
                if config is not None and not isinstance(value, Config) and not (value is None and type(None) in types):
                    value = config.from_data(value)
            values[name] = value
        try:
            return cls(**values)
        except TypeError as error:
            raise ConfigError(f"{cls.__name__}: {error}") from error


def _data(value: Any) -> Any:
    if isinstance(value, (Config, Choice)):
        return value.to_data()
    return [_data(v) for v in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """The architecture of the model. None is replaced at construction by a default that depends on the other settings.

    `t5_scaling`: attention logits are not divided by sqrt(head_dim), queries are initialized smaller instead; residual branches are
    not scaled by depth; tied embeddings are initialized from N(0, 1), and the output is divided by sqrt(d_model).
    `share_encoding`: one encoding module for all layers (T5, KERPLE, FIRE-S) or one per layer. None: as in the encoding's source.
    `mixer`: "mamba" replaces attention and MLP by Mamba-1, which uses only `d_model`, `num_layers`, `state_size` (16 if None) and
    `dropout`. None: attention.
    """

    d_model: int = 128
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int | None = None
    head_dim: int | None = None
    d_ff: int | None = None
    norm: Literal["layer", "rms"] = "layer"
    mlp: Literal["gelu", "relu", "swiglu"] = "gelu"
    bias: bool = True
    dropout: float = 0.0
    tie_embeddings: bool = False
    t5_scaling: bool = False
    share_encoding: bool | None = None
    mixer: Literal["mamba"] | None = None
    state_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("d_model", "num_layers", "num_heads")
        self.require_between(1, MAX_LAYERS, "num_layers")
        if self.mixer is not None:
            self._require_mamba()
            return
        if self.state_size is not None:
            raise ConfigError(f"state_size applies only to mixer='mamba', got {self.state_size} for attention; omit it")
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ConfigError(
                f"d_model must be a multiple of num_heads, got {self.d_model} and {self.num_heads}; change one, or set head_dim"
            )
        d_ff = 4 * self.d_model if self.mlp != "swiglu" else -(-8 * self.d_model // 3 // 8) * 8
        self.set_defaults(num_kv_heads=self.num_heads, head_dim=self.d_model // self.num_heads, d_ff=d_ff)
        self.require_positive("num_kv_heads", "head_dim", "d_ff")
        if self.num_heads % self.kv_heads:
            raise ConfigError(
                f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )
        self.require_between(0.0, 0.99, "dropout")

    def _require_mamba(self) -> None:
        for f in dataclasses.fields(self):
            if f.name not in MAMBA_SETTINGS and getattr(self, f.name) != f.default:
                raise ConfigError(
                    f"{f.name} does not apply to Mamba, got {getattr(self, f.name)!r}; its settings are: "
                    f"{', '.join(MAMBA_SETTINGS)}"
                )
        self.set_defaults(state_size=16)
        self.require_positive("state_size")
        self.require_between(0.0, 0.99, "dropout")

    def to_data(self) -> dict[str, Any]:
        data = super().to_data()
        return data if self.mixer is None else {name: data[name] for name in MAMBA_SETTINGS}

    # These properties have the types of sizes that may be None as arguments but never are after construction.
    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def head_width(self) -> int:
        return self.head_dim or self.d_model // self.num_heads

    @property
    def hidden(self) -> int:
        assert self.d_ff is not None
        return self.d_ff

    @classmethod
    def gpt(cls, **settings: Any) -> "ModelConfig":
        """GPT-like: LayerNorm, GELU MLP, biases (the defaults)."""
        return cls(**settings)

    @classmethod
    def llama(cls, **settings: Any) -> "ModelConfig":
        """Llama-like: RMSNorm, gated SiLU MLP, no biases."""
        return cls(**{"norm": "rms", "mlp": "swiglu", "bias": False, **settings})

    @classmethod
    def t5(cls, **settings: Any) -> "ModelConfig":
        """T5-like, as in Kazemnejad et al. 2023: RMSNorm, ReLU MLP, no biases, tied embeddings, T5's scales."""
        like = {"norm": "rms", "mlp": "relu", "bias": False, "tie_embeddings": True, "t5_scaling": True}
        return cls(**{**like, **settings})

    @classmethod
    def mamba(cls, **settings: Any) -> "ModelConfig":
        """Mamba-1 (Gu & Dao 2023), no Transformer: blocks of a short convolution and a selective scan."""
        return cls(**{"mixer": "mamba", **settings})


MAX_LAYERS = 1000
MAMBA_SETTINGS = ("mixer", "d_model", "num_layers", "state_size", "dropout")


@dataclass(frozen=True, kw_only=True)
class Curriculum(Config):
    """Short sequences with few input dimensions first: both grow every `every` training steps until they reach their maximum.

    `length`: the initial length, which grows up to `train_length`. None: always `train_length`.
    `dims`: the initial number of nonzero input coordinates, which grows up to the task's; the others are 0. None: always all.
    At step s (from 0), the length is min(length + length_step · ⌊s / every⌋, train_length), and likewise for dims. Both must reach
    their maximum before the last step.

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
class TrainingConfig(Config):
    """How a model is trained. `train_length` is in the task's unit (bytes of text, symbols to copy).

    All sequences of a batch have the same length: `train_length`, or a uniform draw from `min_length ... train_length`. A task with
    a fixed data set, such as SCAN, draws each example from all its examples of these lengths instead.
    `positions`: the position scheme in training and evaluation (`choose(Randomized, max_length=512)`). None: 0, 1, 2, ...
    `curriculum`: shorter lengths and fewer dims at first; `min_length` must then equal `train_length`.
    `train_examples`: train on a fixed set of this many examples, in a new order in each epoch; a batch then has examples of all
    lengths. The set depends on the task, the lengths and the run's seed. None: new examples at every step.
    """

    train_length: int
    min_length: int | None = None
    steps: int = 1000
    batch_size: int = 32
    accumulation: int = 1
    learning_rate: float = 1e-3
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = 0.05
    final_learning_rate: float = 0.1
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.98
    clip: float = 1.0
    positions: Choice | None = field(default=None, metadata={"kind": "position scheme"})
    curriculum: Curriculum | None = None
    train_examples: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.positions is not None and self.positions.name == "Consecutive":
            object.__setattr__(self, "positions", None)  # None means the same, and equal runs must have equal keys
        self.set_defaults(min_length=self.train_length)
        self.require_positive("train_length", "min_length", "steps", "batch_size", "accumulation")
        self.require_between(0.0, 1.0, "warmup", "final_learning_rate", "weight_decay", "beta1", "beta2")
        if (self.min_length or 1) > self.train_length:
            raise ConfigError(f"min_length must be at most train_length {self.train_length}, got {self.min_length}")
        if self.batch_size % self.accumulation:
            raise ConfigError(
                f"batch_size must be a multiple of accumulation {self.accumulation}, got {self.batch_size}"
            )
        if 1.0 in (self.beta1, self.beta2):
            raise ConfigError(
                f"beta1 and beta2 must be less than 1, got {self.beta1} and {self.beta2}; the defaults are 0.9 and 0.98"
            )
        if self.curriculum is not None:
            if self.min_length != self.train_length:
                raise ConfigError(
                    f"min_length {self.min_length} cannot be combined with a curriculum, which also sets lengths; omit one of them"
                )
            if (self.curriculum.length or 1) > self.train_length:
                raise ConfigError(
                    f"the curriculum's length must be at most train_length {self.train_length}, got {self.curriculum.length}"
                )
        if self.train_examples is not None:
            self._require_fixed_set(self.train_examples)
        if self.learning_rate <= 0 or self.clip <= 0:
            raise ConfigError(f"learning_rate and clip must be more than 0, got {self.learning_rate} and {self.clip}")

    def _require_fixed_set(self, count: int) -> None:
        if self.curriculum is not None:
            raise ConfigError(
                f"train_examples {count} cannot be combined with a curriculum, because a fixed set has all lengths from the "
                "beginning; omit one of them"
            )
        lengths = self.train_length - (self.min_length or self.train_length) + 1
        if count < max(self.batch_size, lengths):
            raise ConfigError(
                f"train_examples must be at least {max(self.batch_size, lengths)} (a batch, and an example of each length), "
                f"got {count}; omit it for new examples at every step"
            )
        if count > MAX_TRAIN_EXAMPLES:
            raise ConfigError(
                f"train_examples must be at most {MAX_TRAIN_EXAMPLES:,}, got {count}; omit it for new examples at every step"
            )


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Config):
    """How a trained model is evaluated. Each length is stored on its own, so adding lengths repeats no training.

    `examples`: test examples per length, for tasks scored per example. `tokens`: test tokens per length, for tasks scored per token
    (text). `prompt`: for in-context learning, the number of examples in the prompts, whose prefixes are the `lengths`; None: the
    longest of `lengths`. `shifts`: task settings that differ from training, as in ({"inputs": "skewed"}, {"input_scale": 3.0});
    all lengths are evaluated for each shift and for the task as trained.
    """

    lengths: tuple[int, ...]
    examples: int = 256
    tokens: int = 65_536
    seed: int = 0
    prompt: int | None = None
    shifts: tuple[dict[str, Any], ...] = ()

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


@dataclass(frozen=True, kw_only=True)
class Run(Config):
    """A complete description of one training. Evaluations and training curves are stored under its `key`."""

    encoding: Choice = field(metadata={"kind": "encoding"})
    task: Choice = field(metadata={"kind": "task"})
    model: ModelConfig = ModelConfig()
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
        default = (
            None if self.encoding.remaining_layers else bool(getattr(self.encoding.cls, "shared_across_layers", False))
        )
        if self.model.share_encoding == default:
            return self.encoding.label
        suffix = "-S" if self.model.share_encoding else "-per-layer"
        if self.encoding.remaining_layers:
            return f"({self.encoding.label}){suffix}"
        return self.encoding.name + suffix + self.encoding.label[len(self.encoding.name) :]
