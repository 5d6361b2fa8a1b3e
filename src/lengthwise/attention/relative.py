"""Fused attention with a vector for each distance that meets one of each query: `RelativeKeyBias` and `ContentBias`.

    out, lse = torch.ops.lengthwise.relative_attention(q, k, v, content, relative, relative_first, table, first, ...)

adds <content_i, relative[h, distance - relative_first]> to the logits of `torch.ops.lengthwise.attention` (operator.py,
which has the other arguments). content [b, h, i, r] and relative [h|1, n, r] of the dtype that is computed in.

What a query has to say of every distance is a row of n numbers, and the rows of all queries may be as many as the pairs. So
they are made for some queries at a time, in one product, and made anew in the backward pass: memory grows as T, not T². Of
a causal mask's and a window's distances alone, where positions are consecutive.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention.buffers import computed_in, empty_gradients, like_heads
from lengthwise.attention.operator import Passing, attention, attention_backward

_BLOCK = 96  # queries that the CPU kernel takes at once
_AS_MANY = 2  # rows of some queries have at most as many numbers as q, times this (or a block's, where that is more)

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def at_once(queries: int, dim: int, distances: int) -> int:
    """How many queries have rows at the same time; a multiple of `_BLOCK`, also where there are fewer."""
    return max(1, _AS_MANY * queries * dim // distances // _BLOCK) * _BLOCK


@dataclass(frozen=True)
class _Part:
    """Some of the queries, the keys that they may see, and what there is to say of their distances."""

    queries: slice
    keys: slice
    turn: int  # keys turn by as many places, so that the last of them are the queries' own
    columns: slice
    rest: tuple[Any, ...]  # the operator's arguments from `rows_first` to `scale`

    def of_keys(self, x: Tensor) -> Tensor:
        x = x[:, :, self.keys]
        return x.roll(self.turn, 2) if self.turn else x

    def add_to_keys(self, total: Tensor, new: Tensor) -> None:
        total[:, :, self.keys] += new.roll(-self.turn, 2) if self.turn else new

    def rows(self, content: Tensor, relative: Tensor) -> Tensor:
        return _product(content[:, :, self.queries], relative[:, self.columns].mT)


def _parts(
    q: Tensor, keys: int, size: int, relative_first: int, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float,
) -> Iterator[_Part]:  # fmt: skip
    count = q.shape[2]
    most = at_once(count, q.shape[3], size)
    assert causal or not window or count <= most, "windows go by indices, and keys that turn change theirs"
    for start in range(0, count, most):
        end = min(count, start + most)
        first, last = keys - count + start, keys - count + end - 1  # the indices of the first and the last query
        seen = last + 1 if causal else keys
        low, high, turn = 0, size, seen - last - 1
        if position_k is None:
            lowest, highest = 0 if causal else first - keys + 1, last
            if window:
                lowest, highest = max(lowest, 1 - window), min(highest, window - 1)
            low = min(max(lowest - relative_first, 0), size - 1)
            high = min(max(highest - relative_first, low), size - 1) + 1
        of_q, of_k, ids = (
            _cut(x, n, m) for x, n, m in ((position_q, start, end), (position_k, 0, seen), (documents, 0, seen))
        )
        if turn:
            of_k = torch.arange(keys, device=q.device)[None] if of_k is None else of_k
            of_q = of_k[:, first : last + 1].contiguous() if of_q is None else of_q
            of_k, ids = of_k.roll(turn, 1), None if ids is None else ids.roll(turn, 1)
        rest = (relative_first + low, of_q, of_k, ids, causal, window, scale)
        yield _Part(slice(start, end), slice(0, seen), turn, slice(low, high), rest)


def _cut(x: Tensor | None, start: int, end: int) -> Tensor | None:
    return None if x is None else x[:, start:end].contiguous()


def _product(x: Tensor, table: Tensor) -> Tensor:
    """x [b, h, i, r], table [h|1, r, n] -> [b, h, i, n]. Row by row of the batch, where nothing has to be copied for it."""
    out = x.new_empty(*x.shape[:3], table.shape[2])
    for row, to in zip(x, out, strict=True):
        torch.bmm(row, table.expand(len(row), -1, -1), out=to)
    return out


@torch.library.custom_op("lengthwise::relative_attention", mutates_args=())
def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, content: Tensor, relative: Tensor, relative_first: int, table: Tensor | None,
    first: int, slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, u: Tensor | None,
    w: Tensor | None, position_q: Tensor | None, position_k: Tensor | None, documents: Tensor | None, causal: bool,
    window: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output and lse; see the module."""
    out, lse = like_heads(q), q.new_empty(q.shape[:3], dtype=computed_in(q))
    places, keys = (position_q, position_k, documents, causal, window, scale), k.shape[2]
    with torch.autocast(q.device.type, enabled=False):
        for part in _parts(q, keys, relative.shape[1], relative_first, *places):
            at = part.queries
            out[:, :, at], lse[:, :, at] = attention(
                q[:, :, at], part.of_keys(k), part.of_keys(v), table, first, slope, intercept, knots, u,
                _cut(w, at.start, at.stop), part.rows(content, relative), *part.rest,
            )  # fmt: skip
    return out, lse


