"""The `flex` backend: torch's FlexAttention, with the forms as `score_mod` and the mask as `mask_mod`.

Use `score_mod` and `mask_mod` in FlexAttention calls of your own:

>>> from torch.nn.attention.flex_attention import create_block_mask, flex_attention
>>> from lengthwise import encodings
>>> from lengthwise.attention import Mask
>>> from lengthwise.attention.backends import flex
>>> from lengthwise.span import Span
>>> alibi, span, mask = encodings.ALiBi(num_heads=8), Span.of(4096, device="cuda"), Mask(4096, 4096)
>>> score, visible = flex.score_mod(alibi.modifiers(span), span), flex.mask_mod(mask)
>>> blocks = create_block_mask(visible, None, None, 4096, 4096, device="cuda")
>>> out = torch.compile(flex_attention)(q, k, v, score_mod=score, block_mask=blocks)
"""

import functools
from collections.abc import Callable
from typing import Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise import forms
from lengthwise.attention.backends.base import Attend, Backend, rows_unsupported_reason
from lengthwise.attention.masks import Mask
from lengthwise.forms.pairs import Pair, key_index, reader
from lengthwise.span import Span
from lengthwise.values import ConfigError

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # (score, b, h, i, j) -> score
MaskMod = Pair  # (b, h, i, j) -> whether j is visible to i


class Flex(Backend):
    """Torch's FlexAttention.

    It is used only if it is named, `backend="flex"`; `auto` never takes it. On a CPU FlexAttention has no backward
    pass, and the backend does not compile it there, so it computes all logits at once. On CUDA it is compiled at the
    first call, and again for other kinds of modifiers. It has not been run on a GPU yet, so its speed there is not
    known. There FlexAttention sums the gradients of tables in no fixed order, so two runs may differ in the last bits.

    Memory: it holds the tables of the biases (on a CPU, all logits as well), and for each layer with RelativeKeyBias or
    ContentBias one number per head, query and table column (or per key, if there are fewer keys than columns).
    """

    name = "flex"

    def unsupported_reason(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
        """Return why this backend does not support the modifiers, or None. Gradients have a reason of their own."""
        if reason := _unsupported_reason(modifiers):
            return reason
        if q.device.type not in ("cpu", "cuda"):
            return f"it supports a CPU and CUDA, not {q.device.type}"
        if q.device.type == "cuda" and q.dtype == torch.float64:
            return "on CUDA FlexAttention computes in float32, and q is float64"
        if q.device.type == "cuda" and q.shape[-1] < 16:
            return f"on CUDA FlexAttention needs heads of at least 16 dims, got {q.shape[-1]}"
        return None

    def is_worthwhile(self, modifiers: forms.AttentionModifiers, mask: Mask, device: torch.device) -> bool:
        """Return False: this backend is used only if it is named."""
        return False

    def gradients_unsupported_reason(self, device: torch.device | str) -> str | None:
        return "FlexAttention has no backward pass on a CPU" if torch.device(device).type == "cpu" else None

    def prepare(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask) -> Attend:
        """Return attention for one span. What does not depend on q and k is computed at the first call and reused."""
        static_pairs: dict[tuple[torch.dtype, bool], list[Pair]] = {}
        empty = mask.documents is not None and not len(mask.documents)  # torch creates no block mask for an empty batch
        blocks = None if empty else _block_mask(mask, span.q.device)

        attend = functools.partial(_attend, self, modifiers, span, blocks, static_pairs)
        # torch 2.13 finds no CPU kernel in a graph that also computes the tensors that the mods capture.
        return torch.compiler.disable(attend) if span.q.device.type == "cpu" else attend


def _attend(
    backend: Backend,
    modifiers: forms.AttentionModifiers,
    span: Span,
    blocks: Any,
    static_pairs: dict[tuple[torch.dtype, bool], list[Pair]],
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j d"],
    *,
    scale: float,
) -> Float[Tensor, "b h i d"]:
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *_tensors(modifiers)))
    if needs_grad and (reason := backend.gradients_unsupported_reason(q.device)):
        raise ConfigError(f"backend 'flex': {reason}; use backend='auto', or torch.no_grad() if none are needed")
    input_dtype, compute = q.dtype, torch.promote_types(q.dtype, torch.float32)
    if not q.numel():
        return torch.zeros_like(q)
    with torch.autocast(
        q.device.type, enabled=False
    ):  # autocast would compute the products with q and k in half precision
        if q.device.type == "cpu":
            # FlexAttention would round the weights to half precision. It refuses tensors that require gradients even
            # under no_grad.
            q, k, v = (x.detach().to(compute) for x in (q, k, v))
        key = compute, torch.is_grad_enabled()  # tensors computed without gradients cannot be used with them
        if key not in static_pairs:
            static_pairs[key] = _static_pairs(modifiers, span, q, k, scale)
        pairs = [*static_pairs[key], *_content_pairs(modifiers, span, q, k, scale)]
        mod = _sum(modifiers, pairs, compute)
        if modifiers.rotation:
            q, k = modifiers.rotation.rotate_query(q), modifiers.rotation.rotate_key(k)
        gqa = q.shape[1] != k.shape[1]
        flex_attention = _flex_function("flex_attention", q.device)
        arguments = {"score_mod": mod, "block_mask": blocks, "scale": scale, "enable_gqa": gqa}
        if modifiers.sink is None:
            out: Tensor = flex_attention(q, k, v, **arguments)
            return out.to(input_dtype)
        out, auxiliary = flex_attention(q, k, v, return_aux=_eager("AuxRequest")(lse=True), **arguments)
        share = (auxiliary.lse - modifiers.sink.logit.to(auxiliary.lse.dtype)[:, None]).sigmoid()
        return (out * share[..., None]).to(input_dtype)  # of the keys: exp(lse) / (exp(lse) + exp(logit))


