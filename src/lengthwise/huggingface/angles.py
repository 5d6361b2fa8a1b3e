"""Compare the angles that transformers computes with those of the published formula, in float64.

They are compared at the positions that a model claims. The rotary embedding of the model's own class is built as
`from_pretrained` builds it: with float32 or the model's dtype as the default dtype. Its cosines and sines, computed
from float32 inputs, give the angle by which it rotates.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from lengthwise.config import Choice, ConfigError
from lengthwise.encodings import RotaryEncoding
from lengthwise.evaluation.pretrained.transformers_calls import CORRECT, transformers_call
from lengthwise.huggingface.description import LayerGroup, build, label_of
from lengthwise.huggingface.folder import ModelFolder
from lengthwise.huggingface.observation import decoder_of, rotary_embeddings
from lengthwise.huggingface.own_encoding import train_length_of

MAX_SAMPLES = 1 << 15  # positions that are compared: all, or evenly spaced ones including the first and the last
CHUNK = 1 << 12
RELATIVE = 2.0**-16
"""Largest relative error of an angle. In float32, frequencies and their products with positions stay below it (a few
units of 2^-24, times ln(theta)); a frequency that was rounded to float16 (2^-11) or bfloat16 (2^-8) is far above it."""
ABSOLUTE = 1e-6  # radians; the rounding of a float32 cosine
GAIN_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Comparison:
    """The largest error over the compared positions below `length` and all pairs of dimensions.

    `unit`: radians for angles, and nats for the biases of ALiBi, where `pair` is the head and `position` that of the
    key. `excess`: the largest error relative to what float32 allows; above 1, the frequencies or slopes themselves
    differ. `gain` and `our_gain`: the factor of q and k.
    """

    layers: tuple[int, ...]
    encoding: str
    dtype: str
    length: int
    compared: int
    error: float
    position: int
    pair: int
    excess: float
    gain: float
    our_gain: float
    unit: str = "radians"

    @property
    def agrees(self) -> bool:
        return self.excess <= 1 and math.isclose(self.gain, self.our_gain, rel_tol=GAIN_TOLERANCE)


@dataclass(frozen=True)
class NotCompared:
    layers: tuple[int, ...]
    encoding: str
    reason: str
    is_problem: bool  # whether it shows that transformers computes something else


class _WrongPairs(Exception):
    """transformers rotates another number of pairs."""


class _NotComparable(Exception):
    """The model's rotary embedding cannot be called alone."""


def compare_angles(folder: ModelFolder, groups: list[LayerGroup]) -> list[Comparison | NotCompared]:
    """Compare each different rotary encoding of the layers, in float32 and in the model's dtype.

    Encodings that depend on the length are compared at the length before scaling too.
    """
    comparisons: list[Comparison | NotCompared] = []
    for group in _different(groups):
        choice = cast(Choice, group.encoding)
        ours = build(folder, group)
        last = folder.length or train_length_of(folder.config)
        lengths = sorted({min(train_length_of(folder.config), last), last}) if ours.depends_on_length() else [last]
        try:
            for dtype in dict.fromkeys((torch.float32, folder.dtype)):
                for length in lengths:
                    comparisons.append(_compared(folder, group, ours, dtype, length))
        except _WrongPairs as error:
            comparisons.append(NotCompared(group.layers, label_of(choice), str(error), True))
        except (_NotComparable, ConfigError) as error:
            comparisons.append(NotCompared(group.layers, label_of(choice), str(error), False))
    return comparisons


def _different(groups: list[LayerGroup]) -> Iterator[LayerGroup]:
    seen = set()
    for group in groups:
        if group.encoding is None or not issubclass(group.encoding.cls, RotaryEncoding):
            continue
        if (key := (group.encoding, group.kind, group.head_dim)) not in seen:
            seen.add(key)
            yield group


def _compared(folder: ModelFolder, group: LayerGroup, ours: Any, dtype: torch.dtype, length: int) -> Comparison:
    """Return the comparison with the rotary embedding that agrees best, because layers may have one each."""
    comparisons, errors = [], []
    for rotary in _rotaries(folder, dtype):
        try:
            comparisons.append(_compared_with(rotary, folder, group, ours, dtype, length))
        except (_WrongPairs, _NotComparable) as error:
            errors.append(error)
    if not comparisons:
        raise errors[0] if errors else _NotComparable("the layers have no rotary embedding of transformers")
    return min(comparisons, key=lambda comparison: comparison.excess)


