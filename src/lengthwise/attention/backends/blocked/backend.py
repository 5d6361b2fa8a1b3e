"""The `blocked` backend: plain PyTorch, some queries at a time; every form, on any device, with O(T · block) memory.

A block of queries has whole rows of logits, so the softmax is the ordinary one. Each row's maximum and sum are stored, and the
backward pass recomputes the weights block by block. Terms are computed for each block by functions that autograd differentiates
(parts.py). Half precision is computed in float32. The order of all additions is fixed, so two runs give the same bits.

A `LogitTransform` may use tensors that only autograd can find. So its blocks are computed by the reference with checkpointing.

Memory: whatever is added, rows of logits of 64 queries at a time (256 on a GPU).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from lengthwise.attention.backends import reference
from lengthwise.attention.backends.blocked.parts import Block, Part, Parts, size
from lengthwise.attention.masks import Mask
from lengthwise.attention.slices import Slices, query_blocks, slice_modifiers
from lengthwise.forms import AttentionModifiers
from lengthwise.span import Span

Attend = Callable[..., Tensor]

# Queries of a block, and logits that are processed together: few enough for a core's cache, or enough to use a GPU.
_ROWS = {"cpu": 64, "other": 256}
_LOGITS = {"cpu": 1 << 19, "other": 1 << 25}
_LARGE_MASK = 1 << 20  # pairs; from here on a materialized mask takes as much time as blocks do, and more memory


def unsupported_reason(modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
    """Return None: this backend supports all modifiers."""
    return None


def is_worthwhile(modifiers: AttentionModifiers, mask: Mask) -> bool:
    """Whether this backend is faster than torch's own attention, or needs less memory.

    That is so if something is added to the logits, if a window hides most keys, or if torch would need a large mask. It is never
    so in a compiled graph, which this backend would break.
    """
    if torch.compiler.is_compiling():
        return False
    large_mask = not (mask.causal_only or mask.hides_nothing) and mask.queries * mask.keys >= _LARGE_MASK
    return bool(
        modifiers.terms or modifiers.values or modifiers.logit_transform or mask.window_hides_keys or large_mask
    )


def prepare(modifiers: AttentionModifiers, span: Span, mask: Mask) -> Attend:
    """Return attention for fixed modifiers, span and mask."""

    # Autocast would compute the products in half precision.
    @torch.autocast(span.q.device.type, enabled=False)  # type: ignore[untyped-decorator]
    def attend(
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        v: Float[Tensor, "b g j d"],
        *,
        scale: float,
    ) -> Float[Tensor, "b h i d"]:
        input_dtype, compute = q.dtype, torch.promote_types(q.dtype, torch.float32)
        groups = q.shape[1] // k.shape[1]
        q = q.to(compute)
        k, v = (x.to(compute).repeat_interleave(groups, 1) for x in (k, v))
        if modifiers.logit_transform:
            return _transformed_logits_attention(modifiers, span, mask, q, k, v, scale).to(input_dtype)
        parts = Parts(span)
        terms = [parts.term(term, q, k, scale) for term in modifiers.terms]
        values = [parts.value(value) for value in modifiers.values]
        if modifiers.rotation:
            q, k = modifiers.rotation.query(q), modifiers.rotation.key(k)
        q = q * scale
        if modifiers.gain:
            q = q * modifiers.gain.gain[..., None].to(compute)
        tensors = [x for part in (*terms, *values) for x in part.tensors]
        out: Tensor = _Blocked.apply(
            _Blocks(mask, _without_tensors(terms), _without_tensors(values)), q, k, v, *tensors
        )
        return out.to(input_dtype)

    def eager_attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
        # A compiled graph would unroll the blocks, again for every length. `disable` is not used as a decorator because it
        # would import torch's compiler, which takes seconds, for callers that do not compile.
        compiled = torch.compiler.is_compiling()
        run = torch.compiler.disable(attend, reason="a loop over blocks of queries") if compiled else attend
        out: Tensor = run(q, k, v, scale=scale)
        return out

    return eager_attend


def _without_tensors(parts: list[Part]) -> tuple[Part, ...]:
    """Return the parts without their tensors, which autograd stores."""
    return tuple(replace(part, tensors=()) for part in parts)


def _slices(mask: Mask, device: torch.device) -> Iterator[Slices]:
    return query_blocks(mask, _ROWS["cpu" if device.type == "cpu" else "other"])


# Columns of a block, and which of their pairs are hidden, [b|1, 1, i, columns].
_Hidden = list[tuple[slice, Tensor]]

# Forms, each with its tensors, or with their gradients (None if not needed).
_BoundParts = list[tuple[Part, list[Tensor | None]]]


def _block_views(bound: _BoundParts, block: Block) -> list[Tensor | None]:
    """Return the views of the tensors that belong to a block."""
    pairs = ((select, x) for part, tensors in bound for select, x in zip(part.selectors, tensors, strict=True))
    return [None if x is None else select(x, block) for select, x in pairs]


@dataclass(frozen=True)
class _Sum:
    """The sum of some forms for one block, and the leaves that it was computed from."""

    value: Tensor | None
    leaves: list[Tensor]

    @property
    def requires_grad(self) -> bool:
        return self.value is not None and self.value.requires_grad

    def backward(self, grad: Tensor, leaf_gradients: list[Tensor | None]) -> None:
        """Add the gradients of the leaves to `leaf_gradients`, given that of the sum."""
        if self.value is None or not self.requires_grad:
            return
        needed = [(leaf, x) for leaf, x in zip(self.leaves, leaf_gradients, strict=True) if x is not None]
        new = torch.autograd.grad(self.value, [leaf for leaf, _ in needed], grad.sum_to_size(self.value.shape))
        for (_, gradient), x in zip(needed, new, strict=True):
            gradient += x


def _sum(bound: _BoundParts, block: Block, dtype: torch.dtype, *extra: Tensor) -> _Sum:
    """Return the sum of the forms for a block. If gradients are enabled, it is a function of new leaves and of `extra`."""
    total: Tensor | None = None
    leaves: list[Tensor] = []
    for form in bound:
        views = [x for x in _block_views([form], block) if x is not None]
        part = form[0]
        part_leaves = [
            x.detach().to(x.dtype if part.cast_result else dtype).requires_grad_(x.requires_grad) for x in views
        ]
        new = part.evaluate(block, *part_leaves, *extra).to(dtype)
        total = new if total is None else total + new
        leaves += part_leaves
    return _Sum(total, [*leaves, *extra])


@dataclass(frozen=True)
class _Blocks:
    """The mask, the terms and the values of a call."""

    mask: Mask
    terms: tuple[Part, ...]
    values: tuple[Part, ...]

    def bind(self, tensors: Sequence[Tensor | None]) -> tuple[_BoundParts, _BoundParts, _BoundParts]:
        """Return the terms that all rows of the batch share, the other terms, and the values, each with its tensors."""
        remaining = iter(tensors)
        terms, values = (
            [(part, [next(remaining) for _ in part.selectors]) for part in parts] for parts in (self.terms, self.values)
        )
        return [t for t in terms if t[0].shared], [t for t in terms if not t[0].shared], values

    def split(self, q: Float[Tensor, "b h i d"]) -> Iterator[tuple[Block, list[Block]]]:
        """Yield blocks of queries of the whole batch, each with its division into blocks of some rows of the batch."""
        max_logits = _LOGITS["cpu" if q.device.type == "cpu" else "other"]
        for rows, keys in _slices(self.mask, q.device):
            step = max(1, max_logits // (q.shape[1] * size(rows) * size(keys)))
            parts = [Block(slice(b, min(b + step, len(q))), rows, keys) for b in range(0, len(q), step)]
            yield Block(slice(0, len(q)), rows, keys), parts

    def logits(self, block: Block, q: Tensor, k: Tensor, *terms: _Sum) -> Float[Tensor, "b h i j"]:
        """Return the logits with all terms, before masking."""
        logits = q[block.batch, :, block.rows] @ k[block.batch, :, block.keys].mT
        for term in terms:
            if term.value is not None:
                logits += term.value.detach()
        return logits

    def hidden(self, block: Block, device: torch.device) -> _Hidden:
        """Return the columns of the block that have hidden pairs, and which pairs these are."""
        hidden = []
        for columns in self._columns_with_hidden_pairs(block):
            keys = slice(block.keys.start + columns.start, block.keys.start + columns.stop)
            visible = self.mask.visible(device, block.rows, keys)[:, None]
            hidden.append((columns, ~(visible[block.batch] if len(visible) > 1 else visible)))
        return hidden

    def _columns_with_hidden_pairs(self, block: Block) -> list[slice]:
        """Return the columns before and after those that are visible to every query of the block."""
        mask, columns = self.mask, size(block.keys)
        if mask.documents is not None:
            return [slice(0, columns)]
        offset = mask.keys - mask.queries - block.keys.start
        reach = mask.keys if mask.window is None else mask.window
        left = max(0, offset + block.rows.stop - reach)
        right = max(left, offset + block.rows.start + (1 if mask.causal else reach))
        return [s for s in (slice(0, min(left, columns)), slice(min(right, columns), columns)) if size(s)]


def _hide(x: Float[Tensor, "b h i j"], hidden: _Hidden, number: float) -> None:
    """Write a number to the hidden pairs, in place."""
    for columns, pairs in hidden:
        x[..., columns].masked_fill_(pairs, number)


def _weights(logits: Float[Tensor, "b h i j"], row_max: Float[Tensor, "b h i 1"]) -> Float[Tensor, "b h i j"]:
    """Return exp(logits - row_max), computed in place. Denormal results, which are slow on a CPU, become 0."""
    smallest = math.log(torch.finfo(logits.dtype).tiny)
    return torch.threshold_(logits.sub_(row_max), smallest, -math.inf).exp_()


class _Blocked(torch.autograd.Function):
    """softmax(q kᵀ + terms) (v + values), where q is already scaled. A second derivative raises an error."""

    @staticmethod
    def forward(ctx: Any, blocks: _Blocks, q: Tensor, k: Tensor, v: Tensor, *tensors: Tensor) -> Tensor:
        out, row_max, row_sum = torch.empty_like(q), q.new_empty(*q.shape[:3], 1), q.new_empty(*q.shape[:3], 1)
        shared, per_row, values = blocks.bind(tensors)
        for block, parts in blocks.split(q):
            shared_sum = _sum(shared, block, q.dtype)
            for part in parts:
                at = part.batch, slice(None), part.rows
                logits = blocks.logits(part, q, k, shared_sum, _sum(per_row, part, q.dtype))
                _hide(logits, blocks.hidden(part, q.device), -math.inf)
                row_max[at] = logits.amax(-1, keepdim=True)
                weights = _weights(logits, row_max[at])
                row_sum[at] = weights.sum(-1, keepdim=True)
                weighted = weights @ v[part.batch, :, part.keys]
                added = _sum(values, part, q.dtype, weights).value
                out[at] = (weighted if added is None else weighted + added) / row_sum[at]
        ctx.save_for_backward(q, k, v, out, row_max, row_sum, *tensors)
        ctx.blocks = blocks
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Autocast of the caller would compute the products in half precision.
        with torch.autocast(grad.device.type, enabled=False):
            return None, *_backward(ctx.blocks, grad, ctx.needs_input_grad[4:], *ctx.saved_tensors)


def _backward(
    blocks: _Blocks,
    grad: Tensor,
    needs_grad: tuple[bool, ...],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    row_max: Tensor,
    row_sum: Tensor,
    *tensors: Tensor,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of q, k, v and the tensors."""
    grad = grad / row_sum  # so that the weights need not be divided by their sum
    delta = (grad * out).sum(-1, keepdim=True)
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dtensors = [torch.zeros_like(x) if needed else None for x, needed in zip(tensors, needs_grad, strict=True)]
    shared, per_row, values = blocks.bind(tensors)
    dshared, dper_row, dvalues = blocks.bind(dtensors)
    for block, parts in blocks.split(q):
        with torch.enable_grad():
            shared_sum = _sum(shared, block, q.dtype)
        shared_dS: Tensor | None = None
        for part in parts:
            at, keys = (part.batch, slice(None), part.rows), (part.batch, slice(None), part.keys)
            with torch.enable_grad():
                part_sum = _sum(per_row, part, q.dtype)
            logits, hidden = blocks.logits(part, q, k, shared_sum, part_sum), blocks.hidden(part, q.device)
            _hide(logits, hidden, -math.inf)
            weights = _weights(logits, row_max[at])
            dv[keys] += weights.mT @ grad[at]
            dS = grad[at] @ v[keys].mT
            if values:
                with torch.enable_grad():
                    added = _sum(values, part, q.dtype, weights.detach().requires_grad_())
                added.backward(grad[at], [*_block_views(dvalues, part), dS])
            dS.sub_(delta[at]).mul_(weights)
            _hide(dS, hidden, 0.0)  # already 0, except for queries with NaN
            dq[at] = dS @ k[keys]
            dk[keys] += dS.mT @ q[at]
            part_sum.backward(dS, _block_views(dper_row, part))
            if shared_sum.requires_grad:
                batch_sum = dS.sum(0, keepdim=True)
                shared_dS = batch_sum if shared_dS is None else shared_dS.add_(batch_sum)
        if shared_dS is not None:
            shared_sum.backward(shared_dS, _block_views(dshared, block))
    return dq, dk, dv, *dtensors


