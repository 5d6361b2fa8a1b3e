"""Fused attention on a GPU: what operator.py says, as Triton kernels, forward and backward.

Any head dim up to 256, any number of tokens and documents, float32 (products in float32, not TF32), bfloat16 and float16
(products of halves, sums and softmax in float32). Two calls give the same bits. Memory beside inputs and outputs: a few
numbers for each query and head, and 4 bytes for each pair of blocks of tokens (tiles.py).

What costs more than it might: gradients of a table where positions have gaps (not: packed documents), and of slopes and
intercepts of more than 64 pieces, go through integer addition in memory, pair by pair.
"""

import functools
import importlib.util
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from lengthwise.attention.buffers import Gradients, computed_in, empty_gradients, like_heads
from lengthwise.attention.gpu import tiles
from lengthwise.attention.gpu.tiles import Case

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_DIMS = 256


def missing() -> str | None:
    """Why there are no kernels for a GPU here, or None."""
    if importlib.util.find_spec("triton") is None:
        have = (
            "Triton exists for Linux alone" if sys.platform != "linux" else "pip install 'lengthwise[triton]' brings it"
        )
        return f"the kernels for a GPU need Triton, which is not installed ({have})"
    return None


missing._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see cpu.missing


class Blocks(NamedTuple):
    """Queries and keys of a block, warps of a program, stages of its pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int


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


def _power(n: int) -> int:
    return max(16, 1 << (n - 1).bit_length())


class _Call:
    """One call of the operator: the arguments that all kernels share."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, first: int, slope: Tensor | None,
        intercept: Tensor | None, knots: Tensor | None, u: Tensor | None, w: Tensor | None, rows: Tensor | None,
        rows_first: int, position_q: Tensor | None, position_k: Tensor | None, documents: Tensor | None, causal: bool,
        window: int, scale: float,
    ):  # fmt: skip
        from lengthwise.attention.gpu import parts

        assert q.dtype in DTYPES and q.shape[-1] <= MOST_DIMS, f"{q.dtype}, {q.shape[-1]} dims"
        self.parts = parts
        # The kernels divide biases by the scale and take the largest logit before scaling.
        self.own_scale = scale
        if not 2.0**-60 <= scale <= 2.0**60:
            q, k, v, self.own_scale = q.float() * scale, k.float(), v.float(), 1.0
        self.scale = scale
        self.q, self.k, self.v = (_rows(x) for x in (q, k, v))
        self.causal, self.dim, self.wide = causal, q.shape[3], _power(q.shape[3])
        self.batch, self.heads, self.queries, self.keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
        if table is None and slope is None and rows is None:
            position_q = position_k = None  # nobody asks for distances
        self.case = Case(
            table, first, slope, knots, u, w, rows, rows_first, position_q, position_k, documents, causal, window,
            self.queries, self.keys, q.device,
        )  # fmt: skip
        cell = place = most = None
        if self.case.many:
            assert knots is not None and slope is not None
            cell, place, most = tiles.cells(knots, slope.shape[1])
        self.bias = parts.Bias(
            table, *_of(table, 1), _step(table), first, slope, intercept, _step(slope), *_of(slope, 1), knots, u, *_of(u, 0),
            w, _step(w), cell, 0 if cell is None else len(cell), place, most, rows, *_of(rows, 3),
            rows.stride(0) if rows is not None else 0, _step(rows, 1), rows_first,
        )  # fmt: skip
        self.sight = parts.Sight(
            position_q, _step(position_q), position_k, _step(position_k), documents, _step(documents), window or None
        )
        self.sizes = parts.Sizes(self.heads, self.heads // max(1, k.shape[1]), self.queries, self.keys)
        self.numbers = {"factor": self.own_scale * math.log2(math.e), "inverse": 1 / self.own_scale}
        self.shape = {"CAUSAL": causal, "DIM": self.dim, "WIDE": self.wide}

    @property
    def listed(self) -> bool:
        return self.case.biased or self.case.documents is not None

    def view(self, x: Tensor) -> Any:
        return self.parts.View(x, x.stride(0), x.stride(1), x.stride(2))

    def tiles(self, lists: tuple[Tensor, Tensor] | None) -> Any:
        if lists is None:
            return self.parts.Tiles(None, None, 0, 0)
        order, ends = lists
        return self.parts.Tiles(order, ends, order.shape[1] if len(order) > 1 else 0, order.shape[2])


def _of(x: Tensor | None, axis: int) -> tuple[int]:
    return (0 if x is None else x.shape[axis],)


def _step(x: Tensor | None, axis: int = 0) -> int:
    """How far apart the entries of an axis lie; 0 where one serves all."""
    return 0 if x is None or x.shape[axis] == 1 else x.stride(axis)


def _rows(x: Tensor) -> Tensor:
    """The numbers of one token side by side, and a block of tokens within 32 bits."""
    fits = (x.stride(-1) == 1 or x.shape[-1] == 1) and x.stride(2) < 2**23
    return x if fits else x.contiguous()


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
    call = _Call(
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
    call = _Call(
        q, k, v, table, first, slope, intercept, knots, u, w, rows, rows_first, position_q, position_k, documents, causal,
        window, scale,
    )  # fmt: skip
    dq, dk, dv, *_, dw, drows = gradients
    of_table &= table is not None
    of_pieces &= slope is not None
    of_rows &= rows is not None
    case = call.case
    grad, out = _rows(grad.to(call.q.dtype)), _rows(out)
    _, by_keys, by_queries, by_distance = blocks(call.q.dtype, call.wide, slope is not None)
    rows_of = [call.view(x) for x in (call.q, call.k, call.v, grad)]
    pairs = call.batch * call.heads

    delta = torch.empty_like(lse)
    count = -(-call.queries // by_queries.queries)
    inner_products[(pairs * count,)](
        call.view(out), call.view(grad), delta, call.sizes, count, by_queries.queries, call.dim, call.wide, num_warps=4
    )

    size = by_keys
    count = -(-call.keys // size.keys)
    listed = tiles.by_keys(case, size.queries, size.keys) if call.listed else None
    of_keys[(call.batch * k.shape[1] * count,)](
        *rows_of, call.view(dk), call.view(dv), lse, delta, call.bias, call.sight, call.tiles(listed), call.sizes,
        **call.numbers, scale=call.own_scale, blocks=count, **call.shape, BM=size.queries, BN=size.keys,
        num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip

    size = by_queries
    count = -(-call.queries // size.queries)
    listed = tiles.by_queries(case, size.queries, size.keys) if call.listed else None
    moved = case.position_q is not None
    scattered = of_rows and moved
    room = sound = None
    if scattered or of_pieces or (of_table and moved):
        room, sound = _room(call, grad, lse, delta)
    each_w = torch.empty_like(lse) if of_pieces else None
    ends = lse.new_empty((4, *lse.shape)) if of_table or of_rows else None
    each_row = None
    if of_rows:
        assert rows is not None
        shape = (*lse.shape, rows.shape[3])
        each_row = lse.new_zeros(shape, dtype=torch.long if scattered else lse.dtype)
    of_queries[(pairs * count,)](
        *rows_of, call.view(dq), lse, delta, each_w, ends, each_row, room if scattered else None, call.bias, call.sight,
        call.tiles(listed), call.sizes, **call.numbers, scale=call.scale, blocks=count, OF_TABLE=of_table,
        OF_PIECES=of_pieces, **call.shape, BM=size.queries, BN=size.keys, num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    if each_w is not None:
        total = each_w.sum(1)
        dw.copy_(total if len(dw) == len(total) else total.sum(0, keepdim=True))
    if each_row is not None:
        assert ends is not None
        total = _of_whole(each_row, room[0], sound) if scattered else each_row  # type: ignore[index]
        total[..., 0] += ends[2]
        total[..., -1] += ends[3]
        drows.copy_(total if drows.shape[1] == total.shape[1] else total.sum(1, keepdim=True))
    if of_table or of_pieces:
        _of_distance(call, rows_of, lse, delta, ends, room, sound, (size, by_distance), gradients, of_table, of_pieces)
    return gradients


def _of_distance(
    call: _Call, rows_of: list[Any], lse: Tensor, delta: Tensor, ends: Tensor | None, room: Tensor | None,
    sound: Tensor | None, sizes: tuple[Blocks, Blocks], gradients: Gradients, of_table: bool, of_pieces: bool,
) -> None:  # fmt: skip
    """The gradients of table, slope, intercept and u."""
    from lengthwise.attention.gpu.bias_gradients import of_distances, of_positions

    case, (b, h, _) = call.case, lse.shape
    _, _, _, dtable, dslope, dintercept, du, _, _ = gradients
    coarse, size = sizes
    order, stops, below = tiles.by_distance(case, size.queries, (coarse.queries, coarse.keys))
    lines, block = order.shape[1], size.queries
    slots = 1 if case.slope is None or case.many else _power(case.slope.shape[1])
    regular = None if case.position_q is None else _regular(case)

    def launch(kernel: Any, table: Tensor | None, u: Tensor | None, pieces: Tensor | None, **more: Any) -> None:
        kernel[(b * h * lines,)](
            *rows_of, lse, delta, table, u, pieces, room, regular, call.bias, call.sight, call.tiles((order, stops)),
            call.sizes, **call.numbers, lines=lines, below=below, OF_TABLE=of_table, OF_PIECES=of_pieces, **call.shape,
            B=block, num_warps=size.warps, num_stages=size.stages, **more,
        )  # fmt: skip

    each_table = lse.new_zeros(b * h, lines, 2, block) if of_table else None
    each_u = lse.new_zeros(b * h, lines, 2, block) if of_pieces else None
    sums = lse.new_zeros(b * h, lines, 2, slots) if of_pieces and not case.many else None
    whole = dict.fromkeys(("table", "u", "pieces"))
    if of_pieces and (case.many or regular is not None):
        assert case.slope is not None and case.u is not None
        whole["pieces"] = torch.zeros((2, *case.slope.shape), dtype=torch.long, device=lse.device)
    launch(of_distances, each_table, each_u, whole["pieces"] if case.many else sums, SLOTS=slots)
    if regular is not None:
        if of_table:
            whole["table"] = torch.zeros_like(dtable, dtype=torch.long)
        if of_pieces:
            whole["u"] = torch.zeros_like(du, dtype=torch.long)
        launch(of_positions, whole["table"], whole["u"], whole["pieces"])

    offset = call.keys - call.queries
    start = offset - (below + 1) * block  # the first entry's distance
    if each_table is not None:
        assert case.table is not None and ends is not None
        total = _columns(_unfold(each_table.view(b, h, lines, 2, block).sum(0)), start - case.first, dtable.shape[1])
        total[:, 0] += ends[0].sum((0, 2))
        total[:, -1] += ends[1].sum((0, 2))
        dtable.copy_(total if len(dtable) == h else total.sum(0, keepdim=True))
        if whole["table"] is not None:
            dtable += _of_whole(whole["table"], room[0], sound)  # type: ignore[index]
    if each_u is not None:
        total = _unfold(each_u.view(1, b * h, lines, 2, block).sum(1))
        du.copy_(_columns(total, start, len(du))[0])
        if whole["u"] is not None:
            du += _of_whole(whole["u"], room[1], sound)  # type: ignore[index]
        for n, to in enumerate((dintercept, dslope)):
            to.zero_()
            if sums is not None:
                heads = sums.view(b, h, lines, 2, slots).sum((0, 2))[:, n, : to.shape[1]]
                to += heads if len(to) == h else heads.sum(0, keepdim=True)
            if whole["pieces"] is not None:
                to += _of_whole(whole["pieces"][n], room[2 + n], sound)  # type: ignore[index]


def _unfold(x: Tensor) -> Tensor:
    """[h, lines, 2, block] -> [h, (lines + 1) block], where a line's second half is over the next line's first."""
    total = x.new_zeros(x.shape[0], x.shape[1] + 1, x.shape[3])
    total[:, :-1] += x[:, :, 0]
    total[:, 1:] += x[:, :, 1]
    return total.flatten(1)


def _columns(x: Tensor, start: int, size: int) -> Tensor:
    """Sums of distances [h, m], the first of which belongs to column `start`, as columns [h, size]: the nearest, past an end."""
    total = x.new_zeros(len(x), size)
    low, high = (min(max(n, 0), x.shape[1]) for n in (1 - start, size - 1 - start))
    total[:, 0] += x[:, :low].sum(1)
    if size > 1:
        total[:, low + start : high + start] += x[:, low:high]
    total[:, -1] += x[:, max(low, high) :].sum(1)
    return total


def _regular(case: Case) -> Tensor:
    """1 where the distance of every two tokens that see each other is that of their indices, else 0."""
    assert case.position_q is not None and case.position_k is not None
    at = torch.arange(case.keys, device=case.device)
    moved, moved_q = case.position_k - at, case.position_q - at[case.keys - case.queries :]
    same = (moved[:, case.keys - case.queries :] == moved_q).all()
    if case.documents is None:
        return (same & (moved == moved[:, :1]).all()).to(torch.int32)[None]
    moved, documents = torch.broadcast_tensors(moved, case.documents)
    documents, by = documents.sort(dim=1, stable=True)
    moved = moved.gather(1, by)
    agree = (moved[:, 1:] == moved[:, :-1]) | (documents[:, 1:] != documents[:, :-1])
    return (same & agree.all()).to(torch.int32)[None]


def _room(call: _Call, grad: Tensor, lse: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """What to multiply gradients with so that their sums fill whole numbers of 64 bits but never overflow: of the table, u,
    intercept, slope. And whether all numbers are finite, without which they have no sum.

    A logit's gradient is its weight times at most 2 |gradient| |value|, and a row's weights sum to 1."""
    case = call.case
    most = (grad.float().norm(dim=-1).amax() * call.v.float().norm(dim=-1).amax()) * 4 * lse.numel()
    one = torch.ones_like(most)
    slope, u, w = (one if x is None else x.abs().amax() for x in (case.slope, case.u, case.w))
    bound = torch.stack([one, slope * w, one, u * w]) * most
    sound = bound.isfinite().all() & lse.isfinite().all() & delta.isfinite().all()
    return torch.exp2(torch.floor(60 - torch.log2(bound.clamp(min=1e-18)))), sound


def _of_whole(x: Tensor, room: Tensor, sound: Tensor | None) -> Tensor:
    assert sound is not None
    return torch.where(sound, (x.double() / room).float(), math.nan)
