"""Fused attention on a GPU: what operator.py says, as Triton kernels, forward and backward.

Any head dim up to 256, any number of tokens and documents, float32 (products in float32, not TF32), bfloat16 and float16
(products of halves, sums and softmax in float32). Two calls give the same bits. Memory beside inputs and outputs: a few
numbers for each query and head, and 4 bytes for each pair of blocks of tokens (tiles.py).

What costs more than it might: gradients of a table where positions have gaps (not: packed documents), and of slopes and
intercepts of more than 64 pieces, go through integer addition in memory, pair by pair.
"""

import functools
import importlib.util
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from lengthwise.attention.buffers import Gradients, computed_in, empty_gradients, like_heads
from lengthwise.attention.gpu import tiles
from lengthwise.attention.gpu.call import DTYPES, MOST_DIMS, Blocks, Call, contiguous_rows
from lengthwise.attention.gpu.distances import of_distance, of_whole, summed_in, whole_numbers


def missing() -> str | None:
    """Why there are no kernels for a GPU here, or None."""
    if importlib.util.find_spec("triton") is None:
        have = (
            "Triton exists for Linux alone" if sys.platform != "linux" else "pip install 'lengthwise[triton]' brings it"
        )
        return f"the kernels for a GPU need Triton, which is not installed ({have})"
    return None


missing._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see cpu.missing


# By the head dim (a power of two, the next one up), for halves and for float32: the output, of keys, of queries, of
# distances (squares, of which both sides of those of queries are multiples, see tiles.by_distance). Chosen so that the
# loops most tiles go through need no local memory on sm_90, or next to none (benchmarks/gpu_code.py); never timed.
_HALF = {
    64: (Blocks(128, 64, 8, 3), Blocks(32, 128, 8, 2), Blocks(64, 64, 4, 2), Blocks(64, 64, 4, 1)),
    128: (Blocks(128, 64, 8, 2), Blocks(32, 128, 8, 1), Blocks(64, 64, 4, 1), Blocks(64, 64, 8, 1)),
    256: (Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 1), Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 2)),
}
# With pieces: of queries, of distances. They take registers; and there are no FAR tiles, which those multiples are for.
_HALF_PIECES = {
    64: (Blocks(64, 32, 4, 2), Blocks(64, 64, 4, 1)),
    128: (Blocks(64, 64, 4, 1), Blocks(64, 64, 8, 1)),
    256: (Blocks(16, 64, 8, 2), Blocks(64, 64, 8, 1)),
}
_SINGLE = {
    64: (Blocks(32, 32, 4, 2), Blocks(16, 32, 8, 1), Blocks(32, 32, 8, 1), Blocks(16, 16, 4, 1)),
    128: (Blocks(32, 32, 8, 1), Blocks(16, 32, 8, 1), Blocks(32, 32, 8, 1), Blocks(16, 16, 4, 1)),
    256: (Blocks(16, 32, 8, 1), Blocks(16, 16, 8, 1), Blocks(16, 16, 8, 1), Blocks(16, 16, 8, 1)),
}
FEW_QUERIES = 16  # at most: decoding, without lists of tiles and with the keys shared out among programs


def blocks(dtype: torch.dtype, wide: int, pieces: bool) -> tuple[Blocks, Blocks, Blocks, Blocks]:
    """Blocks of the four kernels: the output, of keys, of queries, of distances."""
    wide = max(wide, 64)
    if dtype == torch.float32:
        return _SINGLE[wide]
    return (*_HALF[wide][:2], *_HALF_PIECES[wide]) if pieces else _HALF[wide]


def _programs(device: torch.device) -> int:
    """How many programs keep a device busy."""
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


_F = TypeVar("_F", bound=Callable[..., Any])


def _where_it_is(function: _F) -> _F:
    """With the first tensor's device as the current one, on which Triton starts kernels."""

    @functools.wraps(function)
    def run(x: Tensor, *rest: Any) -> Any:
        if not x.is_cuda:  # the interpreter
            return function(x, *rest)
        with torch.cuda.device(x.device):
            return function(x, *rest)

    return run  # type: ignore[return-value]


