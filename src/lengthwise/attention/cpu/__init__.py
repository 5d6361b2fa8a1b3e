"""The compiled CPU kernel (csrc/) behind operator.py: how it is called."""

import ctypes
import functools
import warnings

import torch
from torch import Tensor

from lengthwise.attention.buffers import Gradients, computed_in, empty_gradients, like_heads
from lengthwise.attention.cpu import library
from lengthwise.attention.cpu.building import CannotBuild

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
TARGETS = ("portable", "avx2", "avx512")

_POINTER, _WHOLE = ctypes.c_void_p, ctypes.c_int64


class _View(ctypes.Structure):
    _fields_ = (("at", _POINTER), ("batch", _WHOLE), ("head", _WHOLE), ("token", _WHOLE))


class _Call(ctypes.Structure):
    """`Call` in csrc/params.h, field by field in the same order."""

    _fields_ = (
        *((name, _WHOLE) for name in ("batch", "heads", "kv_heads", "queries", "keys", "dim")),
        *((name, _WHOLE) for name in ("dtype", "causal", "threads", "target", "backward")),
        ("scale", ctypes.c_double),
        *((name, _View) for name in ("q", "k", "v", "out", "grad", "dq", "dk", "dv")),
        *((name, _POINTER) for name in ("lse", "table", "dtable")),
        *((name, _WHOLE) for name in ("table_heads", "table_size", "first")),
        *((name, _POINTER) for name in ("slope", "intercept", "knots", "u", "w")),
        *((name, _POINTER) for name in ("dslope", "dintercept", "du", "dw")),
        *((name, _WHOLE) for name in ("piece_heads", "pieces", "u_size", "w_batch")),
        *((name, _POINTER) for name in ("position_q", "position_k")),
        *((name, _WHOLE) for name in ("position_q_batch", "position_k_batch")),
        ("documents", _POINTER),
        ("documents_batch", _WHOLE),
        ("window", _WHOLE),
        ("rows", _POINTER),
        ("drows", _POINTER),
        *((name, _WHOLE) for name in ("rows_heads", "rows_size", "rows_first")),
        *((name, _POINTER) for name in ("statistics", "edges", "rank")),
        *((name, _WHOLE) for name in ("edges_size", "rank_batch", "first_keys", "last_keys")),
        *((name, _POINTER) for name in ("cos_sin_q", "cos_sin_k")),
        *((name, _WHOLE) for name in ("cos_sin_q_batch", "cos_sin_k_batch", "pairs", "interleaved")),
    )


_reason: list[str | None] = []  # what `missing` found out; a list, because torch.compile does not believe in caches


def missing() -> str | None:
    """Why there is no compiled kernel here, or None; found out once, and said once as a warning."""
    if not _reason:
        _reason.append(_look())
    return _reason[0]


# A graph is made for what was found out: `torch.compiler.assume_constant_result`, without loading torch's compiler for it.
missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _look() -> str | None:
    try:
        _library()
    except CannotBuild as error:
        warnings.warn(
            f"lengthwise's fused CPU attention is not there: {error}. Other backends serve attention on the CPU instead: the "
            "same results, several times more slowly. Install a C++ compiler (Debian and Ubuntu: apt install g++) and "
            "start again",
            stacklevel=4,
        )
        return f"its compiled kernel is not there: {error}"
    return None


@functools.cache
def _library() -> ctypes.CDLL:
    return library.load(ctypes.sizeof(_Call))


def best_target() -> str:
    """What runs on this processor: "portable", "avx2" or "avx512"."""
    return TARGETS[_library().lengthwise_target()]


_wanted_target = -1  # the best; tests ask for others


def _view(x: Tensor) -> _View:
    return _View(x.data_ptr(), *x.stride()[:3])


_PIECES = ("slope", "intercept", "knots", "u", "w")


