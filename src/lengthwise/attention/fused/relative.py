"""Fused attention with products of a vector per query and a vector per distance: `RelativeKeyBias` and `ContentBias`.

    out, lse = torch.ops.lengthwise.relative_attention(q, k, v, content, relative, relative_first, table, first, ...)

adds <content_i, relative[h, distance - relative_first]> to the logits of `torch.ops.lengthwise.attention` (operator.py,
which documents the other arguments). content [b, h, i, r] and relative [h|1, n, r] have the compute dtype.

The products of a query with the vectors of all distances are a row of n numbers, and the rows of all queries may be as large as
a T x T matrix. So they are computed for some queries at a time, in one matrix product, and again in the backward pass. Memory
grows as T, not T². If positions are consecutive, rows hold only the distances that the causal mask and the window leave.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention.fused.buffers import compute_dtype, empty_gradients, like_heads
from lengthwise.attention.fused.operator import OperatorAutograd, attention, attention_backward

_BLOCK = 96  # queries that the CPU kernel processes together
_MAX_ROWS = 2  # rows of one part have at most as many elements as q, times this (or those of a block, if that is more)

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def queries_per_part(queries: int, dim: int, distances: int) -> int:
    """Return how many queries have rows at the same time: a multiple of `_BLOCK`, even if there are fewer queries."""
    return max(1, _MAX_ROWS * queries * dim // distances // _BLOCK) * _BLOCK


@dataclass(frozen=True)
class _Part:
    """Some of the queries, the keys that are visible to them, and the columns of their distances."""

    queries: slice
    keys: slice
    roll: int  # keys are rolled by this number, so that the last keys are those of the queries
    columns: slice
    rest: tuple[Any, ...]  # the operator's arguments from `rows_first` to `scale`

    def select_keys(self, x: Tensor) -> Tensor:
        """Return the keys or values of this part."""
        x = x[:, :, self.keys]
        return x.roll(self.roll, 2) if self.roll else x

    def add_to_keys(self, gradient: Tensor, new: Tensor) -> None:
        """Add the gradient of this part's keys or values to that of all keys or values."""
        gradient[:, :, self.keys] += new.roll(-self.roll, 2) if self.roll else new

    def rows(self, content: Tensor, relative: Tensor) -> Tensor:
        """Return the products of every query of this part with the vectors of its distances."""
        return _product(content[:, :, self.queries], relative[:, self.columns].mT)


def _parts(
    q: Tensor, keys: int, size: int, relative_first: int, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float,
) -> Iterator[_Part]:  # fmt: skip
    """Yield the parts of a call. `size`: the number of distances that have a vector."""
    count = q.shape[2]
    part_size = queries_per_part(count, q.shape[3], size)
    assert causal or not window or count <= part_size, "windows depend on indices, which rolling the keys would change"
    for start in range(0, count, part_size):
        end = min(count, start + part_size)
        first, last = keys - count + start, keys - count + end - 1  # the indices of the first and the last query
        visible = last + 1 if causal else keys
        low, high, roll = 0, size, visible - last - 1
        if position_k is None:
            lowest, highest = 0 if causal else first - keys + 1, last
            if window:
                lowest, highest = max(lowest, 1 - window), min(highest, window - 1)
            low = min(max(lowest - relative_first, 0), size - 1)
            high = min(max(highest - relative_first, low), size - 1) + 1
        part_q, part_k, part_documents = (
            _slice(x, n, m) for x, n, m in ((position_q, start, end), (position_k, 0, visible), (documents, 0, visible))
        )
        if roll:
            part_k = torch.arange(keys, device=q.device)[None] if part_k is None else part_k
            part_q = part_k[:, first : last + 1].contiguous() if part_q is None else part_q
            part_k = part_k.roll(roll, 1)
            part_documents = None if part_documents is None else part_documents.roll(roll, 1)
        rest = (relative_first + low, part_q, part_k, part_documents, causal, window, scale)
        yield _Part(slice(start, end), slice(0, visible), roll, slice(low, high), rest)


def _slice(x: Tensor | None, start: int, end: int) -> Tensor | None:
    return None if x is None else x[:, start:end].contiguous()


def _product(x: Tensor, table: Tensor) -> Tensor:
    """Return x [b, h, i, r] @ table [h|1, r, n] as [b, h, i, n], one row of the batch at a time to avoid copies."""
    out = x.new_empty(*x.shape[:3], table.shape[2])
    for x_row, out_row in zip(x, out, strict=True):
        torch.bmm(x_row, table.expand(len(x_row), -1, -1), out=out_row)
    return out


