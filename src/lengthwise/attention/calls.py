"""`attend` and `statistics`: one call of attention with an encoding, for a model of your own."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.attention.call_checks import (
    Unknown,
    check_devices,
    check_shapes,
    check_sizes,
    check_types,
    refuse_unknown,
)
from lengthwise.attention.encoding_cache import EncodingCache
from lengthwise.attention.masks import Mask
from lengthwise.attention.plans import plan, require_bidirectional, with_content
from lengthwise.attention.statistics import Bins, Statistics, measure
from lengthwise.config import ConfigError
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.contract import features_of, modifiers_of
from lengthwise.forms import AttentionModifiers
from lengthwise.positions import consecutive
from lengthwise.span import Span, document_lengths, lowest_and_highest, token_integers, token_positions

_ARGUMENTS = ("q", "k", "v", "encoding", "tokens", "causal", "window", "scale", "backend", "encoding_cache")


@dataclass(frozen=True)
class TokenInfo:
    """What attention knows about the tokens, in addition to their q, k and v.

    All three describe all j tokens, also if there are fewer queries, as in a decoding step.

    - `positions` [b|1, j]: position IDs, whole numbers of at least 0. Default: 0, 1, 2, ... in each document. [b|1, j,
      axes] for encodings with several axes, such as `MRoPE`, for which [b|1, j] means that all axes of a token are
      equal.
    - `documents` [b|1, j]: document IDs, any whole numbers. A token attends only to tokens of its own document; give
      padding a document of its own. Default: all tokens of a row are in one document.
    - `x` [b, j, c]: the input of the attention layer, from which q, k and v are computed. Only encodings that depend on
      content read it.

    `attend` checks the values, because only there the shapes of q and k are known.

    >>> packed = TokenInfo(documents=torch.tensor([[0, 0, 0, 1, 1]]))  # two texts in one row
    >>> out = attend(q, k, v, encodings.RoPE(head_dim=64), tokens=packed)
    """

    positions: Int[Tensor, "#b j *axes"] | None = None
    documents: Int[Tensor, "#b j"] | None = None
    x: Float[Tensor, "b j c"] | None = None


def attend(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j d"],
    encoding: PositionEncoding | None = None,
    *,
    tokens: TokenInfo | None = None,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
    backend: str = "auto",
    encoding_cache: EncodingCache | None = None,
    **unknown: Unknown,
) -> Float[Tensor, "b h i d"]:
    """Return attention with a position encoding, for a model of your own.

    q [b, h, i, d]; k, v [b, g, j, d] with h a multiple of g (grouped-query attention) and i <= j. The queries are the
    last i of the j tokens, so the same call serves training, a prompt, and a decoding step with cached (unrotated)
    keys.

    `tokens`: a `TokenInfo` with position IDs, document IDs (for packed texts and padding) and the input of the layer
    (for encodings that depend on content). Default: one document at the positions 0, 1, 2, ... `window`: a query
    attends only to the last `window` keys (see `Mask`). `scale`: the factor of the logits. Default: 1/sqrt(d).
    `encoding_cache`: an `EncodingCache()` for this text, when decoding step by step; without it every step computes the
    encoding's tables again.

    Raise `ConfigError` for invalid arguments, and `ArgumentError` (a `TypeError` too) for an `unknown` argument, such
    as `attn_mask`, with what to write instead.

    >>> fire = encodings.FIRE(num_heads=8)
    >>> out = attend(q, k, v, fire)
    """
    refuse_unknown(unknown, _ARGUMENTS)
    check_types(scale, q=q, k=k, v=v)
    if encoding_cache is not None and not isinstance(encoding_cache, EncodingCache):
        raise ConfigError(
            "encoding_cache must be a lengthwise.attention.EncodingCache() or None, got a "
            f"{type(encoding_cache).__name__}"
        )
    modifiers, span, mask = _checked_call(q, k, v, encoding, tokens, causal, window, encoding_cache)
    return plan(modifiers, span, mask, q, backend=backend)(q, k, v, scale=scale)


def statistics(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    encoding: PositionEncoding | None = None,
    *,
    tokens: TokenInfo | None = None,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
    queries: Bool[Tensor, "#b i"] | None = None,
    bins: Bins | None = None,
) -> Statistics:
    """Return statistics of the attention weights of `attend`, for each row of the batch and each head.

    They are the mass by distance, the entropy, and the mass on the first and last keys; `Statistics` has the
    definitions. Distances of positions with several axes are those of the highest axis of each token.
    They also work at lengths where a matrix of queries and keys does not fit into memory. There are no gradients.

    The arguments before `queries` are those of `attend`. `queries` [b|1, i]: the queries to average over, for example
    all but padding. Default: all. `bins`: how keys are grouped. Default: `Bins()`.

    >>> zeros = torch.zeros(1, 1, 4, 8)
    >>> s = statistics(zeros, zeros, bins=Bins(first=1))  # uniform weights: 1, 1/2, 1/3, 1/4
    >>> s.bins, s.histogram[0, 0]
    ([(None, 0), (1, 1), (2, None)], tensor([0.5208, 0.2708, 0.2083], dtype=torch.float64))
    >>> s.first, s.entropy, s.most_entropy
    (tensor([[0.5208]], dtype=torch.float64), tensor([[0.7945]], dtype=torch.float64), tensor([[0.7945]],
    dtype=torch.float64))
    """
    check_types(scale, q=q, k=k)
    modifiers, span, mask = _checked_call(q, k, None, encoding, tokens, causal, window)
    require_bidirectional(modifiers, mask)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return measure(modifiers, span, mask, q, k, scale=scale, queries=queries, bins=bins)


def _checked_call(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    encoding: Any,
    tokens: Any,
    causal: Any,
    window: Any,
    encoding_cache: EncodingCache | None = None,
) -> tuple[AttentionModifiers, Span, Mask]:
    """Check the arguments of `attend` and return modifiers, span and mask, as backends take them."""
    check_shapes(q, k, v)
    if tokens is not None and not isinstance(tokens, TokenInfo):
        raise ConfigError(
            "tokens must be a lengthwise.TokenInfo(positions=..., documents=..., x=...) or None, got a "
            f"{type(tokens).__name__}"
        )
    tokens = TokenInfo() if tokens is None else tokens
    x = tokens.x
    if x is not None and not isinstance(x, Tensor):
        raise ConfigError(f"x must be a tensor [batch, tokens, d_model] or None, got a {type(x).__name__}")
    if encoding is not None and not isinstance(encoding, PositionEncoding):  # for example a class or a name
        value = encoding.__name__ if isinstance(encoding, type) else repr(encoding)
        raise ConfigError(
            f"encoding must be an instance of an encoding, got {value}; write for example "
            f"encodings.RoPE(head_dim={q.shape[-1]})"
        )
    queries, keys, device = q.shape[2], k.shape[2], q.device
    positions, axes = token_positions("positions", tokens.positions, q.shape[0], keys)
    documents = token_integers("documents", tokens.documents, q.shape[0], keys)
    if encoding is not None and encoding.acts_on_embedding():
        raise ConfigError(
            f"{type(encoding).__name__} acts on the embeddings, not on attention; apply it with "
            "encoding.embed(x, positions), and call attend without it"
        )
    check_devices(q, encoding, positions=positions, documents=documents, x=x)
    if positions is None and documents is None:
        span = Span.of(keys, queries, device)
    else:
        # One of them is given.
        p = positions if positions is not None else consecutive(documents)  # type: ignore[arg-type]
        length_k = document_lengths(p, documents) if encoding is not None and encoding.depends_on_length() else None
        length_q = None if length_k is None else length_k[:, keys - queries :]
        # Default positions are below the number of tokens, so a compiled graph need not read them.
        bounds_known = positions is None and torch.compiler.is_compiling()
        first, last = (0, keys - 1) if bounds_known else lowest_and_highest(p if axes is None else axes)
        axes_q = None if axes is None else axes[:, keys - queries :]
        span = Span(p[:, keys - queries :], p, last + 1, False, length_q, length_k, first, axes_q, axes)
    mask = Mask(queries, keys, causal, documents, window)
    if encoding is None:
        modifiers = AttentionModifiers()
    else:
        modifiers = modifiers_of(encoding, span) if encoding_cache is None else encoding_cache.modifiers(encoding, span)
        if encoding_cache is not None:
            encoding_cache.watch_scale(encoding, span)
    if encoding is not None and encoding.reads_content():
        if x is None or x.ndim != 3 or x.shape[:2] != (q.shape[0], keys):
            problem = "is missing" if x is None else f"has the shape {tuple(x.shape)}"
            raise ConfigError(
                f"{type(encoding).__name__} depends on content, and x {problem}; pass tokens=TokenInfo(x=...) with x "
                f"[{q.shape[0]}, {keys}, d_model], the layer's input, from which q, k and v are computed"
            )
        modifiers = with_content(modifiers, encoding, features_of(encoding, x), span, mask)
    if encoding is not None:
        check_sizes(modifiers, q, encoding)
    return modifiers, span, mask
