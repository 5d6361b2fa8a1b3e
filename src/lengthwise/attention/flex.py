"""torch's FlexAttention: the forms as `score_mod`, the mask as `mask_mod`, for those who live there.

`score_mod` and `mask_mod` serve calls of your own:

>>> from torch.nn.attention.flex_attention import create_block_mask, flex_attention
>>> from lengthwise import encodings
>>> from lengthwise.attention import Mask, flex
>>> from lengthwise.span import Span
>>> alibi, span, mask = encodings.ALiBi(num_heads=8), Span.of(4096, device="cuda"), Mask(4096, 4096)
>>> score, sees = flex.score_mod(alibi.modifiers(span), span), flex.mask_mod(mask)
>>> blocks = create_block_mask(sees, None, None, 4096, 4096, device="cuda")
>>> out = torch.compile(flex_attention)(q, k, v, score_mod=score, block_mask=blocks)

As a backend it serves where it is named, `backend="flex"`; `auto` never takes it. On a CPU FlexAttention has no backward
pass, and the backend does not compile it there, so that it makes all logits at once. On CUDA it is compiled at the first
call, and again for another kind of modifiers. It was not run on a GPU yet, so its speed there is not known; FlexAttention adds
up the gradients of tables in no fixed order there, so that two runs may differ in the last bits.

Memory: that of the tables, and on a CPU of all logits; RelativeKeyBias and ContentBias take a number for every head, query
and column of their table (or key, where these are fewer), for each layer.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.attention import reference
from lengthwise.attention.masks import Mask
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
    DenseBias,
    KeyBias,
    PiecewiseLinearBias,
    RelativeKeyBias,
    ToeplitzBias,
)
from lengthwise.span import Span
from lengthwise.values import ConfigError

Attend = Callable[..., Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # (score, b, h, i, j) -> score
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (b, h, i, j) -> whether i sees j
_Pair = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (b, h, i, j) -> a number

# FlexAttention counts the arguments of a mod and traces all that it calls: no check of types may be wrapped around them.
# What a mod captures is a tensor, lengths too: a plain int would be compiled in, and every other length compiled again.


def unsupported_reason(modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
    """Why this backend cannot serve the modifiers, or None. What gradients need is asked at the call (`no_gradients`)."""
    if reason := _has_no_mod(modifiers):
        return reason
    if q.device.type not in ("cpu", "cuda"):
        return f"it was tried on a CPU and on CUDA, not on {q.device.type}"
    if q.device.type == "cuda" and q.dtype == torch.float64:
        return "on CUDA FlexAttention computes in float32, and q is float64"
    if q.device.type == "cuda" and q.shape[-1] < 16:
        return f"on CUDA FlexAttention needs heads of at least 16 dims, and q has {q.shape[-1]}"
    return None


def no_gradients(device: torch.device | str) -> str | None:
    """Why there are no gradients on a device, or None."""
    return "FlexAttention has no backward pass on a CPU" if torch.device(device).type == "cpu" else None


def _has_no_mod(modifiers: AttentionModifiers) -> str | None:
    if modifiers.rewrite:
        return "LogitTransform needs whole rows of logits, and FlexAttention never has them"
    if modifiers.values:
        return "RelativeValues needs the weights, and FlexAttention never has them"
    return None


def prepare(modifiers: AttentionModifiers, span: Span, mask: Mask) -> Attend:
    """Attention for one span; what does not depend on q and k is made at the first call and kept."""
    kept: dict[tuple[torch.dtype, bool], list[_Pair]] = {}
    empty = mask.documents is not None and not len(mask.documents)  # torch makes no blocks of an empty batch
    blocks = None if empty else _block_mask(mask, span.q.device)

    # Under autocast the products with q and k would be in half precision.
    @torch.autocast(span.q.device.type, enabled=False)  # type: ignore[untyped-decorator]
    def attend(
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        v: Float[Tensor, "b g j d"],
        *,
        scale: float,
    ) -> Float[Tensor, "b h i d"]:
        asked = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *_tensors(modifiers)))
        if asked and (why := no_gradients(q.device)):
            raise ConfigError(f"backend 'flex': {why}; use backend='auto', or torch.no_grad() where none are needed")
        given, compute = q.dtype, torch.promote_types(q.dtype, torch.float32)
        if not q.numel():
            return torch.zeros_like(q)
        if q.device.type == "cpu":
            # FlexAttention would round the weights to half precision, and asks for no gradients even where none are made.
            q, k, v = (x.detach().to(compute) for x in (q, k, v))
        key = compute, torch.is_grad_enabled()  # what was made without gradients would not pass them on
        static = kept[key] if key in kept else kept.setdefault(key, _static(modifiers, span, compute))
        mod = _sum(modifiers, [*static, *_of_content(modifiers, span, q, k, scale)], compute)
        if modifiers.rotation:
            q, k = modifiers.rotation.query(q), modifiers.rotation.key(k)
        gqa = q.shape[1] != k.shape[1]
        flex_attention = _torchs("flex_attention", q.device)
        out: Tensor = flex_attention(q, k, v, score_mod=mod, block_mask=blocks, scale=scale, enable_gqa=gqa)
        return out.to(given)

    # In a graph that also makes what the mods capture, torch 2.13 finds no kernel for a CPU.
    return torch.compiler.disable(attend) if span.q.device.type == "cpu" else attend


def score_mod(
    modifiers: AttentionModifiers,
    span: Span,
    q: Float[Tensor, "b h i d"] | None = None,
    k: Float[Tensor, "b g j d"] | None = None,
    *,
    scale: float | None = None,
) -> ScoreMod:
    """What the modifiers make of a logit, as a `score_mod` for `torch.nn.attention.flex_attention.flex_attention`.

    (score, b, h, i, j) -> gain_i · score + every term(h, i, j), in nats, where b, h, i, j are indices into q and k: queries
    are the last i of the keys, h a head of q. Its numbers are float32, float64 where q is. It hides nothing: `mask_mod` does.

    A rotation is no matter of logits: give `modifiers.rotation.query(q)` and `modifiers.rotation.key(k)` to flex_attention.

    q [b, h, i, d] and k [b, g, j, d], before rotation, are needed by RelativeKeyBias and KeyBias alone, with `scale` if it is
    not 1/sqrt(d); the mod then holds for this q and k. `ConfigError` for LogitTransform and RelativeValues, which no score_mod
    can say.
    """
    if reason := _has_no_mod(modifiers):
        raise ConfigError(f"score_mod: {reason}; use lengthwise.attend")
    content = [type(term).__name__ for term in modifiers.terms if isinstance(term, (RelativeKeyBias, KeyBias))]
    if content and (q is None or k is None):
        raise ConfigError(
            f"score_mod: {content[0]} multiplies q and k; give them, as in score_mod(modifiers, span, q, k)"
        )
    dtype = torch.float32 if q is None else torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(span.q.device.type, enabled=False):
        pairs = _static(modifiers, span, dtype)
        if q is not None and k is not None:
            pairs += _of_content(modifiers, span, q, k, q.shape[-1] ** -0.5 if scale is None else scale)
    return _sum(modifiers, pairs, dtype)


def mask_mod(mask: Mask, device: torch.device | str | None = None) -> MaskMod:
    """Who sees whom, as a `mask_mod` for `create_block_mask(mask_mod, B, None, mask.queries, mask.keys)`.

    (b, h, i, j) -> bool. B is the number of rows of documents, None without. `device`: where q is; that of the documents, or
    torch's default, when not given.
    """
    if mask.documents is not None:
        device = mask.documents.device if device is None else device
        document = _reader(mask.documents.to(device))
    own, causal, window = _own_index(mask.queries, mask.keys, device), mask.causal, mask.window

    @no_type_check
    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        i = own(i)
        seen = i >= j if causal else j >= 0
        if window is not None:
            seen = seen & (i - j < window) & (j - i < window)
        if mask.documents is not None:
            seen = seen & (document(b, i) == document(b, j))
        return seen

    return sees


def _block_mask(mask: Mask, device: torch.device) -> Any:
    """Which blocks of 128 queries and keys have anything to see; None where nothing is hidden."""
    if mask.hides_nothing:
        return None
    rows = 1 if mask.documents is None else len(mask.documents)
    make = _torchs("create_block_mask", device)
    return make(mask_mod(mask, device), rows, None, mask.queries, mask.keys, device=device)


def _torchs(name: str, device: torch.device) -> Callable[..., Any]:
    """A function of torch.nn.attention.flex_attention: compiled on CUDA, unless someone is compiling already."""
    return _compiled(name) if device.type == "cuda" and not torch.compiler.is_compiling() else _eager(name)


def _eager(name: str) -> Callable[..., Any]:
    # Here, because it brings torch's compiler with it, which takes a second.
    import torch.nn.attention.flex_attention as module

    return getattr(module, name)


@functools.cache
def _compiled(name: str) -> Callable[..., Any]:
    import torch._dynamo

    run = torch.compile(_eager(name), fullgraph=True)

    def call(*given: Any, **named: Any) -> Any:
        # Every kind of modifiers is compiled; after 8 torch would stop, for it takes one for the other's repetition.
        with torch._dynamo.config.patch(recompile_limit=256):
            return run(*given, **named)

    return call


def _sum(modifiers: AttentionModifiers, pairs: list[_Pair], dtype: torch.dtype) -> ScoreMod:
    gain = None if modifiers.gain is None else _reader(modifiers.gain.gain.to(dtype))

    @no_type_check
    def score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        score = score.to(dtype)
        if gain is not None:
            score = score * gain(b, h, i)
        for pair in pairs:
            score = score + pair(b, h, i, j)
        return score

    return score


def _static(modifiers: AttentionModifiers, span: Span, dtype: torch.dtype) -> list[_Pair]:
    """The terms that do not depend on q and k."""
    pairs = []
    for term in modifiers.terms:
        match term:
            case ToeplitzBias() | PiecewiseLinearBias() if term.distances is not None:
                # A mod has no search, and a number for every pair is less than a table of all distances.
                pieces = replace(term, exact=None) if isinstance(term, PiecewiseLinearBias) else term
                pairs.append(_reader(reference.dense(pieces, span.q, span.k, span, 1.0).to(dtype)))
            case ToeplitzBias(table, first):
                pairs.append(_toeplitz(table.to(dtype), _column(span, first, table.shape[1])))
            case PiecewiseLinearBias():
                pairs.append(_progressive(term, span, dtype))
            case ContentBias(content, table, first):
                pairs.append(_relative(content.to(dtype), table, first, span))
            case CumulativeBias(total):
                pairs.append(_cumulative(total, span, dtype))
            case DenseBias(bias):
                pairs.append(_reader(bias.to(dtype)))
            case RelativeKeyBias() | KeyBias():
                continue
            case _:
                raise AssertionError(f"a term that is not in the vocabulary: {term}")
    return pairs


def _of_content(modifiers: AttentionModifiers, span: Span, q: Tensor, k: Tensor, scale: float) -> list[_Pair]:
    """The terms that do, for q and k before rotation."""
    compute = torch.promote_types(q.dtype, torch.float32)
    pairs = []
    for term in modifiers.terms:
        if isinstance(term, RelativeKeyBias):
            asked = q.to(compute) if term.vector is None else q.to(compute) + term.vector.to(compute)[:, None]
            pairs.append(_relative(asked * scale, term.table, term.first, span, term.distances))
        elif isinstance(term, KeyBias):
            vector = term.vector.to(compute).unflatten(0, (k.shape[1], -1))
            pairs.append(_key_global(torch.einsum("grd,bgjd->bgrj", vector, k.to(compute)).flatten(1, 2) * scale))
    return pairs


def _toeplitz(table: Float[Tensor, "#h n"], column: _Pair) -> _Pair:
    at = _reader(table)
    return lambda b, h, i, j: at(h, column(b, h, i, j))


def _progressive(term: PiecewiseLinearBias, span: Span, dtype: torch.dtype) -> _Pair:
    """The number of knots that are <= x by halving, in a fixed number of steps: a kernel has no search."""
    knots = term.knots.detach().to(dtype)
    halves = [2**n for n in reversed(range(len(knots).bit_length()))]
    knots = torch.cat([knots, knots.new_full((sum(halves) - len(knots),), torch.inf)])
    # x = inf is past those too: the last piece goes on.
    piece = torch.arange(len(knots) + 1, device=knots.device).clamp(max=term.slope.shape[1] - 1)
    slope, intercept = (_reader(x.to(dtype).index_select(1, piece)) for x in (term.slope, term.intercept))
    u, w, column = _reader(term.u.to(dtype)), _reader(term.w.to(dtype)), _column(span, 0, len(term.u))

    @no_type_check
    def pair(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        x = u(column(b, h, i, j)) * w(b, i)
        s = torch.zeros_like(j)
        for half in halves:
            s = s + half * (knots[s + half - 1] <= x)
        return slope(h, s) * x + intercept(h, s)

    return pair


def _cumulative(total: Float[Tensor, "b h j"], span: Span, dtype: torch.dtype) -> _Pair:
    """Totals as sums of two numbers each: those of near keys agree in the first, so that nothing is lost by subtraction."""
    high = total.detach().to(dtype)
    at_high, at_low = _reader(high), _reader((total - high).to(dtype))
    own = _own_index(span.q.shape[1], span.k.shape[1], total.device)

    @no_type_check
    def pair(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        i = own(i)
        return (at_high(b, h, i) - at_high(b, h, j)) + (at_low(b, h, i) - at_low(b, h, j))

    return pair


def _relative(
    x: Float[Tensor, "b h i d"],
    table: Float[Tensor, "#h n d"],
    first: int,
    span: Span,
    distances: Tensor | None = None,
) -> Callable[..., Tensor]:
    """<x_i, table[h, distance - first]>: a mod has no vectors, so the products are made before."""
    columns = table.shape[1]
    if distances is not None or columns > span.k.shape[1]:  # a number for every key is less
        return _reader(reference.dense(RelativeKeyBias(table, first, distances=distances), x, x, span, 1.0))
    rows = _reader(torch.einsum("bhid,hnd->bhin", x, table.to(x.dtype).expand(x.shape[1], -1, -1)))
    column = _column(span, first, columns)
    return lambda b, h, i, j: rows(b, h, i, column(b, h, i, j))


def _key_global(keys: Float[Tensor, "b h j"]) -> _Pair:
    at = _reader(keys)
    return lambda b, h, i, j: at(b, h, j)


def _reader(x: Tensor) -> Callable[..., Tensor]:
    """x[index, ...] where an axis of size 1 has the same for every index."""
    kept = [axis for axis, size in enumerate(x.shape) if size != 1]
    # torch before 2.14 has no gradient for a captured tensor without axes.
    flat = x.squeeze() if kept else x.reshape(1)

    @no_type_check
    def at(*index: Tensor) -> Tensor:
        return flat[tuple(index[axis] for axis in kept)] if kept else flat[0]

    return at


def _own_index(queries: int, keys: int, device: torch.device | str | None) -> Callable[[Tensor], Tensor]:
    """Query i's index among the keys."""
    if queries == keys:
        return lambda i: i
    before = torch.full((), keys - queries, device=device)
    return lambda i: i + before


def _column(span: Span, first: int, columns: int) -> _Pair:
    """Which column of a table over distances a pair takes: the nearest, past either end."""
    last = torch.full((), columns - 1, device=span.q.device)
    if span.consecutive:
        back = torch.full((), span.k.shape[1] - span.q.shape[1] - first, device=span.q.device)
        return lambda b, h, i, j: torch.minimum((i - j + back).clamp(min=0), last)
    at_q, at_k = _reader(span.q - first), _reader(span.k)
    return lambda b, h, i, j: torch.minimum((at_q(b, i) - at_k(b, j)).clamp(min=0), last)


def _tensors(modifiers: AttentionModifiers) -> list[Tensor]:
    """Everything in the modifiers that may ask for a gradient."""
    forms: list[Any] = [form for form in (modifiers.rotation, modifiers.gain, *modifiers.terms) if form is not None]
    return [x for form in forms for x in vars(form).values() if isinstance(x, Tensor)]


__all__ = ["mask_mod", "no_gradients", "prepare", "score_mod", "unsupported_reason"]
