"""Checks that the tensors of an encoding's forms have the sizes of the attention call, before any backend reads them."""

import functools
import itertools
import re
import typing

import torch
from torch import Tensor

from lengthwise.attention.masks import Mask
from lengthwise.forms import AttentionModifiers, MatrixRotation, PiecewiseRotation, Rotation, TokenRotation
from lengthwise.values import ConfigError

_ANGLE_DTYPES = ("float32", "float64")  # lower precision or whole numbers would round the angle of a distant position
WORDS = {"b": "batch", "h": "heads", "i": "queries", "j": "keys", "d": "head dim"}


def require_fit(modifiers: AttentionModifiers, mask: Mask, q: Tensor) -> None:
    """Raise `ConfigError` unless every tensor of the forms has the shape that its annotation in `lengthwise.forms` declares.

    The names b, h, i, j and d in an annotation are the batch, heads, queries, keys and head dimension of the call, and #h means
    1 or h; other names have to agree within one form. Backends rely on it: the compiled kernel would read beyond a table
    with too few heads. A compiled graph does not know all sizes, so there the kernel itself checks them.
    """
    if torch.compiler.is_compiling():
        return
    if modifiers.sink and modifiers.logit_transform and not modifiers.logit_transform.softmax:
        raise ConfigError(
            f"{modifiers.encoding or 'LogitTransform'} has no softmax, to which a sink could be added; omit the sinks"
        )
    rotations: list[TokenRotation | None] = [modifiers.rotation]
    product = modifiers.product
    if isinstance(product, PiecewiseRotation):
        rotations, product = [*rotations, *product.rotations], None
    for rotation in rotations:
        if isinstance(rotation, Rotation):
            _require_rotation(rotation, modifiers.encoding, mask, q)
    matrices = modifiers.rotation if isinstance(modifiers.rotation, MatrixRotation) else None
    sizes = {"b": q.shape[0], "h": q.shape[1], "i": mask.queries, "j": mask.keys, "d": q.shape[3]}
    for form in (*modifiers.terms, *modifiers.values, modifiers.gain, modifiers.sink, product, matrices):
        if form is not None:
            _require_sizes(form, dict(sizes), modifiers.encoding, q.device)
    for matrix in () if matrices is None else matrices.tensors:
        if (dims := matrix.shape[3] * matrix.shape[4]) > q.shape[3]:
            whose = f" of {modifiers.encoding}" if modifiers.encoding else ""
            raise ConfigError(
                f"MatrixRotation{whose} rotates {dims} dims; it must be at most {q.shape[3]}, the head dim"
            )


def _require_rotation(rotation: Rotation, encoding: str | None, mask: Mask, q: Tensor) -> None:
    whose = f" of {encoding}" if encoding else ""
    for side, tokens in (("q", mask.queries), ("k", mask.keys)):
        angle = getattr(rotation, f"angle_{side}")
        gain = getattr(rotation, f"gain_{side}")
        for what, value in (("angle", angle), ("gain", gain if isinstance(gain, Tensor) else None)):
            if value is not None:
                _require_tensor(f"Rotation.{what}_{side}{whose}", value, q.device, _ANGLE_DTYPES)
        if angle is None:
            continue
        fits = angle.ndim == 4 and len(angle) in (1, len(q)) and angle.shape[2] == tokens
        dims, polar = q.shape[3], rotation.polar
        fits = fits and not q.shape[1] % angle.shape[1]
        if not fits or (angle.shape[3] != dims if polar else 2 * angle.shape[3] > dims):
            width = f"{dims} dimensions" if polar else f"at most {dims // 2} pairs of dimensions"
            raise ConfigError(
                f"Rotation.angle_{side}{whose} has shape {list(angle.shape)}; it must be [1 or {len(q)} batch, a divisor of the "
                f"{q.shape[1]} heads, {tokens} tokens, {width}]"
            )


def _require_sizes(form: object, sizes: dict[str, int], encoding: str | None, device: torch.device) -> None:
    kind: type = type(form)
    for field, axes, dtypes in _annotated(kind):
        tensor = getattr(form, field)
        if tensor is None:
            continue
        name = f"{kind.__name__}.{field}{f' of {encoding}' if encoding else ''}"
        _require_tensor(name, tensor, device, dtypes)
        if len(axes) != tensor.ndim or not all(map(_fits, axes, tensor.shape, itertools.repeat(sizes))):
            wanted = ", ".join(_in_words(axis, sizes) for axis in axes)
            raise ConfigError(f"{name} has shape {list(tensor.shape)}; it must be [{wanted}]")


def _require_tensor(name: str, value: object, device: torch.device, dtypes: tuple[str, ...]) -> None:
    """Kernels read the memory of a tensor at its address, which means nothing on another device."""
    if not isinstance(value, Tensor):
        raise ConfigError(f"{name} must be a tensor, got {type(value).__name__}")
    if (dtype := str(value.dtype).removeprefix("torch.")) not in dtypes:
        raise ConfigError(f"{name} must be a tensor of {', '.join(dtypes[-2:])}, got {dtype}; convert it")
    if value.device != device:
        raise ConfigError(f"{name} must be on the device of q, {device}, got {value.device}")


def _fits(axis: str, size: int, sizes: dict[str, int]) -> bool:
    broadcasts, name, less = axis.startswith("#"), axis.lstrip("#"), 0
    if match := re.fullmatch(r"(\w+)-(\d+)", name):
        name, less = match[1], int(match[2])
    if broadcasts and size == 1:
        return True
    if size < 1 and not less and name not in WORDS:
        return False  # an empty table has no nearest column
    return size == sizes.setdefault(name, size + less) - less


def _in_words(axis: str, sizes: dict[str, int]) -> str:
    name = axis.lstrip("#")
    known = f"{sizes[name]} {WORDS[name]}" if name in WORDS else name if "-" in name else f"{name} >= 1"
    return f"1 or {known}" if axis.startswith("#") else known


@functools.cache
def _annotated(form: type) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """Return the fields of a form that are tensors with named axes: their names, axes and dtypes."""
    found = []
    for name, hint in typing.get_type_hints(form).items():
        for part in (hint, *typing.get_args(hint)):
            axes = getattr(part, "dim_str", None)
            if axes is not None and "..." not in axes and "*" not in axes:
                found.append((name, tuple(axes.split()), tuple(part.dtypes)))
    return tuple(found)
