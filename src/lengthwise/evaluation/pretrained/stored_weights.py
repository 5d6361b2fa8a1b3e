"""The tensors in a folder's safetensors, and whether a model uses them all."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.evaluation.pretrained.transformers_calls import transformers_call

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

        The checkpoint of GPT-2 contains its causal masks as float32 [1, 1, 1024, 1024]; those of GPT-Neo and GPT-J are
        similar.
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
    """Yield all settings that are not null with their values, also of nested configurations (text_config, ...)."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if inner is not None:
                yield key, inner
                yield from items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from items(inner)


def unused_tensors(unused: Iterable[Any], stored: dict[str, Tensor]) -> list[str]:
    """Return the stored weights that a model does not use, which then has another config.json than theirs.

    `unused`: names of unused tensors, without those that transformers itself ignores for the model's class.
    """
    return [name for name in sorted(map(str, unused)) if name not in stored or not stored[name].is_computed(name)]
