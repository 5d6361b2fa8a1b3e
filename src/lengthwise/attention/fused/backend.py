"""The `fused` backend: our own kernels (operator.py) in C++ on a CPU (cpu/) and in Triton on a GPU (gpu/).

They support rotations, tables over distances, and piecewise linear biases (FIRE). No bias is ever a T x T matrix: memory is that
of torch's fused attention without an encoding, forward and backward. The gradients of tables, slopes and intercepts are
computed in the same pass. Dtypes: float32; half precision, computed in float32; on a CPU also float64. On a CPU the kernel
rotates q and k as it reads them; on a GPU they are rotated before. Query gains are applied before the kernel.
"""

import functools
from collections.abc import Callable, Hashable
from operator import index
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.attention.backends.base import Attend, Backend, Measurement
from lengthwise.attention.fused import cpu, gpu, operator, relative
from lengthwise.attention.fused.buffers import compute_dtype
from lengthwise.attention.fused.gpu import verdicts
from lengthwise.attention.masks import Mask
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    KeyBias,
    PiecewiseLinearBias,
    RelativeKeyBias,
    Rotation,
    ToeplitzBias,
)
from lengthwise.span import Span

# Devices where half precision is converted to float32 before q and k are rotated and so on, which avoids a second rounding.
CONVERTS_TO_FLOAT32 = ("cpu",)
KERNEL_ROTATES = ("cpu",)  # devices whose kernel rotates q and k


