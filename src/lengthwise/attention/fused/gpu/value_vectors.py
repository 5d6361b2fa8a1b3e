"""Vectors of distances that are added to values: what output and gradients need besides the kernels without them.

They have the same distances as `rows`. The output is that of attention plus the product of each query's sums of weights
by distance (weights.py) and the vectors. In the backward pass, the gradient of a weight is <dO, v_j> + <dO, vector>;
the second product is a table with a row for each query, like `rows`.
"""

import math

import torch
from torch import Tensor

from lengthwise.attention.fused.gpu.call import Blocks, Call
from lengthwise.attention.fused.products import add_product_over_queries, block_product

_UNITS = 2.0**60  # of a fixed-point number in 1; the weights of a query sum to at most 1


def sums_of_weights(
    call: Call, lse: Tensor, size: Blocks, lists: tuple[Tensor, Tensor] | None, splits: int = 1
) -> Tensor:
    """Return the sum of each query's weights for every distance, [b, h, i, r]; see `forward` for the arguments."""
    from lengthwise.attention.fused.gpu.weights import weights_by_distance

    rows, first = call.arguments.rows, call.arguments.rows_first
    assert rows is not None
    repeats = call.arguments.position_q is not None  # whether a distance may occur several times in a row
    # No distance is below the first, so all weights of FAR tiles belong to the last one, which gets what the others
    # leave.
    near_only = call.arguments.causal and not repeats and first <= 0
    sums = lse.new_zeros(*lse.shape, rows.shape[3], dtype=torch.long if repeats else lse.dtype)
    ends = lse.new_empty(splits, 2, *lse.shape)
    count = -(-call.queries // size.queries)
    weights_by_distance[(call.batch * call.heads * count * splits,)](
        call.view(call.q), call.view(call.k), lse, sums, ends, lse.new_full((1,), _UNITS) if repeats else None,
        call.args, call.tiles(lists), call.sizes, **call.factors, blocks=count, splits=splits,
        NEAR_ONLY=near_only, **call.constants, BM=size.queries, BN=size.keys, num_warps=size.warps,
        num_stages=size.stages,
    )  # fmt: skip
    if repeats:  # a fixed-point number cannot be NaN
        sums = torch.where(lse.isfinite()[..., None], sums / _UNITS, math.nan)
    low, high = ends.sum(0)
    sums[..., 0] += low
    if near_only:
        total = 1.0 if call.sink is None else 1 - (call.sink[:, None] - lse).exp()
        high = torch.where(lse.isfinite(), total - sums[..., :-1].sum(-1), math.nan)
    sums[..., -1] += high
    return sums


def value_rows(values: Tensor, grad: Tensor) -> Tensor:
    """Return the products of every query's gradient and the vectors, [b, h, i, r]."""
    return block_product(grad, values.mT)


def write_gradient(dvalues: Tensor, sums: Tensor, grad: Tensor) -> None:
    """Write the gradient of the vectors [h|1, r, d]: the sums of weights times the gradients of the outputs."""
    total = dvalues.new_zeros(sums.shape[1], *dvalues.shape[1:])
    add_product_over_queries(total, sums, grad)
    dvalues.copy_(total if len(dvalues) == len(total) else total.sum(0, keepdim=True))