def _unsupported_reason(modifiers: forms.AttentionModifiers) -> str | None:
    """Return why no `score_mod` computes the modifiers, or None."""
    for term in modifiers.terms:
        if term.reads_q and term.reads_k:
            return f"it has no score_mod for {type(term).__name__}, which reads q and k before rotation"
    return rows_unsupported_reason(modifiers, "FlexAttention")


def score_mod(
    modifiers: forms.AttentionModifiers,
    span: Span,
    q: Float[Tensor, "b h i d"] | None = None,
    k: Float[Tensor, "b g j d"] | None = None,
    *,
    scale: float | None = None,
) -> ScoreMod:
    """Return the modifiers as a `score_mod` for `torch.nn.attention.flex_attention.flex_attention`.

    It maps (score, b, h, i, j) to gain_i · score + every term(h, i, j), in nats. b, h, i, j are indices into q and k;
    the queries are the last i tokens, and h is a head of q. It computes in float32, or in float64 if q is float64. It
    masks nothing; use `mask_mod` for that. It does not rotate either: pass `modifiers.rotation.rotate_query(q)` and
    `modifiers.rotation.rotate_key(k)` to flex_attention.

    Only RelativeKeyBias and KeyBias need q [b, h, i, d] and k [b, g, j, d] before rotation, and `scale` if it is not
    1/sqrt(d). The mod is then valid for this q and k only. Raise `ConfigError` for LogitTransform, RelativeValues and
    SinkLogit, which no score_mod can express.
    """
    if modifiers.sink:
        raise ConfigError("score_mod: a SinkLogit is in the softmax's denominator; use lengthwise.attend")
    if reason := _unsupported_reason(modifiers):
        raise ConfigError(f"score_mod: {reason}; use lengthwise.attend")
    content = [type(term).__name__ for term in modifiers.terms if term.reads_q or term.reads_k]
    if content and (q is None or k is None):
        raise ConfigError(
            f"score_mod: {content[0]} multiplies q and k; pass them, as in score_mod(modifiers, span, q, k)"
        )
    if q is None or k is None:  # no term reads them
        q, k = (torch.empty(1, 1, x.shape[1], 1, device=x.device) for x in (span.q, span.k))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    with torch.autocast(span.q.device.type, enabled=False):
        pairs = _static_pairs(modifiers, span, q, k, scale) + _content_pairs(modifiers, span, q, k, scale)
    return _sum(modifiers, pairs, torch.promote_types(q.dtype, torch.float32))


