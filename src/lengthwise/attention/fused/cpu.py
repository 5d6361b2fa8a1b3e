"""Calls of the compiled CPU kernel (lengthwise.native) behind operator.py."""

import ctypes

import torch
from torch import Tensor

from lengthwise.attention.fused.arguments import Arguments, NeedsGrad, Rotary, Segments, Vectors
from lengthwise.attention.fused.buffers import Gradients, compute_dtype, empty_gradients, like_heads
from lengthwise.native import loaded, missing, openmp
from lengthwise.native.call import Call, DistanceVectors, View
from lengthwise.values import ConfigError

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}

forced_target = -1  # -1: the best one; tests set others


def _view(x: Tensor) -> View:
    return View(x.data_ptr(), *x.stride()[:3])


def _contiguous_tokens(x: Tensor) -> Tensor:
    """Return `x`, or a copy if the dims of a token are not contiguous or its memory holds the negated numbers."""
    x = x.resolve_neg()
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _new_call(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, arguments: Arguments, vectors: Vectors | None = None
) -> tuple[Call, list[Tensor]]:
    """Return the arguments of a call, and the tensors that were made for it, which must live until it has run."""
    biases, rows, geometry, scale, rotary, sink, prefix_sum, values = arguments
    if rows.table is not None:
        raise NotImplementedError("rows must be None on a CPU; use torch.ops.lengthwise.relative_attention")
    call = Call(
        batch=q.shape[0], heads=q.shape[1], kv_heads=k.shape[1], queries=q.shape[2], keys=k.shape[2], dim=q.shape[3],
        dtype=DTYPES[q.dtype], threads=openmp.threads(), target=forced_target,
        q=_view(q), k=_view(k), v=_view(v), out=_view(out), lse=lse.data_ptr(), scale=scale,
        causal=geometry.causal, window=geometry.window, table_first=biases.first,
    )  # fmt: skip
    # A compiled graph reaches this place without the checks of fit.py, and the kernel trusts the sizes.
    if (table := biases.table) is not None:
        call.table = _pointer("table", table, lse.dtype)
        _require(table.shape[0] in (1, q.shape[1]) and table.shape[1] > 0, "table", table, q)
        call.table_heads, call.table_size = table.shape
    made = [] if biases.segments is None else _add_segments(call, biases.segments, q)
    if vectors is not None:
        call.content = _pointer("content", vectors.content, lse.dtype)
        _require(vectors.content.shape == (*q.shape[:3], vectors.table.shape[2]), "content", vectors.content, q)
        call.key_vectors = _distance_vectors("relative", vectors.table, vectors.first, lse.dtype, q)
    if values.table is not None:
        call.value_vectors = _distance_vectors("value_vectors", values.table, values.first, lse.dtype, q)
        _require(values.table.shape[2] == q.shape[3], "value_vectors", values.table, q)
    if prefix_sum is not None:
        call.prefix_sum = _pointer("prefix_sum", prefix_sum, torch.float64)
        shapes = [(q.shape[0], heads, k.shape[2]) for heads in (1, q.shape[1])]
        _require(prefix_sum.shape in shapes, "prefix_sum", prefix_sum, q)
        call.prefix_sum_heads = prefix_sum.shape[1]
    _add_integers(call, "position_q", geometry.position_q)
    _add_integers(call, "position_k", geometry.position_k)
    _add_integers(call, "documents", geometry.documents)
    _rotate(call, rotary)
    if sink is not None:
        call.sink = _pointer("sink", sink, lse.dtype)
        _require(sink.shape == q.shape[1:2], "sink", sink, q)
    return call, made


def _pointer(name: str, tensor: Tensor, dtype: torch.dtype) -> int:
    assert tensor.is_contiguous() and tensor.dtype == dtype, name
    return tensor.data_ptr()


def _distance_vectors(name: str, table: Tensor, first: int, dtype: torch.dtype, q: Tensor) -> DistanceVectors:
    _require(table.shape[0] in (1, q.shape[1]) and table.shape[1] > 0, name, table, q)
    heads, size, dim = table.shape
    return DistanceVectors(table=_pointer(name, table, dtype), heads=heads, size=size, first=first, dim=dim)


def _add_segments(call: Call, segments: Segments, q: Tensor) -> list[Tensor]:
    """Add segments to the call and return their tensors in float64, which the kernel reads."""
    segments = Segments(*(x.double() for x in segments))
    for name, tensor in segments._asdict().items():
        setattr(call, name, _pointer(name, tensor, torch.float64))
    slope, intercept, knots, distance_feature, query_scale = segments
    _require(slope.shape[0] in (1, q.shape[1]) and slope.shape[1] > 0, "slope", slope, q)
    _require(len(distance_feature) > 0, "distance_feature", distance_feature, q)
    _require(query_scale.shape[1] == q.shape[2] and len(query_scale) in (1, q.shape[0]), "query_scale", query_scale, q)
    _require(intercept.shape == slope.shape, "intercept", intercept, q)
    _require(tuple(knots.shape) == (slope.shape[1] - 1,), "knots", knots, q)
    call.segment_heads, call.segments = slope.shape
    call.feature_size, call.query_scale_batch = len(distance_feature), len(query_scale)
    return list(segments)


def _add_integers(call: Call, name: str, tensor: Tensor | None) -> None:
    """Add a tensor with a whole number per token [b|1, tokens] to the call."""
    if tensor is not None:
        setattr(call, name, _pointer(name, tensor, torch.long))
        setattr(call, f"{name}_stride", tensor.shape[1] if len(tensor) > 1 else 0)