@torch.library.custom_op("lengthwise::relative_attention", mutates_args=())
def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, content: Tensor, relative: Tensor, relative_first: int, table: Tensor | None,
    first: int, slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, distance_feature: Tensor | None,
    query_scale: Tensor | None, position_q: Tensor | None, position_k: Tensor | None, documents: Tensor | None,
    causal: bool, window: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the output and lse; see the module."""
    out, lse = like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))
    part_arguments, keys = (position_q, position_k, documents, causal, window, scale), k.shape[2]
    with torch.autocast(q.device.type, enabled=False):
        for part in _parts(q, keys, relative.shape[1], relative_first, *part_arguments):
            at = part.queries
            out[:, :, at], lse[:, :, at] = attention(
                q[:, :, at], part.select_keys(k), part.select_keys(v), table, first, slope, intercept, knots,
                distance_feature, _slice(query_scale, at.start, at.stop), part.rows(content, relative), *part.rest,
            )  # fmt: skip
    return out, lse


@relative_attention.register_fake
def _(q: Tensor, *_args: Any) -> tuple[Tensor, Tensor]:
    return like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))


@torch.library.custom_op("lengthwise::relative_attention_backward", mutates_args=())
def relative_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, content: Tensor, relative: Tensor,
    relative_first: int, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, distance_feature: Tensor | None, query_scale: Tensor | None, position_q: Tensor | None,
    position_k: Tensor | None, documents: Tensor | None, causal: bool, window: int, scale: float,
    needs_table_grad: bool, needs_segment_grads: bool,
) -> Gradients:  # fmt: skip
    """Return the gradients of q, k, v, content, relative, table, slope, intercept, distance_feature and query_scale.

    From the table on, gradients that are not needed are empty.
    """
    dq, dcontent = like_heads(q), torch.empty_like(content)
    dk, dv = (like_heads(x.to(lse.dtype)).zero_() for x in (k, v))  # sums over the parts, like all that follow
    drelative = relative.new_zeros(q.shape[1], *relative.shape[1:])
    *shared, dw = (
        x.zero_()
        for x in _empty_bias_gradients(
            q, k, v, lse, table, slope, distance_feature, query_scale, needs_table_grad, needs_segment_grads
        )
    )
    part_arguments, keys = (position_q, position_k, documents, causal, window, scale), k.shape[2]
    with torch.autocast(q.device.type, enabled=False):
        for part in _parts(q, keys, relative.shape[1], relative_first, *part_arguments):
            at, columns = part.queries, part.columns
            part_dq, part_dk, part_dv, *part_shared, part_dw, drows = attention_backward(
                grad[:, :, at], q[:, :, at], part.select_keys(k), part.select_keys(v), out[:, :, at],
                lse[:, :, at].contiguous(), table, first, slope, intercept, knots, distance_feature,
                _slice(query_scale, at.start, at.stop), part.rows(content, relative), *part.rest, None, None, True,
                needs_table_grad, needs_segment_grads, True,
            )  # fmt: skip
            dq[:, :, at] = part_dq
            part.add_to_keys(dk, part_dk)
            part.add_to_keys(dv, part_dv)
            dcontent[:, :, at] = _product(drows, relative[:, columns])
            for drow, content_row in zip(drows, content[:, :, at], strict=True):
                drelative[:, columns].baddbmm_(drow.mT, content_row)
            for gradient, part_gradient in zip(shared, part_shared, strict=True):
                gradient += part_gradient
            if needs_segment_grads:
                dw[:, at] = part_dw
    drelative = drelative if len(relative) > 1 else drelative.sum(0, keepdim=True)
    return dq, dk.to(k.dtype), dv.to(v.dtype), dcontent, drelative, *shared, dw  # type: ignore[return-value]


def _empty_bias_gradients(
    q: Tensor, k: Tensor, v: Tensor, lse: Tensor, table: Tensor | None, slope: Tensor | None,
    distance_feature: Tensor | None, query_scale: Tensor | None, needs_table_grad: bool, needs_segment_grads: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return empty tensors for the gradients of table, slope, intercept, distance_feature and query_scale."""
    return empty_gradients(
        q[:, :, :0],
        k[:, :, :0],
        v[:, :, :0],
        lse,
        table,
        slope,
        distance_feature,
        query_scale,
        None,
        needs_table_grad,
        needs_segment_grads,
        False,
    )[3:8]


@relative_attention_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, content: Tensor, relative: Tensor,
    relative_first: int, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, distance_feature: Tensor | None, query_scale: Tensor | None, position_q: Tensor | None,
    position_k: Tensor | None, documents: Tensor | None, causal: bool, window: int, scale: float,
    needs_table_grad: bool, needs_segment_grads: bool,
) -> Gradients:  # fmt: skip
    vector_gradients = torch.empty_like(content), relative.new_empty(relative.shape)
    gradients = _empty_bias_gradients(
        q, k, v, lse, table, slope, distance_feature, query_scale, needs_table_grad, needs_segment_grads
    )
    return like_heads(q), like_heads(k), like_heads(v), *vector_gradients, *gradients  # type: ignore[return-value]


_autograd = OperatorAutograd(
    ("q", "k", "v", "content", "relative", "relative_first", "table", "first", "slope", "intercept", "knots",
     "distance_feature", "query_scale", "position_q", "position_k", "documents", "causal", "window", "scale"),
    ("q", "k", "v", "content", "relative", "table", "slope", "intercept", "distance_feature", "query_scale"),
)  # fmt: skip


def _backward(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    return _autograd.backward(ctx, grad, relative_attention_backward)


relative_attention.register_autograd(_backward, setup_context=_autograd.setup_context)