def mask_mod(mask: Mask, device: torch.device | str | None = None) -> MaskMod:
    """Return the mask as a `mask_mod` for `create_block_mask(mask_mod, B, None, mask.queries, mask.keys)`.

    It maps (b, h, i, j) to whether key j is visible to query i. B is the number of rows of documents, or None without
    documents.
    `device`: that of q. Default: the device of the documents, or torch's default device.
    """
    if mask.documents is not None:
        device = mask.documents.device if device is None else device
        document = reader(mask.documents.to(device))
    index_of, causal, window = key_index(mask.queries, mask.keys, device), mask.causal, mask.window

    @no_type_check
    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        i = index_of(i)
        pair = i >= j if causal else j >= 0
        if window is not None:
            pair = pair & (i - j < window) & (j - i < window)
        if mask.documents is not None:
            pair = pair & (document(b, i) == document(b, j))
        return pair

    return visible


def _block_mask(mask: Mask, device: torch.device) -> Any:
    """Return which blocks of 128 queries and keys have visible pairs; None if nothing is hidden."""
    if mask.hides_nothing:
        return None
    rows = 1 if mask.documents is None else len(mask.documents)
    make = _flex_function("create_block_mask", device)
    return make(mask_mod(mask, device), rows, None, mask.queries, mask.keys, device=device)


def _flex_function(name: str, device: torch.device) -> Callable[..., Any]:
    """Return a function of FlexAttention, compiled on CUDA unless it is called from a compiled graph."""
    return compiled_function(name) if device.type == "cuda" and not torch.compiler.is_compiling() else _eager(name)


def _eager(name: str) -> Callable[..., Any]:
    # Imported here because it imports torch's compiler, which takes a second.
    import torch.nn.attention.flex_attention as module

    return getattr(module, name)


@functools.cache
def compiled_function(name: str) -> Callable[..., Any]:
    import torch._dynamo

    run = torch.compile(_eager(name), fullgraph=True)

    def call(*args: Any, **kwargs: Any) -> Any:
        # Every kind of modifiers needs a compilation of its own; by default torch gives up after 8.
        with torch._dynamo.config.patch(recompile_limit=256):
            return run(*args, **kwargs)

    return call


def _sum(modifiers: forms.AttentionModifiers, pairs: list[Pair], dtype: torch.dtype) -> ScoreMod:
    """Return a score_mod that applies the gain and adds all pair functions."""
    gain = None if modifiers.gain is None else reader(modifiers.gain.gain.to(dtype))
    scales_terms = modifiers.gain is not None and modifiers.gain.scales_terms

    @no_type_check
    def score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        score = score.to(dtype)
        if gain is not None and not scales_terms:
            score = score * gain(b, h, i)
        for pair in pairs:
            score = score + pair(b, h, i, j)
        return score * gain(b, h, i) if gain is not None and scales_terms else score

    return score


def _static_pairs(modifiers: forms.AttentionModifiers, span: Span, q: Tensor, k: Tensor, scale: float) -> list[Pair]:
    """Return the terms that do not depend on q and k."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    return [term.pair(q, k, span, scale, dtype) for term in modifiers.terms if not term.reads_q and not term.reads_k]


def _content_pairs(modifiers: forms.AttentionModifiers, span: Span, q: Tensor, k: Tensor, scale: float) -> list[Pair]:
    """Return the terms that depend on q and k, which are those before rotation."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    terms = [term for term in modifiers.terms if term.reads_q or term.reads_k]
    if terms:
        q, k = q.to(dtype), k.to(dtype).repeat_interleave(q.shape[1] // k.shape[1], 1)
    return [term.bind_content(q, k, scale).pair(q, k, span, scale, dtype) for term in terms]


def _tensors(modifiers: forms.AttentionModifiers) -> list[Tensor]:
    return [x for form in modifiers.forms for x in vars(form).values() if isinstance(x, Tensor)]
