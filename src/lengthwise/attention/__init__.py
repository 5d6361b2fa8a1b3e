"""Attention: backends that understand forms, one line per backend here.

`attend` is for a model of your own; `plan` is what our models call: it prepares, once per forward pass and encoding,
everything that the layers share.
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

from lengthwise.attention import blocked, flex, fused, reference, sdpa
from lengthwise.attention.arguments import refuse_unknown, transpose_hint, transposed
from lengthwise.attention.cache import KVCache
from lengthwise.attention.encoding_cache import EncodingCache
from lengthwise.attention.fit import require_fit
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
from lengthwise.span import Span, ends, own_lengths, whole_numbers

if TYPE_CHECKING:
    from typing import Never as Unknown  # a type checker refuses arguments that attention has not got
else:
    Unknown = Any  # checks at run time take Never for what is returned only

# The order is the order in which `auto` asks: the first that does not refuse serves. The reference serves all, so what
# comes after it serves where it is named alone.
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
    """Attention for given modifiers, span and mask, on the backend named."""

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
        """`k` and `v` may have fewer heads than `q` (grouped queries). `scale`: 1/sqrt(head_dim) when not given."""
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
    """Choose a backend for queries like `q` (its device, dtype and head dim). "auto" takes the first that serves; a named
    backend serves or raises, never falls back. Raise `ArgumentError` for an `unknown` argument, with what to write instead."""
    refuse_unknown("plan", unknown, ("modifiers", "span", "mask", "q", "backend"))
    _require_bidirectional(modifiers, mask)
    require_fit(modifiers, mask, q)
    if backend == "auto":
        names = [name for name in BACKENDS if name != "blocked" or blocked.pays(modifiers, mask)]
        name = next(n for n in names if not BACKENDS[n].unsupported_reason(modifiers, span, mask, q))
        return Plan(name, BACKENDS[name].prepare(modifiers, span, mask))
    check_backend(backend)
    if reason := BACKENDS[backend].unsupported_reason(modifiers, span, mask, q):
        whose = f" ({modifiers.encoding})" if modifiers.encoding else ""
        raise ConfigError(f"backend {backend!r} refuses: {reason}{whose}; use backend='auto' or 'reference'")
    return Plan(backend, BACKENDS[backend].prepare(modifiers, span, mask))


def _require_bidirectional(modifiers: AttentionModifiers, mask: Mask) -> None:
    if not mask.causal and modifiers.causal_forms:
        raise ConfigError(
            f"{modifiers.encoding or modifiers.causal_forms[0]} says nothing about keys after the query; use causal=True, or a "
            "bidirectional encoding (NoPE, RoPE, T5(bidirectional=True), ALiBi(bidirectional=True))"
        )


def unsupported_reason(backend: str, modifiers: AttentionModifiers, span: Span) -> str | None:
    """Why a backend cannot serve the modifiers of ordinary queries (float32, on the span's device), or None."""
    queries, keys = span.q.shape[1], span.k.shape[1]
    q = torch.empty(1, 1, queries, 64, device=span.q.device)
    reason: str | None = BACKENDS[backend].unsupported_reason(modifiers, span, Mask(queries, keys), q)
    return reason


def no_gradients(backend: str, device: torch.device | str) -> str | None:
    """Why a backend gives no gradients on a device, or None. Then it raises where one is asked for, at the call."""
    ask = getattr(BACKENDS[backend], "no_gradients", None)
    return None if ask is None else ask(device)


def with_content(
    modifiers: AttentionModifiers, encoding: PositionEncoding, features: Float[Tensor, "b j r"], span: Span, mask: Mask
) -> AttentionModifiers:
    """The modifiers, and the terms that follow from what the encoding kept of the tokens' content."""
    documents = None if mask.documents is None else mask.documents.to(features.device)
    terms = encoding.content(features, span, documents)
    return replace(modifiers, terms=(*modifiers.terms, *terms))


def check_backend(backend: str) -> str:
    """`backend` itself, or a `ConfigError` that names what there is."""
    names = ["auto", *BACKENDS]
    if not isinstance(backend, str) or backend not in names:
        meant = near_miss(backend, names) if isinstance(backend, str) else ""
        raise ConfigError(f"there is no backend {backend!r}{meant}; there are: {', '.join(names)}")
    return backend


_OF_BOTH = ("q", "k", "encoding", "positions", "documents", "x", "causal", "window", "scale")


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
    """Attention with a position encoding, for a model of your own.

    q [b, h, i, d]; k, v [b, g, j, d] with h a multiple of g (grouped queries) and i <= j: queries are the last i of the
    j tokens, so one call serves training, a prompt, and a step of decoding with cached (unrotated) keys.

    `positions` [b|1, j]: position IDs. Default: 0, 1, 2, ... in each document. `documents` [b|1, j]: document IDs; a token
    attends only to tokens of its own document (give padding a document of its own). `window`: a query attends only to the
    last `window` keys (see `Mask`). `x` [b, j, c]: the input of the attention layer, for encodings that depend on content.
    `scale`: the factor of the logits. Default: 1/sqrt(d). `encoding_cache`: an `EncodingCache()` of this text, for decoding
    step by step; without it every step computes the encoding's tables again.

    Raise `ConfigError` for what cannot be, and `ArgumentError` (a `TypeError` too) for an `unknown` argument, such as
    `attn_mask`, with what to write instead.

    >>> fire = encodings.FIRE(num_heads=8)
    >>> out = attend(q, k, v, fire)
    """
    refuse_unknown("attend", unknown, ("q", "k", "v", *_OF_BOTH[2:], "backend", "encoding_cache"))
    _check_kinds(scale, q=q, k=k, v=v)
    if encoding_cache is not None and not isinstance(encoding_cache, EncodingCache):
        raise ConfigError(
            f"encoding_cache is a {type(encoding_cache).__name__}; it has to be a lengthwise.attention.EncodingCache(), or None"
        )
    modifiers, span, mask = _call(q, k, v, encoding, positions, documents, x, causal, window, encoding_cache)
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
    """What the attention of `attend` looks at, at lengths where no matrix of queries and keys fits: mass by distance,
    entropy, and mass on the first and last keys, per row of the batch and head. `Statistics` has the definitions.

    The arguments before `queries` are those of `attend`. `queries` [b|1, i]: which of them the means are over (padding
    out); all when not given. `edges`: the edges of the histogram's bins, ascending distances; when not given, bins that
    double (0, 1, 2-3, 4-7, ...), without `causal` both ways. `first`, `last`: how many keys count as the first and as the
    last. There are no gradients.

    >>> s = statistics(torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 4, 8), first=1)  # even weights: 1, 1/2, 1/3, 1/4
    >>> s.bins, s.histogram[0, 0]
    ([(None, 0), (1, 1), (2, None)], tensor([0.5208, 0.2708, 0.2083], dtype=torch.float64))
    >>> s.first, s.entropy, s.most_entropy
    (tensor([[0.5208]], dtype=torch.float64), tensor([[0.7945]], dtype=torch.float64), tensor([[0.7945]], dtype=torch.float64))
    """
    refuse_unknown("statistics", unknown, (*_OF_BOTH, "queries", "edges", "first", "last"))
    _check_kinds(scale, q=q, k=k)
    modifiers, span, mask = _call(q, k, None, encoding, positions, documents, x, causal, window)
    _require_bidirectional(modifiers, mask)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return measure(modifiers, span, mask, q, k, scale=scale, queries=queries, edges=edges, first=first, last=last)


def _call(
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
    """What `attend` is told, checked and as backends take it."""
    _check_shapes(q, k, v)
    if encoding is not None and not isinstance(encoding, PositionEncoding):  # a class or a name, by a slip of the pen
        given = encoding.__name__ if isinstance(encoding, type) else repr(encoding)
        raise ConfigError(
            f"the encoding is {given}; make one and give that, as in encodings.RoPE(head_dim={q.shape[-1]})"
        )
    queries, keys, device = q.shape[2], k.shape[2], q.device
    positions = whole_numbers("positions", positions, q.shape[0], keys)
    documents = whole_numbers("documents", documents, q.shape[0], keys)
    if encoding is not None and encoding.acts_on_embedding():
        raise ConfigError(
            f"{type(encoding).__name__} acts on embeddings: add it with encoding.embed(x, positions), and call attend "
            "without it"
        )
    _check_devices(q, encoding, positions=positions, documents=documents, x=x)
    if positions is None and documents is None:
        span = Span.of(keys, queries, device)
    else:
        p = consecutive(documents) if positions is None else positions
        own = own_lengths(p, documents) if encoding is not None and encoding.depends_on_length() else None
        own_q = None if own is None else own[:, keys - queries :]
        known = positions is None and torch.compiler.is_compiling()  # below the number of tokens: no need to look
        first, last = (0, keys - 1) if known else ends(p)
        span = Span(p[:, keys - queries :], p, last + 1, length_q=own_q, length_k=own, first=first)
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
            given = "is missing" if x is None else f"has shape {tuple(x.shape)}"
            raise ConfigError(
                f"{type(encoding).__name__} depends on content, and x {given}; give x=[{q.shape[0]}, {keys}, d_model], "
                "what the layer makes q, k and v from"
            )
        modifiers = with_content(modifiers, encoding, encoding.features(x), span, mask)
    if encoding is not None:
        _check_fit(modifiers, q, encoding)
    return modifiers, span, mask


def _check_kinds(scale: object, **given: object) -> None:
    for name, one in given.items():
        if not isinstance(one, Tensor):
            raise ConfigError(
                f"{name} is a {type(one).__name__}; it has to be a tensor [batch, heads, tokens, head dim]"
            )
        if one.layout is not torch.strided:
            kind = str(one.layout).removeprefix("torch.")
            raise ConfigError(f"{name} is {kind}; attention takes dense tensors: convert it with to_dense(), or pad it")
    if scale is None or (
        type(scale) is not bool and isinstance(scale, (int, float)) and abs(scale) <= sys.float_info.max
    ):
        return
    # A backend that takes it as a number would drop its gradient in silence.
    instead = "; one that learns is no number: multiply q by it" if isinstance(scale, Tensor) else ""
    raise ConfigError(f"scale is {scale!r}; it has to be a finite number, or None for 1/sqrt(head dim){instead}")


def _check_shapes(q: Tensor, k: Tensor, v: Tensor | None) -> None:
    if v is None:
        shapes, v = f"q {tuple(q.shape)}, k {tuple(k.shape)}", k
    else:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1]:
        raise ConfigError(f"{shapes}: q has to be [b, h, i, d], and k and v alike [b, g, j, d]")
    hint = None
    if (not k.shape[1] or q.shape[1] % k.shape[1] or q.shape[2] > k.shape[2]) and (which := transposed(q, k)):
        hint = transpose_hint(which, k if which == "k" else q)
    if hint and (q.shape[1] != k.shape[1]):
        raise ConfigError(hint)
    if not k.shape[1] or not q.shape[1] or q.shape[1] % k.shape[1]:
        raise ConfigError(
            f"{shapes}: the {q.shape[1]} heads of q have to be a multiple of the {k.shape[1]} of k and v, at least as many"
        )
    if not k.shape[2]:
        raise ConfigError(f"{shapes}: there are no keys; a call takes at least one token")
    if not 1 <= q.shape[2] <= k.shape[2]:
        raise ConfigError(
            f"{shapes}: there have to be 1 to {k.shape[2]} queries, the last of the {k.shape[2]} tokens"
            + (f"; or tokens stand before heads: {hint}" if hint else "")
        )
    if not (q.dtype == k.dtype == v.dtype) or not (q.device == k.device == v.device):
        raise ConfigError(
            f"q, k, v are {q.dtype}/{k.dtype}/{v.dtype} on {q.device}/{k.device}/{v.device}; make them alike"
        )
    if q.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise ConfigError(f"q, k, v are {q.dtype}; attention computes with {names}: convert them to one of these")
    if not q.shape[-1]:
        raise ConfigError(f"{shapes}: the heads have no dims; they need at least one")


def _check_devices(q: Tensor, encoding: PositionEncoding | None, **given: Tensor | None) -> None:
    for name, tensor in given.items():
        if tensor is not None and tensor.device != q.device:
            raise ConfigError(f"{name} is on {tensor.device}, and q on {q.device}; move one to the other's device")
    parameter = next(encoding.parameters(), None) if encoding is not None else None
    if parameter is not None and parameter.device != q.device:
        name = type(encoding).__name__
        raise ConfigError(
            f"{name} is on {parameter.device}, and q on {q.device}; move it: encoding.to({str(q.device)!r})"
        )


def _check_fit(modifiers: AttentionModifiers, q: Tensor, encoding: PositionEncoding) -> None:
    """The encoding was made for these heads and this head dim."""
    name = type(encoding).__name__
    # What is made for one head would serve any number of them, in silence; a table may be shared by all heads beside one
    # that is not.
    heads = max([_heads(term) for term in modifiers.terms]) if modifiers.terms else q.shape[1]
    if heads != q.shape[1] and heads == q.shape[2] > 1:
        raise ConfigError(f"{transpose_hint('q and k', q)} ({name} was made for {heads} heads)")
    if heads != q.shape[1] and (heads > 1 or "num_heads" in _told(type(encoding))):
        raise ConfigError(
            f"{name} was made for {heads} heads, and q has {q.shape[1]}; make {name}(num_heads={q.shape[1]})"
        )
    angle = modifiers.rotation.angle_q if modifiers.rotation else None
    if angle is not None and 2 * angle.shape[-1] > q.shape[-1]:
        dims = 2 * angle.shape[-1]
        raise ConfigError(f"{name} turns {dims} dims, and q has {q.shape[-1]}; make {name}(head_dim={q.shape[-1]})")
    made_for = getattr(encoding, "head_dim", q.shape[-1])
    if made_for != q.shape[-1]:  # it would turn the first dims alone, in silence
        raise ConfigError(
            f"{name} was made for heads of {made_for} dims, and q has {q.shape[-1]}; make {name}(head_dim={q.shape[-1]})"
        )


def _heads(term: Term) -> int:
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
def _told(make: type[PositionEncoding]) -> list[str]:
    return context_of(make)


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
