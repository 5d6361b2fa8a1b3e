"""Our own attention (operator.py) for rotations, tables over distances, and straight pieces (FIRE): C++ on a CPU (cpu/),
Triton on a GPU (gpu/).

No bias is ever a matrix: memory is that of torch's fused attention without encoding, forward and backward, and the
gradients of tables, slopes and intercepts come out of the same pass. float32 and, computed in float32, half precision;
on a CPU float64 too. Rotations are applied as q and k are read on a CPU, before it on a GPU; query gains before it.
"""

import functools
from collections.abc import Callable, Hashable
from operator import index
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.attention import cpu, gpu, operator, relative
from lengthwise.attention.buffers import computed_in
from lengthwise.attention.gpu import verdicts
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

Attend = Callable[..., Tensor]

# Where halves become float32 before they are rotated and the like: rounded again after it, they would lose for nothing.
WIDENED = ("cpu",)
ROTATES = ("cpu",)  # whose kernel rotates


def unsupported_reason(modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
    """Why this backend cannot serve the modifiers, or None."""
    if modifiers.rewrite:
        return "LogitTransform needs whole rows of logits, and fused attention never has them"
    if modifiers.values:
        return "RelativeValues needs the weights, and fused attention never has them"
    for term in modifiers.terms:
        if isinstance(term, KeyBias) and modifiers.rotation:
            return "KeyBias beside a Rotation is no product with the key that is rotated"
        if not isinstance(term, (ToeplitzBias, PiecewiseLinearBias, RelativeKeyBias, ContentBias, KeyBias)):
            return f"{type(term).__name__} is no bias from a table over distances"
        if getattr(term, "distances", None) is not None:
            return "positions lie so far apart that their distances are listed, and its tables have every distance"
    if met := _met(modifiers):
        size = _reach([(term.table, term.first) for term in met])[1]
        if mask.window and not mask.causal and mask.queries > relative.at_once(mask.queries, q.shape[-1], size):
            return f"a window to both sides leaves no room for vectors of {size:,} distances"
    if sum(isinstance(term, PiecewiseLinearBias) for term in modifiers.terms) > 1:
        return "it has room for one PiecewiseLinearBias"
    if q.device.type not in ("cpu", "cuda"):
        return f"it has no kernel for {q.device.type}"
    kernel = gpu if q.is_cuda else cpu
    if q.dtype not in kernel.DTYPES:
        return f"it does not compute with {q.dtype} on {q.device.type}"
    if q.is_cuda and q.shape[-1] > gpu.MOST_DIMS:
        return f"on a GPU it has room for heads of {gpu.MOST_DIMS} dims, and these have {q.shape[-1]}"
    if (reason := kernel.missing()) or not q.is_cuda:
        return reason
    return _verdict(modifiers, q)


def _verdict(modifiers: AttentionModifiers, q: Tensor) -> str | None:
    """Why the GPU's kernels are not used for the modifiers, as far as a comparison with the reference says; or None."""
    # `index` makes a plain number also of one that a compiled graph keeps open; int() does not.
    return verdicts.objection("+".join(_biases(modifiers)), index(q.shape[-1]), q.dtype, q.device)


def _biases(modifiers: AttentionModifiers) -> list[str]:
    """Which of the GPU's kernels the modifiers need: kinds out of `verdicts.BIASES`, in their order."""
    sizes = [term.slope.shape[1] for term in modifiers.terms if isinstance(term, PiecewiseLinearBias)]
    needed = {
        "table": any(isinstance(term, ToeplitzBias) for term in modifiers.terms),
        "pieces": any(size <= operator.MANY for size in sizes),
        "many pieces": any(size > operator.MANY for size in sizes),
        "vectors": bool(_met(modifiers)),
    }
    return [bias for bias in verdicts.BIASES if needed[bias]]


def prepare(modifiers: AttentionModifiers, span: Span, mask: Mask) -> Attend:
    """Attention for one span; what does not depend on q and k is made at the first call and kept."""
    return functools.partial(_attend, modifiers, span, mask, _met(modifiers), {})


_Turns = dict[str, Any]  # the operator's arguments, or none
_Kept = dict[tuple[torch.dtype, bool, float], tuple[tuple[Any, ...], Tensor | None, int, _Turns]]


# Annotations with shapes take a tenth of a millisecond to make, so they stand where they are made once. Autocast changes
# nothing here: there is no product of matrices that it knows.
def _attend(
    modifiers: AttentionModifiers,
    span: Span,
    mask: Mask,
    met: list[RelativeKeyBias | ContentBias],
    kept: _Kept,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j d"],
    *,
    scale: float,
) -> Float[Tensor, "b h i d"]:
    compute = computed_in(q)
    key = compute, torch.is_grad_enabled(), scale  # what was made without gradients would not pass them on
    if key not in kept:
        turns = _turns(modifiers.rotation, compute) if q.device.type in ROTATES and not met else {}
        kept[key] = _static(modifiers, span, mask, compute), *_one_relative(met, compute, scale), turns
    static, vectors, vectors_first, turns = kept[key]
    turns = turns if _fit(turns, q, k) else {}
    rotation = None if turns else modifiers.rotation
    given = q.dtype
    if q.device.type in WIDENED and (met or _moves(modifiers, rotation)):
        q, k, v = q.to(compute), k.to(compute), v.to(compute)
    content = [_content(term, q.to(compute)) for term in met]
    q, k = _moved(modifiers, rotation, q, k)
    how = mask.causal, mask.window or 0, scale
    if vectors is None:
        out, _ = operator.attend(q, k, v, *static, *how, **turns)
    else:
        bias, places = static[:-5], static[-3:]  # between them the rows, which it makes
        one = content[0] if len(met) == 1 else torch.cat(content, -1)
        out, _ = relative.relative_attention(q, k, v, one, vectors, vectors_first, *bias, *places, *how)
    return out.to(given)


def refuses_statistics(modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
    """Why `statistics` cannot serve the modifiers, or None."""
    if q.device.type != "cpu":
        return f"its kernel on {q.device.type} gives no statistics"
    if _met(modifiers):
        return "vectors of distances are rows of some queries at a time, and statistics come from one pass over all"
    return unsupported_reason(modifiers, span, mask, q)


def statistics(
    modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, scale: float, edges: Tensor, rank: Tensor | None,
    first_keys: int, last_keys: int,
) -> Tensor:  # fmt: skip
    """What `cpu.statistics` finds."""
    compute = torch.promote_types(q.dtype, torch.float32)
    if _moves(modifiers, modifiers.rotation):
        q, k = _moved(modifiers, modifiers.rotation, q.to(compute), k.to(compute))
    static = _static(modifiers, span, mask, compute)
    asked = (*static, mask.causal, mask.window or 0, scale, edges, rank, first_keys, last_keys)
    return cpu.statistics(q, k, *asked)


def _turns(rotation: Rotation | None, dtype: torch.dtype) -> _Turns:
    """A rotation as the operator takes it; nothing where there is none, or its angles have a gradient."""
    if rotation is None:
        return {}
    of_q, of_k = rotation.turns()
    if any(x.requires_grad for turn in (of_q, of_k) if turn for x in turn):
        return {}
    cos_sin_q = _packed(of_q, dtype)
    cos_sin_k = cos_sin_q if rotation.alike else _packed(of_k, dtype)
    return {"cos_sin_q": cos_sin_q, "cos_sin_k": cos_sin_k, "interleaved": rotation.layout == "interleaved"}


def _fit(turns: _Turns, q: Tensor, k: Tensor) -> bool:
    """Whether the kernel can read turns of these shapes; whatever else a rotation can be is done before, or said to be wrong."""
    sides = [(turns[name], x) for name, x in (("cos_sin_q", q), ("cos_sin_k", k)) if turns.get(name) is not None]
    if len({turn.shape[3] for turn, _ in sides}) > 1:
        return False
    return all(
        len(turn) in (1, len(x)) and turn.shape[1] == x.shape[2] and 2 * turn.shape[3] <= x.shape[3]
        for turn, x in sides
    )


def _packed(turn: tuple[Tensor, Tensor] | None, dtype: torch.dtype) -> Tensor | None:
    """Cosines and sines [b|1, 1, t, pairs] -> [b|1, t, 2, pairs]."""
    return None if turn is None else torch.stack([x.to(dtype) for x in torch.broadcast_tensors(*turn)], 3)[:, 0]


def _moves(modifiers: AttentionModifiers, rotation: Rotation | None) -> bool:
    """Whether `_moved` changes anything."""
    of_keys = any(isinstance(term, KeyBias) for term in modifiers.terms)
    return rotation is not None or modifiers.gain is not None or of_keys


def _moved(modifiers: AttentionModifiers, rotation: Rotation | None, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys whose products have a rotation, the modifiers' gain and every `KeyBias` in them."""
    compute = torch.promote_types(q.dtype, torch.float32)
    if rotation:
        q, k = rotation.query(q), rotation.key(k)
    if modifiers.gain:
        q = (q * modifiers.gain.gain[..., None].to(compute)).to(q.dtype)
    for term in modifiers.terms:
        if isinstance(term, KeyBias):  # <q_i + vector, k_j>
            q = (q.to(compute) + term.vector[:, None].to(compute)).to(q.dtype)
    return q, k


def _static(modifiers: AttentionModifiers, span: Span, mask: Mask, dtype: torch.dtype) -> tuple[Any, ...]:
    """The operator's arguments from `table` to `documents`."""
    table, first = _one_table([term for term in modifiers.terms if isinstance(term, ToeplitzBias)], dtype)
    pieces: tuple[Tensor | None, ...] = (None,) * 5
    for term in modifiers.terms:
        if isinstance(term, PiecewiseLinearBias):
            numbers = (term.slope, term.intercept, term.knots.detach(), term.u, term.w)
            pieces = tuple(x.to(torch.float64).contiguous() for x in numbers)
    places = (None, None) if span.consecutive else (span.q.long().contiguous(), span.k.long().contiguous())
    documents = None if mask.documents is None else mask.documents.long().contiguous()
    return (table, first, *pieces, None, 0, *places, documents)


def _once(term: ToeplitzBias | RelativeKeyBias, what: Hashable, make: Callable[[], Tensor]) -> Tensor:
    """What `make` makes of the term's table, which may be kept for many calls: the steps of a decoding loop."""
    if torch.is_grad_enabled():  # a gradient is that of one call (and checkpoints make the same calls again)
        return make()
    if what not in term.made:
        term.made[what] = make()
    return term.made[what]


def _met(modifiers: AttentionModifiers) -> list[RelativeKeyBias | ContentBias]:
    """The terms that are vectors of distances, which meet one of each query."""
    return [term for term in modifiers.terms if isinstance(term, (RelativeKeyBias, ContentBias))]


def _content(term: RelativeKeyBias | ContentBias, q: Tensor) -> Float[Tensor, "b h i r"]:
    """What meets the term's vectors."""
    if isinstance(term, ContentBias):
        return term.content.to(q.dtype).expand(*q.shape[:3], -1)
    return q if term.vector is None else q + term.vector[:, None].to(q.dtype)


def _one_relative(
    terms: list[RelativeKeyBias | ContentBias], dtype: torch.dtype, scale: float
) -> tuple[Tensor | None, int]:
    """The vectors of several terms side by side, over the distances of all of them, with the scale of those that have one."""
    if not terms:
        return None, 0
    one = terms[0]
    if len(terms) == 1 and isinstance(one, RelativeKeyBias):
        return _once(one, (dtype, scale), lambda: (one.table * scale).to(dtype).contiguous()), one.first
    heads = max(len(term.table) for term in terms)
    scaled = [(term.table * scale if isinstance(term, RelativeKeyBias) else term.table, term.first) for term in terms]
    tables, first = _same_reach(scaled, dtype)
    return torch.cat([table.expand(heads, -1, -1) for table in tables], -1).contiguous(), first


def _reach(tables: list[tuple[Tensor, int]]) -> tuple[int, int]:
    """The first distance, and how many there are, that any of the tables has."""
    first = min(at for _, at in tables)
    return first, max(at + table.shape[1] for table, at in tables) - first


def _same_reach(tables: list[tuple[Tensor, int]], dtype: torch.dtype) -> tuple[list[Tensor], int]:
    """Tables [h|1, n, ...] with their first distances as ones that reach as far as any of them."""
    first, size = _reach(tables)
    found = []
    for table, at in tables:
        if table.shape[1] != size:
            column = (torch.arange(size, device=table.device) + first - at).clamp(0, table.shape[1] - 1)
            table = table.index_select(1, column)
        found.append(table.to(dtype))
    return found, first


def _one_table(terms: list[ToeplitzBias], dtype: torch.dtype) -> tuple[Tensor | None, int]:
    """The sum of several tables as one that reaches as far as any of them."""
    if not terms:
        return None, 0
    one = terms[0]
    if len(terms) == 1:
        return _once(one, dtype, lambda: one.table.to(dtype).contiguous()), one.first
    tables, first = _same_reach([(term.table, term.first) for term in terms], dtype)
    heads = max(len(table) for table in tables)
    return sum((table.expand(heads, -1) for table in tables[1:]), tables[0].expand(heads, -1)).contiguous(), first
