"""The gradients of table, slope, intercept and distance_feature: launch bias_gradients.py and sum its results."""

import math
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention.fused.buffers import Gradients
from lengthwise.attention.fused.gpu import tiles
from lengthwise.attention.fused.gpu.call import Blocks, Call, padded
from lengthwise.attention.fused.gpu.tiles import Case

_SUM_DTYPE = torch.float64  # for sums over programs, which are few; most of a bias gradient cancels


def sum_dtype(q: Tensor) -> torch.dtype:
    """Return the dtype in which kernels sum gradients of logits: that of `_to_sum_dtype` in parts.py."""
    return _SUM_DTYPE if q.dtype == torch.float32 else torch.float32


def write_bias_gradients(
    call: Call, head_views: list[Any], lse: Tensor, delta: Tensor, end_sums: Tensor | None,
    fixed_point_scale: Tensor | None, all_finite: Tensor | None, sizes: tuple[Blocks, Blocks], gradients: Gradients,
    needs_table_grad: bool, needs_segment_grads: bool,
) -> None:  # fmt: skip
    """Write the gradients of table, slope, intercept and distance_feature into `gradients`."""
    from lengthwise.attention.fused.gpu.bias_gradients import distance_gradients, position_gradients

    case, (b, h, _) = call.case, lse.shape
    _, _, _, dtable, dslope, dintercept, du, _, _ = gradients
    coarse, size = sizes
    order, stops, below = tiles.by_distance(case, size.queries, (coarse.queries, coarse.keys))
    lines, block = order.shape[1], size.queries
    slots = 1 if case.slope is None or case.many_segments else padded(case.slope.shape[1])
    regular = None if case.position_q is None else _regular(case)

    def launch(
        kernel: Any, table: Tensor | None, distance_feature: Tensor | None, segments: Tensor | None, **more: Any
    ) -> None:
        kernel[(b * h * lines,)](
            *head_views, lse, delta, table, distance_feature, segments, fixed_point_scale, regular, call.bias,
            call.tokens, call.tiles((order, stops)), call.sizes, **call.factors, lines=lines, below=below,
            TABLE_GRAD=needs_table_grad, SEGMENT_GRADS=needs_segment_grads, **call.constants, B=block,
            num_warps=size.warps, num_stages=size.stages, **more,
        )  # fmt: skip

    table_tiles = lse.new_zeros(b * h, lines, 2, block, dtype=_SUM_DTYPE) if needs_table_grad else None
    feature_tiles = lse.new_zeros(b * h, lines, 2, block, dtype=_SUM_DTYPE) if needs_segment_grads else None
    sums = (
        lse.new_zeros(b * h, lines, 2, slots, dtype=sum_dtype(call.q))
        if needs_segment_grads and not case.many_segments
        else None
    )
    fixed_point = dict.fromkeys(("table", "distance_feature", "segments"))
    if needs_segment_grads and (case.many_segments or regular is not None):
        assert case.slope is not None and case.distance_feature is not None
        fixed_point["segments"] = torch.zeros((2, *case.slope.shape), dtype=torch.long, device=lse.device)
    launch(
        distance_gradients,
        table_tiles,
        feature_tiles,
        fixed_point["segments"] if case.many_segments else sums,
        SLOTS=slots,
    )
    if regular is not None:
        if needs_table_grad:
            fixed_point["table"] = torch.zeros_like(dtable, dtype=torch.long)
        if needs_segment_grads:
            fixed_point["distance_feature"] = torch.zeros_like(du, dtype=torch.long)
        launch(position_gradients, fixed_point["table"], fixed_point["distance_feature"], fixed_point["segments"])

    offset = call.keys - call.queries
    start = offset - (below + 1) * block  # the distance of the first entry
    if table_tiles is not None:
        assert case.table is not None and end_sums is not None
        total = _fold_into_columns(
            _unfold(table_tiles.view(b, h, lines, 2, block).sum(0)), start - case.first, dtable.shape[1]
        )
        total[:, 0] += end_sums[0].sum((0, 2), dtype=_SUM_DTYPE)
        total[:, -1] += end_sums[1].sum((0, 2), dtype=_SUM_DTYPE)
        dtable.copy_(total if len(dtable) == h else total.sum(0, keepdim=True))
        if fixed_point["table"] is not None:
            dtable += from_fixed_point(fixed_point["table"], fixed_point_scale[0], all_finite)  # type: ignore[index]
    if feature_tiles is not None:
        total = _unfold(feature_tiles.view(1, b * h, lines, 2, block).sum(1))
        du.copy_(_fold_into_columns(total, start, len(du))[0])
        if fixed_point["distance_feature"] is not None:
            du += from_fixed_point(fixed_point["distance_feature"], fixed_point_scale[1], all_finite)  # type: ignore[index]
        for n, to in enumerate((dintercept, dslope)):
            to.zero_()
            if sums is not None:
                heads = sums.view(b, h, lines, 2, slots).sum((0, 2), dtype=_SUM_DTYPE)[:, n, : to.shape[1]]
                to += heads if len(to) == h else heads.sum(0, keepdim=True)
            if fixed_point["segments"] is not None:
                to += from_fixed_point(fixed_point["segments"][n], fixed_point_scale[2 + n], all_finite)  # type: ignore[index]