@_where_it_is
def forward(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, u: Tensor | None, w: Tensor | None, rows: Tensor | None, rows_first: int,
    position_q: Tensor | None, position_k: Tensor | None, documents: Tensor | None, causal: bool, window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output and logarithm of the rows' sums; see operator.py."""
    from lengthwise.attention.gpu.output import attend

    out, lse = like_heads(q), q.new_empty(q.shape[:3], dtype=computed_in(q))
    if not out.numel():
        return out, lse
    call = Call(
        q, k, v, table, first, slope, intercept, knots, u, w, rows, rows_first, position_q, position_k, documents, causal,
        window, scale,
    )  # fmt: skip
    size = blocks(call.q.dtype, call.wide, slope is not None)[0]
    count, splits = -(-call.queries // size.queries), 1
    few = call.queries <= FEW_QUERIES
    if few:
        size = size._replace(queries=16, warps=4)
        seen = min(call.keys, window + call.queries) if window else call.keys
        splits = max(1, min(_programs(q.device) // (call.batch * call.heads), -(-seen // (2 * size.keys))))
    parts, parts_lse = out, lse
    if splits > 1:
        parts = out.new_empty((splits * call.batch, *out.shape[1:]), dtype=torch.float32)
        parts_lse = lse.new_empty((splits * call.batch, *lse.shape[1:]))
    listed = tiles.by_queries(call.case, size.queries, size.keys) if call.listed and not few else None
    attend[(call.batch * call.heads * count * splits,)](
        *map(call.view, (call.q, call.k, call.v, parts)), parts_lse, call.bias, call.sight, call.tiles(listed), call.sizes,
        **call.numbers, blocks=count, splits=splits, share=call.batch, **call.shape, BM=size.queries, BN=size.keys,
        num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    if splits > 1:
        each = parts_lse.view(splits, *lse.shape)
        torch.logsumexp(each, 0, out=lse)
        share = (each - lse).exp()[..., None]
        # A part that sees nothing has no share, whatever it holds.
        out.copy_(torch.where(share > 0, parts.view(splits, *out.shape) * share, 0.0).sum(0))
    return out, lse


@_where_it_is
def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor | None, first: int,
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, u: Tensor | None, w: Tensor | None,
    rows: Tensor | None, rows_first: int, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float, of_table: bool, of_pieces: bool, of_rows: bool,
) -> Gradients:  # fmt: skip
    """Gradients of q, k, v, table, slope, intercept, u, w, rows; see operator.py."""
    from lengthwise.attention.gpu.gradients import inner_products, of_keys, of_queries

    gradients = empty_gradients(q, k, v, lse, table, slope, u, w, rows, of_table, of_pieces, of_rows)
    if not q.numel():
        for x in gradients:
            x.zero_()
        return gradients
    call = Call(
        q, k, v, table, first, slope, intercept, knots, u, w, rows, rows_first, position_q, position_k, documents, causal,
        window, scale,
    )  # fmt: skip
    dq, dk, dv, *_, dw, drows = gradients
    of_table &= table is not None
    of_pieces &= slope is not None
    of_rows &= rows is not None
    case = call.case
    grad, out = contiguous_rows(grad.to(call.q.dtype)), contiguous_rows(out)
    _, by_keys, by_queries, by_distance = blocks(call.q.dtype, call.wide, slope is not None)
    rows_of = [call.view(x) for x in (call.q, call.k, call.v, grad)]
    pairs = call.batch * call.heads

    delta = torch.empty_like(lse)
    count = -(-call.queries // by_queries.queries)
    inner_products[(pairs * count,)](
        call.view(out), call.view(grad), delta, call.sizes, count, by_queries.queries, call.dim, call.wide, num_warps=4
    )

    size = by_queries
    count = -(-call.queries // size.queries)
    listed = tiles.by_queries(case, size.queries, size.keys) if call.listed else None
    moved = case.position_q is not None
    scattered = of_rows and moved
    room = sound = None
    if scattered or of_pieces or (of_table and moved):
        room, sound = whole_numbers(call, grad, lse, delta)
    wide = functools.partial(torch.empty_like, lse, dtype=torch.float64)
    rests = wide() if of_table or of_pieces else None
    each_w, means = (wide() if of_pieces else None for _ in range(2))
    ends = lse.new_empty((4, *lse.shape), dtype=summed_in(call.q)) if of_table or of_rows else None
    each_row = None
    if of_rows:
        assert rows is not None
        shape = (*lse.shape, rows.shape[3])
        each_row = lse.new_zeros(shape, dtype=torch.long if scattered else lse.dtype)
    of_queries[(pairs * count,)](
        *rows_of, call.view(dq), lse, delta, rests, each_w, means, ends, each_row, room if scattered else None, call.bias,
        call.sight, call.tiles(listed), call.sizes, **call.numbers, scale=call.scale, blocks=count, OF_TABLE=of_table,
        OF_PIECES=of_pieces, **call.shape, BM=size.queries, BN=size.keys, num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    if rests is not None:
        delta += rests  # <dO, O> differs from what the changes are made of; with this they sum to 0, as a bias' gradient asks

    size = by_keys
    count = -(-call.keys // size.keys)
    listed = tiles.by_keys(case, size.queries, size.keys) if call.listed else None
    of_keys[(call.batch * k.shape[1] * count,)](
        *rows_of, call.view(dk), call.view(dv), lse, delta, call.bias, call.sight, call.tiles(listed), call.sizes,
        **call.numbers, scale=call.own_scale, blocks=count, **call.shape, BM=size.queries, BN=size.keys,
        num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip

    if each_w is not None:
        assert means is not None and rests is not None
        dw.copy_((each_w - means * rests).sum(1 if len(dw) == len(each_w) else (0, 1)).view_as(dw))
    if each_row is not None:
        assert ends is not None
        total = of_whole(each_row, room[0], sound).float() if scattered else each_row  # type: ignore[index]
        total[..., 0] += ends[2]
        total[..., -1] += ends[3]
        drows.copy_(total if drows.shape[1] == total.shape[1] else total.sum(1, keepdim=True))
    if of_table or of_pieces:
        of_distance(
            call, rows_of, lse, delta, ends, room, sound, (by_queries, by_distance), gradients, of_table, of_pieces
        )
    return gradients


__all__ = ["DTYPES", "FEW_QUERIES", "MOST_DIMS", "Blocks", "backward", "blocks", "forward", "missing"]
