"""Attention in blocks of queries, with a backward pass that computes the weights and the forms of each block again."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.attention.masks import Mask
from lengthwise.forms import Form, QueryGain, Term
from lengthwise.forms.base import along_axes, selection
from lengthwise.span import PairBlock, Span

# Queries of a block, and logits that are processed together: few enough for a core's cache, or enough to use a GPU.
BLOCK_QUERIES = {"cpu": 64, "other": 256}
BLOCK_LOGITS = {"cpu": 1 << 19, "other": 1 << 25}


def query_blocks(mask: Mask, device: torch.device) -> Iterator[PairBlock]:
    """Yield the blocks of queries on a device, with the keys that may be visible to them."""
    return mask.query_blocks(BLOCK_QUERIES["cpu" if device.type == "cpu" else "other"])


# Columns of a block, and which of their pairs are hidden, [b|1, 1, i, columns].
_Hidden = list[tuple[slice, Tensor]]


@dataclass(frozen=True)
class FormTemplate:
    """A form without its tensors of numbers, which autograd stores.

    `names`: of these tensors. `others`: the other fields. `shared`: all rows of the batch have the same values.
    `columns`: those of a table over all distances from `first` on, or None. A block reads only the columns of its own
    distances.
    """

    form_type: type[Form]
    names: tuple[str, ...]
    others: dict[str, Any]
    shared: bool
    columns: int | None

    @classmethod
    def of(cls, form: Form, span: Span) -> "tuple[FormTemplate, list[Tensor]]":
        """Return a form without its tensors, and its tensors of numbers."""
        tensors = {name: x for name, x in form.tensors.items() if x.is_floating_point()}
        others = {f.name: getattr(form, f.name) for f in fields(form) if f.init and f.name not in tensors}
        shared = len(span.q) == 1 and all(x.shape[axis] == 1 for x, axis in form.along("b"))
        has_all = "first" in others and others.get("distances") is None
        columns = next((x.shape[axis] for x, axis in form.along("n") if has_all), None)
        return cls(type(form), tuple(tensors), others, shared, columns), list(tensors.values())

    def views(self, tensors: Sequence[Tensor | None], block: PairBlock, span: Span) -> list[Tensor | None]:
        """Return the entries of a block in the tensors, or in their gradients. `span`: that of the block."""
        functions = selection(block)
        if (columns := self._columns(span)) is not None:
            functions = {**functions, "n": lambda x, axis: x.narrow(axis, columns.start, _size(columns))}
        axes = [self.form_type.axes[name] for name in self.names]
        return [None if x is None else along_axes(x, a, functions) for x, a in zip(tensors, axes, strict=True)]

    def form(
        self, tensors: Sequence[Tensor | None], block: PairBlock, span: Span, dtype: torch.dtype
    ) -> tuple[Any, list[Tensor]]:
        """Return the form of a block, and its tensors of numbers as new leaves of autograd."""
        keeps_dtype = issubclass(self.form_type, Term) and self.form_type.keeps_dtype
        leaves = []
        for x, view in zip(tensors, self.views(tensors, block, span), strict=True):
            assert x is not None and view is not None
            leaves.append(view.detach().to(x.dtype if keeps_dtype else dtype).requires_grad_(x.requires_grad))
        others = dict(self.others)
        if (columns := self._columns(span)) is not None:
            others["first"] += columns.start
        return self.form_type(**others, **dict(zip(self.names, leaves, strict=True))), leaves

    def _columns(self, span: Span) -> slice | None:
        """Return the columns of the distances of a block whose positions ascend one by one. None: any of them."""
        if self.columns is None or span.lag is None:
            return None
        nearest, furthest = (
            min(max(distance - self.others["first"], 0), self.columns - 1)
            for distance in (span.lag - span.k.shape[1] + 1, span.lag + span.q.shape[1] - 1)
        )
        return slice(nearest, furthest + 1)


# Forms, each with its tensors, or with their gradients (None if not needed).
_BoundForms = list[tuple[FormTemplate, list[Tensor | None]]]


def _views(bound: _BoundForms, block: PairBlock, span: Span) -> list[Tensor | None]:
    return [view for template, tensors in bound for view in template.views(tensors, block, span)]


@dataclass(frozen=True)
class _Sum:
    """The sum of some forms for one block, and the leaves that it was computed from."""

    value: Tensor | None = None
    leaves: tuple[Tensor, ...] = ()

    @property
    def requires_grad(self) -> bool:
        return self.value is not None and self.value.requires_grad

    def backward(self, grad: Tensor, leaf_gradients: Sequence[Tensor | None]) -> None:
        """Add the gradients of the leaves to `leaf_gradients`, given that of the sum."""
        if self.value is None or not self.requires_grad:
            return
        needed = [(leaf, x) for leaf, x in zip(self.leaves, leaf_gradients, strict=True) if x is not None]
        grad = grad.sum_to_size(self.value.shape)
        new = torch.autograd.grad(self.value, [leaf for leaf, _ in needed], grad, allow_unused=True)
        for (_, gradient), x in zip(needed, new, strict=True):
            if x is not None:
                gradient += x


@dataclass(frozen=True)
class Blocks:
    """The span, the mask, the terms with a gain that scales them, and the values of a call."""

    span: Span
    mask: Mask
    terms: tuple[FormTemplate, ...]
    gain: tuple[FormTemplate, ...]  # one or none
    values: tuple[FormTemplate, ...]

    def bind(self, tensors: Sequence[Tensor | None]) -> tuple[_BoundForms, _BoundForms, _BoundForms]:
        """Return the terms that all rows of the batch share, the other terms, and the values, each with its tensors.

        A gain comes after the terms.
        """
        remaining = iter(tensors)
        terms, gain, values = (
            [(template, [next(remaining) for _ in template.names]) for template in templates]
            for templates in (self.terms, self.gain, self.values)
        )
        shared, per_row = (
            [t for t in terms if all(template.shared for template, _ in (t, *gain)) == same] for same in (True, False)
        )
        return shared and [*shared, *gain], per_row and [*per_row, *gain], values

    def split(self, q: Float[Tensor, "b h i d"]) -> Iterator[tuple[PairBlock, list[PairBlock]]]:
        """Yield blocks of queries of the whole batch, each with its division into blocks of some rows of the batch."""
        max_logits = BLOCK_LOGITS["cpu" if q.device.type == "cpu" else "other"]
        for block in query_blocks(self.mask, q.device):
            rows, keys = block.queries, block.keys
            step = max(1, max_logits // (q.shape[1] * _size(rows) * _size(keys)))
            row_blocks = [PairBlock(slice(b, min(b + step, len(q))), rows, keys) for b in range(0, len(q), step)]
            yield PairBlock(slice(0, len(q)), rows, keys), row_blocks

    def sum_of_terms(self, bound: _BoundForms, block: PairBlock, q: Tensor, k: Tensor) -> _Sum:
        """Return the sum of the terms for a block. If gradients are enabled, it is a function of new leaves."""
        if not bound:
            return _Sum()
        total, leaves, span = None, [], self.span.select(block)
        q, k = q[block.batch, :, block.queries], k[block.batch, :, block.keys]
        for template, tensors in bound:
            form, new_leaves = template.form(tensors, block, span, q.dtype)
            leaves += new_leaves
            if isinstance(form, QueryGain):
                assert total is not None  # it comes after the terms
                total = total * form.gain[..., None]
            else:  # the scale multiplies what terms read of q and k, and none of these terms does
                new = form.block(q, k, span, 1.0).to(q.dtype)
                total = new if total is None else total + new
        return _Sum(total, tuple(leaves))

    def sum_of_values(self, bound: _BoundForms, block: PairBlock, weights: Tensor) -> _Sum:
        """Return what the values add to the output of a block, a function of new leaves and of the weights."""
        total, leaves, span = None, [], self.span.select(block)
        for template, tensors in bound:
            value, new_leaves = template.form(tensors, block, span, weights.dtype)
            leaves += new_leaves
            new = value.block(weights, span)
            total = new if total is None else total + new
        return _Sum(total, (*leaves, weights))

    def logits(self, block: PairBlock, q: Tensor, k: Tensor, *terms: _Sum) -> Float[Tensor, "b h i j"]:
        """Return the logits with all terms, before masking."""
        logits = q[block.batch, :, block.queries] @ k[block.batch, :, block.keys].mT
        for term in terms:
            if term.value is not None:
                logits += term.value.detach()
        return logits

    def hidden(self, block: PairBlock, device: torch.device) -> _Hidden:
        """Return the columns of the block that have hidden pairs, and which pairs these are."""
        hidden = []
        for columns in self._columns_with_hidden_pairs(block):
            keys = slice(block.keys.start + columns.start, block.keys.start + columns.stop)
            visible = self.mask.visible(device, block.queries, keys)[:, None]
            hidden.append((columns, ~(visible[block.batch] if len(visible) > 1 else visible)))
        return hidden

    def _columns_with_hidden_pairs(self, block: PairBlock) -> list[slice]:
        """Return the columns before and after those that are visible to every query of the block."""
        mask, columns = self.mask, _size(block.keys)
        if mask.documents is not None:
            return [slice(0, columns)]
        offset = mask.keys - mask.queries - block.keys.start
        reach = mask.keys if mask.window is None else mask.window
        left = max(0, offset + block.queries.stop - reach)
        right = max(left, offset + block.queries.start + (1 if mask.causal else reach))
        return [s for s in (slice(0, min(left, columns)), slice(min(right, columns), columns)) if _size(s)]


def _size(indices: slice) -> int:
    return int(indices.stop - indices.start)


def _hide(x: Float[Tensor, "b h i j"], hidden: _Hidden, number: float) -> None:
    for columns, pairs in hidden:
        x[..., columns].masked_fill_(pairs, number)


def _weights(logits: Float[Tensor, "b h i j"], row_max: Float[Tensor, "b h i 1"]) -> Float[Tensor, "b h i j"]:
    """Return exp(logits - row_max), computed in place. Denormal results, which are slow on a CPU, become 0."""
    smallest = math.log(torch.finfo(logits.dtype).tiny)
    return torch.threshold_(logits.sub_(row_max), smallest, -math.inf).exp_()


class _NoDerivative(torch.autograd.Function):
    """Return a gradient unchanged. Its derivative by the tensors that it was computed from raises an error."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *_sources: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, _grad: Tensor) -> None:
        raise NotImplementedError("backend 'blocked' has no second derivative; use backend='reference'")


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
        for block, row_blocks in blocks.split(q):
            shared_sum = blocks.sum_of_terms(shared, block, q, k)
            for row_block in row_blocks:
                at = row_block.batch, slice(None), row_block.queries
                per_row_sum = blocks.sum_of_terms(per_row, row_block, q, k)
                logits = blocks.logits(row_block, q, k, shared_sum, per_row_sum)
                _hide(logits, blocks.hidden(row_block, q.device), -math.inf)
                row_max[at] = logits.amax(-1, keepdim=True)
                if sink is not None:
                    row_max[at] = torch.maximum(row_max[at], sink[:, None, None])
                weights = _weights(logits, row_max[at])
                row_sum[at] = weights.sum(-1, keepdim=True)
                if sink is not None:
                    row_sum[at] += (sink[:, None, None] - row_max[at]).exp()
                weighted = weights @ v[row_block.batch, :, row_block.keys]
                added = blocks.sum_of_values(values, row_block, weights).value
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
            gradients = tuple(None if x is None else _NoDerivative.apply(x, *sources) for x in gradients)
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
    for block, row_blocks in blocks.split(q):
        with torch.enable_grad():
            shared_sum = blocks.sum_of_terms(shared, block, q, k)
        shared_dS: Tensor | None = None
        for row_block in row_blocks:
            at, keys = (row_block.batch, slice(None), row_block.queries), (row_block.batch, slice(None), row_block.keys)
            with torch.enable_grad():
                per_row_sum = blocks.sum_of_terms(per_row, row_block, q, k)
            logits, hidden = blocks.logits(row_block, q, k, shared_sum, per_row_sum), blocks.hidden(row_block, q.device)
            _hide(logits, hidden, -math.inf)
            weights = _weights(logits, row_max[at])
            dv[keys] += weights.mT @ grad[at]
            dS = grad[at] @ v[keys].mT
            if values:
                with torch.enable_grad():
                    added = blocks.sum_of_values(values, row_block, weights.detach().requires_grad_())
                added.backward(grad[at], [*_views(dvalues, row_block, blocks.span.select(row_block)), dS])
            dS.sub_(delta[at]).mul_(weights)
            _hide(dS, hidden, 0.0)  # already 0, except for queries with NaN
            dq[at] = dS @ k[keys]
            dk[keys] += dS.mT @ q[at]
            per_row_sum.backward(dS, _views(dper_row, row_block, blocks.span.select(row_block)))
            if shared_sum.requires_grad:
                batch_sum = dS.sum(0, keepdim=True)
                shared_dS = batch_sum if shared_dS is None else shared_dS.add_(batch_sum)
        if shared_dS is not None:
            shared_sum.backward(shared_dS, _views(dshared, block, blocks.span.select(block)))
    dsink = None
    if sink is not None:  # its weight is exp(sink - row_max) / row_sum, and `delta` was divided by row_sum
        dsink = -((sink[:, None, None] - row_max).exp() * delta).sum((0, 2, 3))
    return dq, dk, dv, dsink, *dtensors
