"""Attention in plain PyTorch, some queries at a time: every form, on any device, with O(T · block) memory.

A block of queries has whole rows of logits, so softmax is the ordinary one; each row's maximum and sum are kept, and the
backward pass makes the weights again, block by block. What the terms say is made for the block alone, by functions that
autograd differentiates (parts.py). Half precision is computed in float32. Nothing is added up in an order that changes: two
runs give the same bits.

A `LogitTransform` may hold tensors that only autograd finds: its blocks are the reference itself, checkpointed.

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

from lengthwise.attention import reference
from lengthwise.attention.masks import Mask
from lengthwise.attention.parts import Block, Part, Parts, size
from lengthwise.attention.slices import Slices, blocks_of, sliced
from lengthwise.forms import AttentionModifiers
from lengthwise.span import Span

Attend = Callable[..., Tensor]

# Queries of a block, and how many logits are worked on at a time: few enough for a core's cache, or enough for a GPU.
_ROWS = {"cpu": 64, "other": 256}
_LOGITS = {"cpu": 1 << 19, "other": 1 << 25}
_MASK = 1 << 20  # pairs from which on a mask that is written out costs as much time as blocks do, and more memory


def unsupported_reason(modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
    """Why this backend cannot serve the modifiers: it can serve them all."""
    return None


def pays(modifiers: AttentionModifiers, mask: Mask) -> bool:
    """Something is added to the logits, or a window leaves most of them out, or torch's own attention, which is faster else,
    would take a large mask. Not while a graph is made, which it would break."""
    if torch.compiler.is_compiling():
        return False
    written_out = not (mask.causal_only or mask.hides_nothing) and mask.queries * mask.keys >= _MASK
    return bool(modifiers.terms or modifiers.values or modifiers.rewrite or mask.narrow or written_out)


def prepare(modifiers: AttentionModifiers, span: Span, mask: Mask) -> Attend:
    """Attention for given modifiers, span and mask."""

    # Under autocast the products would be in half precision.
    @torch.autocast(span.q.device.type, enabled=False)  # type: ignore[untyped-decorator]
    def attend(
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        v: Float[Tensor, "b g j d"],
        *,
        scale: float,
    ) -> Float[Tensor, "b h i d"]:
        given, compute = q.dtype, torch.promote_types(q.dtype, torch.float32)
        groups = q.shape[1] // k.shape[1]
        q = q.to(compute)
        k, v = (x.to(compute).repeat_interleave(groups, 1) for x in (k, v))
        if modifiers.rewrite:
            return _rewritten(modifiers, span, mask, q, k, v, scale).to(given)
        parts = Parts(span)
        terms = [parts.term(term, q, k, scale) for term in modifiers.terms]
        values = [parts.value(value) for value in modifiers.values]
        if modifiers.rotation:
            q, k = modifiers.rotation.query(q), modifiers.rotation.key(k)
        q = q * scale
        if modifiers.gain:
            q = q * modifiers.gain.gain[..., None].to(compute)
        tensors = [x for part in (*terms, *values) for x in part.tensors]
        out: Tensor = _Blocked.apply(_Blocks(mask, _bare(terms), _bare(values)), q, k, v, *tensors)
        return out.to(given)

    def around(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
        # Compiled, the blocks would be unrolled, for every length anew. Not a decorator: it would load torch's compiler, which
        # takes seconds, for callers that do not compile.
        compiled = torch.compiler.is_compiling()
        run = torch.compiler.disable(attend, reason="a loop over blocks of queries") if compiled else attend
        out: Tensor = run(q, k, v, scale=scale)
        return out

    return around


def _bare(parts: list[Part]) -> tuple[Part, ...]:
    """Without the tensors, which autograd keeps."""
    return tuple(replace(part, tensors=()) for part in parts)


def _slices(mask: Mask, device: torch.device) -> Iterator[Slices]:
    return blocks_of(mask, _ROWS["cpu" if device.type == "cpu" else "other"])


# Columns of a block, and what of them is not seen, [b|1, 1, i, columns].
_Hidden = list[tuple[slice, Tensor]]

# Forms, each with its tensors, or with their gradients (None where none is asked).
_Held = list[tuple[Part, list[Tensor | None]]]


def _cut(held: _Held, block: Block) -> list[Tensor | None]:
    """What of the tensors belongs to a block."""
    each = ((cut, x) for part, tensors in held for cut, x in zip(part.cuts, tensors, strict=True))
    return [None if x is None else cut(x, block) for cut, x in each]


@dataclass(frozen=True)
class _Made:
    """The sum of some forms for one block, and the leaves that it was made of."""

    total: Tensor | None
    leaves: list[Tensor]

    @property
    def learns(self) -> bool:
        return self.total is not None and self.total.requires_grad

    def pass_on(self, grad: Tensor, to: list[Tensor | None]) -> None:
        """Add the gradient of the sum to those of the leaves."""
        if self.total is None or not self.learns:
            return
        asked = [(leaf, into) for leaf, into in zip(self.leaves, to, strict=True) if into is not None]
        found = torch.autograd.grad(self.total, [leaf for leaf, _ in asked], grad.sum_to_size(self.total.shape))
        for (_, into), new in zip(asked, found, strict=True):
            into += new


def _make(held: _Held, block: Block, dtype: torch.dtype, *given: Tensor) -> _Made:
    """The sum of the forms for a block; where gradients are enabled, as a function of new leaves and of what is given."""
    total: Tensor | None = None
    leaves: list[Tensor] = []
    for form in held:
        views = [x for x in _cut([form], block) if x is not None]
        part = form[0]
        own = [x.detach().to(x.dtype if part.wide else dtype).requires_grad_(x.requires_grad) for x in views]
        new = part.of(block, *own, *given).to(dtype)
        total = new if total is None else total + new
        leaves += own
    return _Made(total, [*leaves, *given])


@dataclass(frozen=True)
class _Blocks:
    """What is asked: who sees whom, the terms, and the values."""

    mask: Mask
    terms: tuple[Part, ...]
    values: tuple[Part, ...]

    def hold(self, tensors: Sequence[Tensor | None]) -> tuple[_Held, _Held, _Held]:
        """The terms that all rows of the batch share, the other terms, and the values, each with its tensors."""
        each = iter(tensors)
        terms, values = (
            [(part, [next(each) for _ in part.cuts]) for part in parts] for parts in (self.terms, self.values)
        )
        return [t for t in terms if t[0].shared], [t for t in terms if not t[0].shared], values

    def every(self, q: Float[Tensor, "b h i d"]) -> Iterator[tuple[Block, list[Block]]]:
        """Blocks of queries of the whole batch, each also as blocks of some rows of the batch."""
        most = _LOGITS["cpu" if q.device.type == "cpu" else "other"]
        for rows, keys in _slices(self.mask, q.device):
            step = max(1, most // (q.shape[1] * size(rows) * size(keys)))
            some = [Block(slice(b, min(b + step, len(q))), rows, keys) for b in range(0, len(q), step)]
            yield Block(slice(0, len(q)), rows, keys), some

    def logits(self, block: Block, q: Tensor, k: Tensor, *terms: _Made) -> Float[Tensor, "b h i j"]:
        """With all terms; nothing is hidden yet."""
        logits = q[block.batch, :, block.rows] @ k[block.batch, :, block.keys].mT
        for made in terms:
            if made.total is not None:
                logits += made.total.detach()
        return logits

    def hidden(self, block: Block, device: torch.device) -> _Hidden:
        """What is not seen: some columns of the block at a time."""
        found = []
        for some in self._hiding(block):
            keys = slice(block.keys.start + some.start, block.keys.start + some.stop)
            seen = self.mask.visible(device, block.rows, keys)[:, None]
            found.append((some, ~(seen[block.batch] if len(seen) > 1 else seen)))
        return found

    def _hiding(self, block: Block) -> list[slice]:
        """Columns of the block with something hidden: before those that every query sees, and after them."""
        mask, columns = self.mask, size(block.keys)
        if mask.documents is not None:
            return [slice(0, columns)]
        offset = mask.keys - mask.queries - block.keys.start
        reach = mask.keys if mask.window is None else mask.window
        left = max(0, offset + block.rows.stop - reach)
        right = max(left, offset + block.rows.start + (1 if mask.causal else reach))
        return [s for s in (slice(0, min(left, columns)), slice(min(right, columns), columns)) if size(s)]


def _hide(x: Float[Tensor, "b h i j"], hidden: _Hidden, number: float) -> None:
    for some, where in hidden:
        x[..., some].masked_fill_(where, number)


def _weights(logits: Float[Tensor, "b h i j"], most: Float[Tensor, "b h i 1"]) -> Float[Tensor, "b h i j"]:
    """exp(logits - most), in place; 0 where that would be a denormal number, on which a CPU takes its time."""
    least = math.log(torch.finfo(logits.dtype).tiny)
    return torch.threshold_(logits.sub_(most), least, -math.inf).exp_()


class _Blocked(torch.autograd.Function):
    """softmax(q kᵀ + terms) (v + values), q scaled. There is no second derivative: asking for one is an error."""

    @staticmethod
    def forward(ctx: Any, blocks: _Blocks, q: Tensor, k: Tensor, v: Tensor, *tensors: Tensor) -> Tensor:
        out, most, sums = torch.empty_like(q), q.new_empty(*q.shape[:3], 1), q.new_empty(*q.shape[:3], 1)
        shared, own, values = blocks.hold(tensors)
        for block, some in blocks.every(q):
            common = _make(shared, block, q.dtype)
            for part in some:
                at = part.batch, slice(None), part.rows
                logits = blocks.logits(part, q, k, common, _make(own, part, q.dtype))
                _hide(logits, blocks.hidden(part, q.device), -math.inf)
                most[at] = logits.amax(-1, keepdim=True)
                weights = _weights(logits, most[at])
                sums[at] = weights.sum(-1, keepdim=True)
                made = weights @ v[part.batch, :, part.keys]
                extra = _make(values, part, q.dtype, weights).total
                out[at] = (made if extra is None else made + extra) / sums[at]
        ctx.save_for_backward(q, k, v, out, most, sums, *tensors)
        ctx.blocks = blocks
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # In an autocast block of the caller the products would be in half precision.
        with torch.autocast(grad.device.type, enabled=False):
            return None, *_backward(ctx.blocks, grad, ctx.needs_input_grad[4:], *ctx.saved_tensors)


def _backward(
    blocks: _Blocks,
    grad: Tensor,
    asked: tuple[bool, ...],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    most: Tensor,
    sums: Tensor,
    *tensors: Tensor,
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v and the tensors."""
    grad = grad / sums  # so that the weights need not be divided by their sum
    inner = (grad * out).sum(-1, keepdim=True)
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dtensors = [torch.zeros_like(x) if needed else None for x, needed in zip(tensors, asked, strict=True)]
    shared, own, values = blocks.hold(tensors)
    dshared, down, dvalues = blocks.hold(dtensors)
    for block, some in blocks.every(q):
        with torch.enable_grad():
            common = _make(shared, block, q.dtype)
        total: Tensor | None = None
        for part in some:
            at, seen = (part.batch, slice(None), part.rows), (part.batch, slice(None), part.keys)
            with torch.enable_grad():
                alone = _make(own, part, q.dtype)
            logits, hidden = blocks.logits(part, q, k, common, alone), blocks.hidden(part, q.device)
            _hide(logits, hidden, -math.inf)
            weights = _weights(logits, most[at])
            dv[seen] += weights.mT @ grad[at]
            d = grad[at] @ v[seen].mT
            if values:
                with torch.enable_grad():
                    extra = _make(values, part, q.dtype, weights.detach().requires_grad_())
                extra.pass_on(grad[at], [*_cut(dvalues, part), d])
            d.sub_(inner[at]).mul_(weights)
            _hide(d, hidden, 0.0)  # 0 already, but for a query with NaN
            dq[at] = d @ k[seen]
            dk[seen] += d.mT @ q[at]
            alone.pass_on(d, _cut(down, part))
            if common.learns:
                here = d.sum(0, keepdim=True)
                total = here if total is None else total.add_(here)
        if total is not None:
            common.pass_on(total, _cut(dshared, block))
    return dq, dk, dv, *dtensors


def _rewritten(
    modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, v: Tensor, scale: float
) -> Float[Tensor, "b h i d"]:
    """The reference, block by block; what it makes is made again in the backward pass."""
    blocks = list(_slices(mask, q.device))

    def attend(q: Tensor, k: Tensor, v: Tensor, some: AttentionModifiers, place: Span, *at: slice) -> Tensor:
        # A rotation keeps what it has computed, and both passes have to compute it.
        some = replace(some, rotation=some.rotation and replace(some.rotation))
        return reference.attention(some, q, k, v, place, mask.visible(q.device, *at)[:, None], scale)

    out = []
    for (rows, keys), (some, place) in zip(blocks, sliced(modifiers, span, blocks), strict=True):
        given = q[:, :, rows], k[:, :, keys], v[:, :, keys], some, place, rows, keys
        if torch.is_grad_enabled():
            out.append(checkpoint(attend, *given, use_reentrant=False, preserve_rng_state=False))
        else:
            out.append(attend(*given))
    return torch.cat(out, 2)
