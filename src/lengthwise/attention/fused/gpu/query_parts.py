"""Attention on a GPU with products of vectors per query and vectors per distance: `RelativeKeyBias` and `ContentBias`.

The CPU kernel computes the products block by block (csrc/relative.h). On a GPU they are computed before the kernel: the
products of a query with the vectors of all distances are a row of n numbers (`rows`), and the rows of all queries may
be as large as a T x T matrix. So they are computed for some queries at a time, in one matrix product, and again in the
backward pass. So are the rows that vectors added to values need (value_vectors.py). Memory grows as T, not T². If
positions are consecutive, rows hold only the distances that the causal mask and the window leave.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention.fused import gpu
from lengthwise.attention.fused.arguments import TENSORS, Arguments, Gradients, Needs
from lengthwise.attention.fused.buffers import compute_dtype, empty_gradients, like_heads
from lengthwise.attention.fused.products import add_product_over_queries, block_product

_BLOCK = 96  # the number of queries of a chunk is a multiple of this
_MAX_ROWS = 2  # rows of one chunk have at most as many elements as q, times this (or those of a block, if that is more)
_AXES: dict[str, tuple[str, ...]] = {
    "q": ("batch", "heads", "queries", "dim"),
    **dict.fromkeys(("k", "v"), ("batch", "heads", "keys", "dim")),
    **{name: tuple(axis.name for axis in argument.axes) for name, argument in TENSORS.items()},
}
_DISTANCES = ("key_vectors_size", "value_vectors_size")  # axes over the same distances
_PLACES = ("position_q", "position_k", "documents")  # which `query_chunks` selects


def queries_per_chunk(queries: int, dim: int, distances: int) -> int:
    """Return how many queries have rows at the same time: a multiple of `_BLOCK`, even if there are fewer queries."""
    return max(1, _MAX_ROWS * queries * dim // distances // _BLOCK) * _BLOCK


@dataclass(frozen=True)
class _QueryChunk:
    """Some of the queries, the keys that are visible to them, and the columns of their distances."""

    queries: slice
    keys: slice
    roll: int  # keys are rolled by this number, so that the last keys are those of the queries
    columns: slice
    first: int  # the distance of the first column
    call: Arguments  # of all queries, with the positions and documents of this chunk

    def select(self, name: str, x: Tensor) -> Tensor:
        """Return the part of a tensor that belongs to this chunk, by the axes that are declared for its name."""
        return self._rolled(name, x[self._indices(name)], self.roll)

    def add(self, name: str, gradient: Tensor, new: Tensor) -> None:
        """Add the gradient of what `select` returned to that of what it selected from."""
        gradient[self._indices(name)] += self._rolled(name, new, -self.roll)

    def _indices(self, name: str) -> tuple[slice, ...]:
        of_axis = {"queries": self.queries, "keys": self.keys, **dict.fromkeys(_DISTANCES, self.columns)}
        return tuple(of_axis.get(axis, slice(None)) for axis in _AXES[name])

    @staticmethod
    def _rolled(name: str, x: Tensor, by: int) -> Tensor:
        return x.roll(by, _AXES[name].index("keys")) if by and "keys" in _AXES[name] else x

    def arguments(self) -> Arguments:
        """Return the arguments of this chunk, with the products of its queries and the vectors as rows."""
        parts: dict[str, Any] = {
            name: self.select(name, x)
            for name in TENSORS
            if name not in _PLACES and (x := getattr(self.call, name)) is not None
        }
        content, key_vectors = parts.pop("content"), parts.pop("key_vectors")
        return self.call._replace(
            **{name: x.contiguous() for name, x in parts.items()},
            rows=block_product(content, key_vectors.mT),
            rows_first=self.first,
            content=None,
            key_vectors=None,
            value_vectors_first=self.first,
        )


def query_chunks(q: Tensor, keys: int, call: Arguments) -> Iterator[_QueryChunk]:
    assert call.key_vectors is not None
    size, vectors_first, causal, window = call.key_vectors.shape[1], call.key_vectors_first, call.causal, call.window
    position_q, position_k, documents = call.position_q, call.position_k, call.documents
    count = q.shape[2]
    chunk_size = queries_per_chunk(count, q.shape[3], size)
    assert causal or not window or count <= chunk_size, "windows depend on indices, which rolling the keys would change"
    for start in range(0, count, chunk_size):
        end = min(count, start + chunk_size)
        first, last = keys - count + start, keys - count + end - 1  # the indices of the first and the last query
        visible = last + 1 if causal else keys
        low, high, roll = 0, size, visible - last - 1
        if position_k is None:
            lowest, highest = 0 if causal else first - keys + 1, last
            if window:
                lowest, highest = max(lowest, 1 - window), min(highest, window - 1)
            low = min(max(lowest - vectors_first, 0), size - 1)
            high = min(max(highest - vectors_first, low), size - 1) + 1
        chunk_q = None if position_q is None else _slice(position_q, start, end)
        chunk_k, chunk_documents = (None if x is None else _slice(x, 0, visible) for x in (position_k, documents))
        if roll:
            chunk_k = torch.arange(keys, device=q.device)[None] if chunk_k is None else chunk_k
            chunk_q = chunk_k[:, first : last + 1].contiguous() if chunk_q is None else chunk_q
            chunk_k = chunk_k.roll(roll, 1)
            chunk_documents = None if chunk_documents is None else chunk_documents.roll(roll, 1)
        chunk_call = call._replace(position_q=chunk_q, position_k=chunk_k, documents=chunk_documents)
        yield _QueryChunk(slice(start, end), slice(0, visible), roll, slice(low, high), vectors_first + low, chunk_call)


def _slice(x: Tensor, start: int, end: int) -> Tensor:
    return x[:, start:end].contiguous()


def forward(q: Tensor, k: Tensor, v: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Return the output and lse; see operator.py."""
    if arguments.content is None:
        return gpu.forward(q, k, v, arguments)
    out, lse = like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))
    with torch.autocast(q.device.type, enabled=False):
        for chunk in query_chunks(q, k.shape[2], arguments):
            at, qkv = chunk.queries, (chunk.select("q", q), chunk.select("k", k), chunk.select("v", v))
            out[:, :, at], lse[:, :, at] = gpu.forward(*qkv, chunk.arguments())
    return out, lse


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, arguments: Arguments, needs: Needs
) -> Gradients:
    """Return the gradients of q, k, v and the learned arguments; see operator.py."""
    content, key_vectors = arguments.content, arguments.key_vectors
    if content is None or key_vectors is None:
        return gpu.backward(grad, q, k, v, out, lse, arguments, needs)
    total = empty_gradients(q, k, v, lse, arguments, needs)
    # Sums over the chunks, in the dtype that attention computes in.
    total |= {name: like_heads(x.to(lse.dtype)) for name, x in (("k", k), ("v", v))}
    needs_vectors = "key_vectors" in needs
    if needs_vectors:
        total["key_vectors"] = key_vectors.new_empty(q.shape[1], *key_vectors.shape[1:])
    for x in total.values():
        x.zero_()
    with torch.autocast(q.device.type, enabled=False):
        for chunk in query_chunks(q, k.shape[2], arguments):
            at, columns = chunk.queries, chunk.columns
            new = gpu.backward(
                grad[:, :, at], q[:, :, at], chunk.select("k", k), chunk.select("v", v), out[:, :, at],
                lse[:, :, at].contiguous(), chunk.arguments(), needs | ({"rows"} if needs_vectors else set()),
            )  # fmt: skip
            for name in {"q", "k", "v"} | (needs - {"content", "key_vectors"}):
                chunk.add(name, total[name], new[name])
            if needs_vectors:
                total["content"][:, :, at] = block_product(new["rows"], key_vectors[:, columns])
                add_product_over_queries(total["key_vectors"][:, columns], new["rows"], content[:, :, at])
    if needs_vectors and len(key_vectors) == 1:
        total["key_vectors"] = total["key_vectors"].sum(0, keepdim=True)
    return total | {"k": total["k"].to(k.dtype), "v": total["v"].to(v.dtype)}