def _transformed_logits_attention(
    modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, v: Tensor, scale: float
) -> Float[Tensor, "b h i d"]:
    """Return the reference's attention with a `LogitTransform`, block by block, with checkpointing."""
    blocks = list(_slices(mask, q.device))

    def attend(
        q: Tensor, k: Tensor, v: Tensor, block_modifiers: AttentionModifiers, block_span: Span, *at: slice
    ) -> Tensor:
        # A copy of the rotation, because it caches its cosines and checkpointing needs both passes to compute them.
        rotation = block_modifiers.rotation and replace(block_modifiers.rotation)
        block_modifiers = replace(block_modifiers, rotation=rotation)
        visible = mask.visible(q.device, *at)[:, None]
        return reference.attention(block_modifiers, q, k, v, block_span, visible, scale)

    out = []
    for (rows, keys), (block_modifiers, block_span) in zip(
        blocks, slice_modifiers(modifiers, span, blocks), strict=True
    ):
        arguments = q[:, :, rows], k[:, :, keys], v[:, :, keys], block_modifiers, block_span, rows, keys
        if torch.is_grad_enabled():
            out.append(checkpoint(attend, *arguments, use_reentrant=False, preserve_rng_state=False))
        else:
            out.append(attend(*arguments))
    return torch.cat(out, 2)
