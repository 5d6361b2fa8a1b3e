"""Attention with the forms of an encoding, on several backends.

`attend` is for a model of your own. Our models call `plan`, which prepares once per forward pass and encoding everything
that the layers share. `BACKENDS` lists the backends.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.attention.arguments import refuse_unknown, transpose_hint, transposed
from lengthwise.attention.backends import flex, reference, sdpa
from lengthwise.attention.backends.blocked import backend as blocked
from lengthwise.attention.cache import KVCache
from lengthwise.attention.encoding_cache import EncodingCache
from lengthwise.attention.fit import require_fit
from lengthwise.attention.fused import backend as fused
from lengthwise.attention.masks import Mask
from lengthwise.attention.statistics import Statistics, measure
from lengthwise.config import ConfigError, context_of, near_miss
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
    DenseBias,
    KeyBias,
    PiecewiseLinearBias,
    Term,
)
from lengthwise.positions import consecutive
from lengthwise.span import Span, document_lengths, lowest_and_highest, token_integers

if TYPE_CHECKING:
    from typing import Never as Unknown  # so that a type checker rejects unknown arguments
else:
    Unknown = Any  # run-time type checks accept Never only as a return type

# `auto` tries the backends in this order and takes the first that supports the call. The reference supports every call, so
# backends after it are used only if they are named.
BACKENDS: dict[str, ModuleType] = {
    "fused": fused,
    "blocked": blocked,
    "sdpa": sdpa,
    "reference": reference,
    "flex": flex,
}

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Plan:
    """Attention for fixed modifiers, span and mask, on one backend."""

    backend: str
    run: Callable[..., Tensor]

    def __call__(
        self,
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        v: Float[Tensor, "b g j d"],
        *,
        scale: float | None = None,
        **unknown: Unknown,
    ) -> Float[Tensor, "b h i d"]:
        """Return the attention output. `k` and `v` may have fewer heads than `q` (grouped-query attention).

        `scale`: the factor of the logits. Default: 1/sqrt(head_dim).
        """
        refuse_unknown("a Plan", unknown, ("q", "k", "v", "scale"))
        return self.run(q, k, v, scale=q.shape[-1] ** -0.5 if scale is None else scale)


def plan(
    modifiers: AttentionModifiers,
    span: Span,
    mask: Mask,
    q: Float[Tensor, "b h i d"],
    *,
    backend: str = "auto",
    **unknown: Unknown,
) -> Plan:
    """Choose a backend for queries like `q` (its device, dtype and head dim) and prepare it.

    "auto" takes the first backend that supports the call. A named backend is used or raises `ConfigError`; there is no
    fallback. Raise `ArgumentError` for an `unknown` argument, with what to write instead.
    """
    refuse_unknown("plan", unknown, ("modifiers", "span", "mask", "q", "backend"))
    if not isinstance(modifiers, AttentionModifiers):
        raise ConfigError(
            f"`modifiers` of an encoding must return AttentionModifiers(...), got {type(modifiers).__name__}"
        )
    _require_bidirectional(modifiers, mask)
    require_fit(modifiers, mask, q)
    if backend == "auto":
        names = [name for name in BACKENDS if name != "blocked" or blocked.is_worthwhile(modifiers, mask)]
        name = next(n for n in names if not BACKENDS[n].unsupported_reason(modifiers, span, mask, q))
        return Plan(name, BACKENDS[name].prepare(modifiers, span, mask))
    check_backend(backend)
    if reason := BACKENDS[backend].unsupported_reason(modifiers, span, mask, q):
        encoding = f" ({modifiers.encoding})" if modifiers.encoding else ""
        raise ConfigError(
            f"backend {backend!r} does not support this call: {reason}{encoding}; use backend='auto' or 'reference'"
        )
    return Plan(backend, BACKENDS[backend].prepare(modifiers, span, mask))


def _require_bidirectional(modifiers: AttentionModifiers, mask: Mask) -> None:
    if not mask.causal and modifiers.causal_forms:
        raise ConfigError(
            f"{modifiers.encoding or modifiers.causal_forms[0]} is not defined for keys after the query; use causal=True, or a "
            "bidirectional encoding (NoPE, RoPE, T5(bidirectional=True), ALiBi(bidirectional=True))"
        )


def unsupported_reason(backend: str, modifiers: AttentionModifiers, span: Span) -> str | None:
    """Return why a backend does not support the modifiers for float32 queries of 64 dims on the span's device, or None."""
    queries, keys = span.q.shape[1], span.k.shape[1]
    q = torch.empty(1, 1, queries, 64, device=span.q.device)
    reason: str | None = BACKENDS[backend].unsupported_reason(modifiers, span, Mask(queries, keys), q)
    return reason


