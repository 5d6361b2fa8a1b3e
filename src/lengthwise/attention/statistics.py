"""Statistics of attention weights without a T x T matrix: mass by distance, entropy, mass on the first and last keys.

Plain PyTorch, some queries at a time, supports every form on any device. What the CPU kernel supports takes one pass of
it. Memory is O(T · bins), in addition to that of a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.attention.backends import BACKENDS
from lengthwise.attention.backends.base import Measurement
from lengthwise.attention.masks import Mask
from lengthwise.forms import AttentionModifiers, table_dtype
from lengthwise.span import Span
from lengthwise.values import ConfigError, require_integer


@dataclass(frozen=True)
class Bins:
    """How `statistics` groups keys.

    - `edges`: the edges of the histogram's bins, ascending distances. Default: bins that double in width (0, 1, 2-3,
      4-7, ...), in both directions if attention is not causal.
    - `first`, `last`: how many keys count as the first and as the last, at least 1.

    `Statistics` has the definitions. `measure` checks the values.
    """

    edges: Sequence[int] | None = None
    first: int = 4
    last: int = 16


@dataclass(frozen=True)
class Statistics:
    """Means over the selected queries, for each row of the batch and each head, in float64.

    Let p_ij = softmax_j(logit_ij) be the weight of key j (a share of 1) among the keys that are visible to query i, and
    d_ij the distance, position of i - position of j:

    - `histogram` [b, h, n]: mean_i of the sum of p_ij over the keys whose distance is in bin n. The m ascending `edges`
      divide all distances into m + 1 bins: bin n has the distances at least edges[n-1] and below edges[n]. The first
      bin has no lower end, the last no upper one. So the bins sum to 1, unless there are sinks. `bins` has the
      distances of each.
    - `entropy` [b, h], in nats: mean_i of H_i, H_i = -Σ_j p_ij ln p_ij. exp(H_i) is the number of keys over which
      uniform weights would have the same entropy.
    - `most_entropy` [b|1, 1], in nats: mean_i of ln(number of keys visible to i), the entropy of uniform weights.
      entropy / most_entropy is from 0 (one key has all the weight) to 1 (uniform); 0/0 if one key is visible to each
      query.
    - `first` [b, h]: mean_i of the sum of p_ij over the `Bins.first` first keys of i's document (attention sinks).
    - `last` [b, h]: mean_i of the sum of p_ij over the `Bins.last` last keys of i's document up to i, i's own among
      them. A key may be among the first and the last.

    First and last refer to indices, as masks do; distance refers to positions. A key that a window hides has weight 0,
    but still counts as one of the first keys.

    With sinks, a weight is the share of its key in a denominator that has the sink too. So the bins sum to 1 - `sink`
    [b, h], the mean share of the sink, and so do the terms of H_i: it counts keys only.

    `query_entropy` [b, h, i] is H_i and `query_keys` [b|1, i] the number of visible keys, for all queries.
    """

    edges: tuple[int, ...]
    histogram: Float[Tensor, "b h n"]
    entropy: Float[Tensor, "b h"]
    most_entropy: Float[Tensor, "#b 1"]
    first: Float[Tensor, "b h"]
    last: Float[Tensor, "b h"]
    query_entropy: Float[Tensor, "b h i"]
    query_keys: Int[Tensor, "#b i"]

    @property
    def sink(self) -> Float[Tensor, "b h"]:
        """The mean share of the sinks; 0 up to rounding errors without sinks."""
        return 1 - self.histogram.sum(-1)

    @property
    def bins(self) -> list[tuple[int | None, int | None]]:
        """The lowest and the highest distance of each bin; None if it has no end.

        With edges 1, 2, 4: up to 0, 1, 2 to 3, from 4 on.
        """
        low = (None, *self.edges)
        high = (*(edge - 1 for edge in self.edges), None)
        return list(zip(low, high, strict=True))


def doubling(reach: int, causal: bool) -> tuple[int, ...]:
    """Return the edges of bins that double in width (0, 1, 2-3, 4-7, ...) for distances below `distance_bound`.

    If not causal, the bins cover both directions.

    >>> doubling(8, True), doubling(8, False)
    ((1, 2, 4), (-3, -1, 0, 1, 2, 4))
    """
    edges = [1 << n for n in range((reach - 1).bit_length())] if reach > 1 else []
    return tuple(edges) if causal else (*(1 - edge for edge in reversed(edges)), *edges)


@torch.no_grad()
def measure(
    modifiers: AttentionModifiers,
    span: Span,
    mask: Mask,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    *,
    scale: float,
    queries: Bool[Tensor, "#b i"] | None = None,
    bins: Bins | None = None,
) -> Statistics:
    """Return the statistics of one attention call given as modifiers, span and mask; see `attention.statistics`.

    There are no gradients.
    """
    if bins is not None and not isinstance(bins, Bins):
        raise ConfigError(
            "bins must be a lengthwise.attention.Bins(edges=..., first=..., last=...) or None, got a "
            f"{type(bins).__name__}"
        )
    bins = Bins() if bins is None else bins
    first, last = bins.first, bins.last
    require_integer("attention statistics", 1, first=first, last=last)
    edges = doubling(span.distance_bound, mask.causal) if bins.edges is None else require_ascending(bins.edges)
    shares = query_shares(q, queries)
    modifiers = replace(modifiers, values=())  # they do not change the weights
    if modifiers.rotation is not None:
        (k,) = modifiers.rotation.key_heads(k)
    backends = BACKENDS.values()
    backend = next(b for b in backends if not b.statistics_unsupported_reason(modifiers, span, mask, q))
    counts = min(first, mask.keys), min(last, mask.keys)  # a kernel's counts have 64 bits
    values = backend.statistics(Measurement(modifiers, span, mask, scale, edges, *counts), q, k)
    # A sum instead of a matrix product, whose order of additions depends on the number of threads on some processors.
    mean = (values * shares[:, None, :, None]).sum(2)
    visible = visible_keys(mask, q.device)
    uniform_entropy = (visible.to(shares.dtype).log() * shares).sum(-1, keepdim=True)
    return Statistics(
        edges,
        histogram=mean[..., :-3].clone(),
        entropy=mean[..., -3].clone(),
        most_entropy=uniform_entropy,
        first=mean[..., -2].clone(),
        last=mean[..., -1].clone(),
        query_entropy=values[..., -3].clone(),
        query_keys=visible,
    )


def require_ascending(edges: Sequence[Any]) -> tuple[int, ...]:
    """Return the edges of bins; raise `ConfigError` unless they are ascending whole numbers."""
    values = tuple(edges)
    if any(type(edge) is not int or abs(edge) >= 1 << 62 for edge in values) or list(values) != sorted(set(values)):
        raise ConfigError(f"edges must be whole numbers (distances) in strictly ascending order, got {values}")
    return values


def query_shares(q: Float[Tensor, "b h i d"], queries: Tensor | None) -> Float[Tensor, "#b i"]:
    """Return the share of each query in the means: 1/n for the n selected queries, 0 for the others."""
    rows, tokens = len(q), q.shape[2]
    if queries is None:
        return torch.full((1, tokens), 1 / tokens, dtype=table_dtype(q.device), device=q.device)
    if queries.dtype != torch.bool or queries.device != q.device or queries.shape not in ((1, tokens), (rows, tokens)):
        raise ConfigError(
            f"queries must be a bool tensor [{rows} or 1, {tokens}] on {q.device}, True for the queries to average "
            f"over, got {queries.dtype} {tuple(queries.shape)} on {queries.device}"
        )
    counts = queries.sum(-1, keepdim=True)
    if not counts.all():
        row = int(counts[:, 0].argmin())
        raise ConfigError(
            f"queries must select at least one query in every row, got none in row {row}; leave the row out"
        )
    return queries.to(table_dtype(q.device)) / counts


def visible_keys(mask: Mask, device: torch.device) -> Int[Tensor, "#b i"]:
    """Return how many keys are visible to each query: the row sums of `mask.visible`, without the matrix."""
    index = torch.arange(mask.keys, device=device)
    query_index = index[mask.keys - mask.queries :]
    low = torch.zeros_like(query_index)
    high = query_index if mask.causal else torch.full_like(query_index, mask.keys - 1)
    if mask.window is not None:
        low = (query_index - mask.window + 1).clamp(min=0)
        high = torch.minimum(high, query_index + (mask.window - 1))
    if mask.documents is None:
        return (high - low + 1)[None]
    # Combine document and index of every token into one number, so that sorting groups the tokens of a document.
    document = mask.documents.to(device).unique(return_inverse=True)[1] * mask.keys
    ordered, base = (document + index).sort(-1).values, document[:, mask.keys - mask.queries :]
    end = torch.searchsorted(ordered, base + high, right=True)
    return end - torch.searchsorted(ordered, base + low)
