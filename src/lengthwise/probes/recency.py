"""Where the last question of a prompt looks, and what of it is induction: weights of attention to examples."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.models import Model
from lengthwise.probes.rows import Call, block_rows, calls_of

Numbers = Float[Tensor, "b t w"]


@torch.no_grad()
def last_question(
    model: Model, inputs: Numbers, positions: Int[Tensor, "#b t"] | None = None
) -> list[Float[Tensor, "b h t"]]:
    """The weights of the last x of prompts x_1, y_1, ..., x_n, y_n on all tokens, of each layer. Of an attention matrix only that
    row is worked out."""
    query = inputs.shape[1] - 2
    return [call.row(query).softmax(-1) for call in calls_of(model, inputs, positions)]


def of_labels(weights: Float[Tensor, "*b t"]) -> Float[Tensor, "*b n"]:
    """On the y tokens that the last x sees: all but its own."""
    return weights[..., 1:-1:2]


def of_inputs(weights: Float[Tensor, "*b t"]) -> Float[Tensor, "*b n"]:
    """On the x tokens, the last one's own among them."""
    return weights[..., 0::2]


# ---- induction ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mass:
    """`shares` [l, b, h]: the mean over the queries of the weights on what is looked for. `uniform`: what it would be if every
    token that a query sees had the same weight."""

    shares: Float[Tensor, "l b h"]
    uniform: float


@torch.no_grad()
def induction(model: Model, inputs: Numbers, points: int, positions: Int[Tensor, "#b t"] | None = None) -> Mass:
    """Of prompts that repeat their first `points` examples: the weights that a repeated x has on the y's of all its earlier
    occurrences, in each layer and head. 1: a head that looks for nothing else."""
    wanted = earlier_labels(inputs.shape[1], points).to(inputs.device)
    queries = wanted.any(-1)
    return _mass(model, inputs, positions, queries, lambda rows, keys: wanted[rows, keys])


@torch.no_grad()
def nearest(
    model: Model,
    inputs: Numbers,
    start: int,
    neighbours: int = 1,
    positions: Int[Tensor, "#b t"] | None = None,
) -> Mass:
    """The weights that the x's from the `start`-th on (the first is 1) have on the y's of the `neighbours` earlier x's that are
    most similar to them by cosine; of equals, the earliest."""
    wanted = nearest_labels(inputs[:, 0::2], start, neighbours)
    queries = torch.zeros(inputs.shape[1], dtype=torch.bool, device=inputs.device)
    queries[2 * (start - 1) :: 2] = True
    return _mass(model, inputs, positions, queries, lambda rows, keys: wanted[:, None, rows, keys])


def earlier_labels(tokens: int, points: int) -> Bool[Tensor, "t t"]:
    """[query, key]: the query is an x, and the key the y of an earlier occurrence of it."""
    place = torch.arange(tokens)
    example, is_y = place // 2, place % 2 == 1
    same = example[:, None] % points == example[None] % points
    return same & ~is_y[:, None] & is_y[None] & (example[:, None] > example[None])


def nearest_labels(xs: Float[Tensor, "b n d"], start: int, neighbours: int) -> Bool[Tensor, "b t t"]:
    """[prompt, query, key]: the query is an x from the `start`-th on, and the key the y of one of its nearest x's before it."""
    unit = torch.nn.functional.normalize(xs.double(), dim=-1)
    # Rounding alone makes equals differ: a product of corners of a cube is as good as one of exact numbers.
    similar = (unit @ unit.mT).mul(1e9).round()
    count, length, _ = xs.shape
    wanted = torch.zeros(count, 2 * length, 2 * length, dtype=torch.bool, device=xs.device)
    for n in range(start - 1, length):
        order = similar[:, n, :n].sort(dim=-1, descending=True, stable=True).indices[:, :neighbours]
        wanted[:, 2 * n].scatter_(1, 2 * order + 1, True)
    return wanted


def _mass(
    model: Model,
    inputs: Numbers,
    positions: Tensor | None,
    queries: Bool[Tensor, " t"],
    wanted: Callable[[slice, slice], Tensor],
) -> Mass:
    layers = [_layer(call, queries, wanted) for call in calls_of(model, inputs, positions)]
    places = torch.arange(inputs.shape[1], device=inputs.device)
    every = wanted(slice(None), slice(None)).sum(-1) / (places + 1)
    return Mass(torch.stack(layers), float(every[..., queries].mean()))


def _layer(call: Call, queries: Bool[Tensor, " t"], wanted: Callable[[slice, slice], Tensor]) -> Float[Tensor, "b h"]:
    total = call.q.new_zeros(call.q.shape[:2], dtype=torch.float64)
    for rows, keys, logits in call.blocks(block_rows(call.q.device, len(call.q) * call.mask.keys * call.heads)):
        if bool(queries[rows].any()):
            total += (logits.softmax(-1) * wanted(rows, keys)).sum((-1, -2))
    return total / int(queries.sum())
