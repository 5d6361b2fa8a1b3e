"""Choose a backend and prepare it once for all layers that share an encoding."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.attention.backends import BACKENDS
from lengthwise.attention.masks import Mask
from lengthwise.config import ConfigError, near_miss
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.contract import content_of, is_transformed
from lengthwise.forms import AttentionModifiers, Product, TokenRotation
from lengthwise.span import Span


@dataclass(frozen=True)
class Plan:
    """Attention for fixed modifiers, span and mask, on one backend."""

    backend: str
    run: Callable[..., Tensor]
    rotation: TokenRotation | None = None

    def __call__(
        self,
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        v: Float[Tensor, "b g j d"],
        *,
        scale: float | None = None,
    ) -> Float[Tensor, "b h i d"]:
        """Return the attention output. `k` and `v` may have fewer heads than `q` (grouped-query attention).

        `scale`: the factor of the logits. Default: 1/sqrt(head_dim).
        """
        if self.rotation is not None:
            k, v = self.rotation.key_heads(k, v)
        return self.run(q, k, v, scale=q.shape[-1] ** -0.5 if scale is None else scale)


def plan(
    modifiers: AttentionModifiers,
    span: Span,
    mask: Mask,
    q: Float[Tensor, "b h i d"],
    *,
    backend: str = "auto",
) -> Plan:
    """Choose a backend for queries like `q` (its device, dtype and head dim) and prepare it.

    "auto" takes the first backend that supports the call and is worthwhile for it. A named backend is used or raises
    `ConfigError`; there is no fallback.
    """
    require_bidirectional(modifiers, mask)
    modifiers.check(q, mask.queries, mask.keys)
    if backend == "auto":
        transformed = is_transformed()
        candidates = [b for b in BACKENDS.values() if b.supports_transforms or not transformed]
        supported = (b for b in candidates if not b.unsupported_reason(modifiers, span, mask, q))
        chosen = next(b for b in supported if transformed or b.is_worthwhile(modifiers, mask, q.device))
        return Plan(chosen.name, chosen.prepare(modifiers, span, mask), modifiers.rotation)
    check_backend(backend)
    if not BACKENDS[backend].supports_transforms and is_transformed():
        raise ConfigError(
            f"backend {backend!r} does not support transforms of torch.func (vmap, grad, jvp) and forward-mode "
            "derivatives; use backend='reference', or backend='auto', which then takes it"
        )
    if reason := BACKENDS[backend].unsupported_reason(modifiers, span, mask, q):
        encoding = f" ({modifiers.encoding})" if modifiers.encoding else ""
        raise ConfigError(
            f"backend {backend!r} does not support this call: {reason}{encoding}; use backend='auto', which takes one "
            "that does"
        )
    return Plan(backend, BACKENDS[backend].prepare(modifiers, span, mask), modifiers.rotation)


def require_bidirectional(modifiers: AttentionModifiers, mask: Mask) -> None:
    """Raise `ConfigError` if the mask is not causal and a form is not defined for keys after the query."""
    if not mask.causal and modifiers.causal_forms:
        raise ConfigError(
            f"{modifiers.encoding or modifiers.causal_forms[0]} is not defined for keys after the query; use "
            "causal=True, or a bidirectional encoding (NoPE, RoPE, T5(bidirectional=True), ALiBi(bidirectional=True))"
        )


def unsupported_reason(backend: str, modifiers: AttentionModifiers, span: Span) -> str | None:
    """Return why a backend does not support the modifiers for float32 queries of 64 dims, or None."""
    queries, keys = span.q.shape[1], span.k.shape[1]
    q = torch.empty(1, 1, queries, 64, device=span.q.device)
    return BACKENDS[backend].unsupported_reason(modifiers, span, Mask(queries, keys), q)


def gradients_unsupported_reason(backend: str, device: torch.device | str) -> str | None:
    """Return why a backend computes no gradients on a device, or None.

    If there is a reason, a call that needs gradients raises `ConfigError`.
    """
    return BACKENDS[backend].gradients_unsupported_reason(device)


def with_content(
    modifiers: AttentionModifiers, encoding: PositionEncoding, features: Float[Tensor, "b j r"], span: Span, mask: Mask
) -> AttentionModifiers:
    """Return the modifiers with the forms that the encoding computes from the tokens' features."""
    documents = None if mask.documents is None else mask.documents.to(features.device)
    computed = content_of(encoding, features, span, documents)
    rotation = next((form for form in computed if isinstance(form, TokenRotation)), modifiers.rotation)
    product = next((form for form in computed if isinstance(form, Product)), modifiers.product)
    terms = tuple(form for form in computed if not isinstance(form, TokenRotation | Product))
    return replace(modifiers, terms=(*modifiers.terms, *terms), rotation=rotation, product=product)


def check_backend(backend: str) -> str:
    """Return `backend`; raise `ConfigError` with the available names if it is unknown."""
    names = ["auto", *BACKENDS]
    if not isinstance(backend, str) or backend not in names:
        hint = near_miss(backend, names) if isinstance(backend, str) else ""
        raise ConfigError(f"there is no backend {backend!r}{hint}; available: {', '.join(names)}")
    return backend
