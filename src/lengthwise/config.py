"""Experiments as values: frozen dataclasses, strict JSON both ways, and a content hash that is a run's key.

Nothing here imports torch. A `Run` is the complete description of one training, with every default written out, so that
the same question has the same key on every machine and however it was spelled. The methods in it are choices
(`choices.py`).
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

MOST_EXAMPLES = 10**12  # of a fixed training set; far more than any training sees

# ---- the parts of a run -----------------------------------------------------------------------------------------


C = typing.TypeVar("C", bound="Config")


class Config:
    """Base of the configuration dataclasses: casts every field to its declared type when an object is made."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value, where, kind = getattr(self, f.name), f"{type(self).__name__}.{f.name}", f.metadata.get("kind")
            if isinstance(value, Choice) and kind and value.kind != kind:
                raise ConfigError(f"{where} is {value.name}, which is no {kind}")
            if not isinstance(value, (Choice, Config)):
                if kind and value is not None:
                    raise ConfigError(f"{where} is {value!r}; write choose(...) around a class of {kind}s")
                object.__setattr__(self, f.name, cast(value, hints[f.name], where))
            elif not isinstance(value, hints[f.name]):
                raise ConfigError(f"{where} is {value!r}; it has to be a {hints[f.name].__name__}")

    def fill(self, **values: Any) -> None:
        """Write out a default that depends on another field."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{type(self).__name__}.{name} is {getattr(self, name)}; it has to be at least 1")

    def within(self, low: float, high: float, *names: str) -> None:
        for name in names:
            if not low <= getattr(self, name) <= high:
                raise ConfigError(
                    f"{type(self).__name__}.{name} is {getattr(self, name)}; it has to lie in {low} ... {high}"
                )

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON data with every default written out."""
        return {f.name: _data(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_data(cls: type[C], data: Mapping[str, Any]) -> C:
        """The object that `to_data` described. An unknown setting is an error that names the near miss."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"{cls.__name__} is {data!r}; it has to be an object with named settings")
        fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        require_known(cls.__name__, data, fields)
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for name, value in data.items():
            hint, kind = hints[name], fields[name].metadata.get("kind")
            if kind and not isinstance(value, Choice) and not (value is None and fields[name].default is None):
                value = choice_from_data(kind, value)
            else:
                parts = [part for part in (typing.get_args(hint) or (hint,)) if isinstance(part, type)]
                made = next((part for part in parts if issubclass(part, Config)), None)
                if made is not None and not isinstance(value, Config) and not (value is None and type(None) in parts):
                    value = made.from_data(value)
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
    """The shape of the decoder. `None` means the usual value for the other settings, and is written out at once.

    `t5_scaling`: attention logits are not divided by sqrt(head_dim), queries are drawn smaller instead; what blocks add is not
    scaled by depth; tied embeddings are N(0, 1), and the output is divided by sqrt(d_model).
    `share_encoding`: one encoding module for all layers (T5, KERPLE, FIRE-S) or one per layer; None: as the source has it.
    `mixer`: what stands in the place of attention and MLP; "mamba": a Mamba-1, which has `d_model`, `num_layers`, `state_size`
    (16, when None) and `dropout`, and no other of these settings. None: attention.
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
        self.positive("d_model", "num_layers", "num_heads")
        self.within(1, MOST_LAYERS, "num_layers")
        if self.mixer is not None:
            self._require_mamba()
            return
        if self.state_size is not None:
            raise ConfigError(f"state_size is {self.state_size}, and attention has no state; it is for mixer='mamba'")
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ConfigError(
                f"d_model {self.d_model} does not divide by num_heads {self.num_heads}; change one, or give head_dim"
            )
        d_ff = 4 * self.d_model if self.mlp != "swiglu" else -(-8 * self.d_model // 3 // 8) * 8
        self.fill(num_kv_heads=self.num_heads, head_dim=self.d_model // self.num_heads, d_ff=d_ff)
        self.positive("num_kv_heads", "head_dim", "d_ff")
        if self.num_heads % self.kv_heads:
            raise ConfigError(f"num_heads {self.num_heads} does not divide by num_kv_heads {self.num_kv_heads}")
        self.within(0.0, 0.99, "dropout")

    def _require_mamba(self) -> None:
        for f in dataclasses.fields(self):
            if f.name not in OF_MAMBA and getattr(self, f.name) != f.default:
                raise ConfigError(
                    f"{f.name} is {getattr(self, f.name)!r}, and a Mamba has none; its settings are {', '.join(OF_MAMBA)}"
                )
        self.fill(state_size=16)
        self.positive("state_size")
        self.within(0.0, 0.99, "dropout")

    def to_data(self) -> dict[str, Any]:
        data = super().to_data()
        return data if self.mixer is None else {name: data[name] for name in OF_MAMBA}

    # The sizes that may be None when they are given, and never are afterwards.
    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def width_of_head(self) -> int:
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


MOST_LAYERS = 1000
OF_MAMBA = ("mixer", "d_model", "num_layers", "state_size", "dropout")  # the settings of `ModelConfig` that it has


@dataclass(frozen=True, kw_only=True)
class Curriculum(Config):
    """Short and simple first: both grow by a step at a time, `every` so many steps of training, and stay where they end.

    `length`: the first steps' length, up to `train_length`; None: `train_length` from the beginning. `dims`: how many coordinates
    of the inputs are open at first, up to the task's; the others are 0; None: all, from the beginning. At step s (from 0)
    the length is min(length + length_step · ⌊s / every⌋, train_length), and likewise dims. Both have to come to their ends before
    the last step.

    Source: Garg et al. 2022, appendix A.2.
    """

    every: int = 2000
    length: int | None = None
    length_step: int = 2
    dims: int | None = None
    dims_step: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("every", "length_step", "dims_step")
        if self.length is None and self.dims is None:
            raise ConfigError(
                "Curriculum has neither length nor dims, and nothing would grow; give one, or no curriculum"
            )
        self.positive(*(name for name in ("length", "dims") if getattr(self, name) is not None))

    def length_at(self, step: int, end: int) -> int:
        """The length of a step's sequences, the first step being 0; `end`: the trained length."""
        return end if self.length is None else min(self.length + self.length_step * (step // self.every), end)

    def dims_at(self, step: int, end: int) -> int:
        """How many of the task's `end` coordinates are open at a step."""
        return end if self.dims is None else min(self.dims + self.dims_step * (step // self.every), end)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """How a model is trained. `train_length` is in the task's own unit (bytes of text, symbols to copy).

    A step's batch has one length: `train_length`, or a uniform draw from `min_length ... train_length` (a task that is a given
    set, as SCAN, draws each example from all it has of these lengths). `positions`: which
    positions the tokens claim, in training and in evaluation (`choose(Randomized, max_length=512)`); None: 0, 1, 2, ...
    `curriculum`: shorter lengths and fewer dims at first; then `min_length` is `train_length`.
    `train_examples`: train on a fixed set of so many examples, epoch after epoch, each epoch in another order; a batch then has
    examples of all lengths. The set depends on the task, the lengths and the run's seed. None: fresh examples at every step.
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
        if (
            self.positions is not None and self.positions.name == "Consecutive"
        ):  # what None says: one meaning, one spelling
            object.__setattr__(self, "positions", None)
        self.fill(min_length=self.train_length)
        self.positive("train_length", "min_length", "steps", "batch_size", "accumulation")
        self.within(0.0, 1.0, "warmup", "final_learning_rate", "weight_decay", "beta1", "beta2")
        if (self.min_length or 1) > self.train_length:
            raise ConfigError(f"min_length {self.min_length} is more than train_length {self.train_length}")
        if self.batch_size % self.accumulation:
            raise ConfigError(f"batch_size {self.batch_size} does not divide by accumulation {self.accumulation}")
        if 1.0 in (self.beta1, self.beta2):
            raise ConfigError(
                f"beta1 {self.beta1} and beta2 {self.beta2} have to be less than 1; usual are 0.9 and 0.98"
            )
        if self.curriculum is not None:
            if self.min_length != self.train_length:
                raise ConfigError(
                    f"min_length {self.min_length} and a curriculum both choose a step's length; leave one of them out"
                )
            if (self.curriculum.length or 1) > self.train_length:
                raise ConfigError(
                    f"the curriculum begins with length {self.curriculum.length}, and train_length is {self.train_length}; "
                    "begin with a shorter one"
                )
        if self.train_examples is not None:
            self._require_fixed_set(self.train_examples)
        if self.learning_rate <= 0 or self.clip <= 0:
            raise ConfigError(f"learning_rate {self.learning_rate} and clip {self.clip} have to be more than 0")

    def _require_fixed_set(self, count: int) -> None:
        if self.curriculum is not None:
            raise ConfigError(
                f"train_examples is {count} and there is a curriculum, whose lengths grow; a fixed set has all from the "
                "beginning: leave one of them out"
            )
        lengths = self.train_length - (self.min_length or self.train_length) + 1
        if count < max(self.batch_size, lengths):
            raise ConfigError(
                f"train_examples is {count}; it has to be at least {max(self.batch_size, lengths)}, one batch and one example of "
                "each length, or None for fresh examples at every step"
            )
        if count > MOST_EXAMPLES:
            raise ConfigError(
                f"train_examples is {count}; it has to be at most {MOST_EXAMPLES:,}, or None for fresh ones"
            )


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Config):
    """What is asked of a trained model. Each length is a question by itself: another length never retrains anything.

    `examples` per length for tasks scored by example; tasks scored by token (text) take as many examples as fill `tokens`.
    `prompt`: of a task that reads prefixes (in-context learning), the length of the sequences, whose prefixes are the lengths;
    None: the longest of `lengths`. `shifts`: settings of the task in which a test differs from the training, as in
    ({"inputs": "skewed"}, {"input_scale": 3.0}); all lengths are asked of each, besides the task as it was trained.
    """

    lengths: tuple[int, ...]
    examples: int = 256
    tokens: int = 65_536
    seed: int = 0
    prompt: int | None = None
    shifts: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("examples", "tokens")
        if not self.lengths or min(self.lengths) < 1:
            raise ConfigError(f"lengths are {list(self.lengths)}; give at least one, each 1 or more")
        if len(set(self.lengths)) < len(self.lengths):
            raise ConfigError(f"lengths {list(self.lengths)} has one twice; each is asked once")
        if self.prompt is not None and self.prompt < max(self.lengths):
            raise ConfigError(
                f"prompt is {self.prompt}, and a length of {max(self.lengths)} is asked, which is no part of it; give at least that"
            )
        for n, shift in enumerate(self.shifts):
            if not shift:
                raise ConfigError(f"shifts[{n}] changes no setting; the task as it was trained is always asked")
            if shift in self.shifts[:n]:
                raise ConfigError(f"shifts has {shift} twice; each is asked once")


@dataclass(frozen=True, kw_only=True)
class Run(Config):
    """One training, completely described. `key` is its identity; evaluations and curves hang on it."""

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
        if (
            self.model.share_encoding is None and not self.encoding.remaining_layers
        ):  # in a pattern, each as its source has it
            shared = bool(getattr(self.encoding.make, "shared_across_layers", False))
            object.__setattr__(self, "model", dataclasses.replace(self.model, share_encoding=shared))

    def _require_no_positions(self) -> None:
        if self.encoding.remaining_layers or self.encoding.name != "NoPE":
            raise ConfigError(
                f"the encoding is {self.encoding.label}, and a Mamba has no attention that it could act on; choose NoPE"
            )
        if (scheme := self.training.positions) is not None:
            raise ConfigError(f"the position scheme is {scheme.label}, and a Mamba reads no positions; leave it out")

    def identity(self) -> dict[str, Any]:
        return {**self.to_data(), "encoding": self.encoding.identity(), "task": self.task.identity()}

    @property
    def key(self) -> str:
        """16 hex digits: the hash of everything that determines the training, defaults written out."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Every class that the run is made of, with its settings."""
        scheme = self.training.positions
        return (*self.encoding.layers, self.task, *([scheme] if scheme is not None else []))

    @property
    def label(self) -> str:
        """The encoding's label; `-S` where its layers share one module and the source's do not; the position scheme, if it has one:
        `RoPE with Randomized(max_length=512)`. "Mamba" for a Mamba."""
        if self.model.mixer is not None:
            return "Mamba"
        scheme = self.training.positions
        return self._encoding_label() + (f" with {scheme.label}" if scheme is not None else "")

    def _encoding_label(self) -> str:
        usual = (
            None if self.encoding.remaining_layers else bool(getattr(self.encoding.make, "shared_across_layers", False))
        )
        if self.model.share_encoding == usual:
            return self.encoding.label
        mark = "-S" if self.model.share_encoding else "-per-layer"
        if self.encoding.remaining_layers:
            return f"({self.encoding.label}){mark}"
        return self.encoding.name + mark + self.encoding.label[len(self.encoding.name) :]