@relative_attention.register_fake
def _(q: Tensor, *_args: Any) -> tuple[Tensor, Tensor]:
    return like_heads(q), q.new_empty(q.shape[:3], dtype=computed_in(q))


@torch.library.custom_op("lengthwise::relative_attention_backward", mutates_args=())
def relative_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, content: Tensor, relative: Tensor,
    relative_first: int, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, u: Tensor | None, w: Tensor | None, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float, of_table: bool, of_pieces: bool,
) -> Gradients:  # fmt: skip
    """Gradients of q, k, v, content, relative, table, slope, intercept, u, w; the last ones have no entries where nobody asks."""
    dq, dcontent = like_heads(q), torch.empty_like(content)
    dk, dv = (like_heads(x.to(lse.dtype)).zero_() for x in (k, v))  # sums of several parts, as all that follow
    drelative = relative.new_zeros(q.shape[1], *relative.shape[1:])
    *shared, dw = (x.zero_() for x in _of_bias(q, k, v, lse, table, slope, u, w, of_table, of_pieces))
    places, keys = (position_q, position_k, documents, causal, window, scale), k.shape[2]
    with torch.autocast(q.device.type, enabled=False):
        for part in _parts(q, keys, relative.shape[1], relative_first, *places):
            at, columns = part.queries, part.columns
            of_q, of_k, of_v, *of_shared, of_w, drows = attention_backward(
                grad[:, :, at], q[:, :, at], part.of_keys(k), part.of_keys(v), out[:, :, at], lse[:, :, at].contiguous(), table,
                first, slope, intercept, knots, u, _cut(w, at.start, at.stop), part.rows(content, relative), *part.rest,
                None, None, True, of_table, of_pieces, True,
            )  # fmt: skip
            dq[:, :, at] = of_q
            part.add_to_keys(dk, of_k)
            part.add_to_keys(dv, of_v)
            dcontent[:, :, at] = _product(drows, relative[:, columns])
            for row, met in zip(drows, content[:, :, at], strict=True):
                drelative[:, columns].baddbmm_(row.mT, met)
            for total, new in zip(shared, of_shared, strict=True):
                total += new
            if of_pieces:
                dw[:, at] = of_w
    drelative = drelative if len(relative) > 1 else drelative.sum(0, keepdim=True)
    return dq, dk.to(k.dtype), dv.to(v.dtype), dcontent, drelative, *shared, dw  # type: ignore[return-value]


def _of_bias(
    q: Tensor, k: Tensor, v: Tensor, lse: Tensor, table: Tensor | None, slope: Tensor | None, u: Tensor | None,
    w: Tensor | None, of_table: bool, of_pieces: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Memory for the gradients of table, slope, intercept, u and w."""
    return empty_gradients(
        q[:, :, :0], k[:, :, :0], v[:, :, :0], lse, table, slope, u, w, None, of_table, of_pieces, False
    )[3:8]


@relative_attention_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, content: Tensor, relative: Tensor,
    relative_first: int, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, u: Tensor | None, w: Tensor | None, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float, of_table: bool, of_pieces: bool,
) -> Gradients:  # fmt: skip
    of_met = torch.empty_like(content), relative.new_empty(relative.shape)
    of_bias = _of_bias(q, k, v, lse, table, slope, u, w, of_table, of_pieces)
    return like_heads(q), like_heads(k), like_heads(v), *of_met, *of_bias  # type: ignore[return-value]


_passing = Passing(
    ("q", "k", "v", "content", "relative", "relative_first", "table", "first", "slope", "intercept", "knots", "u", "w",
     "position_q", "position_k", "documents", "causal", "window", "scale"),
    ("q", "k", "v", "content", "relative", "table", "slope", "intercept", "u", "w"),
)  # fmt: skip


def _pass_back(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    return _passing.back(ctx, grad, relative_attention_backward)


relative_attention.register_autograd(_pass_back, setup_context=_passing.keep)
