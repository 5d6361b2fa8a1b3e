"""Fused attention with products of a vector per query and a vector per distance: `RelativeKeyBias` and `ContentBias`.

    out, lse = torch.ops.lengthwise.relative_attention(q, k, v, *RelativeArguments(...).flatten())

adds the products of `Vectors` to the logits of `torch.ops.lengthwise.attention` (operator.py); arguments.py has the arguments.

The CPU kernel computes the products block by block (csrc/relative.h). On a GPU they are computed before the kernel: the products
of a query with the vectors of all distances are a row of n numbers, and the rows of all queries may be as large as a T x T
matrix. So they are computed for some queries at a time, in one matrix product, and again in the backward pass. So are the rows
that vectors added to values need (gpu/value_vectors.py). Memory grows as T, not T². If positions are consecutive, rows hold only
the distances that the causal mask and the window leave.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention.fused import arguments as schemas
from lengthwise.attention.fused import cpu
from lengthwise.attention.fused.arguments import (
    Arguments,
    Geometry,
    NeedsGrad,
    RelativeArguments,
    Rows,
    ValueVectors,
    Vectors,
)
from lengthwise.attention.fused.buffers import compute_dtype, empty_gradients, like_heads
from lengthwise.attention.fused.operator import OperatorAutograd, attention, attention_backward
from lengthwise.attention.fused.products import add_product_over_queries, block_product

_BLOCK = 96  # the number of queries of a part is a multiple of this
_MAX_ROWS = 2  # rows of one part have at most as many elements as q, times this (or those of a block, if that is more)

Gradients = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
]  # fmt: skip


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
    geometry: Geometry
    first: int  # the distance of the first column

    def select_keys(self, x: Tensor) -> Tensor:
        """Return the keys, the values or the running sums of this part."""
        x = x[:, :, self.keys]
        return x.roll(self.roll, 2) if self.roll else x

    def add_to_keys(self, gradient: Tensor, new: Tensor) -> None:
        """Add the gradient of what `select_keys` returned to that of what it selected from."""
        gradient[:, :, self.keys] += new.roll(-self.roll, 2) if self.roll else new

    def arguments(self, call: RelativeArguments) -> Arguments:
        """Return the arguments of `attention` for this part, with the products of its queries and the vectors as rows."""
        content, relative, _ = call.vectors
        rows = block_product(content[:, :, self.queries], relative[:, self.columns].mT)
        values = ValueVectors()
        if call.values.table is not None:
            values = ValueVectors(call.values.table[:, self.columns].contiguous(), self.first)
        segments = call.biases.segments
        if segments is not None:
            query_scale = _slice(segments.query_scale, self.queries.start, self.queries.stop)
            segments = segments._replace(query_scale=query_scale)
        biases = call.biases._replace(segments=segments)
        prefix_sum = None if call.prefix_sum is None else self.select_keys(call.prefix_sum).contiguous()
        return Arguments(
            biases,
            Rows(rows, self.first),
            self.geometry,
            call.scale,
            sink=call.sink,
            prefix_sum=prefix_sum,
            values=values,
        )


def parts_of(q: Tensor, keys: int, vectors: Vectors, geometry: Geometry) -> Iterator[_Part]:
    size, relative_first = vectors.table.shape[1], vectors.first
    position_q, position_k, documents, causal, window = geometry
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
        part_q = None if position_q is None else _slice(position_q, start, end)
        part_k, part_documents = (None if x is None else _slice(x, 0, visible) for x in (position_k, documents))
        if roll:
            part_k = torch.arange(keys, device=q.device)[None] if part_k is None else part_k
            part_q = part_k[:, first : last + 1].contiguous() if part_q is None else part_q
            part_k = part_k.roll(roll, 1)
            part_documents = None if part_documents is None else part_documents.roll(roll, 1)
        part_geometry = Geometry(part_q, part_k, part_documents, causal, window)
        yield _Part(slice(start, end), slice(0, visible), roll, slice(low, high), part_geometry, relative_first + low)


def _slice(x: Tensor, start: int, end: int) -> Tensor:
    return x[:, start:end].contiguous()


@torch.library.custom_op("lengthwise::relative_attention", mutates_args=(), schema=schemas.RELATIVE)
def relative_attention(q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, Tensor]:
    """Return the output and lse; see the module."""
    call = RelativeArguments.unflatten(flat)
    if not in_parts(q):
        return cpu.forward(q, k, v, _plain_arguments(call), call.vectors)
    relative, values = call.vectors, call.values
    if values.table is not None and (values.table.shape[1], values.first) != (relative.table.shape[1], relative.first):
        raise NotImplementedError("value_vectors and relative must have the same distances on a GPU")
    out, lse = like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))
    with torch.autocast(q.device.type, enabled=False):
        for part in parts_of(q, k.shape[2], call.vectors, call.geometry):
            at, arguments = part.queries, part.arguments(call)
            qkv = q[:, :, at], part.select_keys(k), part.select_keys(v)
            out[:, :, at], lse[:, :, at] = attention(*qkv, *arguments.flatten())
    return out, lse


def in_parts(q: Tensor) -> bool:
    """Whether the kernel gets rows of products, a part of the queries at a time. The CPU's kernel computes the products itself."""
    return q.is_cuda


