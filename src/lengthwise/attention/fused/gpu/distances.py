"""The gradient of table: launch bias_gradients.py. And fixed-point numbers, in which kernels add up gradients."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lengthwise.attention.fused.gpu import tiles
from lengthwise.attention.fused.gpu.call import Blocks, Call
from lengthwise.attention.fused.gpu.tiles import Case

_COLUMNS = 64  # that a program of sum_columns writes
_ENDS = 1024  # numbers that it adds at once to the sums of the ends
_SUM_DTYPE = torch.float64  # for sums over programs, which are few; most of a bias gradient cancels


class FixedPoint(NamedTuple):
    """Factors that convert gradients to 64-bit fixed-point numbers whose sums cannot overflow, and whether all are
    finite.

    The factors are for table (and rows), intercept and slope.
    """

    scales: Tensor
    all_finite: Tensor

    def decode(self, sums: Tensor, n: int) -> Tensor:
        """Return sums computed with the n-th factor as float64; NaN if some of the numbers were not finite."""
        return torch.where(self.all_finite, sums.double() / self.scales[n], math.nan)


def write_table_gradient(
    call: Call,
    head_views: list[Any],
    lse: Tensor,
    delta: Tensor,
    sink_gradient: Tensor | None,
    fixed_point: FixedPoint | None,
    size: Blocks,
    gradient: Tensor,
) -> None:
    """Write the gradient of table into `gradient`.

    sink_gradient [h]: that of the sinks, if there are any.
    """
    from lengthwise.attention.fused.gpu.bias_gradients import distance_gradients, position_gradients

    case, arguments, (b, h, _) = call.case, call.arguments, lse.shape
    block = size.queries
    lists = tiles.by_distance(case, block) if call.needs_lists else None
    lines, below = tiles.lines_at_distances(case, block)
    regular = None if arguments.position_q is None else _regular(case)

    def launch(kernel: Any, sums: Tensor) -> None:
        kernel[(b * h * lines,)](
            *head_views, lse, delta, sums, fixed_point and fixed_point.scales, regular, call.args, call.tiles(lists),
            call.sizes, **call.factors, lines=lines, below=below, **call.constants, B=block, num_warps=size.warps,
            num_stages=size.stages,
        )  # fmt: skip

    # If positions are not regular, distance_gradients writes nothing.
    new = lse.new_empty if regular is None else lse.new_zeros
    table_tiles = new((b * h, lines, 2, block), dtype=_SUM_DTYPE)
    launch(distance_gradients, table_tiles)
    start = call.keys - call.queries - (below + 1) * block  # the distance of the first entry
    _sum_columns(table_tiles, start - arguments.table_first, gradient, h)
    if regular is not None and fixed_point is not None:
        sums = torch.zeros_like(gradient, dtype=torch.long)
        launch(position_gradients, sums)
        gradient += fixed_point.decode(sums, 0)
    _write_last_column(gradient, sink_gradient, _far_tiles(case, lists, block))


def _far_tiles(case: Case, lists: tuple[Tensor, Tensor] | None, block: int) -> bool | Tensor:
    """Return whether `distance_gradients` left out tiles that lie past the last entry of the table."""
    if lists is not None:
        from lengthwise.attention.fused.gpu.parts import FAR, KNOTS

        _, ends = lists
        return (ends[..., FAR.value] > ends[..., KNOTS.value]).any()
    table, first, window = case.arguments.table, case.arguments.table_first, case.arguments.window
    assert table is not None
    nearest, last = case.keys - case.queries - block + 1, first + table.shape[1] - 1  # of the diagonal through 0
    lines, below = tiles.lines_at_distances(case, block)
    diagonal = max(-below, -(-(last - nearest) // block))  # the first past the last entry
    return diagonal < lines - below and (not window or nearest + diagonal * block < window)


def _write_last_column(dtable: Tensor, sink_gradient: Tensor | None, far: bool | Tensor) -> None:
    """Write the gradient of the last entry as what the others leave, if tiles were left out.

    The gradients of a query's logits sum to 0, those of a sink included. A column without such tiles keeps its own sum,
    so that the gradient of an entry that no pair has is exactly 0.
    """
    if far is False:
        return
    others = dtable[:, :-1].sum(1, dtype=_SUM_DTYPE)
    if sink_gradient is not None:
        others += sink_gradient.double().view(len(dtable), -1).sum(1)
    last = dtable[:, -1]
    last.copy_(-others if far is True else torch.where(far, -others, last))


def _sum_columns(tile_sums: Tensor, start: int, gradient: Tensor, heads: int) -> None:
    """Write the sums of diagonals of `distance_gradients` into a gradient [heads or 1, columns].

    start: the column of the first entry.
    """
    from lengthwise.attention.fused.gpu.bias_gradients import sum_columns

    pairs, lines, _, block = tile_sums.shape
    rows, columns = gradient.shape
    programs = -(-columns // _COLUMNS)
    sum_columns[(rows * programs,)](
        tile_sums, gradient, pairs // rows, heads // rows, lines, start, columns, programs, B=block, COLUMNS=_COLUMNS,
        CHUNK=_ENDS, num_warps=4,
    )  # fmt: skip


def _regular(case: Case) -> Tensor:
    """Return 1 if the distance of every visible pair is that of its indices, else 0."""
    position_q, position_k, documents = case.arguments.position_q, case.arguments.position_k, case.arguments.documents
    assert position_q is not None and position_k is not None
    at = torch.arange(case.keys, device=case.device)
    shift, shift_q = position_k - at, position_q - at[case.keys - case.queries :]
    same = (shift[:, case.keys - case.queries :] == shift_q).all()
    if documents is None:
        return (same & (shift == shift[:, :1]).all()).to(torch.int32)[None]
    shift, documents = torch.broadcast_tensors(shift, documents)
    documents, order = documents.sort(dim=1, stable=True)
    shift = shift.gather(1, order)
    agree = (shift[:, 1:] == shift[:, :-1]) | (documents[:, 1:] != documents[:, :-1])
    return (same & agree.all()).to(torch.int32)[None]


def row_sum_scale(call: Call, grad: Tensor) -> Tensor:
    """Return the factor, [1] in float64, that converts the sum of the gradients of a query's logits to a fixed-point
    number.

    The sum of their magnitudes is at most 2 |gradient| |value|. A value may have a vector added to it. NaN and infinity
    are left out, so that they do not reach other queries than those that see them.
    """
    gradient, value, *vector = (
        x.abs().nan_to_num_(nan=0.0, posinf=0.0).amax().double() for x in (grad, call.v, call.values) if x is not None
    )
    return _fixed_point_scale(gradient * sum(vector, value) * (4 * call.dim))[None]


def _fixed_point_scale(bound: Tensor) -> Tensor:
    """Return factors that convert numbers up to `bound` to 64-bit integers."""
    return torch.exp2(torch.floor(60 - torch.log2(bound.clamp(min=1e-18))))


def fixed_point_for(call: Call, grad: Tensor, lse: Tensor, delta: Tensor) -> FixedPoint:
    """Return the fixed-point numbers of a call.

    The bound: the gradient of a logit is its weight times at most 2 |gradient| |value|, and the weights of a row sum to
    1. A value may have a vector added to it.
    """
    gradient, value, *vector = (x.float().norm(dim=-1).amax() for x in (grad, call.v, call.values) if x is not None)
    max_gradient_sum = gradient * sum(vector, value) * 4 * lse.numel()
    one = torch.ones_like(max_gradient_sum)
    tensors = call.arguments.distance_feature, call.arguments.query_scale
    distance_feature, query_scale = (one if x is None else x.abs().amax() for x in tensors)
    bound = torch.stack([one, one, distance_feature * query_scale]) * max_gradient_sum
    all_finite = bound.isfinite().all() & lse.isfinite().all() & delta.isfinite().all()
    return FixedPoint(_fixed_point_scale(bound), all_finite)