def _unfold(x: Tensor) -> Tensor:
    """Return [h, lines, 2, block] as [h, (lines + 1) block], adding the second half of a line to the first half of the next."""
    total = x.new_zeros(x.shape[0], x.shape[1] + 1, x.shape[3])
    total[:, :-1] += x[:, :, 0]
    total[:, 1:] += x[:, :, 1]
    return total.flatten(1)


def _fold_into_columns(x: Tensor, start: int, size: int) -> Tensor:
    """Return sums by distance [h, m], which begin at column `start`, as columns [h, size]; those past an end are added to it."""
    total = x.new_zeros(len(x), size)
    low, high = (min(max(n, 0), x.shape[1]) for n in (1 - start, size - 1 - start))
    total[:, 0] += x[:, :low].sum(1)
    if size > 1:
        total[:, low + start : high + start] += x[:, low:high]
    total[:, -1] += x[:, max(low, high) :].sum(1)
    return total


def _regular(case: Case) -> Tensor:
    """Return 1 if the distance of every visible pair is that of its indices, else 0."""
    assert case.position_q is not None and case.position_k is not None
    at = torch.arange(case.keys, device=case.device)
    shift, shift_q = case.position_k - at, case.position_q - at[case.keys - case.queries :]
    same = (shift[:, case.keys - case.queries :] == shift_q).all()
    if case.documents is None:
        return (same & (shift == shift[:, :1]).all()).to(torch.int32)[None]
    shift, documents = torch.broadcast_tensors(shift, case.documents)
    documents, order = documents.sort(dim=1, stable=True)
    shift = shift.gather(1, order)
    agree = (shift[:, 1:] == shift[:, :-1]) | (documents[:, 1:] != documents[:, :-1])
    return (same & agree.all()).to(torch.int32)[None]


def fixed_point_scales(call: Call, grad: Tensor, lse: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors that convert gradients to 64-bit fixed-point numbers whose sums cannot overflow, and if all are finite.

    The factors are for table, distance_feature, intercept and slope. The bound: the gradient of a logit is its weight times at
    most 2 |gradient| |value|, and the weights of a row sum to 1.
    """
    case = call.case
    max_gradient_sum = (grad.float().norm(dim=-1).amax() * call.v.float().norm(dim=-1).amax()) * 4 * lse.numel()
    one = torch.ones_like(max_gradient_sum)
    slope, distance_feature, query_scale = (
        one if x is None else x.abs().amax() for x in (case.slope, case.distance_feature, case.query_scale)
    )
    bound = torch.stack([one, slope * query_scale, one, distance_feature * query_scale]) * max_gradient_sum
    all_finite = bound.isfinite().all() & lse.isfinite().all() & delta.isfinite().all()
    return torch.exp2(torch.floor(60 - torch.log2(bound.clamp(min=1e-18)))), all_finite


def from_fixed_point(x: Tensor, fixed_point_scale: Tensor, all_finite: Tensor | None) -> Tensor:
    """Return fixed-point sums as float64; NaN if some of the numbers were not finite."""
    assert all_finite is not None
    return torch.where(all_finite, x.double() / fixed_point_scale, math.nan)