class Fused(Backend):
    """Our own kernels, in C++ on a CPU and in Triton on a GPU."""

    name = "fused"

    def unsupported_reason(self, modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
        """Return why this backend does not support the modifiers, or None."""
        if modifiers.logit_transform:
            return "LogitTransform needs whole rows of logits, which fused attention never has"
        if modifiers.values:
            return "RelativeValues needs the weights, which fused attention never has"
        for term in modifiers.terms:
            if isinstance(term, KeyBias) and modifiers.rotation:
                return "KeyBias together with a Rotation needs unrotated keys"
            if not isinstance(term, (ToeplitzBias, PiecewiseLinearBias, RelativeKeyBias, ContentBias, KeyBias)):
                return f"{type(term).__name__} is not a table over distances"
            if getattr(term, "distances", None) is not None:
                return "positions lie so far apart that distances are listed, and its tables need every distance"
        vector_terms = _vector_terms(modifiers)
        for terms in (_toeplitz_terms(modifiers), vector_terms):
            if reason := _gap([(term.table, term.first) for term in terms]):
                return reason
        if vector_terms:
            size = _distance_range([(term.table, term.first) for term in vector_terms])[1]
            bidirectional_window = mask.window and not mask.causal  # which needs all queries in one part
            if bidirectional_window and mask.queries > relative.queries_per_part(mask.queries, q.shape[-1], size):
                return f"vectors of {size:,} distances are too many for a bidirectional window"
        if sum(isinstance(term, PiecewiseLinearBias) for term in modifiers.terms) > 1:
            return "it supports at most one PiecewiseLinearBias"
        if q.device.type not in ("cpu", "cuda"):
            return f"it has no kernel for the device {q.device.type}"
        kernel = gpu if q.is_cuda else cpu
        if q.dtype not in kernel.DTYPES:
            return f"it does not support {q.dtype} on {q.device.type}"
        if q.is_cuda and q.shape[-1] > gpu.MAX_HEAD_DIM:
            return f"on a GPU it supports heads of at most {gpu.MAX_HEAD_DIM} dims, got {q.shape[-1]}"
        if (reason := kernel.missing()) or not q.is_cuda:
            return reason
        return _verdict(modifiers, q)

    def prepare(self, modifiers: AttentionModifiers, span: Span, mask: Mask) -> Attend:
        """Return attention for one span. What does not depend on q and k is computed at the first call and reused."""
        return functools.partial(_attend, modifiers, span, mask, _vector_terms(modifiers), {})

    def statistics_unsupported_reason(
        self, modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor
    ) -> str | None:
        """Return why `statistics` does not support the modifiers, or None."""
        if q.device.type != "cpu":
            return f"its kernel for {q.device.type} computes no statistics"
        if _vector_terms(modifiers):
            return "products with vectors of distances are computed for some queries at a time, and statistics in one pass over all"
        return self.unsupported_reason(modifiers, span, mask, q)

    def statistics(self, measurement: Measurement, q: Tensor, k: Tensor) -> Float[Tensor, "b h i m"]:
        """Return the statistics of every query, computed in one pass of the CPU kernel."""
        modifiers, mask = measurement.modifiers, measurement.mask
        compute = torch.promote_types(q.dtype, torch.float32)
        if _changes_q_or_k(modifiers, modifiers.rotation):
            q, k = _transformed(modifiers, modifiers.rotation, q.to(compute), k.to(compute))
        static = _static_arguments(modifiers, measurement.span, mask, compute)
        edges = torch.tensor(measurement.edges, dtype=torch.long)
        rank = None if mask.documents is None else measurement.rank(q.device)
        options = mask.causal, mask.window or 0, measurement.scale
        arguments = (*static, *options, edges, rank, measurement.first, measurement.last)
        return cpu.statistics(q, k, *arguments)


def _verdict(modifiers: AttentionModifiers, q: Tensor) -> str | None:
    """Return why the comparison with the reference excludes the GPU kernels for the modifiers, or None."""
    # `index` also converts a symbolic size of a compiled graph to a plain number; int() does not.
    return verdicts.objection("+".join(_bias_kinds(modifiers)), index(q.shape[-1]), q.dtype, q.device)


def _bias_kinds(modifiers: AttentionModifiers) -> list[str]:
    """Return the kinds of bias that the GPU kernels are compiled for: entries of `verdicts.BIASES`, in that order."""
    sizes = [term.slope.shape[1] for term in modifiers.terms if isinstance(term, PiecewiseLinearBias)]
    needed = {
        "table": any(isinstance(term, ToeplitzBias) for term in modifiers.terms),
        "segments": any(size <= operator.MAX_FAST_SEGMENTS for size in sizes),
        "many segments": any(size > operator.MAX_FAST_SEGMENTS for size in sizes),
        "vectors": bool(_vector_terms(modifiers)),
    }
    return [bias for bias in verdicts.BIASES if needed[bias]]


_RotationArguments = dict[str, Any]  # the operator's arguments for a rotation; empty without one
_Cache = dict[tuple[torch.dtype, bool, float], tuple[tuple[Any, ...], Tensor | None, int, _RotationArguments]]


# This is not an inner function of `prepare`, because evaluating annotations with shapes takes a tenth of a millisecond.
# Autocast does not change anything here: there is no matrix product that it intercepts.
def _attend(
    modifiers: AttentionModifiers,
    span: Span,
    mask: Mask,
    vector_terms: list[RelativeKeyBias | ContentBias],
    cache: _Cache,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j d"],
    *,
    scale: float,
) -> Float[Tensor, "b h i d"]:
    compute = compute_dtype(q)
    key = compute, torch.is_grad_enabled(), scale  # tensors computed without gradients cannot be used with them
    if key not in cache:
        cos_sin = (
            _rotation_arguments(modifiers.rotation, compute)
            if q.device.type in KERNEL_ROTATES and not vector_terms
            else {}
        )
        static = _static_arguments(modifiers, span, mask, compute)
        cache[key] = static, *_combined_vectors(vector_terms, compute, scale), cos_sin
    static, vectors, vectors_first, cos_sin = cache[key]
    cos_sin = cos_sin if _shapes_fit(cos_sin, q, k) else {}
    rotation = None if cos_sin else modifiers.rotation
    input_dtype = q.dtype
    if q.device.type in CONVERTS_TO_FLOAT32 and (vector_terms or _changes_q_or_k(modifiers, rotation)):
        q, k, v = q.to(compute), k.to(compute), v.to(compute)
    contents = [_content(term, q.to(compute)) for term in vector_terms]
    q, k = _transformed(modifiers, rotation, q, k)
    options = mask.causal, mask.window or 0, scale
    if vectors is None:
        out, _ = operator.attend(q, k, v, *static, *options, **cos_sin)
    else:
        bias, positions = static[:-5], static[-3:]  # without the rows, which this operator computes itself
        content = contents[0] if len(vector_terms) == 1 else torch.cat(contents, -1)
        out, _ = relative.relative_attention(q, k, v, content, vectors, vectors_first, *bias, *positions, *options)
    return out.to(input_dtype)


def _rotation_arguments(rotation: Rotation | None, dtype: torch.dtype) -> _RotationArguments:
    """Return the operator's arguments for a rotation; empty if there is none, or if its angles need a gradient."""
    if rotation is None:
        return {}
    q_pair, k_pair = rotation.cos_sin()
    if any(x.requires_grad for pair in (q_pair, k_pair) if pair for x in pair):
        return {}
    cos_sin_q = _packed(q_pair, dtype)
    cos_sin_k = cos_sin_q if rotation.same_for_keys else _packed(k_pair, dtype)
    return {"cos_sin_q": cos_sin_q, "cos_sin_k": cos_sin_k, "interleaved": rotation.layout == "interleaved"}


def _shapes_fit(arguments: _RotationArguments, q: Tensor, k: Tensor) -> bool:
    """Whether the kernel supports a rotation of these shapes. Otherwise q and k are rotated before, where errors are raised."""
    pairs = (("cos_sin_q", q), ("cos_sin_k", k))
    sides = [(arguments[name], x) for name, x in pairs if arguments.get(name) is not None]
    if len({cos_sin.shape[3] for cos_sin, _ in sides}) > 1:
        return False
    return all(
        len(cos_sin) in (1, len(x)) and cos_sin.shape[1] == x.shape[2] and 2 * cos_sin.shape[3] <= x.shape[3]
        for cos_sin, x in sides
    )


def _packed(cos_sin: tuple[Tensor, Tensor] | None, dtype: torch.dtype) -> Tensor | None:
    """Return cosines and sines [b|1, 1, t, pairs] as one tensor [b|1, t, 2, pairs]."""
    return None if cos_sin is None else torch.stack([x.to(dtype) for x in torch.broadcast_tensors(*cos_sin)], 3)[:, 0]


def _changes_q_or_k(modifiers: AttentionModifiers, rotation: Rotation | None) -> bool:
    """Whether `_transformed` changes anything."""
    has_key_bias = any(isinstance(term, KeyBias) for term in modifiers.terms)
    return rotation is not None or modifiers.gain is not None or has_key_bias


def _transformed(
    modifiers: AttentionModifiers, rotation: Rotation | None, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor]:
    """Return q and k with the rotation applied, and the query gain and every `KeyBias` merged into q."""
    compute = torch.promote_types(q.dtype, torch.float32)
    if rotation:
        q, k = rotation.query(q), rotation.key(k)
    if modifiers.gain:
        q = (q * modifiers.gain.gain[..., None].to(compute)).to(q.dtype)
    for term in modifiers.terms:
        if isinstance(term, KeyBias):  # <q_i + vector, k_j>
            q = (q.to(compute) + term.vector[:, None].to(compute)).to(q.dtype)
    return q, k


def _static_arguments(modifiers: AttentionModifiers, span: Span, mask: Mask, dtype: torch.dtype) -> tuple[Any, ...]:
    """Return the operator's arguments from `table` to `documents`."""
    table, first = _combined_table(_toeplitz_terms(modifiers), dtype)
    segments: tuple[Tensor | None, ...] = (None,) * 5
    for term in modifiers.terms:
        if isinstance(term, PiecewiseLinearBias):
            tensors = (term.slope, term.intercept, term.knots.detach(), term.distance_feature, term.query_scale)
            segments = tuple(x.to(torch.float64).contiguous() for x in tensors)
    positions = (None, None) if span.consecutive else (span.q.long().contiguous(), span.k.long().contiguous())
    documents = None if mask.documents is None else mask.documents.long().contiguous()
    return (table, first, *segments, None, 0, *positions, documents)


def _cached(term: ToeplitzBias | RelativeKeyBias, key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
    """Return `compute()`, a tensor derived from the term's table, and store it for the next steps of a decoding loop."""
    if torch.is_grad_enabled():  # the graph belongs to a single call, and checkpointing repeats calls
        return compute()
    if key not in term.derived:
        term.derived[key] = compute()
    return term.derived[key]


def _toeplitz_terms(modifiers: AttentionModifiers) -> list[ToeplitzBias]:
    return [term for term in modifiers.terms if isinstance(term, ToeplitzBias)]


def _vector_terms(modifiers: AttentionModifiers) -> list[RelativeKeyBias | ContentBias]:
    """Return the terms that are products of a vector per query and a vector per distance."""
    return [term for term in modifiers.terms if isinstance(term, (RelativeKeyBias, ContentBias))]


def _content(term: RelativeKeyBias | ContentBias, q: Tensor) -> Float[Tensor, "b h i r"]:
    """Return the vectors of the queries, which are multiplied by the term's vectors of distances."""
    if isinstance(term, ContentBias):
        return term.content.to(q.dtype).expand(*q.shape[:3], -1)
    return q if term.vector is None else q + term.vector[:, None].to(q.dtype)


def _combined_vectors(
    terms: list[RelativeKeyBias | ContentBias], dtype: torch.dtype, scale: float
) -> tuple[Tensor | None, int]:
    """Return the vectors of all terms, concatenated and scaled, over the distances of all of them, and the first distance."""
    if not terms:
        return None, 0
    term = terms[0]
    if len(terms) == 1 and isinstance(term, RelativeKeyBias):
        return _cached(term, (dtype, scale), lambda: (term.table * scale).to(dtype).contiguous()), term.first
    heads = max(len(term.table) for term in terms)
    scaled = [(term.table * scale if isinstance(term, RelativeKeyBias) else term.table, term.first) for term in terms]
    tables, first = _over_same_distances(scaled, dtype)
    return torch.cat([table.expand(heads, -1, -1) for table in tables], -1).contiguous(), first


def _distance_range(tables: list[tuple[Tensor, int]]) -> tuple[int, int]:
    """Return the first distance and the number of distances that cover all tables with their first distances."""
    first = min(table_first for _, table_first in tables)
    return first, max(table_first + table.shape[1] for table, table_first in tables) - first


def _gap(tables: list[tuple[Tensor, int]]) -> str | None:
    """Return why the tables cannot be added: most distances between the first and the last are in none of them."""
    if len(tables) < 2:
        return None
    size, entries = _distance_range(tables)[1], sum(table.shape[1] for table, _ in tables)
    if size <= 2 * entries + 1024:
        return None
    return f"tables of {entries:,} distances lie so far apart that their sum would have {size:,}"


def _over_same_distances(tables: list[tuple[Tensor, int]], dtype: torch.dtype) -> tuple[list[Tensor], int]:
    """Extend tables [h|1, n, ...] to the distances of all of them and return them with the common first distance."""
    first, size = _distance_range(tables)
    extended = []
    for table, table_first in tables:
        if table.shape[1] != size:
            column = (torch.arange(size, device=table.device) + first - table_first).clamp(0, table.shape[1] - 1)
            table = table.index_select(1, column)
        extended.append(table.to(dtype))
    return extended, first


def _combined_table(terms: list[ToeplitzBias], dtype: torch.dtype) -> tuple[Tensor | None, int]:
    """Return the sum of the tables of all terms over the distances of all of them, and the first distance."""
    if not terms:
        return None, 0
    term = terms[0]
    if len(terms) == 1:
        return _cached(term, dtype, lambda: term.table.to(dtype).contiguous()), term.first
    tables, first = _over_same_distances([(term.table, term.first) for term in terms], dtype)
    heads = max(len(table) for table in tables)
    return sum((table.expand(heads, -1) for table in tables[1:]), tables[0].expand(heads, -1)).contiguous(), first
