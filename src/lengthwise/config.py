"""Experiments as values: frozen dataclasses, strict JSON both ways, and a content hash that is a run's key.

Nothing here imports torch. `choose(FIRE, hidden_layers=2)` freezes a class and its settings until the model around it
is known; a `Run` is the complete description of one training, with every default written out, so that the same
question has the same key on every machine and however it was spelled.
"""

import dataclasses
import hashlib
import inspect
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal

from lengthwise.values import ConfigError, cast, near_miss, parse_value, require_known

__all__ = [
    "Choice",
    "ConfigError",
    "EvaluationConfig",
    "ModelConfig",
    "Registry",
    "Run",
    "TrainingConfig",
    "cast",
    "choose",
    "near_miss",
    "parse_value",
    "require_known",
    "settings_of",
]

# ---- choices: a class and its settings, before the model is known ----------------------------------------------


def settings_of(make: type) -> dict[str, inspect.Parameter]:
    """The settings of a class: the keyword-only arguments of `__init__` that have a default.

    Arguments without a default (`num_heads`, `head_dim`, `d_model`, ...) are what the model tells it, not settings.
    """
    parameters = inspect.signature(make).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}


def context_of(make: type) -> list[str]:
    """The names of the keyword-only arguments that the model fills in."""
    parameters = inspect.signature(make).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]


@dataclass(frozen=True)
class Choice:
    """A class of a registry with its settings, defaults written out. Make it with `choose`; `build` makes the object."""

    kind: str
    name: str
    settings: tuple[tuple[str, Any], ...]
    make: type = field(compare=False, repr=False)

    def build(self, **context: Any) -> Any:
        """An instance; of `context`, the class gets just the arguments that it asks for."""
        return self.make(**{k: context[k] for k in context_of(self.make)}, **dict(self.settings))

    def to_data(self) -> dict[str, Any]:
        return {"is": self.name, **dict(self.settings)}

    def identity(self) -> dict[str, Any]:
        """What counts for the key: without settings that only say where something lies (a path, when its hash is there)."""
        skip = getattr(self.make, "not_identity", ())
        return {k: v for k, v in self.to_data().items() if k not in skip}

    @property
    def label(self) -> str:
        """The name, with the settings that differ from their defaults: `FIRE(hidden_layers=1)`."""
        skip = {"sha256", *getattr(self.make, "not_identity", ())}
        known = settings_of(self.make)
        odd = [f"{k}={v}" for k, v in self.settings if k not in skip and v != known[k].default]
        return f"{self.name}({', '.join(odd)})" if odd else self.name


def choose(make: type, **settings: Any) -> Choice:
    """Freeze a class and its settings: `choose(FIRE, hidden_layers=1)`. Names, types and values are checked now.

    A class may have a classmethod `check(settings) -> settings` that raises `ValueError` for a value that cannot be and
    may complete settings (a corpus writes its hash down).
    """
    kind = getattr(make, "kind", None)
    if not isinstance(make, type) or kind is None:
        raise ConfigError(f"choose() takes an encoding or a task class, not {make!r}")
    known = settings_of(make)
    require_known(make.__name__, settings, known)
    complete = {
        name: cast(settings.get(name, p.default), annotation(make, p), f"{make.__name__}.{name}")
        for name, p in known.items()
    }
    if check := getattr(make, "check", None):
        try:
            complete = check(complete)
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{make.__name__}: {error}") from error
    return Choice(kind, make.__name__, tuple(complete.items()), make)


def annotation(make: type, parameter: inspect.Parameter) -> Any:
    if parameter.annotation is not parameter.empty and not isinstance(parameter.annotation, str):
        return parameter.annotation
    return type(parameter.default)


class Registry:
    """The list of one kind ("encoding", "task"): the one place that names every method.

    Other packages add theirs through the entry-point group `lengthwise.<kind>s`. Names ignore case.
    """

    known: ClassVar[dict[str, "Registry"]] = {}

    def __init__(self, kind: str, makes: Iterable[type]):
        self.kind, self._makes = kind, {make.__name__: make for make in makes}
        self._outside_read = False
        Registry.known[kind] = self

    def _all(self) -> dict[str, type]:
        if not self._outside_read:
            self._outside_read = True
            for point in entry_points(group=f"lengthwise.{self.kind}s"):
                self._makes.setdefault(point.name, point.load())
        return self._makes

    def __iter__(self) -> Iterator[type]:
        return iter(self._all().values())

    def names(self) -> list[str]:
        return list(self._all())

    def find(self, name: str) -> type:
        """The class called `name`, whatever its case; dashes and underscores do not count."""
        # A choice knows its class by the class' own name, whatever name another package lists it under.
        plain = {_plain(make.__name__): make for make in self} | {_plain(n): make for n, make in self._all().items()}
        if _plain(name) not in plain:
            raise ConfigError(
                f"there is no {self.kind} {name!r}{near_miss(name, self.names())}; there are: {', '.join(self.names())}"
            )
        return plain[_plain(name)]

    def parse(self, text: str) -> Choice:
        """A choice from one word of a command line: `fire`, `fire:hidden_layers=1,activation=gelu`."""
        name, _, rest = text.partition(":")
        make = self.find(name)
        settings: dict[str, Any] = {}
        known = settings_of(make)
        for part in filter(None, rest.split(",")):
            key, equals, value = part.partition("=")
            key = key.strip().replace("-", "_")
            if not equals:
                raise ConfigError(f"{text!r}: {part!r} is not a setting; write {make.__name__.lower()}:name=value")
            require_known(make.__name__, [key], known)
            settings[key] = parse_value(value.strip(), annotation(make, known[key]), f"{make.__name__}.{key}")
        return choose(make, **settings)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


