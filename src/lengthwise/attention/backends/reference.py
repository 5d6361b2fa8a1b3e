"""The `reference` backend, which defines every form: short, plain and exact in float64. All other backends must agree with it."""

import math
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from lengthwise import forms
from lengthwise.attention.backends.base import Attend, Backend, Measurement, in_compute_dtype
from lengthwise.attention.masks import Mask
from lengthwise.attention.product_blocks import decayed, product_blocks
from lengthwise.attention.slices import query_blocks, slice_modifiers
from lengthwise.attention.tables import scatter_columns
from lengthwise.forms import column
from lengthwise.span import Span

_BLOCK_LOGITS = {"cpu": 1 << 18, "other": 1 << 25}  # logits that statistics process together


class Reference(Backend):
    """The definition of every form, with tensors of all pairs of queries and keys."""

    name = "reference"
    supports_transforms = True

    def unsupported_reason(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
        """Return None: this backend supports all modifiers."""
        return None

    def prepare(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask) -> Attend:
        """Return attention for one span: softmax(scale · <rotated q, rotated k> + terms) v, as the papers write it."""
        return partial(in_compute_dtype, partial(_attend, modifiers, span, mask))

    def statistics_unsupported_reason(
        self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor
    ) -> str | None:
        """Return None: this backend supports all modifiers."""
        return None

    def statistics(self, measurement: Measurement, q: Tensor, k: Tensor) -> Float[Tensor, "b h i m"]:
        """Return the statistics of every query, computed for some queries at a time."""
        mask, scale = measurement.mask, measurement.scale
        with torch.autocast(q.device.type, enabled=False):  # autocast would compute products in half precision
            compute, device = torch.promote_types(q.dtype, torch.float32), q.device
            q, k = q.to(compute), k.to(compute).repeat_interleave(q.shape[1] // k.shape[1], 1)
            max_logits = _BLOCK_LOGITS["cpu" if device.type == "cpu" else "other"]
            rows_per_block = max_logits // max(1, len(q) * q.shape[1] * mask.keys)
            slices = list(query_blocks(mask, min(max(rows_per_block, 1), 256)))
            edges, rank = torch.tensor(measurement.edges, dtype=torch.long, device=device), measurement.rank(device)
            out = torch.empty(*q.shape[:3], len(edges) + 4, dtype=forms.table_dtype(device), device=device)
            blocks = zip(slices, slice_modifiers(measurement.modifiers, measurement.span, slices), strict=True)
            products = product_blocks(measurement.modifiers.product, k, mask.queries)
            for (rows, keys), (modifiers, span) in blocks:
                visible = mask.visible(device, rows, keys)[:, None]
                product = None if products is None else products.logits(q[:, :, rows], rows, keys)
                block_logits = logits(modifiers, q[:, :, rows], k[:, :, keys], span, visible, scale, product)
                weights = weights_of(modifiers, block_logits.masked_fill(~visible, -math.inf))
                weights = weights.to(forms.table_dtype(device))
                column_of_pair = torch.bucketize(span.distance(), edges, right=True)[:, None].expand_as(weights)
                query_rank = rank[:, mask.keys - mask.queries :][:, rows, None]
                key_rank = rank[:, None, keys]
                lag = query_rank - key_rank
                selections = [key_rank < measurement.first, (lag >= 0) & (lag < measurement.last)]
                row = out[:, :, rows]
                row[..., :-3] = scatter_columns(weights, column_of_pair, len(edges) + 1)
                row[..., -3] = torch.special.entr(weights).sum(-1)
                for n, selected in enumerate(selections):
                    row[..., n - 2] = (weights * selected[:, None]).sum(-1)
            return out


def _attend(
    modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, v: Tensor, *, scale: float
) -> Tensor:
    return attention(modifiers, q, k, v, span, mask.visible(q.device)[:, None], scale)


def attention(
    modifiers: forms.AttentionModifiers,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    v: Float[Tensor, "b h j d"],
    span: Span,
    visible: Bool[Tensor, "#b 1 i j"],
    scale: float,
    product: Float[Tensor, "b h i j"] | None = None,
) -> Float[Tensor, "b h i d"]:
    """Return the attention output. q, k and v have the same number of heads and the compute dtype.

    `product`: that of `modifiers.product` for all pairs, before scaling, if it has been computed in another way.
    """
    all_logits = logits(modifiers, q, k, span, visible, scale, product)
    weights = weights_of(modifiers, all_logits.masked_fill(~visible, -math.inf))
    out = weights @ v
    for value in modifiers.values:
        # Sum the weights of each column first; a vector for every pair would take d times the memory of the weights.
        index = column(span.distance(), value.table.shape[1], value.first)[:, None].expand_as(weights)
        share = weights.new_zeros(*weights.shape[:-1], value.table.shape[1]).scatter_add(-1, index, weights)
        out = out + share @ value.table.to(weights.dtype)
    return out


def logits(
    modifiers: forms.AttentionModifiers,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    span: Span,
    visible: Bool[Tensor, "#b 1 i j"],
    scale: float,
    product: Float[Tensor, "b h i j"] | None = None,
) -> Float[Tensor, "b h i j"]:
    """Return the logits of all pairs before masking, in float32 or higher. q and k have the same number of heads.

    Rotated q and k are rounded to their own dtype, as in a cache of rotated keys. `product`: see `attention`.
    """
    compute = torch.promote_types(q.dtype, torch.float32)
    match modifiers.product:
        case None:
            out = _rotated_product(modifiers.rotation, q, k, scale)
        case forms.PiecewiseRotation():
            out = _piecewise(modifiers.product, q, k, span, scale)
        case forms.HouseholderProduct():
            out = scale * (
                _householder(modifiers.product, q.to(compute), k.to(compute)) if product is None else product
            )
        case forms.DecayProduct():
            out = scale * (_decayed(modifiers.product, q.to(compute), k.to(compute)) if product is None else product)
    gain = modifiers.gain.gain[..., None].to(compute) if modifiers.gain else None
    scales_terms = modifiers.gain is not None and modifiers.gain.scales_terms
    if gain is not None and not scales_terms:
        out = out * gain
    q, k = q.to(compute), k.to(compute)
    for term in modifiers.terms:
        out = out + dense(term, q, k, span, scale).to(compute)
    if gain is not None and scales_terms:
        out = out * gain
    return modifiers.logit_transform.function(out, q, visible, scale, span) if modifiers.logit_transform else out


def weights_of(modifiers: forms.AttentionModifiers, logits: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i j"]:
    """Return the weights of the keys, from logits that are -inf for hidden keys."""
    if modifiers.logit_transform and not modifiers.logit_transform.softmax:
        return logits.exp()
    return softmax(logits, modifiers.sink)


def softmax(logits: Float[Tensor, "b h i j"], sink: forms.SinkLogit | None) -> Float[Tensor, "b h i j"]:
    """Return the weights of the keys. With a sink they sum to less than 1."""
    if sink is None:
        return logits.softmax(-1)
    column_of_sink = sink.logit.to(logits.dtype)[:, None, None].expand(*logits.shape[:-1], 1)
    return torch.cat([logits, column_of_sink], -1).softmax(-1)[..., :-1]


def _rotated_product(
    rotation: forms.TokenRotation | None, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], scale: float
) -> Float[Tensor, "b h i j"]:
    compute = torch.promote_types(q.dtype, torch.float32)
    rotated_q, rotated_k = (rotation.rotate_query(q), rotation.rotate_key(k)) if rotation else (q, k)
    return rotated_q.to(compute) @ rotated_k.to(compute).mT * scale


def _piecewise(
    product: forms.PiecewiseRotation, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], span: Span, scale: float
) -> Float[Tensor, "b h i j"]:
    """Return the product of each pair under the rotation of its region."""
    region = product.region(span.q, span.k)[:, None]
    out = _rotated_product(product.rotations[0], q, k, scale)
    for n, rotation in enumerate(product.rotations[1:], 1):
        out = torch.where(region == n, _rotated_product(rotation, q, k, scale), out)
    return out


def _householder(
    product: forms.HouseholderProduct, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"]
) -> Float[Tensor, "b h i j"]:
    """Return <q_i, H_i ... H_j+1 k_j> for all pairs.

    On the way back from query i, token t takes c_it w_t off what the later tokens have left of q_i, with c_it = beta_t
    <w_t, q_i - Σ_s>t c_is w_s>. So c solves a triangular system of equations, and key j meets q_i - Σ_s>j c_is w_s. The system is
    solved for some tokens at a time, because it has a number for each pair of tokens.
    """
    w, beta, tokens = product.w.to(q.dtype), product.beta.to(q.dtype), k.shape[2]
    mask, pairs = (Mask(n, tokens, documents=product.documents) for n in (q.shape[2], tokens))
    logits: list[Tensor] = []
    # A compiled graph serves all lengths, so it has no loop over tokens.
    for at in [slice(0, tokens)] if torch.compiler.is_compiling() else _chunks(tokens)[::-1]:
        passed = mask.visible(q.device, keys=at)[:, None]  # i, t: t is not after i
        later = pairs.visible(q.device, at, at)[:, None].tril(-1)  # s, t: s is after t
        w_t, k_t, beta_t = w[:, :, at], k[:, :, at], beta[:, :, None, at]
        system = torch.where(later, w_t @ w_t.mT * beta_t, 0.0) + torch.eye(
            later.shape[-1], dtype=q.dtype, device=q.device
        )
        taken = torch.where(passed, q @ w_t.mT * beta_t, 0.0)
        c = torch.linalg.solve_triangular(system, taken, upper=False, left=False, unitriangular=True)
        logits.insert(0, q @ k_t.mT - c @ torch.where(later, w_t @ k_t.mT, 0.0))
        q = q - c @ w_t
    return torch.cat(logits, -1)


def _decayed(
    product: forms.DecayProduct, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"]
) -> Float[Tensor, "b h i j"]:
    """Return Σ_n q_in k_jn exp(prefix_sum_in - prefix_sum_jn) for all pairs."""
    return decayed(q, k, product.prefix_sum[:, :, -q.shape[2] :], product.prefix_sum)


def _chunks(tokens: int) -> list[slice]:
    return [slice(start, min(start + 256, tokens)) for start in range(0, tokens, 256)]


def dense(term: forms.Term, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "#b #h #i j"]:
    """Return the values of a term for every pair of query and key."""
    match term:
        case forms.ToeplitzBias(table, first, distances):
            return table[:, column(span.distance(), table.shape[1], first, distances)].transpose(0, 1)
        case forms.PiecewiseLinearBias(slope, intercept, knots, distance_feature, query_scale, exact, distances):
            x = distance_feature[column(span.distance(), len(distance_feature), 0, distances)] * query_scale[..., None]
            if exact is not None:
                return exact(x[..., None]).movedim(-1, 1)
            s = torch.bucketize(x.detach(), knots, right=True)  # the number of knots <= x
            return (slope[:, s] * x + intercept[:, s]).transpose(0, 1)
        case forms.RelativeKeyBias(table, first, vector, distances):
            q = q if vector is None else q + vector.to(q.dtype)[:, None]
            return _relative(q, table, column(span.distance(), table.shape[1], first, distances)) * scale
        case forms.ContentBias(content, table, first):
            return _relative(content, table, column(span.distance(), table.shape[1], first))
        case forms.KeyBias(vector):
            return torch.einsum("hd,bhjd->bhj", vector.to(k.dtype), k)[:, :, None] * scale
        case forms.GatedDistanceBias():
            query_rate, key_rate = distance_rates(term, q, k)
            distance = span.distance().clamp(min=0)[:, None]
            return -distance * (query_rate[..., None] + key_rate[..., None, :])
        case forms.CumulativeBias(prefix_sum):
            return prefix_sum[..., -span.q.shape[1] :, None] - prefix_sum[..., None, :]
        case forms.DenseBias(bias):
            return bias
    raise AssertionError(f"not a form: {term}")


def distance_rates(
    term: forms.GatedDistanceBias, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"]
) -> tuple[Float[Tensor, "#b #h i"], Float[Tensor, "#b #h j"]]:
    """Return what each query and each key contributes to the slope of a pair."""

    def rates(x: Tensor, vector: Tensor | None) -> Tensor:
        if vector is None:
            return x.new_zeros(1, 1, x.shape[2])
        # A sum of products, because in compiled graphs einsum makes views that the strides of q do not allow.
        return softplus((x * vector.to(x.dtype)[:, None]).sum(-1)) * term.slope.to(x.dtype)[:, None]

    return rates(q, term.query_vector), rates(k, term.key_vector)


def _relative(
    x: Float[Tensor, "b h i d"], table: Float[Tensor, "#h n d"], index: Int[Tensor, "#b i j"]
) -> Float[Tensor, "b h i j"]:
    """Return <x_i, table[h, index]>."""
    # With few keys far apart, only the needed columns are read. Compiled graphs serve all lengths, so they do not branch on it.
    if not torch.compiler.is_compiling() and index.shape[-1] * x.shape[-1] <= table.shape[1]:
        vectors = table[:, index].to(x.dtype).transpose(0, 1)  # [b, h, i, j, d]
        return torch.einsum("bhid,bhijd->bhij", x, vectors)
    rows = torch.einsum("bhid,hnd->bhin", x, table.to(x.dtype).expand(x.shape[1], -1, -1))
    return rows.gather(-1, index[:, None].expand(*rows.shape[:3], -1))
