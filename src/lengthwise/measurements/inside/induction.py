"""The attention to what followed the same x, or a similar one, earlier in the prompt."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.measurements.inside.attention import AttentionCall, attention_calls, block_rows
from lengthwise.models import Model

Numbers = Float[Tensor, "b t w"]


@dataclass(frozen=True)
class AttentionMass:
    """`shares` [l, b, h]: the weight on the target tokens, as the mean over the queries. `uniform`: the same for a
    head with equal weights on all tokens that a query sees."""

    shares: Float[Tensor, "l b h"]
    uniform: float


@torch.no_grad()
def induction(
    model: Model, inputs: Numbers, points: int, positions: Int[Tensor, "#b t"] | None = None
) -> AttentionMass:
    """Return the weight of each repeated x on the y's of all its earlier occurrences, for each layer and head.

    The prompts must repeat their first `points` examples. A share of 1 means that a head attends to nothing else.
    """
    targets = earlier_labels(inputs.shape[1], points).to(inputs.device)
    queries = targets.any(-1)
    return _attention_mass(model, inputs, positions, queries, lambda rows, keys: targets[rows, keys])


@torch.no_grad()
def nearest(
    model: Model,
    inputs: Numbers,
    start: int,
    neighbours: int = 1,
    positions: Int[Tensor, "#b t"] | None = None,
) -> AttentionMass:
    """Return the weight of each x from the `start`-th on (counted from 1) on the y's of its nearest earlier x's.

    These are the `neighbours` earlier x's with the highest cosine similarity; of equal ones, the earliest.
    """
    targets = nearest_labels(inputs[:, 0::2], start, neighbours)
    queries = torch.zeros(inputs.shape[1], dtype=torch.bool, device=inputs.device)
    queries[2 * (start - 1) :: 2] = True
    return _attention_mass(model, inputs, positions, queries, lambda rows, keys: targets[:, None, rows, keys])


def earlier_labels(tokens: int, points: int) -> Bool[Tensor, "t t"]:
    """Return [query, key]: True if the query is an x, and the key is the y of an earlier occurrence of it."""
    index = torch.arange(tokens)
    example, is_y = index // 2, index % 2 == 1
    same = example[:, None] % points == example[None] % points
    return same & ~is_y[:, None] & is_y[None] & (example[:, None] > example[None])


def nearest_labels(xs: Float[Tensor, "b n d"], start: int, neighbours: int) -> Bool[Tensor, "b t t"]:
    """Return whether a query is an x from `start` on and a key the y of one of the nearest x's before it."""
    unit = torch.nn.functional.normalize(xs.double(), dim=-1)
    # Rounding to 1e-9 makes equal similarities compare equal, as between corners of a cube.
    similarity = (unit @ unit.mT).mul(1e9).round()
    count, length, _ = xs.shape
    targets = torch.zeros(count, 2 * length, 2 * length, dtype=torch.bool, device=xs.device)
    for n in range(start - 1, length):
        order = similarity[:, n, :n].sort(dim=-1, descending=True, stable=True).indices[:, :neighbours]
        targets[:, 2 * n].scatter_(1, 2 * order + 1, True)
    return targets


def _attention_mass(
    model: Model,
    inputs: Numbers,
    positions: Tensor | None,
    queries: Bool[Tensor, " t"],
    targets: Callable[[slice, slice], Tensor],
) -> AttentionMass:
    layers = [_layer(call, queries, targets) for call in attention_calls(model, inputs, positions)]
    index = torch.arange(inputs.shape[1], device=inputs.device)
    uniform = targets(slice(None), slice(None)).sum(-1) / (index + 1)
    return AttentionMass(torch.stack(layers), float(uniform[..., queries].mean()))


def _layer(
    call: AttentionCall, queries: Bool[Tensor, " t"], targets: Callable[[slice, slice], Tensor]
) -> Float[Tensor, "b h"]:
    total = call.q.new_zeros(call.q.shape[:2], dtype=torch.float64)
    for rows, keys, logits in call.blocks(block_rows(call.q.device, len(call.q) * call.mask.keys * call.heads)):
        if bool(queries[rows].any()):
            total += (logits.softmax(-1) * targets(rows, keys)).sum((-1, -2))
    return total / int(queries.sum())