def no_gradients(backend: str, device: torch.device | str) -> str | None:
    """Return why a backend computes no gradients on a device, or None.

    If there is a reason, a call that needs gradients raises `ConfigError`.
    """
    reason_on = getattr(BACKENDS[backend], "no_gradients", None)
    return None if reason_on is None else reason_on(device)


def with_content(
    modifiers: AttentionModifiers, encoding: PositionEncoding, features: Float[Tensor, "b j r"], span: Span, mask: Mask
) -> AttentionModifiers:
    """Return the modifiers with the terms that the encoding computes from the features of the tokens."""
    documents = None if mask.documents is None else mask.documents.to(features.device)
    terms = encoding.content(features, span, documents)
    return replace(modifiers, terms=(*modifiers.terms, *terms))


def check_backend(backend: str) -> str:
    """Return `backend`; raise `ConfigError` with the available names if it is unknown."""
    names = ["auto", *BACKENDS]
    if not isinstance(backend, str) or backend not in names:
        hint = near_miss(backend, names) if isinstance(backend, str) else ""
        raise ConfigError(f"there is no backend {backend!r}{hint}; available: {', '.join(names)}")
    return backend


_COMMON_ARGUMENTS = ("q", "k", "encoding", "positions", "documents", "x", "causal", "window", "scale")


def attend(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j d"],
    encoding: PositionEncoding | None = None,
    *,
    positions: Int[Tensor, "#b j"] | None = None,
    documents: Int[Tensor, "#b j"] | None = None,
    x: Float[Tensor, "b j c"] | None = None,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
    backend: str = "auto",
    encoding_cache: EncodingCache | None = None,
    **unknown: Unknown,
) -> Float[Tensor, "b h i d"]:
    """Return attention with a position encoding, for a model of your own.

    q [b, h, i, d]; k, v [b, g, j, d] with h a multiple of g (grouped-query attention) and i <= j. The queries are the last i
    of the j tokens, so the same call serves training, a prompt, and a decoding step with cached (unrotated) keys.

    `positions` [b|1, j]: position IDs. Default: 0, 1, 2, ... in each document. `documents` [b|1, j]: document IDs; a token
    attends only to tokens of its own document (give padding a document of its own). `window`: a query attends only to the
    last `window` keys (see `Mask`). `x` [b, j, c]: the input of the attention layer, for encodings that depend on content.
    `scale`: the factor of the logits. Default: 1/sqrt(d). `encoding_cache`: an `EncodingCache()` for this text, when decoding
    step by step; without it every step computes the encoding's tables again.

    Raise `ConfigError` for invalid arguments, and `ArgumentError` (a `TypeError` too) for an `unknown` argument, such as
    `attn_mask`, with what to write instead.

    >>> fire = encodings.FIRE(num_heads=8)
    >>> out = attend(q, k, v, fire)
    """
    refuse_unknown("attend", unknown, ("q", "k", "v", *_COMMON_ARGUMENTS[2:], "backend", "encoding_cache"))
    _check_types(scale, q=q, k=k, v=v)
    if encoding_cache is not None and not isinstance(encoding_cache, EncodingCache):
        raise ConfigError(
            "encoding_cache must be a lengthwise.attention.EncodingCache() or None, got a "
            f"{type(encoding_cache).__name__}"
        )
    modifiers, span, mask = _checked_call(q, k, v, encoding, positions, documents, x, causal, window, encoding_cache)
    return plan(modifiers, span, mask, q, backend=backend)(q, k, v, scale=scale)


