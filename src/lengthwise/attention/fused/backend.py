"""The `fused` backend: our own kernels (operator.py) in C++ on a CPU (cpu.py) and in Triton on a GPU (gpu/).

They support rotations, tables over distances, piecewise linear biases (FIRE), sinks, running sums (FoX) and vectors of
distances (Shaw, Transformer-XL), multiplied by queries or added to values. No bias is ever a T x T matrix:
memory is that of torch's fused attention without an encoding, forward and backward. The gradients of tables, slopes and
intercepts are computed in the same pass. Dtypes: float32; half precision, computed in float32; on a CPU also float64.
On a CPU the kernel rotates q and k as it reads them; on a GPU they are rotated before. Query gains are applied before
the kernel.
"""

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from lengthwise import forms
from lengthwise.attention.backends.base import Attend, Backend, Measurement, rows_unsupported_reason
from lengthwise.attention.fused import cpu, gpu, operator
from lengthwise.attention.fused.arguments import TENSORS, Arguments
from lengthwise.attention.fused.buffers import compute_dtype
from lengthwise.attention.fused.gpu import query_parts
from lengthwise.attention.fused.tables import (
    combined_table,
    combined_values,
    combined_vectors,
    distance_range,
    gap,
    plain,
    tensor_arguments,
    terms_for,
    vectors_over_same_distances,
)
from lengthwise.attention.masks import Mask
from lengthwise.native import tested_gpus
from lengthwise.span import Span

_SCALED = ("vectors", "query vector")  # terms that a QueryGain can scale before the kernel; see `terms_for`