# ---- the parts of a run -----------------------------------------------------------------------------------------


C = typing.TypeVar("C", bound="Config")


class Config:
    """Base of the configuration dataclasses: casts every field to its declared type when an object is made."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if not isinstance(value, (Choice, Config)):
                object.__setattr__(self, f.name, cast(value, hints[f.name], f"{type(self).__name__}.{f.name}"))
            elif not isinstance(value, hints[f.name]):
                raise ConfigError(
                    f"{type(self).__name__}.{f.name} is {value!r}; it has to be a {hints[f.name].__name__}"
                )

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
        """Plain JSON data, every default written out."""
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
            hint = hints[name]
            if hint is Choice and not isinstance(value, Choice):
                value = choice_from_data(fields[name].metadata["kind"], value)
            elif isinstance(hint, type) and issubclass(hint, Config) and not isinstance(value, hint):
                value = hint.from_data(value)
            values[name] = value
        try:
            return cls(**values)
        except TypeError as error:
            raise ConfigError(f"{cls.__name__}: {error}") from error


def choice_from_data(kind: str, data: Any) -> Choice:
    if not isinstance(data, Mapping) or not isinstance(data.get("is"), str):
        raise ConfigError(f'an {kind} is described by an object like {{"is": "NAME", ...}}, not by {data!r}')
    settings = {k: v for k, v in data.items() if k != "is"}
    return choose(Registry.known[kind].find(data["is"]), **settings)


def _data(value: Any) -> Any:
    if isinstance(value, (Config, Choice)):
        return value.to_data()
    return [_data(v) for v in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """The shape of the decoder. `None` means the usual value for the other settings, and is written out at once.

    `share_encoding`: one encoding module for all layers (T5, KERPLE, FIRE-S) or one per layer; None: as the source has it.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("d_model", "num_layers", "num_heads")
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


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """How a model is trained. `train_length` is in the task's own unit (bytes of text, symbols to copy).

    A step's batch has one length: `train_length`, or a uniform draw from `min_length ... train_length`.
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

    def __post_init__(self) -> None:
        super().__post_init__()
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
        if self.learning_rate <= 0 or self.clip <= 0:
            raise ConfigError(f"learning_rate {self.learning_rate} and clip {self.clip} have to be more than 0")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Config):
    """What is asked of a trained model. Each length is a question by itself: another length never retrains anything.

    `examples` per length for tasks scored by example; tasks scored by token (text) take as many examples as fill `tokens`.
    """

    lengths: tuple[int, ...]
    examples: int = 256
    tokens: int = 65_536
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("examples", "tokens")
        if not self.lengths or min(self.lengths) < 1:
            raise ConfigError(f"lengths are {list(self.lengths)}; give at least one, each 1 or more")
        if len(set(self.lengths)) < len(self.lengths):
            raise ConfigError(f"lengths {list(self.lengths)} has one twice; each is asked once")


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
        for name in ("encoding", "task"):
            if getattr(self, name).kind != name:
                raise ConfigError(f"Run.{name} is {getattr(self, name).name}, which is no {name}")
        if self.model.share_encoding is None:
            shared = bool(getattr(self.encoding.make, "shared_across_layers", False))
            object.__setattr__(self, "model", dataclasses.replace(self.model, share_encoding=shared))

    def identity(self) -> dict[str, Any]:
        return {**self.to_data(), "encoding": self.encoding.identity(), "task": self.task.identity()}

    @property
    def key(self) -> str:
        """16 hex digits: the hash of everything that determines the training, defaults written out."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """The encoding's label; `-S` where its layers share one module and the source's do not."""
        usual = bool(getattr(self.encoding.make, "shared_across_layers", False))
        if self.model.share_encoding == usual:
            return self.encoding.label
        mark = "-S" if self.model.share_encoding else "-per-layer"
        return self.encoding.name + mark + self.encoding.label[len(self.encoding.name) :]