def _plain_arguments(call: RelativeArguments) -> Arguments:
    return Arguments(
        call.biases,
        geometry=call.geometry,
        scale=call.scale,
        sink=call.sink,
        prefix_sum=call.prefix_sum,
        values=call.values,
    )


@relative_attention.register_fake
def _(q: Tensor, *_args: Any) -> tuple[Tensor, Tensor]:
    return like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))


@torch.library.custom_op("lengthwise::relative_attention_backward", mutates_args=(), schema=schemas.RELATIVE_BACKWARD)
def relative_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *flat: Any
) -> Gradients:
    """Return the gradients of q, k, v, content and relative, and of the other arguments in the order of operator.py.

    From the table on, gradients that are not needed are empty.
    """
    call, needs = _unflatten_backward(flat)
    content, relative, _ = call.vectors
    if not in_parts(q):
        vectors = call.vectors, torch.empty_like(content), torch.empty_like(relative)
        arguments = _plain_arguments(call)
        gradients = cpu.backward(grad, q, k, v, out, lse, arguments, needs._replace(rows=False), vectors=vectors)
        return *gradients[:3], *vectors[1:], *gradients[3:8], *gradients[9:]
    dq, dcontent = like_heads(q), torch.empty_like(content)
    dk, dv = (like_heads(x.to(lse.dtype)).zero_() for x in (k, v))  # sums over the parts, like all that follow
    drelative = relative.new_zeros(q.shape[1], *relative.shape[1:])
    *shared, dquery_scale, dsink, dprefix_sum, dvalues = (
        x.zero_() for x in _empty_bias_gradients(q, k, v, lse, call, needs)
    )
    with torch.autocast(q.device.type, enabled=False):
        for part in parts_of(q, k.shape[2], call.vectors, call.geometry):
            at, columns = part.queries, part.columns
            part_gradients = attention_backward(
                grad[:, :, at], q[:, :, at], part.select_keys(k), part.select_keys(v), out[:, :, at],
                lse[:, :, at].contiguous(), *part.arguments(call).flatten(), *needs,
            )  # fmt: skip
            part_dq, part_dk, part_dv, *part_shared, part_dquery_scale, drows = part_gradients[:9]
            part_dsink, part_dsum, part_dvalues = part_gradients[9:]
            dq[:, :, at] = part_dq
            part.add_to_keys(dk, part_dk)
            part.add_to_keys(dv, part_dv)
            dcontent[:, :, at] = block_product(drows, relative[:, columns])
            add_product_over_queries(drelative[:, columns], drows, content[:, :, at])
            for gradient, part_gradient in zip((*shared, dsink), (*part_shared, part_dsink), strict=True):
                gradient += part_gradient
            if needs.prefix_sum:
                part.add_to_keys(dprefix_sum, part_dsum)
            if needs.values:
                dvalues[:, columns] += part_dvalues
            if needs.segments:
                dquery_scale[:, at] = part_dquery_scale
    drelative = drelative if len(relative) > 1 else drelative.sum(0, keepdim=True)
    heads = dq, dk.to(k.dtype), dv.to(v.dtype)
    return *heads, dcontent, drelative, *shared, dquery_scale, dsink, dprefix_sum, dvalues  # type: ignore[return-value]


def _unflatten_backward(flat: Sequence[Any]) -> tuple[RelativeArguments, NeedsGrad]:
    table, segments, *last = flat[-5:]
    return RelativeArguments.unflatten(flat[:-5]), NeedsGrad(table, segments, True, *last)


def _empty_bias_gradients(
    q: Tensor, k: Tensor, v: Tensor, lse: Tensor, call: RelativeArguments, needs: NeedsGrad
) -> tuple[Tensor, ...]:
    """Return empty tensors for the gradients from that of the table on."""
    gradients = empty_gradients(q[:, :, :0], k[:, :, :0], v[:, :, :0], lse, _plain_arguments(call), needs)
    return *gradients[3:8], *gradients[9:]


@relative_attention_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *flat: Any) -> Gradients:
    call, needs = _unflatten_backward(flat)
    content, relative, _ = call.vectors
    vector_gradients = torch.empty_like(content), relative.new_empty(relative.shape)
    gradients = _empty_bias_gradients(q, k, v, lse, call, needs)
    return like_heads(q), like_heads(k), like_heads(v), *vector_gradients, *gradients  # type: ignore[return-value]


_autograd = OperatorAutograd(
    schemas.RELATIVE,
    (
        *(
            "q",
            "k",
            "v",
            "content",
            "relative",
            "table",
            "slope",
            "intercept",
            "distance_feature",
            "query_scale",
            "sink",
        ),
        *("prefix_sum", "value_vectors"),
    ),
)
_autograd.register(relative_attention, relative_attention_backward)
