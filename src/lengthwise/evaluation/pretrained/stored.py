"""What the safetensors of a folder hold, and numbers of its config.json that they cannot fill."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained.calling import calling

LAYERS = re.compile(r"(n|num)_(\w+_)?(layers?|blocks)|(encoder|decoder)_layers")
"""Settings that count layers; each layer has at least one tensor."""
MASKS = ("BOOL", "U8", "I32", "I64")
"""Types of tensors that are no weights: old checkpoints keep masks and positions, which models compute by themselves today."""


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]

    def is_computed(self, name: str) -> bool:
        """Return whether a model that does not ask for this tensor computes it: a mask, the value of one, or frequencies."""
        return self.dtype in MASKS or self.shape == () or name.rpartition(".")[2] == "inv_freq"


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