def _compared_with(
    rotary: Any, folder: ModelFolder, group: LayerGroup, ours: Any, dtype: torch.dtype, length: int
) -> Comparison:
    frequencies, gain = ours.checked_frequencies(torch.tensor(length))
    frequencies = frequencies.flatten().double()
    samples = torch.linspace(0, length - 1, min(length, MAX_SAMPLES), dtype=torch.float64).round().long()
    worst, gains = (0.0, 0, 0), []
    excess = 0.0
    for positions in samples.split(CHUNK):
        with transformers_call(folder.path, "compute the angles of its positions", advice=CORRECT):
            cos, sin = _cos_sin(rotary, positions, length, group.kind)
        cos, sin = (_pairs(table, len(frequencies)) for table in (cos.double(), sin.double()))
        angle = positions[:, None] * frequencies
        our_cos, our_sin = angle.cos(), angle.sin()
        error = torch.atan2(sin * our_cos - cos * our_sin, cos * our_cos + sin * our_sin).abs()
        excess = max(excess, float((error / (RELATIVE * angle.abs() + ABSOLUTE)).max()))
        gains.append(float(torch.hypot(cos, sin).mean()))
        top = int(error.argmax())
        if float(error.flatten()[top]) >= worst[0]:
            worst = (float(error.flatten()[top]), int(positions[top // error.shape[1]]), top % error.shape[1])
    label = label_of(cast(Choice, group.encoding))
    return Comparison(
        group.layers, label, str(dtype).removeprefix("torch."), length, len(samples), *worst, excess,
        sum(gains) / len(gains), 1.0 if gain is None else float(gain),
    )  # fmt: skip


def _rotaries(folder: ModelFolder, dtype: torch.dtype) -> list[Any]:
    """Return the rotary embeddings that the model's classes build with this default dtype."""
    different: dict[tuple[Any, str], Any] = {}
    for module in rotary_embeddings(decoder_of(folder.model)):
        config = getattr(module, "config", None) or folder.config
        different.setdefault((type(module), repr(getattr(config, "rope_parameters", None))), config)
    with transformers_call(folder.path, "build its rotary embedding", advice=CORRECT), _default_dtype(dtype):
        return [cls(copy.deepcopy(config)) for (cls, _), config in different.items()]


def _cos_sin(rotary: Any, positions: Tensor, length: int, kind: str) -> tuple[Tensor, Tensor]:
    """Return cos and sin at some positions of a sequence of this length, in float32."""
    ids = torch.cat([positions, torch.tensor([length - 1])])[None]  # the last position determines scaling by the length
    x = torch.zeros(1, 1, 1, dtype=torch.float32)
    is_nested = isinstance(getattr(rotary, "rope_type", None), dict)
    result = rotary(x, ids, kind) if is_nested else rotary(x, ids)
    if isinstance(result, Tensor) and result.is_complex():  # of Llama 4
        result = result.real, result.imag
    if not isinstance(result, tuple) or len(result) != 2 or not all(isinstance(tensor, Tensor) for tensor in result):
        raise _NotComparable("its rotary embedding does not return cos and sin")
    cos, sin = (tensor.reshape(-1, tensor.shape[-1])[: len(positions)] for tensor in result)
    return cos, sin


def _pairs(table: Tensor, pairs: int) -> Tensor:
    """Return one column for each pair of dimensions, of a tensor with one or two columns for each."""
    width = table.shape[-1]
    if width == pairs:
        return table
    if width == 2 * pairs and torch.equal(table[:, :pairs], table[:, pairs:]):
        return table[:, :pairs]
    if width == 2 * pairs and torch.equal(table[:, ::2], table[:, 1::2]):
        return table[:, ::2]
    raise _WrongPairs(f"transformers rotates {width // 2} pairs of dimensions, and the settings mean {pairs}")


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
