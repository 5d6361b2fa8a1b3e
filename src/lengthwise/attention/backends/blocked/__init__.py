"""The `blocked` backend: plain PyTorch, some queries at a time; every form, on any device, with O(T · block) memory.

A block of queries has whole rows of logits, so the softmax is the ordinary one. Each row's maximum and sum are stored,
and the backward pass recomputes the weights block by block. Terms and values are those of the forms (`block`), which
autograd differentiates for each block. Half precision is computed in float32. The order of all additions is fixed, so
two runs give the same bits.

A `LogitTransform` may use tensors that only autograd can find, a form of `Product` has more than one product of q and
k, and a term may read q and k in its own way. So their blocks are computed by the reference with checkpointing;
products that depend on the tokens between query and key, by `Product.in_blocks`.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lengthwise.attention.backends import reference
from lengthwise.attention.backends.base import Attend, Backend, in_compute_dtype
from lengthwise.attention.backends.blocked.blocks import BlockedAttention, Blocks, FormTemplate, query_blocks
from lengthwise.attention.masks import Mask
from lengthwise.forms import AttentionModifiers, ProductBlocks
from lengthwise.span import PairBlock, Span

_LARGE_MASK = 1 << 20  # pairs; from here on a materialized mask takes as much time as blocks do, and more memory


class Blocked(Backend):
    """Plain PyTorch, some queries at a time.

    Memory: it holds the logits of one block of 64 queries (256 on a GPU) with all their keys, whatever forms are used.
    """

    name = "blocked"

    def unsupported_reason(self, modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
        """Return None: this backend supports all modifiers."""
        return None

    def is_worthwhile(self, modifiers: AttentionModifiers, mask: Mask, device: torch.device) -> bool:
        """Whether this backend is faster than torch's own attention, or needs less memory.

        That is so if something is added to the logits or the softmax, if a window hides most keys, or if torch would
        need a large mask. It is never so in a compiled graph, which this backend would break.
        """
        if torch.compiler.is_compiling():
            return False
        large_mask = not (mask.causal_only or mask.hides_nothing) and mask.queries * mask.keys >= _LARGE_MASK
        return bool(
            modifiers.terms
            or modifiers.values
            or modifiers.logit_transform
            or modifiers.sink
            or modifiers.product
            or mask.window_hides_keys
            or large_mask
        )

    def prepare(self, modifiers: AttentionModifiers, span: Span, mask: Mask) -> Attend:
        return partial(_outside_graphs, partial(in_compute_dtype, partial(_attend, modifiers, span, mask)))


def _outside_graphs(eager: Attend, q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
    # A compiled graph would unroll the blocks, again for every length. `disable` is not used as a decorator because it
    # would import torch's compiler, which takes seconds, for callers that do not compile.
    compiled = torch.compiler.is_compiling()
    attend = torch.compiler.disable(eager, reason="a loop over blocks of queries") if compiled else eager
    return attend(q, k, v, scale=scale)


def _attend(
    modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, v: Tensor, *, scale: float
) -> Tensor:
    terms, gain = [term.bind_content(q, k, scale) for term in modifiers.terms], modifiers.gain
    if modifiers.logit_transform or modifiers.product or any(term.reads_q or term.reads_k for term in terms):
        return _checkpointed_attention(modifiers, span, mask, q, k, v, scale)
    if modifiers.rotation:
        q, k = modifiers.rotation.rotate_query(q), modifiers.rotation.rotate_key(k)
    q = q * scale
    if gain:
        q = q * gain.gain[..., None].to(q.dtype)
    sink = modifiers.sink and modifiers.sink.logit.to(q.dtype).expand(q.shape[1])
    tensors: list[Tensor] = []
    templates: list[tuple[FormTemplate, ...]] = []
    for forms in (terms, [gain] if gain and gain.scales_terms else [], modifiers.values):
        bound = [FormTemplate.of(form, span) for form in forms]
        templates.append(tuple(template for template, _ in bound))
        tensors += [x for _, form_tensors in bound for x in form_tensors]
    return BlockedAttention.apply(Blocks(span, mask, *templates), q, k, v, sink, *tensors)


def _checkpointed_attention(
    modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, v: Tensor, scale: float
) -> Float[Tensor, "b h i d"]:
    """Return the reference's attention, block by block, with checkpointing."""
    blocks = list(query_blocks(mask, q.device))
    in_blocks = None if modifiers.product is None else modifiers.product.in_blocks(k, mask.queries)
    attend = partial(_checkpointed_block, mask, scale, in_blocks)
    checkpointed = partial(checkpoint, attend, use_reentrant=False, preserve_rng_state=False)
    run = checkpointed if torch.is_grad_enabled() else attend
    out = [
        run(q[:, :, at.queries], k[:, :, at.keys], v[:, :, at.keys], block_modifiers, span.select(at), at)
        for block_modifiers, at in zip(modifiers.split(blocks), blocks, strict=True)
    ]
    return torch.cat(out, 2)


def _checkpointed_block(
    mask: Mask,
    scale: float,
    in_blocks: ProductBlocks | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    modifiers: AttentionModifiers,
    span: Span,
    block: PairBlock,
) -> Float[Tensor, "b h i d"]:
    # Copies of rotations, because they cache their cosines and checkpointing needs both passes to compute them.
    modifiers = modifiers.select(PairBlock())
    visible = mask.visible(q.device, block.queries, block.keys)[:, None]
    products = None if in_blocks is None else in_blocks.logits(q, block.queries, block.keys)
    return reference.attention(modifiers, q, k, v, span, visible, scale, products)