def _exact(*pieces: Tensor | None) -> dict[str, Tensor | None]:
    """`_PIECES` as the kernel takes them."""
    return {name: None if x is None else x.double() for name, x in zip(_PIECES, pieces, strict=True)}


def _rows(x: Tensor) -> Tensor:
    """The numbers of one token side by side."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _describe(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, numbers: dict[str, int | float],
    bias: dict[str, Tensor | None], places: dict[str, Tensor | None],
) -> _Call:  # fmt: skip
    call = _Call(
        batch=q.shape[0], heads=q.shape[1], kv_heads=k.shape[1], queries=q.shape[2], keys=k.shape[2], dim=q.shape[3],
        dtype=DTYPES[q.dtype], threads=torch.get_num_threads(), target=_wanted_target,
        q=_view(q), k=_view(k), v=_view(v), out=_view(out), lse=lse.data_ptr(), **numbers,
    )  # fmt: skip
    for name, tensor in bias.items():
        if tensor is not None:
            dtype = torch.float64 if name in _PIECES else lse.dtype
            assert tensor.is_contiguous() and tensor.dtype == dtype, name
            setattr(call, name, tensor.data_ptr())
    table, slope, u, w, rows = (bias[name] for name in ("table", "slope", "u", "w", "rows"))
    if table is not None:
        call.table_heads, call.table_size = table.shape
    if slope is not None and u is not None and w is not None:
        call.piece_heads, call.pieces = slope.shape
        call.u_size, call.w_batch = len(u), len(w)
    if rows is not None:
        assert rows.shape[0] == call.batch and rows.shape[2] == call.queries
        call.rows_heads, call.rows_size = rows.shape[1], rows.shape[3]
    for name, tensor in places.items():
        if tensor is not None:
            assert tensor.is_contiguous() and tensor.dtype == torch.long, name
            setattr(call, name, tensor.data_ptr())
            setattr(call, f"{name}_batch", tensor.shape[1] if len(tensor) > 1 else 0)
    return call


def _rotate(call: _Call, cos_sin_q: Tensor | None, cos_sin_k: Tensor | None, interleaved: bool) -> None:
    for name, turn, tokens in (("cos_sin_q", cos_sin_q, call.queries), ("cos_sin_k", cos_sin_k, call.keys)):
        if turn is not None:
            pairs = call.pairs or turn.shape[3]
            dtype = torch.float64 if call.dtype == DTYPES[torch.float64] else torch.float32
            assert turn.is_contiguous() and turn.dtype == dtype and 2 * pairs <= call.dim, name
            assert len(turn) in (1, call.batch) and turn.shape[1:] == (tokens, 2, pairs), name
            setattr(call, name, turn.data_ptr())
            setattr(call, f"{name}_batch", turn[0].numel() if len(turn) > 1 else 0)
            call.pairs = pairs
    call.interleaved = interleaved


def _do(call: _Call) -> None:
    if _library().lengthwise_attention(ctypes.byref(call)):
        raise MemoryError(f"attention of {call.batch} x {call.heads} heads with {call.keys} keys")


def forward(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, u: Tensor | None, w: Tensor | None, rows: Tensor | None, rows_first: int,
    position_q: Tensor | None, position_k: Tensor | None, documents: Tensor | None, causal: bool, window: int,
    scale: float, cos_sin_q: Tensor | None = None, cos_sin_k: Tensor | None = None, interleaved: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output and lse; see operator.py."""
    q, k, v = _rows(q), _rows(k), _rows(v)
    out, lse = like_heads(q), q.new_empty(q.shape[:3], dtype=computed_in(q))
    numbers = {"first": first, "rows_first": rows_first, "causal": causal, "window": window, "scale": scale}
    bias = {"table": table, "rows": rows, **_exact(slope, intercept, knots, u, w)}
    places = {"position_q": position_q, "position_k": position_k, "documents": documents}
    call = _describe(q, k, v, out, lse, numbers, bias, places)
    _rotate(call, cos_sin_q, cos_sin_k, interleaved)
    _do(call)
    return out, lse


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor | None, first: int,
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, u: Tensor | None, w: Tensor | None,
    rows: Tensor | None, rows_first: int, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float, cos_sin_q: Tensor | None, cos_sin_k: Tensor | None,
    interleaved: bool, of_table: bool, of_pieces: bool, of_rows: bool, apart: bool = True,
) -> Gradients:  # fmt: skip
    """Gradients of q, k, v, table, slope, intercept, u, w, rows; see operator.py, and buffers.py for `apart`."""
    q, k, v, grad = _rows(q), _rows(k), _rows(v), _rows(grad)
    gradients = empty_gradients(q, k, v, lse, table, slope, u, w, rows, of_table, of_pieces, of_rows, apart)
    numbers = {"first": first, "rows_first": rows_first, "causal": causal, "window": window, "scale": scale}
    bias = {"table": table, "rows": rows, **_exact(slope, intercept, knots, u, w)}
    places = {"position_q": position_q, "position_k": position_k, "documents": documents}
    call = _describe(q, k, v, _rows(out), lse, numbers, bias, places)
    _rotate(call, cos_sin_q, cos_sin_k, interleaved)
    call.backward, call.grad = True, _view(grad)
    call.dq, call.dk, call.dv = map(_view, gradients[:3])
    if of_table:
        call.dtable = gradients[3].data_ptr()
    exact = (
        [x.double() for x in gradients[4:8]] if of_pieces else []
    )  # what is there already, where it is of that dtype
    for name, tensor in zip(("dslope", "dintercept", "du", "dw"), exact, strict=False):
        setattr(call, name, tensor.data_ptr())
    if not of_rows or rows is None:
        _do(call)
        return _with(gradients, exact)
    # The kernel gives every head a gradient of its own, also where the rows are the same for all.
    drows = gradients[8] if rows.shape[1] == q.shape[1] else rows.new_empty(*q.shape[:3], rows.shape[3])
    call.drows = drows.data_ptr()
    _do(call)
    gradients = _with(gradients, exact)
    return (*gradients[:8], drows if drows is gradients[8] else drows.sum(1, keepdim=True))


