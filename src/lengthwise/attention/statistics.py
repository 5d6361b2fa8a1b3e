"""What attention looks at, in numbers, without its matrix: mass by distance, entropy, mass on the first and last keys.

Pure PyTorch, some queries at a time, serves every form on any device; what the kernel on a CPU serves is one pass of
it. Memory is O(T · bins), beside that of a block.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.attention import fused, reference
from lengthwise.attention.masks import Mask
from lengthwise.attention.slices import blocks_of, sliced
from lengthwise.attention.tables import spread
from lengthwise.forms import AttentionModifiers, table_dtype
from lengthwise.positions import consecutive
from lengthwise.span import Span
from lengthwise.values import ConfigError, require_whole

_LOGITS = {"cpu": 1 << 18, "other": 1 << 25}  # that are worked on at a time


@dataclass(frozen=True)
class Statistics:
    """Means over the queries that were asked for, of each row of the batch and head, in float64.

    With p_ij = softmax_j(logit_ij) over the keys j that query i sees, the weight of key j (a share of 1), and the
    distance d_ij = position of i - position of j:

    - `histogram` [b, h, n]: mean_i of the sum of p_ij over the keys whose distance is in bin n. The m ascending `edges` part
      all distances into m + 1 bins: bin n has the distances at least edges[n-1] and below edges[n]; the first has no lower
      end, the last no upper one. So the bins sum to 1. `bins` says which distances each has.
    - `entropy` [b, h], in nats: mean_i of H_i, H_i = -Σ_j p_ij ln p_ij. exp(H_i) is the number of keys over which even
      weights would be as spread out.
    - `most_entropy` [b|1, 1], in nats: mean_i of ln(keys that i sees), what `entropy` would be if all weights were even.
      entropy / most_entropy is from 0 (one key has all) to 1 (even); 0/0 where each query sees one key.
    - `first` [b, h]: mean_i of the sum of p_ij over the `first_keys` first keys of i's document (attention sinks).
    - `last` [b, h]: mean_i of the sum of p_ij over the `last_keys` last keys of i's document up to i, i's own among them.
      A key may be among the first and the last.

    First and last are of indices, as masks are, and distance is of positions. A key that a window hides has weight 0, and
    counts as one of the first all the same.

    `query_entropy` [b, h, i] is H_i, and `query_keys` [b|1, i] how many keys i sees, of all queries.
    """

    edges: tuple[int, ...]
    first_keys: int
    last_keys: int
    histogram: Float[Tensor, "b h n"]
    entropy: Float[Tensor, "b h"]
    most_entropy: Float[Tensor, "#b 1"]
    first: Float[Tensor, "b h"]
    last: Float[Tensor, "b h"]
    query_entropy: Float[Tensor, "b h i"]
    query_keys: Int[Tensor, "#b i"]

    @property
    def bins(self) -> list[tuple[int | None, int | None]]:
        """The nearest and the furthest distance of each bin; None where there is no end.

        With edges 1, 2, 4: up to 0, 1, 2 to 3, from 4 on.
        """
        low = (None, *self.edges)
        high = (*(edge - 1 for edge in self.edges), None)
        return list(zip(low, high, strict=True))


def doubling(reach: int, causal: bool) -> tuple[int, ...]:
    """The edges of bins that double, for distances below `reach`: 0, 1, 2-3, 4-7, ...; both ways where not causal.

    >>> doubling(8, True), doubling(8, False)
    ((1, 2, 4), (-3, -1, 0, 1, 2, 4))
    """
    back = [1 << n for n in range((reach - 1).bit_length())] if reach > 1 else []
    return tuple(back) if causal else (*(1 - edge for edge in reversed(back)), *back)


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
    edges: Sequence[int] | None = None,
    first: int = 4,
    last: int = 16,
) -> Statistics:
    """The statistics of one call of attention as backends see it; see `attention.statistics`. No gradients."""
    require_whole("attention statistics", 1, first=first, last=last)
    edges = doubling(span.reach, mask.causal) if edges is None else ascending(edges)
    shares = shares_of(q, queries)
    modifiers = replace(modifiers, values=())  # what is added to the output changes no weight
    ask = _Asked(modifiers, span, mask, scale, edges, first, last)
    refused = fused.refuses_statistics(modifiers, span, mask, q)
    numbers = ask.of_blocks(q, k) if refused else ask.of_kernel(q, k)
    # A sum and no product of matrices, whose order of additions depends on the number of threads on some processors.
    mean = (numbers * shares[:, None, :, None]).sum(2)
    seen = visible_keys(mask, q.device)
    even = (seen.to(shares.dtype).log() * shares).sum(-1, keepdim=True)
    return Statistics(
        edges,
        first,
        last,
        histogram=mean[..., :-3].clone(),
        entropy=mean[..., -3].clone(),
        most_entropy=even,
        first=mean[..., -2].clone(),
        last=mean[..., -1].clone(),
        query_entropy=numbers[..., -3].clone(),
        query_keys=seen,
    )


def ascending(edges: Sequence[Any]) -> tuple[int, ...]:
    """`edges`, or a `ConfigError` where they are none."""
    given = tuple(edges)
    if any(type(edge) is not int or abs(edge) >= 1 << 62 for edge in given):
        raise ConfigError(f"the edges of bins are {given}; they have to be whole numbers, distances between tokens")
    wrong = next((n for n in range(1, len(given)) if given[n] <= given[n - 1]), None)
    if wrong is not None:
        raise ConfigError(
            f"the edges of bins are not ascending: {given[wrong]} comes after {given[wrong - 1]}; sort them, each once"
        )
    return given


def shares_of(q: Float[Tensor, "b h i d"], queries: Tensor | None) -> Float[Tensor, "#b i"]:
    """What each query counts in the means: 1/n for the n that are asked for, 0 for the others."""
    rows, tokens = len(q), q.shape[2]
    if queries is None:
        return torch.full((1, tokens), 1 / tokens, dtype=table_dtype(q.device), device=q.device)
    given = f"queries is {queries.dtype} {tuple(queries.shape)}"
    if queries.dtype != torch.bool or queries.ndim != 2 or queries.shape[1] != tokens or len(queries) not in (1, rows):
        raise ConfigError(f"{given}; it has to be bool [{rows} or 1, {tokens}], true for those that the means are over")
    if queries.device != q.device:
        raise ConfigError(f"queries is on {queries.device}, and q on {q.device}; move one to the other's device")
    counts = queries.sum(-1, keepdim=True)
    if not counts.all():
        row = int(counts[:, 0].argmin())
        raise ConfigError(f"queries asks for none in row {row}, and there is no mean of nothing; leave the row out")
    return queries.to(table_dtype(q.device)) / counts


def visible_keys(mask: Mask, device: torch.device) -> Int[Tensor, "#b i"]:
    """How many keys each query sees: the sums of the rows of `mask.visible`, without the matrix."""
    index = torch.arange(mask.keys, device=device)
    own = index[mask.keys - mask.queries :]
    low, high = torch.zeros_like(own), own if mask.causal else torch.full_like(own, mask.keys - 1)
    if mask.window is not None:
        low, high = (own - mask.window + 1).clamp(min=0), torch.minimum(high, own + (mask.window - 1))
    if mask.documents is None:
        return (high - low + 1)[None]
    # Every token's document and index as one number: in their order a document's tokens lie side by side.
    document = mask.documents.to(device).unique(return_inverse=True)[1] * mask.keys
    placed, base = (document + index).sort(-1).values, document[:, mask.keys - mask.queries :]
    upto = torch.searchsorted(placed, base + high, right=True)
    return upto - torch.searchsorted(placed, base + low)


@dataclass(frozen=True)
class _Asked:
    modifiers: AttentionModifiers
    span: Span
    mask: Mask
    scale: float
    edges: tuple[int, ...]
    first: int
    last: int

    def rank(self, device: torch.device) -> Int[Tensor, "#b j"]:
        """How many keys of its own document come before each key."""
        if self.mask.documents is None:
            return torch.arange(self.mask.keys, device=device)[None]
        return consecutive(self.mask.documents.to(device))

    def of_kernel(self, q: Tensor, k: Tensor) -> Float[Tensor, "b h i m"]:
        """What `of_blocks` finds, by one pass of the kernel."""
        edges = torch.tensor(self.edges, dtype=torch.long)
        rank = None if self.mask.documents is None else self.rank(q.device)
        return fused.statistics(
            self.modifiers, self.span, self.mask, q, k, self.scale, edges, rank, self.first, self.last
        )

    def of_blocks(self, q: Tensor, k: Tensor) -> Float[Tensor, "b h i m"]:
        """Of every query the mass in each bin, the entropy, and the mass on the first and the last keys."""
        with torch.autocast(q.device.type, enabled=False):  # under it products would be in half precision
            compute, device = torch.promote_types(q.dtype, torch.float32), q.device
            q, k = q.to(compute), k.to(compute).repeat_interleave(q.shape[1] // k.shape[1], 1)
            most = _LOGITS["cpu" if device.type == "cpu" else "other"] // max(1, len(q) * q.shape[1] * self.mask.keys)
            slices = list(blocks_of(self.mask, min(max(most, 1), 256)))
            edges, rank = torch.tensor(self.edges, dtype=torch.long, device=device), self.rank(device)
            out = torch.empty(*q.shape[:3], len(self.edges) + 4, dtype=table_dtype(device), device=device)
            each = zip(slices, sliced(self.modifiers, self.span, slices), strict=True)
            for (rows, keys), (modifiers, span) in each:
                visible = self.mask.visible(device, rows, keys)[:, None]
                logits = reference.logits(modifiers, q[:, :, rows], k[:, :, keys], span, visible, self.scale)
                weights = logits.masked_fill(~visible, -math.inf).softmax(-1).to(table_dtype(device))
                column = torch.bucketize(span.distance(), edges, right=True)[:, None].expand_as(weights)
                own, of_key = rank[:, self.mask.keys - self.mask.queries :][:, rows, None], rank[:, None, keys]
                back = own - of_key
                masses = [of_key < self.first, (back >= 0) & (back < self.last)]
                row = out[:, :, rows]
                row[..., :-3] = spread(weights, column, len(self.edges) + 1)
                row[..., -3] = torch.special.entr(weights).sum(-1)
                for n, mass in enumerate(masses):
                    row[..., n - 2] = (weights * mass[:, None]).sum(-1)
            return out
