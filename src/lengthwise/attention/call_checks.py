"""Checks of the arguments of `attend` and `statistics`, and of the encoding against q."""

import functools
import sys

import torch
from torch import Tensor

from lengthwise.attention.arguments import transpose_hint, transposed
from lengthwise.config import ConfigError, context_of
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, Rotation

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_types(scale: object, **tensors: object) -> None:
    """Raise `ConfigError` unless the tensors are dense tensors and the scale is a finite number or None."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"{name} must be a tensor [batch, heads, tokens, head dim], got a {type(value).__name__}")
        if value.layout is not torch.strided or value.is_nested:
            layout = "a nested tensor" if value.is_nested else str(value.layout).removeprefix("torch.")
            raise ConfigError(f"{name} must be a dense tensor, got {layout}; convert it with to_dense(), or pad it")
    if scale is None or (
        type(scale) is not bool and isinstance(scale, (int, float)) and abs(scale) <= sys.float_info.max
    ):
        return
    # A backend that converts it to a number would silently drop its gradient.
    fix = "; multiply q by a scale that is learned" if isinstance(scale, Tensor) else ""
    raise ConfigError(f"scale must be a finite number, or None for 1/sqrt(head dim), got {scale!r}{fix}")


def check_shapes(q: Tensor, k: Tensor, v: Tensor | None) -> None:
    """Raise `ConfigError` unless shapes, dtypes and devices of q, k and v fit each other."""
    if v is None:
        shapes, v = f"q {tuple(q.shape)}, k {tuple(k.shape)}", k
    else:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1]:
        raise ConfigError(f"q must be [b, h, i, d], and k and v both [b, g, j, d], got {shapes}")
    hint = None
    if (not k.shape[1] or q.shape[1] % k.shape[1] or q.shape[2] > k.shape[2]) and (which := transposed(q, k)):
        hint = transpose_hint(which, k if which == "k" else q)
    if hint and (q.shape[1] != k.shape[1]):
        raise ConfigError(hint)
    if not k.shape[1] or not q.shape[1] or q.shape[1] % k.shape[1]:
        raise ConfigError(
            f"the number of heads of q must be a multiple of that of k and v, and at least 1, got {q.shape[1]} and "
            f"{k.shape[1]} ({shapes})"
        )
    if not k.shape[2]:
        raise ConfigError(f"k must have at least one token, got {shapes}")
    if not 1 <= q.shape[2] <= k.shape[2]:
        raise ConfigError(
            f"q must have 1 to {k.shape[2]} tokens, the last of the {k.shape[2]} tokens of k, got {shapes}"
            + (f"; or the axes of tokens and heads are swapped: {hint}" if hint else "")
        )
    if not (q.dtype == k.dtype == v.dtype) or not (q.device == k.device == v.device):
        raise ConfigError(
            "q, k and v must have the same dtype and device, got "
            f"{q.dtype}/{k.dtype}/{v.dtype} on {q.device}/{k.device}/{v.device}"
        )
    if q.is_meta:
        raise ConfigError(
            "q, k and v must have values, got meta tensors; create them on another device, such as the CPU"
        )
    if q.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise ConfigError(f"q, k and v must be one of {names}, got {q.dtype}; convert them")
    if not q.shape[-1]:
        raise ConfigError(f"heads must have at least one dim, got {shapes}")


def check_devices(q: Tensor, encoding: PositionEncoding | None, **tensors: Tensor | None) -> None:
    """Raise `ConfigError` unless the tensors and the encoding are on the device of q."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device != q.device:
            raise ConfigError(f"{name} must be on the device of q, {q.device}, got {tensor.device}; move one of them")
    parameter = next(encoding.parameters(), None) if encoding is not None else None
    if parameter is not None and parameter.device != q.device:
        name = type(encoding).__name__
        raise ConfigError(
            f"{name} must be on the device of q, {q.device}, got {parameter.device}; call "
            f"encoding.to({str(q.device)!r})"
        )


def check_sizes(modifiers: AttentionModifiers, q: Tensor, encoding: PositionEncoding) -> None:
    """Raise `ConfigError` unless the encoding was made for the number of heads and the head dim of `q`."""
    name = type(encoding).__name__
    # Tensors for one head would be broadcast silently to any number of heads. The maximum is taken because a table that
    # all heads share may stand beside one that has a row for each head.
    counts = [form.heads for form in (*modifiers.terms, modifiers.product) if form is not None and form.along("h")]
    rotation = modifiers.rotation
    if rotation is not None and rotation.heads > 1:
        counts.append(rotation.heads)
    heads = max(counts) if counts else q.shape[1]  # torch.compile knows no `default` of max
    if heads != q.shape[1] and heads == q.shape[2] > 1:
        raise ConfigError(f"{transpose_hint('q and k', q)} ({name} was made for {heads} heads)")
    if heads != q.shape[1] and (heads > 1 or "num_heads" in _model_arguments(type(encoding))):
        raise ConfigError(
            f"{name} was made for {heads} heads, and q has {q.shape[1]}; use {name}(num_heads={q.shape[1]})"
        )
    if (
        isinstance(rotation, Rotation)
        and rotation.angle_q is not None
        and (dims := rotation.dims(rotation.angle_q)) > q.shape[-1]
    ):
        raise ConfigError(f"{name} rotates {dims} dims, and q has {q.shape[-1]}; use {name}(head_dim={q.shape[-1]})")
    head_dim = getattr(encoding, "head_dim", q.shape[-1])
    if head_dim != q.shape[-1]:  # it would silently rotate only the first dims
        raise ConfigError(
            f"{name} was made for heads of {head_dim} dims, and q has {q.shape[-1]}; use {name}(head_dim={q.shape[-1]})"
        )


_model_arguments = functools.cache(context_of)  # the names of the arguments that an encoding takes from its model
