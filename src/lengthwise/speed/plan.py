"""The question of a measurement: which model, at which lengths, on which device. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lengthwise.config import Config, ConfigError, ModelConfig
from lengthwise.config.mixers import MIXERS

MAX_ROUNDS = 1000
MAX_LENGTHS = 64
MAX_TOKENS = 2**24  # of a sequence or a batch

# The model and the batch by device: one that a CPU trains in well under a second per step, and the size of GPT-2 small.
CPU_SIZES: Mapping[str, Any] = {
    "d_model": 256,
    "num_layers": 4,
    "num_heads": 4,
    "batch_tokens": 2048,
    "dtype": "float32",
}
ACCELERATOR_SIZES: Mapping[str, Any] = {
    "d_model": 768,
    "num_layers": 12,
    "num_heads": 12,
    "batch_tokens": 16_384,
    "dtype": "bfloat16",
}


def sizes_for(device: str) -> Mapping[str, Any]:
    """Return the default sizes of the model and the batch on a device such as "cpu" or "cuda:1"."""
    return CPU_SIZES if device.partition(":")[0] == "cpu" else ACCELERATOR_SIZES


@dataclass(frozen=True, kw_only=True)
class Question(Config):
    """What is measured. Two measurements are comparable if they agree in everything that `comparable` returns."""

    encodings: tuple[str, ...]
    """The encodings and mixers as `lengthwise bench` takes them; NoPE is always measured too."""
    lengths: tuple[int, ...] = (256, 512, 1024, 2048)
    """Tokens per sequence."""
    device: str = "cpu"
    """Device to run on: cpu, cuda, cuda:1, ..."""
    d_model: int = 256
    """Width of the model."""
    num_layers: int = 4
    """Number of layers."""
    num_heads: int = 4
    """Attention heads per layer."""
    batch_tokens: int = 2048
    """Tokens per batch: a batch has as many sequences as fit, and at least one."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of matrix products and attention. Weights are float32, and bfloat16 is used by autocast."""
    backend: str = "auto"
    """Attention backend: auto (the fastest that supports the encoding), fused, blocked, sdpa, flex or reference."""
    threads: int = 1
    """CPU threads."""
    rounds: int = 12
    """Measured rounds. In each, every encoding is measured once, in random order."""
    warmup: int = 2
    """Rounds before the measured ones, which are not stored."""
    seed: int = 0
    """Seed of the weights, the tokens and the order in each round."""
    memory: bool = True
    """Measure the peak memory of a training step, too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("d_model", "num_layers", "num_heads", "batch_tokens", "threads", "rounds")
        self.require_between(1, MAX_ROUNDS, "rounds")
        self.require_between(0, MAX_ROUNDS, "warmup")
        self.require_between(1, MAX_TOKENS, "batch_tokens")
        if not self.lengths or len(self.lengths) > MAX_LENGTHS or not 1 <= min(self.lengths) <= max(self.lengths):
            raise ConfigError(
                f"lengths must be 1 to {MAX_LENGTHS} numbers of at least 1, got {list(self.lengths)[:70]}"
            )
        if max(self.lengths) > MAX_TOKENS:
            raise ConfigError(f"lengths must be at most {MAX_TOKENS:,}, got {max(self.lengths):,}")
        if len(set(self.lengths)) < len(self.lengths):
            raise ConfigError(f"lengths must differ, got {list(self.lengths)}; remove the repeated one")
        self.model()  # checks the sizes

    def model(self, share_encoding: bool | None = None, mixer: str | None = None) -> ModelConfig:
        """Return the configuration of the model, which is GPT-like, with a mixer in place of attention if one is named."""
        sizes = {name: getattr(self, name) for name in ("d_model", "num_layers", "num_heads")}
        if mixer is not None and "num_heads" not in MIXERS[mixer].settings:
            del sizes["num_heads"]
        return ModelConfig.gpt(**sizes, share_encoding=share_encoding, mixer=mixer)

    def batch(self, length: int) -> int:
        """Return the number of sequences of a batch."""
        return max(1, self.batch_tokens // length)

    def comparable(self) -> dict[str, Any]:
        """Return what has to be equal in two measurements so that their ratios mean the same."""
        names = ("d_model", "num_layers", "num_heads", "batch_tokens", "dtype", "backend", "threads")
        return {"device": self.device.partition(":")[0], **{name: getattr(self, name) for name in names}}
