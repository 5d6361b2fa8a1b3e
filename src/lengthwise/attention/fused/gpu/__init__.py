"""The Triton kernels behind operator.py: fused attention on a GPU, forward and backward.

Any head dim up to 256, any number of tokens and documents, float32 (products in float32, not TF32), bfloat16 and
float16 (products in half precision, sums and softmax in float32). Two calls give the same bits. Memory in addition to
inputs and
outputs: a few numbers for each query and head, and 4 bytes for each pair of blocks of tokens (tiles.py).

Two gradients are slower than the others, because they use atomic integer additions pair by pair: those of a table if
positions have gaps (packed documents have none), and those of slopes and intercepts with more than 64 segments. That of
prefix_sum uses one such addition for each query of a tile. If there are positions, the gradient of rows and the sums of
weights by distance (for vectors that are added to values) use them too.
"""

import functools
import importlib.util
import math
import sys

import torch
from torch import Tensor

from lengthwise.attention.fused.arguments import Arguments, Gradients, Needs
from lengthwise.attention.fused.buffers import compute_dtype, copy_sums, empty_gradients, gradient_sums, like_heads
from lengthwise.attention.fused.gpu import tiles, value_vectors
from lengthwise.attention.fused.gpu.block_sizes import blocks
from lengthwise.attention.fused.gpu.call import DTYPES, MAX_HEAD_DIM, Blocks, Call, contiguous_rows
from lengthwise.attention.fused.gpu.distances import fixed_point_for, row_sum_scale, write_table_gradient
from lengthwise.attention.fused.gpu.segments import SegmentSums
from lengthwise.attention.fused.products import block_product
from lengthwise.native.gpu import on_device_of_first_argument
from lengthwise.values import install_extra


def unsupported_reason() -> str | None:
    """Return why there are no GPU kernels, or None."""
    if importlib.util.find_spec("triton") is None:
        hint = install_extra("triton") if sys.platform == "linux" else "Triton supports only Linux"
        return f"the GPU kernels need Triton, which is not installed ({hint})"
    return None


unsupported_reason._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see native.unsupported_reason


MAX_DECODING_QUERIES = 16  # up to here there are no lists of tiles, and the keys are split among programs


def _busy_programs(device: torch.device) -> int:
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


