"""The tensors in a folder's safetensors, and checks that its config.json asks for no more than they contain."""

import math
import re
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained.transformers_calls import transformers_call

LAYERS = re.compile(r"(n|num)_(\w+_)?(layers?|blocks)|(encoder|decoder)_layers")
"""Settings that count layers; each layer has at least one tensor."""
COUNTS = re.compile(r"(n|num)_(?!(embd|embed|inner)$)\w+")
"""Settings that count parts or classes, each of which may become an object. n_embd and n_inner are widths."""
POSITIONS = re.compile(r"\w*(position|length|len|seq|window|ctx|context|chunk|pixel)s?(_\w+)?")
"""Settings in units of tokens; without a table of positions they may be larger than any dimension of a tensor."""
REALS = re.compile(r"(\w+_)?(theta|base|freq|timescale|wavelength|seed|factor|alpha|beta|scale|std|eps)")
"""Settings that are used as real numbers; as integers they may have any value."""
MAX_COUNT = 1 << 12  # building this many parts takes seconds
MAX_POSITIONS = 1 << 27  # the largest published number is 10^7
MAX_OTHER = 1 << 20  # for settings without a rule of their own
MAX_BUFFER_BYTES = 1 << 30  # of masks and other buffers that a model keeps beside its weights
MASKS = ("BOOL", "U8", "I32", "I64")
"""Types of tensors that are not weights: old checkpoints contain masks and positions, which models now compute."""


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def is_computed(self, name: str) -> bool:
        """Return whether a model that does not use this tensor computes it: a mask, a scalar, or frequencies.

        The checkpoint of GPT-2 contains its causal masks as float32 [1, 1, 1024, 1024]; those of GPT-Neo and GPT-J are similar.
        """
        mask = len(self.shape) == 4 and self.shape[:2] == (1, 1) and self.shape[2] == self.shape[3]
        return mask or self.dtype in MASKS or self.shape == () or name.rpartition(".")[2] == "inv_freq"


def tensors(path: Path) -> dict[str, Tensor]:
    """Return the types and shapes of all tensors in the folder's safetensors by name, without reading their values."""
    from safetensors import safe_open

    by_name = {}
    for file in sorted(path.glob("*.safetensors")):
        with transformers_call(path, "read its weights"), safe_open(file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it is not a dictionary
                tensor = opened.get_slice(name)
                by_name[name] = Tensor(tensor.get_dtype(), tuple(tensor.get_shape()))
    return by_name


def items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield all settings that are not null with their values, including those of nested configurations (text_config, ...)."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if inner is not None:
                yield key, inner
                yield from items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from items(inner)


def require_numbers_stored(file: Path, settings: dict[str, Any], stored: dict[str, Tensor]) -> None:
    """Refuse integers larger than every dimension of the stored tensors, before transformers allocates or builds anything.

    Exceptions are small numbers and settings that do not determine the size of a tensor: numbers of positions up to
    `MAX_POSITIONS`, and real numbers such as the base of a rotary encoding. Tokenizers may have any number of positions. Without
    stored tensors, only the limits of small numbers count.
    """
    largest = max([len(stored), *(size for tensor in stored.values() for size in tensor.shape)])
    tokenizer = file.name == "tokenizer_config.json"
    for key, value in _integers(settings):
        counts = COUNTS.fullmatch(key) or tokenizer
        if POSITIONS.fullmatch(key):
            allowed, reason = math.inf if tokenizer else MAX_POSITIONS, "no model has that many"
        else:
            allowed = max(largest, MAX_COUNT if counts else MAX_OTHER)
            reason = (
                f"no dimension in its safetensors is larger than {largest:,}" if stored else "no model has that many"
            )
        if value > allowed and (counts or not REALS.fullmatch(key)):
            shown = f"{value:,}" if value < 10**18 else f"a number of {len(str(value))} digits"
            raise ConfigError(
                f"{file} has {reprlib.repr(key)} = {shown}, but {reason}; use the {file.name} that belongs to the weights"
            )


def _integers(value: Any, key: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(value, int):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _integers(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _integers(inner, key)


def require_parameters_stored(path: Path, model: torch.nn.Module, stored: dict[str, Tensor]) -> None:
    """Refuse a model with more parameters than the files contain, before memory is allocated. `model`: on the device `meta`.

    Twice as many are allowed, because tied weights may not be tied yet.
    """
    num_stored = sum(tensor.size for tensor in stored.values())
    num_parameters = sum(p.numel() for p in model.parameters())
    if num_parameters > 2 * num_stored:
        raise ConfigError(
            f"{path / 'config.json'} describes a model of {num_parameters:,} parameters, but its safetensors contain "
            f"{num_stored:,} numbers; download the whole model"
        )
    buffer_bytes = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    if buffer_bytes > max(MAX_BUFFER_BYTES, 4 * num_stored):
        raise ConfigError(
            f"{path / 'config.json'} describes a model with {buffer_bytes:,} bytes of buffers, but its safetensors contain "
            f"{num_stored:,} numbers; use the config.json that belongs to the weights"
        )


def require_layers_stored(path: Path, settings: dict[str, Any], stored: dict[str, Tensor]) -> None:
    """Refuse more layers than there are tensors. Building them could take hours before the first missing tensor is noticed."""
    for key, value in items(settings):
        if LAYERS.fullmatch(key) and isinstance(value, int) and not 0 <= value <= len(stored):
            raise ConfigError(
                f"{path / 'config.json'} has {key} = {value:,}, but its safetensors contain {len(stored):,} tensors in all; "
                "download the whole model"
            )


def require_a_layer(path: Path, config: Any) -> None:
    count = getattr(config.get_text_config(decoder=True), "num_hidden_layers", None)
    if isinstance(count, int) and count < 1:
        raise ConfigError(
            f"{path / 'config.json'}: num_hidden_layers must be at least 1, got {count}; correct it, or download it again"
        )


def require_all_used(path: Path, architecture: str, unused: Iterable[Any], stored: dict[str, Tensor]) -> None:
    """Refuse stored weights that the model does not use, because then the config.json describes another model.

    `unused`: names of unused weights, without those that transformers itself ignores for this class.
    """
    remaining = [name for name in sorted(map(str, unused)) if name not in stored or not stored[name].is_computed(name)]
    if remaining:
        raise ConfigError(
            f"{path}: {architecture} with its config.json does not use {len(remaining)} of the weights in its safetensors, such "
            f"as {remaining[0]}; use the config.json that belongs to them"
        )
