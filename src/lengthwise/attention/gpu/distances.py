"""The gradients of table, slope, intercept and u: the kernels of bias_gradients.py, and sums over what they leave."""

import math
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention.buffers import Gradients
from lengthwise.attention.gpu import tiles
from lengthwise.attention.gpu.call import Blocks, Call, power
from lengthwise.attention.gpu.tiles import Case

_WIDE = torch.float64  # of sums over programs: they are few, and in a bias' gradient nearly everything cancels


def summed_in(q: Tensor) -> torch.dtype:
    """What kernels sum the changes of logits in: `_wide` of parts.py."""
    return _WIDE if q.dtype == torch.float32 else torch.float32


def of_distance(
    call: Call, rows_of: list[Any], lse: Tensor, delta: Tensor, ends: Tensor | None, room: Tensor | None,
    sound: Tensor | None, sizes: tuple[Blocks, Blocks], gradients: Gradients, of_table: bool, of_pieces: bool,
) -> None:  # fmt: skip
    """The gradients of table, slope, intercept and u."""
    from lengthwise.attention.gpu.bias_gradients import of_distances, of_positions

    case, (b, h, _) = call.case, lse.shape
    _, _, _, dtable, dslope, dintercept, du, _, _ = gradients
    coarse, size = sizes
    order, stops, below = tiles.by_distance(case, size.queries, (coarse.queries, coarse.keys))
    lines, block = order.shape[1], size.queries
    slots = 1 if case.slope is None or case.many else power(case.slope.shape[1])
    regular = None if case.position_q is None else _regular(case)

    def launch(kernel: Any, table: Tensor | None, u: Tensor | None, pieces: Tensor | None, **more: Any) -> None:
        kernel[(b * h * lines,)](
            *rows_of, lse, delta, table, u, pieces, room, regular, call.bias, call.sight, call.tiles((order, stops)),
            call.sizes, **call.numbers, lines=lines, below=below, OF_TABLE=of_table, OF_PIECES=of_pieces, **call.shape,
            B=block, num_warps=size.warps, num_stages=size.stages, **more,
        )  # fmt: skip

    each_table = lse.new_zeros(b * h, lines, 2, block, dtype=_WIDE) if of_table else None
    each_u = lse.new_zeros(b * h, lines, 2, block, dtype=_WIDE) if of_pieces else None
    sums = lse.new_zeros(b * h, lines, 2, slots, dtype=summed_in(call.q)) if of_pieces and not case.many else None
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
        total[:, 0] += ends[0].sum((0, 2), dtype=_WIDE)
        total[:, -1] += ends[1].sum((0, 2), dtype=_WIDE)
        dtable.copy_(total if len(dtable) == h else total.sum(0, keepdim=True))
        if whole["table"] is not None:
            dtable += of_whole(whole["table"], room[0], sound)  # type: ignore[index]
    if each_u is not None:
        total = _unfold(each_u.view(1, b * h, lines, 2, block).sum(1))
        du.copy_(_columns(total, start, len(du))[0])
        if whole["u"] is not None:
            du += of_whole(whole["u"], room[1], sound)  # type: ignore[index]
        for n, to in enumerate((dintercept, dslope)):
            to.zero_()
            if sums is not None:
                heads = sums.view(b, h, lines, 2, slots).sum((0, 2), dtype=_WIDE)[:, n, : to.shape[1]]
                to += heads if len(to) == h else heads.sum(0, keepdim=True)
            if whole["pieces"] is not None:
                to += of_whole(whole["pieces"][n], room[2 + n], sound)  # type: ignore[index]


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


def whole_numbers(call: Call, grad: Tensor, lse: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
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


def of_whole(x: Tensor, room: Tensor, sound: Tensor | None) -> Tensor:
    assert sound is not None
    return torch.where(sound, x.double() / room, math.nan)