@on_device_of_first_argument
def forward(q: Tensor, k: Tensor, v: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Return the output and lse; see operator.py."""
    from lengthwise.attention.fused.gpu.output import attend

    out, lse = like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))
    if not out.numel():
        return out, lse
    call = Call(q, k, v, arguments)
    size = blocks(call.q.dtype, call.padded_dim, call.case.form)[0]
    count, splits = -(-call.queries // size.queries), 1
    is_decoding = call.queries <= MAX_DECODING_QUERIES
    if is_decoding:
        size = size._replace(queries=16, warps=4)
        visible = min(call.keys, arguments.window + call.queries) if arguments.window else call.keys
        splits = max(1, min(_busy_programs(q.device) // (call.batch * call.heads), -(-visible // (2 * size.keys))))
    # More is added to the output in float32 before it is rounded.
    total = out if call.values is None else torch.empty_like(out, dtype=torch.float32)
    partial_out, partial_lse = total, lse
    if splits > 1:
        partial_out = out.new_empty((splits * call.batch, *out.shape[1:]), dtype=torch.float32)
        partial_lse = lse.new_empty((splits * call.batch, *lse.shape[1:]))
    lists = None
    if call.needs_lists and not is_decoding:
        lists = tiles.by_queries(call.case, size.queries, size.keys)
    attend[(call.batch * call.heads * count * splits,)](
        *map(call.view, (call.q, call.k, call.v, partial_out)), partial_lse, call.args, call.tiles(lists),
        call.sizes, **call.factors, blocks=count, splits=splits, split_batch=call.batch, **call.constants,
        BM=size.queries, BN=size.keys, num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    if splits > 1:
        each = partial_lse.view(splits, *lse.shape)
        torch.logsumexp(each, 0, out=lse)
        share = (each - lse).exp()[..., None]
        # A split without visible keys has no share, whatever values it contains.
        total.copy_(torch.where(share > 0, partial_out.view(splits, *out.shape) * share, 0.0).sum(0))
    if call.values is not None:
        out.copy_(total + block_product(value_vectors.sums_of_weights(call, lse, size, lists, splits), call.values))
    return out, lse


@on_device_of_first_argument
def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, arguments: Arguments, needs: Needs
) -> Gradients:
    """Return the gradients of q, k, v and the learned arguments; see operator.py."""
    from lengthwise.attention.fused.gpu.gradients import inner_products, key_gradients, query_gradients

    gradients = empty_gradients(q, k, v, lse, arguments, needs)
    if not q.numel():
        for x in gradients.values():
            x.zero_()
        return gradients
    call = Call(q, k, v, arguments)
    dq, dk, dv = (gradients[name] for name in "qkv")
    case, rows = call.case, arguments.rows
    needs = frozenset(name for name in needs if getattr(arguments, name) is not None)
    needs_table, needs_segments, needs_rows = "table" in needs, "slope" in needs, "rows" in needs
    sums = gradient_sums(q, k, needs - {"sink"})  # that of a sink follows from lse and delta
    call.args = call.args._replace(**{f"grad_{name}": x for name, x in sums.items()})
    needs_sums = bool(sums)
    grad, out = contiguous_rows(grad.to(call.q.dtype)), contiguous_rows(out)
    _, by_keys, by_queries, by_distance = blocks(call.q.dtype, call.padded_dim, case.form)
    head_views = [call.view(x) for x in (call.q, call.k, call.v, grad)]
    pairs = call.batch * call.heads

    delta = torch.empty_like(lse)
    count = -(-call.queries // by_queries.queries)
    inner_products[(pairs * count,)](
        call.view(out), call.view(grad), delta, call.sizes, count, by_queries.queries, call.dim, call.padded_dim,
        num_warps=4,
    )  # fmt: skip

    size = by_queries
    lists = tiles.by_queries(case, size.queries, size.keys) if call.needs_lists else None
    if call.values is not None:
        call.args = call.args._replace(value_rows=value_vectors.value_rows(call.values, grad))
    if "value_vectors" in needs:
        value_vectors.write_gradient(
            gradients["value_vectors"], value_vectors.sums_of_weights(call, lse, size, lists), grad
        )
    has_positions = call.arguments.position_q is not None
    scatter_rows = needs_rows and has_positions
    fixed_point = None
    if scatter_rows or (needs_segments and case.many_segments) or (needs_table and has_positions):
        fixed_point = fixed_point_for(call, grad, lse, delta)
    new_sums = functools.partial(torch.empty_like, lse, dtype=torch.float64)
    residuals = new_sums() if needs_table or needs_segments or needs_sums else None
    corrected = None if residuals is None else torch.empty_like(delta)
    query_scale_grads, mean_slopes = (new_sums() if needs_segments else None for _ in range(2))
    end_sums = lse.new_empty(2, *lse.shape) if needs_rows else None
    row_grads = None
    if needs_rows and rows is not None:
        row_grads = lse.new_zeros(*lse.shape, rows.shape[3], dtype=torch.long if scatter_rows else lse.dtype)
    query_gradients[(pairs * count,)](
        *head_views, call.view(dq), lse, delta, corrected, residuals, query_scale_grads, mean_slopes, end_sums,
        row_grads, fixed_point.scales if fixed_point and scatter_rows else None, call.args, call.tiles(lists),
        call.sizes, **call.factors, scale=call.scale, blocks=count, ROW_SUMS=residuals is not None,
        SEGMENT_GRADS=needs_segments, **call.constants, BM=size.queries, BN=size.keys, num_warps=size.warps,
        num_stages=size.stages,
    )  # fmt: skip
    if corrected is not None:
        delta = corrected
    sink_gradient = None
    if call.sink is not None and ("sink" in needs or needs_table):  # its value is 0, so dS is its weight times -delta
        weight = (call.sink.double()[:, None] - lse.double()).exp()
        sink_gradient = -(weight * delta).sum((0, 2))
    if "sink" in needs and sink_gradient is not None:
        gradients["sink"].copy_(sink_gradient)

    size = by_keys
    count = -(-call.keys // size.keys)
    lists = tiles.by_keys(case, size.queries, size.keys) if call.needs_lists else None
    row_sums = row_scale = None
    if "prefix_sum" in sums:
        row_sums, row_scale = torch.zeros_like(lse, dtype=torch.long), row_sum_scale(call, grad)
    segments = SegmentSums.of(call, count, needs_segments)
    key_gradients[(call.batch * k.shape[1] * count,)](
        *head_views, call.view(dk), call.view(dv), row_sums, row_scale, segments.lines, segments.parameter,
        fixed_point and fixed_point.scales, lse, delta, call.args, call.tiles(lists), call.sizes, **call.factors,
        scale=call.kernel_scale, blocks=count, SEGMENT_GRADS=needs_segments, SLOTS=segments.slots, **call.constants,
        BM=size.queries, BN=size.keys, num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    if row_sums is not None:
        assert row_scale is not None and residuals is not None
        # A fixed-point number cannot be NaN, but the residual of such a row is.
        of_queries = torch.where(residuals.isfinite(), row_sums / row_scale, math.nan)
        sums["prefix_sum"][:, :, call.keys - call.queries :] += of_queries
    copy_sums(sums, gradients)
    segments.write(gradients, fixed_point)

    if query_scale_grads is not None:
        assert mean_slopes is not None and residuals is not None
        dquery_scale = gradients["query_scale"]
        shared_axes = 1 if len(dquery_scale) == len(query_scale_grads) else (0, 1)
        total = query_scale_grads.addcmul_(mean_slopes, residuals, value=-1).sum(shared_axes)
        dquery_scale.copy_(total.view_as(dquery_scale))
    if row_grads is not None:
        assert end_sums is not None
        total = fixed_point.decode(row_grads, 0).float() if fixed_point and scatter_rows else row_grads
        total[..., 0] += end_sums[0]
        total[..., -1] += end_sums[1]
        drows = gradients["rows"]
        drows.copy_(total if drows.shape[1] == total.shape[1] else total.sum(1, keepdim=True))
    if needs_table:
        write_table_gradient(call, head_views, lse, delta, sink_gradient, fixed_point, by_distance, gradients["table"])
    return gradients


__all__ = [
    "DTYPES",
    "MAX_DECODING_QUERIES",
    "MAX_HEAD_DIM",
    "Blocks",
    "backward",
    "blocks",
    "forward",
    "unsupported_reason",
]
