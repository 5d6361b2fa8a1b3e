"""What the safetensors of a folder hold, and numbers of its config.json that they cannot fill."""

import math
import re
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained.calling import calling

LAYERS = re.compile(r"(n|num)_(\w+_)?(layers?|blocks)|(encoder|decoder)_layers")
"""Settings that count layers; each layer has at least one tensor."""
COUNTS = re.compile(r"(n|num)_\w+")
"""Settings that count parts or classes, each of which may become an object."""
POSITIONS = re.compile(r"\w*(position|length|len|seq|window|ctx|context|chunk|pixel)s?(_\w+)?")
"""Settings that tokens are compared with; a model without a table of positions may have more of them than a tensor has rows."""
REALS = re.compile(r"(\w+_)?(theta|base|freq|timescale|wavelength|seed|factor|alpha|beta|scale|std|eps)")
"""Settings that are computed with; whole ones may have any value."""
MOST_COUNTED = 1 << 12  # building that many parts takes seconds
MOST_POSITIONS = 1 << 27  # the most that are published: 10^7
MOST_FREE = 1 << 20  # of what has no rule of its own
MOST_COMPUTED = 1 << 30  # bytes of masks and the like that a model keeps beside its weights
MASKS = ("BOOL", "U8", "I32", "I64")
"""Types of tensors that are no weights: old checkpoints keep masks and positions, which models compute by themselves today."""


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def is_computed(self, name: str) -> bool:
        """Return whether a model that does not ask for this tensor computes it: a mask, the value of one, or frequencies.

        The checkpoint of GPT-2 has its causal masks as float32 [1, 1, 1024, 1024], and those of GPT-Neo and GPT-J are alike.
        """
        mask = len(self.shape) == 4 and self.shape[:2] == (1, 1) and self.shape[2] == self.shape[3]
        return mask or self.dtype in MASKS or self.shape == () or name.rpartition(".")[2] == "inv_freq"


def tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of all safetensors in the folder by their names, without reading their values."""
    from safetensors import safe_open

    found = {}
    for file in sorted(path.glob("*.safetensors")):
        with calling(path, "read its weights"), safe_open(file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it is no dictionary
                part = opened.get_slice(name)
                found[name] = Tensor(part.get_dtype(), tuple(part.get_shape()))
    return found


def items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield all settings that are not null with their values, in configurations of parts (text_config, ...) as well."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if inner is not None:
                yield key, inner
                yield from items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from items(inner)


def require_numbers_stored(file: Path, settings: dict[str, Any], stored: dict[str, Tensor]) -> None:
    """Refuse whole numbers that no tensor has as its size, before transformers builds or fills anything by them.

    What is small is left alone, and so is what no size of a tensor goes by: numbers of positions, up to `MOST_POSITIONS`, and
    real numbers, such as the base of a rotary encoding. Tokenizers have positions without limit.
    """
    most = max([len(stored), *(size for tensor in stored.values() for size in tensor.shape)])
    tokenizer = file.name == "tokenizer_config.json"
    for key, value in _whole_numbers(settings):
        counts = COUNTS.fullmatch(key) or tokenizer
        if POSITIONS.fullmatch(key):
            allowed, why = math.inf if tokenizer else MOST_POSITIONS, "no model has that many"
        else:
            allowed = max(most, MOST_COUNTED if counts else MOST_FREE)
            why = f"nothing in its safetensors is larger than {most:,}"
        if value > allowed and (counts or not REALS.fullmatch(key)):
            shown = f"{value:,}" if value < 10**18 else f"a number of {len(str(value))} digits"
            raise ConfigError(
                f"{file} asks for {reprlib.repr(key)} = {shown}, and {why}; get the {file.name} that belongs to the weights"
            )


def _whole_numbers(value: Any, key: str = "") -> Iterator[tuple[str, int]]:
    """Yield all whole numbers with the settings that they stand in, also those of lists."""
    if isinstance(value, int):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _whole_numbers(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _whole_numbers(inner, key)


def require_parameters_stored(path: Path, model: torch.nn.Module, stored: dict[str, Tensor]) -> None:
    """Refuse a model that the files cannot fill, before it has memory. `model`: on the device `meta`.

    Twice the numbers that are stored are allowed, as weights that are tied may not be so yet.
    """
    held, asked = sum(tensor.size for tensor in stored.values()), sum(p.numel() for p in model.parameters())
    if asked > 2 * held:
        raise ConfigError(
            f"{path / 'config.json'} describes a model of {asked:,} parameters, and its safetensors hold {held:,} numbers; get the "
            "whole model"
        )
    computed = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    if computed > max(MOST_COMPUTED, 4 * held):
        raise ConfigError(
            f"{path / 'config.json'} describes a model that keeps {computed:,} bytes beside its weights, and its safetensors hold "
            f"{held:,} numbers; get the config.json that belongs to the weights"
        )


def require_layers_stored(path: Path, settings: dict[str, Any], stored: dict[str, Tensor]) -> None:
    """Refuse a count of layers that the files cannot fill: building that many would take hours before the first is missed."""
    for key, value in items(settings):
        if LAYERS.fullmatch(key) and isinstance(value, int) and not 0 <= value <= len(stored):
            raise ConfigError(
                f"{path / 'config.json'} asks for {key} = {value:,}, and its safetensors hold {len(stored):,} tensors in all; get "
                "the whole model"
            )


def require_a_layer(path: Path, config: Any) -> None:
    count = getattr(config.get_text_config(decoder=True), "num_hidden_layers", None)
    if isinstance(count, int) and count < 1:
        raise ConfigError(f"{path / 'config.json'} asks for {count} layers; it has to be at least 1: get it again")


def require_all_used(path: Path, architecture: str, unused: Iterable[Any], stored: dict[str, Tensor]) -> None:
    """Refuse weights that the model has no place for: with them it would be another one.

    `unused`: without those that transformers itself ignores for this class.
    """
    left = [name for name in sorted(map(str, unused)) if name not in stored or not stored[name].is_computed(name)]
    if left:
        raise ConfigError(
            f"{path}: {architecture} as its config.json describes it does not use {len(left)} of the weights in its safetensors, "
            f"such as {left[0]}; get the config.json that belongs to them"
        )
