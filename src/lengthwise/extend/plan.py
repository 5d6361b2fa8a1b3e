"""The settings of an extension: methods, lengths and training. Imports no torch."""

import math
from dataclasses import dataclass

from lengthwise.config import Config, ConfigError
from lengthwise.reach import plan as reach
from lengthwise.reach.plan import MAX_LENGTH, OWN, TEXT, differences, option_name

MAX_STEPS = 10**7
MAX_ROWS = 2**16  # of a batch


@dataclass(frozen=True, kw_only=True)
class Tuning(Config):
    """How the models are trained further. Each row of a batch is a window of the text, given by the seed and the row's number."""

    text_sha256: str
    """Hash of the text."""
    length: int
    """Tokens of a training example."""
    steps: int
    """Optimizer steps."""
    learning_rate: float
    """Learning rate of AdamW after the warmup, which then stays constant."""
    warmup: int
    """Steps of linear warmup."""
    batch_size: int
    """Examples of a forward and backward pass."""
    accumulate: int
    """Forward and backward passes of a step."""
    lora: int | None = None
    """Rank of LoRA; None trains all parameters."""
    save_every: int
    """Steps from one checkpoint to the next."""
    recompute: bool = False
    """Whether blocks are computed again in the backward pass, which needs less memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_between(1, MAX_STEPS, "steps", "save_every")
        self.require_between(2, MAX_LENGTH, "length")
        self.require_between(1, MAX_ROWS, "batch_size", "accumulate")
        self.require_between(0, MAX_STEPS, "warmup")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate must be more than 0, got {self.learning_rate:g}")
        if self.lora is not None and not 1 <= self.lora <= MAX_ROWS:
            raise ConfigError(f"lora must be a rank from 1 to {MAX_ROWS:,}, such as 16, got {self.lora}")

    @property
    def rows(self) -> int:
        """The number of training examples."""
        return self.steps * self.accumulate * self.batch_size


@dataclass(frozen=True, kw_only=True)
class Plan(Config):
    """All settings of an extension. An unfinished folder belongs to one plan."""

    model: dict[str, str]
    """Hashes of the model's files."""
    methods: tuple[str, ...]
    """Encodings as the command line takes them."""
    lengths: tuple[int, ...]
    """Tokens of the measured texts, ascending."""
    tasks: tuple[str, ...] = (TEXT,)
    """What is measured."""
    examples: int = 10
    """Examples of each task, length and depth."""
    targets: int = 64
    """Tokens at the end of each text that are predicted at every length."""
    seed: int = 0
    """Seed of the parameters of encodings, of the training and of retrieval tasks."""
    dtype: str = "float32"
    """Data type of the written weights, and of the computation."""
    text_sha256: str
    """Hash of the text that is measured."""
    tuning: Tuning | None = None
    """How the models are trained; None if they are not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if OWN in self.methods:
            raise ConfigError(
                "--methods names own, which is always measured; name encodings only, such as yarn:factor=4"
            )
        if TEXT not in self.tasks:
            raise ConfigError("--tasks must contain text, because the report compares cross-entropies")
        if self.tuning is not None:
            if self.tuning.text_sha256 == self.text_sha256:
                raise ConfigError(
                    "--tune and --text have the same content, so the model would be measured on its training text; name another "
                    "--text"
                )
            if self.dtype == "float16":
                raise ConfigError("models are not trained in float16; take --dtype bfloat16 or float32")
        self.measurement()

    def measurement(self) -> reach.Plan:
        """Return the plan of the measurement of one model. Raises `ConfigError` if something cannot be measured."""
        return reach.Plan(
            lengths=self.lengths,
            tasks=self.tasks,
            examples=self.examples,
            targets=self.targets,
            seed=self.seed,
            dtype=self.dtype,
            text_sha256=self.text_sha256,
        )

    def options(self) -> dict[str, object]:
        """Return the settings by the names of the command's options. Those of texts are hashes."""
        data = self.to_data()
        tuning = data.pop("tuning") or {}
        tuning = {"tune" if name == "text_sha256" else name: value for name, value in tuning.items()}
        return {option_name(name): value for name, value in {**data, **tuning}.items() if name != "model"}

    def differences(self, other: "Plan") -> list[str]:
        """Return the settings that differ, as "--seed 0 instead of 1"."""
        return ["another model"] * (self.model != other.model) + differences(self.options(), other.options())


def default_lengths(original: int, extended: int) -> tuple[int, ...]:
    """Return the original length, and twice, 4 times ... as much up to the extended length; at least twice.

    >>> default_lengths(2048, 8192)
    (2048, 4096, 8192)
    """
    lengths = [original, 2 * original]
    while 2 * lengths[-1] <= extended:
        lengths.append(2 * lengths[-1])
    return tuple(lengths)
