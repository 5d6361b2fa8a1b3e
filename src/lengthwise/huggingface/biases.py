"""Compare the biases of transformers for ALiBi (BLOOM and MPT) with those of the slopes in the settings."""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from lengthwise.config import Choice
from lengthwise.encodings import ALiBi
from lengthwise.evaluation.pretrained.transformers_calls import transformers_call
from lengthwise.huggingface.angles import ABSOLUTE, MAX_SAMPLES, RELATIVE, Comparison
from lengthwise.huggingface.description import LayerGroup, build, label_of
from lengthwise.huggingface.folder import ModelFolder
from lengthwise.huggingface.own_encoding import train_length_of

BUILDERS = {"bloom": "build_alibi_tensor", "mpt": "build_mpt_alibi_tensor"}


class _Called(Exception):
    """Carries the arguments with which a model builds its biases."""

    def __init__(self, arguments: tuple[Any, ...], options: dict[str, Any]):
        super().__init__()
        self.arguments, self.options = arguments, options


def compare_biases(folder: ModelFolder, groups: list[LayerGroup]) -> Iterator[Comparison]:
    """Compare the biases of all keys for the last query, in float32 and in the model's dtype."""
    name = BUILDERS.get(folder.config.model_type)
    group = next((g for g in groups if g.encoding is not None and g.encoding.cls is ALiBi), None)
    if name is None or group is None:
        return
    choice = cast(Choice, group.encoding)
    slopes = torch.as_tensor(build(folder, group).slopes, dtype=torch.float64).flatten()
    length = min(folder.length or train_length_of(folder.config), MAX_SAMPLES)
    ours = -slopes[:, None] * torch.arange(length - 1, -1, -1)
    for dtype in dict.fromkeys((torch.float32, folder.dtype)):
        with transformers_call(folder.path, "compute its biases"):
            biases = _biases(folder, name, length, dtype).double().reshape(len(slopes), length)
        theirs = biases - biases[:, -1:]  # softmax ignores a number that is added to all keys
        error = (theirs - ours).abs()
        allowed = RELATIVE * torch.maximum(biases.abs().amax(1, keepdim=True), ours.abs()) + ABSOLUTE
        top = int(error.argmax())
        yield Comparison(
            group.layers, label_of(choice), str(dtype).removeprefix("torch."), length, length,
            float(error.flatten()[top]), top % length, top // length, float((error / allowed).max()), 1.0, 1.0, "nats",
        )  # fmt: skip


def _biases(folder: ModelFolder, name: str, length: int, dtype: torch.dtype) -> Tensor:
    """Return the biases of a sequence of this length, built with the arguments of the model's own forward pass."""
    decoder = folder.model.get_decoder()
    builder = getattr(decoder, name)

    def raise_arguments(*arguments: Any, **options: Any) -> None:
        raise _Called(arguments, options)

    setattr(decoder, name, raise_arguments)
    try:
        tokens = torch.zeros(1, 2, dtype=torch.long, device="meta")
        decoder(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
    except _Called as called:
        arguments, options = called.arguments, called.options
    finally:
        delattr(decoder, name)
    if folder.config.model_type == "bloom":
        return builder(torch.ones(1, length, dtype=torch.long), arguments[1], dtype)
    return builder(arguments[0], length, *arguments[2:], **{**options, "device": "cpu"})
