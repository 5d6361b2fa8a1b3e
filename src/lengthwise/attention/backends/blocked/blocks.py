"""Attention in blocks of queries, with a backward pass that recomputes the weights of each block."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.attention.backends.base import NoDerivative
from lengthwise.attention.backends.blocked.parts import Block, Part, size
from lengthwise.attention.masks import Mask
from lengthwise.attention.slices import Slices, query_blocks

# Queries of a block, and logits that are processed together: few enough for a core's cache, or enough to use a GPU.
_ROWS = {"cpu": 64, "other": 256}
_LOGITS = {"cpu": 1 << 19, "other": 1 << 25}


def slices(mask: Mask, device: torch.device) -> Iterator[Slices]:
    """Yield the blocks of queries on a device, with the keys that may be visible to them."""
    return query_blocks(mask, _ROWS["cpu" if device.type == "cpu" else "other"])


# Columns of a block, and which of their pairs are hidden, [b|1, 1, i, columns].
_Hidden = list[tuple[slice, Tensor]]

# Forms, each with its tensors, or with their gradients (None if not needed).
_BoundParts = list[tuple[Part, list[Tensor | None]]]


def _block_views(bound: _BoundParts, block: Block) -> list[Tensor | None]:
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
class Blocks:
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
        for rows, keys in slices(self.mask, q.device):
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
    for columns, pairs in hidden:
        x[..., columns].masked_fill_(pairs, number)


def _weights(logits: Float[Tensor, "b h i j"], row_max: Float[Tensor, "b h i 1"]) -> Float[Tensor, "b h i j"]:
    """Return exp(logits - row_max), computed in place. Denormal results, which are slow on a CPU, become 0."""
    smallest = math.log(torch.finfo(logits.dtype).tiny)
    return torch.threshold_(logits.sub_(row_max), smallest, -math.inf).exp_()


class BlockedAttention(torch.autograd.Function):
    """softmax(q kᵀ + terms) (v + values), where q is already scaled. A second derivative raises an error.

    `sink` [h]: the logit of a sink, which is in the denominator of every row's softmax; None if there is none.
    """

    @staticmethod
    def forward(
        ctx: Any, blocks: Blocks, q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        row_max, row_sum, out = (q.new_empty(*q.shape[:3], width) for width in (1, 1, v.shape[3]))
        shared, per_row, values = blocks.bind(tensors)
        for block, parts in blocks.split(q):
            shared_sum = _sum(shared, block, q.dtype)
            for part in parts:
                at = part.batch, slice(None), part.rows
                logits = blocks.logits(part, q, k, shared_sum, _sum(per_row, part, q.dtype))
                _hide(logits, blocks.hidden(part, q.device), -math.inf)
                row_max[at] = logits.amax(-1, keepdim=True)
                if sink is not None:
                    row_max[at] = torch.maximum(row_max[at], sink[:, None, None])
                weights = _weights(logits, row_max[at])
                row_sum[at] = weights.sum(-1, keepdim=True)
                if sink is not None:
                    row_sum[at] += (sink[:, None, None] - row_max[at]).exp()
                weighted = weights @ v[part.batch, :, part.keys]
                added = _sum(values, part, q.dtype, weights).value
                out[at] = (weighted if added is None else weighted + added) / row_sum[at]
        ctx.save_for_backward(q, k, v, sink, out, row_max, row_sum, *tensors)
        ctx.blocks = blocks
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Autocast of the caller would compute the products in half precision.
        with torch.no_grad(), torch.autocast(grad.device.type, enabled=False):
            gradients = _backward(ctx.blocks, grad, ctx.needs_input_grad[5:], *ctx.saved_tensors)
        if torch.is_grad_enabled():  # create_graph=True
            sources = grad, *ctx.saved_tensors[:3]
            gradients = tuple(None if x is None else NoDerivative.apply("blocked", x, *sources) for x in gradients)
        return None, *gradients


def _backward(
    blocks: Blocks,
    grad: Tensor,
    needs_grad: tuple[bool, ...],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None,
    *saved: Tensor,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of q, k, v, the sink and the tensors. `saved`: out, row_max, row_sum, then the tensors."""
    out, row_max, row_sum, *tensors = saved
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
    dsink = None
    if sink is not None:  # its weight is exp(sink - row_max) / row_sum, and `delta` was divided by row_sum
        dsink = -((sink[:, None, None] - row_max).exp() * delta).sum((0, 2, 3))
    return dq, dk, dv, dsink, *dtensors