def statistics(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    encoding: PositionEncoding | None = None,
    *,
    positions: Int[Tensor, "#b j"] | None = None,
    documents: Int[Tensor, "#b j"] | None = None,
    x: Float[Tensor, "b j c"] | None = None,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
    queries: Bool[Tensor, "#b i"] | None = None,
    edges: Sequence[int] | None = None,
    first: int = 4,
    last: int = 16,
    **unknown: Unknown,
) -> Statistics:
    """Return statistics of the attention weights of `attend`, for each row of the batch and each head.

    They are the mass by distance, the entropy, and the mass on the first and last keys; `Statistics` has the definitions.
    They also work at lengths where a matrix of queries and keys does not fit into memory. There are no gradients.

    The arguments before `queries` are those of `attend`. `queries` [b|1, i]: the queries to average over, for example all but
    padding. Default: all. `edges`: the edges of the histogram's bins, ascending distances. Default: bins that double in width
    (0, 1, 2-3, 4-7, ...), in both directions if not `causal`. `first`, `last`: how many keys count as the first and as the last.

    >>> s = statistics(torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 4, 8), first=1)  # uniform weights: 1, 1/2, 1/3, 1/4
    >>> s.bins, s.histogram[0, 0]
    ([(None, 0), (1, 1), (2, None)], tensor([0.5208, 0.2708, 0.2083], dtype=torch.float64))
    >>> s.first, s.entropy, s.most_entropy
    (tensor([[0.5208]], dtype=torch.float64), tensor([[0.7945]], dtype=torch.float64), tensor([[0.7945]], dtype=torch.float64))
    """
    refuse_unknown("statistics", unknown, (*_COMMON_ARGUMENTS, "queries", "edges", "first", "last"))
    _check_types(scale, q=q, k=k)
    modifiers, span, mask = _checked_call(q, k, None, encoding, positions, documents, x, causal, window)
    _require_bidirectional(modifiers, mask)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return measure(modifiers, span, mask, q, k, scale=scale, queries=queries, edges=edges, first=first, last=last)


def _checked_call(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    encoding: Any,
    positions: Any,
    documents: Any,
    x: Any,
    causal: Any,
    window: Any,
    encoding_cache: EncodingCache | None = None,
) -> tuple[AttentionModifiers, Span, Mask]:
    """Check the arguments of `attend` and return modifiers, span and mask, as backends take them."""
    _check_shapes(q, k, v)
    if encoding is not None and not isinstance(encoding, PositionEncoding):  # for example a class or a name
        value = encoding.__name__ if isinstance(encoding, type) else repr(encoding)
        raise ConfigError(
            f"encoding must be an instance of an encoding, got {value}; write for example "
            f"encodings.RoPE(head_dim={q.shape[-1]})"
        )
    queries, keys, device = q.shape[2], k.shape[2], q.device
    positions = token_integers("positions", positions, q.shape[0], keys)
    documents = token_integers("documents", documents, q.shape[0], keys)
    if encoding is not None and encoding.acts_on_embedding():
        raise ConfigError(
            f"{type(encoding).__name__} acts on the embeddings, not on attention; apply it with "
            "encoding.embed(x, positions), and call attend without it"
        )
    _check_devices(q, encoding, positions=positions, documents=documents, x=x)
    if positions is None and documents is None:
        span = Span.of(keys, queries, device)
    else:
        p = consecutive(documents) if positions is None else positions
        length_k = document_lengths(p, documents) if encoding is not None and encoding.depends_on_length() else None
        length_q = None if length_k is None else length_k[:, keys - queries :]
        # Default positions are below the number of tokens, so a compiled graph need not read them.
        bounds_known = positions is None and torch.compiler.is_compiling()
        first, last = (0, keys - 1) if bounds_known else lowest_and_highest(p)
        span = Span(p[:, keys - queries :], p, last + 1, length_q=length_q, length_k=length_k, first=first)
    mask = Mask(queries, keys, causal, documents, window)
    if encoding is None:
        modifiers = AttentionModifiers()
    else:
        modifiers = encoding.modifiers(span) if encoding_cache is None else encoding_cache.modifiers(encoding, span)
        modifiers = replace(modifiers, encoding=type(encoding).__name__)
        if encoding_cache is not None:
            encoding_cache.watch_scale(encoding, span)
    if encoding is not None and encoding.reads_content():
        if x is None or x.ndim != 3 or x.shape[:2] != (q.shape[0], keys):
            problem = "is missing" if x is None else f"has the shape {tuple(x.shape)}"
            raise ConfigError(
                f"{type(encoding).__name__} depends on content, and x {problem}; pass x=[{q.shape[0]}, {keys}, d_model], "
                "the layer's input, from which q, k and v are computed"
            )
        modifiers = with_content(modifiers, encoding, encoding.features(x), span, mask)
    if encoding is not None:
        _check_sizes(modifiers, q, encoding)
    return modifiers, span, mask


