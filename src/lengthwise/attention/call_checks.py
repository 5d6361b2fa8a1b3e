"""Checks of the arguments of `attend` and `statistics`, and advice for arguments that have other names elsewhere."""

import functools
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Never

import torch
from torch import Tensor

from lengthwise.config import ConfigError, context_of
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, Rotation
from lengthwise.values import ArgumentError, near_miss

if TYPE_CHECKING:
    Unknown = Never  # so that a type checker rejects unknown arguments
else:
    Unknown = Any  # run-time type checks accept Never only as a return type

AXES = "[batch, heads, tokens, head_dim]"
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

_ADVICE = {  # what to write instead, and the names that it is for: those of other libraries, and fields of TokenInfo
    "attention takes no mask; use causal= to hide keys after the query, tokens=TokenInfo(documents=...) for "
    "padding and packed texts, window= for a sliding window, and an encoding for numbers that are added to the "
    "logits": ("attn_mask attention_mask mask key_padding_mask block_mask attn_bias bias"),
    "write causal=True (the default) or causal=False": "is_causal use_causal_mask",
    "attention has no dropout; leave it out": "dropout_p dropout attention_dropout",
    "k and v may have fewer heads than q (grouped-query attention); leave it out": "enable_gqa",
    "write scale=": "softmax_scale sm_scale scaling",
    "write window=, the number of last keys that a query attends to": "window_size sliding_window",
    "write tokens=TokenInfo(positions=...)": "position_ids positions",
    "write tokens=TokenInfo(documents=...), the document ID of every token": (
        "documents cu_seqlens cu_seqlens_q cu_seqlens_k seq_ids"
    ),
    "write encoding=encodings.ALiBi(...), which computes its slopes itself": "alibi_slopes",
    "write tokens=TokenInfo(x=...), only for an encoding that depends on content": "x hidden_states",
    "pass all keys and values so far as k and v, with q for the last tokens; encoding_cache=EncodingCache() speeds up "
    "the steps of one text": "past_key_values past_key_value kv_cache cache",
    "weights are never stored; use attention.statistics to see where attention looks": (
        "return_weights need_weights output_attentions"
    ),
}
INSTEAD = {name: advice for advice, names in _ADVICE.items() for name in names.split()}


def refuse_unknown(unknown: Mapping[str, object], arguments: Collection[str]) -> None:
    """Raise `ArgumentError` for the first unknown argument of `attend`, which has `arguments`, with advice."""
    for name in unknown:
        near = near_miss(name, arguments) + f"; its arguments are: {', '.join(arguments)}"
        raise ArgumentError(f"attend has no argument {name!r}" + (f": {INSTEAD[name]}" if name in INSTEAD else near))


def check_types(scale: object, **tensors: object) -> None:
    """Raise `ConfigError` unless the tensors are dense tensors and the scale is a finite number or None."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"{name} must be a tensor {AXES}, got a {type(value).__name__}")
        if value.layout is not torch.strided or value.is_nested:
            layout = "a nested tensor" if value.is_nested else str(value.layout).removeprefix("torch.")
            raise ConfigError(f"{name} must be a dense tensor, got {layout}; convert it with to_dense(), or pad it")
    if scale is None or (isinstance(scale, int | float) and math.isfinite(scale)):
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
    fit = q.ndim == k.ndim == 4 and k.shape == v.shape and q.shape[0] == k.shape[0] and q.shape[-1] == k.shape[-1]
    if not fit or 0 in (*q.shape[1:], *k.shape[1:]):
        raise ConfigError(
            "q must be [b, h, i, d], and k and v both [b, g, j, d], with at least one head, token and dim, got "
            f"{shapes}"
        )
    if q.shape[1] % k.shape[1]:
        raise ConfigError(
            f"the number of heads of q must be a multiple of that of k and v, got {q.shape[1]} and {k.shape[1]}; "
            f"the axes are {AXES}, got {shapes}"
        )
    if q.shape[2] > k.shape[2]:
        raise ConfigError(
            f"q must have 1 to {k.shape[2]} tokens, the last of the {k.shape[2]} tokens of k, got {q.shape[2]}; the "
            f"axes are {AXES}, got {shapes}"
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
    if heads != q.shape[1] and (heads > 1 or "num_heads" in _model_arguments(type(encoding))):
        raise ConfigError(
            f"{name} was made for {heads} heads, and q has {q.shape[1]} (its axes are {AXES}, got {tuple(q.shape)}); "
            f"use {name}(num_heads={q.shape[1]})"
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