class Fused(Backend):
    """Our own kernels, in C++ on a CPU and in Triton on a GPU."""

    name = "fused"

    def unsupported_reason(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
        on_gpu = q.is_cuda
        if reason := rows_unsupported_reason(replace(modifiers, values=()), "fused attention"):
            return reason
        for term in modifiers.terms:
            if term.kernel is None:
                return f"it has no kernel for {type(term).__name__}"
            if term.kernel == "query vector" and modifiers.rotation:
                return f"{type(term).__name__} together with a Rotation needs unrotated keys"
            if modifiers.gain and modifiers.gain.scales_terms and term.kernel not in _SCALED:
                return f"a QueryGain scales {type(term).__name__}, and it multiplies q only"
            if on_gpu and _lacks_derivative(term):
                return "on a GPU the gradient of distance_feature needs feature_derivative"
            if getattr(term, "distances", None) is not None:
                return "positions lie so far apart that distances are listed, and its tables need every distance"
        products, values = terms_for(modifiers, "vectors"), modifiers.values
        has_vectors = bool(products or values)
        if modifiers.rotation and modifiers.rotation.polar and (on_gpu or has_vectors):
            return "a polar Rotation makes q and k wider than v" + " together with vectors of distances" * has_vectors
        vectors = [(*products, *values)] if on_gpu else [products, values]
        for terms in (terms_for(modifiers, "table"), *vectors):
            if reason := gap([(term.table, term.first) for term in terms]):
                return reason
        if has_vectors and on_gpu:
            size = distance_range([(term.table, term.first) for term in (*products, *values)])[1]
            bidirectional_window = mask.window and not mask.causal  # which needs all queries in one part
            if bidirectional_window and mask.queries > query_parts.queries_per_chunk(mask.queries, q.shape[-1], size):
                return f"vectors of {size:,} distances are too many for a bidirectional window"
        grouped = [type(term).__name__ for term in terms_for(modifiers, "arguments") if _is_group(term)]
        if len(set(grouped)) < len(grouped):
            return f"it supports at most one {grouped[0]}"
        if q.device.type not in ("cpu", "cuda"):
            return f"it has no kernel for the device {q.device.type}"
        kernel = gpu if q.is_cuda else cpu
        if q.dtype not in kernel.DTYPES:
            return f"it does not support {q.dtype} on {q.device.type}"
        if q.is_cuda and q.shape[-1] > gpu.MAX_HEAD_DIM:
            return f"on a GPU it supports heads of at most {gpu.MAX_HEAD_DIM} dims, got {q.shape[-1]}"
        return kernel.unsupported_reason()

    def is_worthwhile(self, modifiers: forms.AttentionModifiers, mask: Mask, device: torch.device) -> bool:
        """Return whether the kernels were tested on such a device, if it is a GPU."""
        return device.type != "cuda" or tested_gpus.is_tested(device)

    def prepare(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask) -> Attend:
        """Return attention for one span. What does not depend on q and k is computed at the first call and reused."""
        if span.q.device.type == "cuda":
            tested_gpus.is_tested(span.q.device)  # which warns once if they were not, for callers who name this backend
        return functools.partial(_attend, modifiers, span, mask, terms_for(modifiers, "vectors"), {})

    def statistics_unsupported_reason(
        self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor
    ) -> str | None:
        if q.device.type != "cpu":
            return f"its kernel for {q.device.type} computes no statistics"
        if terms_for(modifiers, "vectors"):
            return (
                "products with vectors of distances are computed for some queries at a time, and statistics in one "
                "pass over all"
            )
        return self.unsupported_reason(modifiers, span, mask, q)

    def statistics(self, measurement: Measurement, q: Tensor, k: Tensor) -> Float[Tensor, "b h i m"]:
        """Return the statistics of every query, computed in one pass of the CPU kernel."""
        modifiers, mask = measurement.modifiers, measurement.mask
        compute = torch.promote_types(q.dtype, torch.float32)
        if _changes_q_or_k(modifiers, modifiers.rotation):
            q, k = _transformed(modifiers, modifiers.rotation, q.to(compute), k.to(compute))
        arguments = arguments_of(modifiers, measurement.span, mask, q)
        return cpu.statistics(
            q,
            k,
            arguments._replace(scale=measurement.scale),
            edges=torch.tensor(measurement.edges, dtype=torch.long),
            rank=None if mask.documents is None else measurement.rank(q.device),
            first_keys=measurement.first,
            last_keys=measurement.last,
        )


class _Static(NamedTuple):
    """What does not depend on q and k."""

    arguments: Arguments
    kernel_rotates: bool
    changes_q_or_k: bool  # apart from a rotation


_Cache = dict[tuple[torch.dtype, bool, float], _Static]


# This is not an inner function of `prepare`, because evaluating annotations with shapes takes a tenth of a millisecond.
# Autocast does not change anything here: there is no matrix product that it intercepts.
def _attend(
    modifiers: forms.AttentionModifiers,
    span: Span,
    mask: Mask,
    products: list[forms.VectorBias],
    cache: _Cache,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j d"],
    *,
    scale: float,
) -> Float[Tensor, "b h i d"]:
    input_dtype, compute = q.dtype, compute_dtype(q)
    key = compute, torch.is_grad_enabled(), scale  # tensors computed without gradients cannot be used with them
    if key not in cache:
        # A GPU's kernels do not rotate, and read vectors of keys and of values over the same distances.
        on_gpu = operator.on_gpu(q)
        rotary = None if on_gpu or products else rotary_arguments(modifiers.rotation, compute)
        vectors, values = combined_vectors(products, compute, scale), combined_values(modifiers, compute)
        if on_gpu:
            vectors, values = vectors_over_same_distances(vectors, values)
        arguments = arguments_of(modifiers, span, mask, q)._replace(
            **(rotary or {}), key_vectors=vectors[0], key_vectors_first=vectors[1],
            value_vectors=values[0], value_vectors_first=values[1], scale=scale,
        )  # fmt: skip
        cache[key] = _Static(arguments, rotary is not None, _changes_q_or_k(modifiers, None))
    arguments, kernel_rotates, changes_q_or_k = cache[key]
    rotation = None if kernel_rotates else modifiers.rotation
    changes_q_or_k = changes_q_or_k or rotation is not None
    if not operator.on_gpu(q) and (products or changes_q_or_k):  # which avoids a second rounding to half precision
        q, k, v = q.to(compute), k.to(compute), v.to(compute)
    contents = [term.query_vectors(q.to(compute)).to(compute).expand(*q.shape[:3], -1) for term in products]
    if modifiers.gain and modifiers.gain.scales_terms:
        contents = [content * modifiers.gain.gain[..., None].to(compute) for content in contents]
    if changes_q_or_k:
        q, k = _transformed(modifiers, rotation, q, k)
    if arguments.key_vectors is not None:
        content = contents[0] if len(contents) == 1 else torch.cat([q.new_empty(*q.shape[:3], 0), *contents], -1)
        arguments = arguments._replace(content=content.contiguous())
    width = v.shape[3]  # a polar rotation has made q and k wider, and the kernel has one width for all
    out, _ = operator.attend(q, k, F.pad(v, (0, q.shape[3] - width)) if q.shape[3] > width else v, arguments)
    return out[..., :width].to(input_dtype)


def _lacks_derivative(term: forms.Term) -> bool:
    """Whether gradients of distances are needed, which the kernels of a GPU do not sum."""
    if not isinstance(term, forms.PiecewiseLinearBias) or term.feature_derivative is not None:
        return False
    return term.distance_feature.requires_grad


def _is_group(term: forms.Term) -> bool:
    """Whether the tensors of a term belong together, so that a second term cannot be added to them."""
    return any(TENSORS[name].group for name in term.tensors if name in TENSORS)


def rotary_arguments(rotation: forms.TokenRotation | None, dtype: torch.dtype) -> dict[str, Any] | None:
    """Return the operator's arguments for a rotation.

    None if there is none, if it is polar or a matrix, if its angles need a gradient or differ between heads, or if it
    rotates other dims of q than of k.
    """
    if not isinstance(rotation, forms.Rotation) or rotation.polar:
        return None
    both = rotation.cos_sin("q", dtype), rotation.cos_sin("k", dtype)
    sides = [x for x in both if x is not None]
    if any(x.requires_grad or x.shape[1] > 1 or x.shape[4] != sides[0].shape[4] for x in sides):
        return None
    cos_sin_q, cos_sin_k = (None if x is None else x[:, 0] for x in both)
    return {"cos_sin_q": cos_sin_q, "cos_sin_k": cos_sin_k, "interleaved": rotation.layout == "interleaved"}


def _changes_q_or_k(modifiers: forms.AttentionModifiers, rotation: forms.TokenRotation | None) -> bool:
    return rotation is not None or modifiers.gain is not None or bool(terms_for(modifiers, "query vector"))


def _transformed(
    modifiers: forms.AttentionModifiers, rotation: forms.TokenRotation | None, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor]:
    """Return q and k with the rotation applied, and the query gain and every `KeyBias` merged into q."""
    compute = torch.promote_types(q.dtype, torch.float32)
    if rotation:
        q, k = rotation.rotate_query(q), rotation.rotate_key(k)
    vector_gain: Tensor | float = 1.0
    if modifiers.gain:
        gain = modifiers.gain.gain[..., None].to(compute)
        q = (q * gain).to(q.dtype)
        vector_gain = gain if modifiers.gain.scales_terms else 1.0
    for term in terms_for(modifiers, "query vector"):  # <q_i + vector, k_j>
        q = (q.to(compute) + term.vector[:, None].to(compute) * vector_gain).to(q.dtype)
    return q, k


def sink_argument(modifiers: forms.AttentionModifiers, q: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Return the logit of each head's sink, if there are sinks."""
    return None if modifiers.sink is None else plain(modifiers.sink.logit.expand(q.shape[1]), dtype)


def arguments_of(modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> Arguments:
    """Return the arguments that depend neither on q and k nor on the scale; only sizes and dtypes of `q` are read."""
    compute = compute_dtype(q)
    table, table_first = combined_table(terms_for(modifiers, "table"), compute)
    tensors = tensor_arguments(modifiers, compute, len(q))
    if not operator.on_gpu(q):
        tensors |= {"feature_parameter": None, "feature_derivative": None}
    elif "feature_parameter" in tensors:
        tensors["distance_feature"] = tensors["distance_feature"].detach()
    position_q, position_k = (None if span.consecutive else x.long().contiguous() for x in (span.q, span.k))
    return Arguments(
        table=table,
        table_first=table_first,
        sink=sink_argument(modifiers, q, compute),
        position_q=position_q,
        position_k=position_k,
        documents=None if mask.documents is None else mask.documents.long().contiguous(),
        causal=mask.causal,
        window=mask.window or 0,
        **tensors,
    )