def _with(gradients: Gradients, exact: list[Tensor]) -> Gradients:
    """With those of the pieces, in the dtype that was given."""
    for x, found in zip(gradients[4:8], exact, strict=False):
        if found is not x:
            x.copy_(found)
    return gradients


def statistics(
    q: Tensor, k: Tensor, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, u: Tensor | None, w: Tensor | None, rows: Tensor | None, rows_first: int,
    position_q: Tensor | None, position_k: Tensor | None, documents: Tensor | None, causal: bool, window: int,
    scale: float, edges: Tensor, rank: Tensor | None, first_keys: int, last_keys: int,
) -> Tensor:  # fmt: skip
    """Of every query the mass in each bin of distances, the entropy in nats, and the mass on the first and the last keys of
    its document, [b, h, i, bins + 3] in float64. `edges` of the bins, ascending; `rank` [b|1, j]: how many keys of its own
    document come before each key, None where that is its index. The others as in operator.py."""
    q, k, edges = _rows(q), _rows(k), edges.contiguous()
    made = q.new_empty((*q.shape[:3], len(edges) + 4), dtype=torch.float64)
    numbers = {"first": first, "rows_first": rows_first, "causal": causal, "window": window, "scale": scale}
    bias = {"table": table, "rows": rows, **_exact(slope, intercept, knots, u, w)}
    places = {"position_q": position_q, "position_k": position_k, "documents": documents, "rank": rank}
    # Of values and output it takes nothing.
    call = _describe(q, k, k, q, q.new_empty(0, dtype=computed_in(q)), numbers, bias, places)
    call.statistics, call.edges, call.edges_size = made.data_ptr(), edges.data_ptr(), len(edges)
    call.first_keys, call.last_keys = first_keys, last_keys
    _do(call)
    return made