def _require(fits: bool, name: str, tensor: Tensor, q: Tensor) -> None:
    if not fits:
        raise ConfigError(f"{name} has shape {list(tensor.shape)}, which does not fit q of shape {list(q.shape)}")


def _rotate(call: Call, rotary: Rotary) -> None:
    sides = (("cos_sin_q", rotary.cos_sin_q, call.queries), ("cos_sin_k", rotary.cos_sin_k, call.keys))
    for name, cos_sin, tokens in sides:
        if cos_sin is not None:
            rows, own_tokens, two, pairs = cos_sin.shape
            dtype = torch.float64 if call.dtype == DTYPES[torch.float64] else torch.float32
            assert cos_sin.is_contiguous() and cos_sin.dtype == dtype and 2 * pairs <= call.dim, name
            assert rows in (1, call.batch) and own_tokens == tokens and two == 2 and call.pairs in (0, pairs), name
            setattr(call, name, cos_sin.data_ptr())
            setattr(call, f"{name}_stride", tokens * 2 * pairs if rows > 1 else 0)
            call.pairs = pairs
    call.interleaved = rotary.interleaved


def _run(call: Call) -> None:
    """Run the kernel; raise `MemoryError` if it cannot allocate its scratch memory."""
    if loaded().lengthwise_attention(ctypes.byref(call)):
        raise MemoryError(f"attention of {call.batch} x {call.heads} heads with {call.keys} keys")


def forward(
    q: Tensor, k: Tensor, v: Tensor, arguments: Arguments, vectors: Vectors | None = None
) -> tuple[Tensor, Tensor]:
    """Return the output and lse; see operator.py, and relative.py for `vectors`."""
    q, k, v = _contiguous_tokens(q), _contiguous_tokens(k), _contiguous_tokens(v)
    out, lse = like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))
    call, _made = _new_call(q, k, v, out, lse, arguments, vectors)
    _run(call)
    return out, lse


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    arguments: Arguments,
    needs: NeedsGrad,
    separate_storage: bool = True,
    vectors: tuple[Vectors, Tensor, Tensor] | None = None,
) -> Gradients:
    """Return the gradients of the arguments; see operator.py, and buffers.py for `separate_storage`.

    `vectors`: those of relative.py, and tensors like their content and their table, which their gradients are written to.
    """
    q, k, v, grad, out = (_contiguous_tokens(x) for x in (q, k, v, grad, out))
    gradients = empty_gradients(q, k, v, lse, arguments, needs, separate_storage)
    call, _made = _new_call(q, k, v, out, lse, arguments, vectors and vectors[0])
    call.backward, call.grad = True, _view(grad)
    call.dq, call.dk, call.dv = map(_view, gradients[:3])
    if needs.table:
        call.grad_table = gradients[3].data_ptr()
    # The gradients of segments are float64. Those of arguments in float64 are written in place.
    exact = [x.double() for x in gradients[4:8]] if needs.segments else []
    fields = "grad_slope", "grad_intercept", "grad_feature", "grad_query_scale"
    for name, tensor in zip(fields, exact, strict=False):
        setattr(call, name, tensor.data_ptr())
    dsink, dprefix_sum, dvalues = gradients[9:]
    if vectors is not None:
        call.grad_content, call.key_vectors.grad = (x.data_ptr() for x in vectors[1:])
    if needs.values:
        call.value_vectors.grad = dvalues.data_ptr()
    by_head = None
    if needs.prefix_sum:  # the kernel adds to a gradient for every head, even if all heads share the sum
        by_head = dprefix_sum.new_zeros(*q.shape[:2], k.shape[2])
        call.grad_prefix_sum = by_head.data_ptr()
    by_sequence = lse.new_zeros(lse.shape[:2], dtype=torch.float64) if needs.sink else None
    if by_sequence is not None:
        call.grad_sink = by_sequence.data_ptr()
    _run(call)
    if by_sequence is not None:
        dsink.copy_(by_sequence.sum(0))
    if by_head is not None:
        dprefix_sum.copy_(by_head if dprefix_sum.shape[1] == q.shape[1] else by_head.sum(1, keepdim=True))
    for x, result in zip(gradients[4:8], exact, strict=False):
        if result is not x:
            x.copy_(result)
    return gradients


def statistics(
    q: Tensor,
    k: Tensor,
    arguments: Arguments,
    *,
    edges: Tensor,
    rank: Tensor | None,
    first_keys: int,
    last_keys: int,
) -> Tensor:
    """Return statistics of the weights of every query, [b, h, i, bins + 3] in float64.

    They are the mass in each bin of distances, the entropy in nats, and the mass on the first and the last keys of the query's
    document. `edges`: of the bins, ascending. `rank` [b|1, j]: how many keys of its own document come before each key; None
    if that is its index.
    """
    q, k, edges = _contiguous_tokens(q), _contiguous_tokens(k), edges.contiguous()
    result = q.new_empty((*q.shape[:3], len(edges) + 4), dtype=torch.float64)
    # It does not read values and output.
    call, _made = _new_call(q, k, k, q, q.new_empty(0, dtype=compute_dtype(q)), arguments)
    _add_integers(call, "rank", rank)
    call.statistics, call.edges, call.edges_size = result.data_ptr(), edges.data_ptr(), len(edges)
    call.first_keys, call.last_keys = first_keys, last_keys
    _run(call)
    return result


__all__ = ["DTYPES", "backward", "forward", "missing", "statistics"]