def _check_types(scale: object, **tensors: object) -> None:
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"{name} must be a tensor [batch, heads, tokens, head dim], got a {type(value).__name__}")
        if value.layout is not torch.strided:
            layout = str(value.layout).removeprefix("torch.")
            raise ConfigError(f"{name} must be a dense tensor, got {layout}; convert it with to_dense(), or pad it")
    if scale is None or (
        type(scale) is not bool and isinstance(scale, (int, float)) and abs(scale) <= sys.float_info.max
    ):
        return
    # A backend that converts it to a number would silently drop its gradient.
    fix = "; multiply q by a scale that is learned" if isinstance(scale, Tensor) else ""
    raise ConfigError(f"scale must be a finite number, or None for 1/sqrt(head dim), got {scale!r}{fix}")


def _check_shapes(q: Tensor, k: Tensor, v: Tensor | None) -> None:
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
    if q.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise ConfigError(f"q, k and v must be one of {names}, got {q.dtype}; convert them")
    if not q.shape[-1]:
        raise ConfigError(f"heads must have at least one dim, got {shapes}")


def _check_devices(q: Tensor, encoding: PositionEncoding | None, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device != q.device:
            raise ConfigError(f"{name} must be on the device of q, {q.device}, got {tensor.device}; move one of them")
    parameter = next(encoding.parameters(), None) if encoding is not None else None
    if parameter is not None and parameter.device != q.device:
        name = type(encoding).__name__
        raise ConfigError(
            f"{name} must be on the device of q, {q.device}, got {parameter.device}; call encoding.to({str(q.device)!r})"
        )


def _check_sizes(modifiers: AttentionModifiers, q: Tensor, encoding: PositionEncoding) -> None:
    """Raise `ConfigError` unless the encoding was made for the number of heads and the head dim of `q`."""
    name = type(encoding).__name__
    # Tensors for one head would be broadcast silently to any number of heads. The maximum is taken because a table that all
    # heads share may stand beside one that has a row for each head.
    heads = max([_num_heads(term) for term in modifiers.terms]) if modifiers.terms else q.shape[1]
    if heads != q.shape[1] and heads == q.shape[2] > 1:
        raise ConfigError(f"{transpose_hint('q and k', q)} ({name} was made for {heads} heads)")
    if heads != q.shape[1] and (heads > 1 or "num_heads" in _model_arguments(type(encoding))):
        raise ConfigError(
            f"{name} was made for {heads} heads, and q has {q.shape[1]}; use {name}(num_heads={q.shape[1]})"
        )
    angle = modifiers.rotation.angle_q if modifiers.rotation else None
    if angle is not None and 2 * angle.shape[-1] > q.shape[-1]:
        dims = 2 * angle.shape[-1]
        raise ConfigError(f"{name} rotates {dims} dims, and q has {q.shape[-1]}; use {name}(head_dim={q.shape[-1]})")
    head_dim = getattr(encoding, "head_dim", q.shape[-1])
    if head_dim != q.shape[-1]:  # it would silently rotate only the first dims
        raise ConfigError(
            f"{name} was made for heads of {head_dim} dims, and q has {q.shape[-1]}; use {name}(head_dim={q.shape[-1]})"
        )


def _num_heads(term: Term) -> int:
    """Return how many heads a term has; 1 if all heads share it."""
    if isinstance(term, DenseBias):
        return term.bias.shape[1]
    if isinstance(term, CumulativeBias):
        return term.total.shape[1]
    if isinstance(term, ContentBias):
        return term.content.shape[1]
    return len(
        term.slope
        if isinstance(term, PiecewiseLinearBias)
        else term.vector
        if isinstance(term, KeyBias)
        else term.table
    )


@functools.cache
def _model_arguments(encoding: type[PositionEncoding]) -> list[str]:
    """Return the names of the arguments that an encoding takes from its model."""
    return context_of(encoding)


__all__ = [
    "BACKENDS",
    "EncodingCache",
    "KVCache",
    "Mask",
    "Plan",
    "Statistics",
    "attend",
    "check_backend",
    "measure",
    "no_gradients",
    "plan",
    "statistics",
    "unsupported_reason",
    "with_content",
]
