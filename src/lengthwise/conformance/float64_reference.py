"""Attention computed for each pair with Python floats, which the reference backend is compared with."""

import cmath
import math
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.encodings import PositionEncoding
from lengthwise.forms import (
    AttentionModifiers,
    DecayProduct,
    HouseholderProduct,
    MatrixRotation,
    PiecewiseRotation,
    QueryGain,
    Rotation,
    Term,
)
from lengthwise.forms.plain import entry
from lengthwise.span import Span

Numbers = list[float]


@torch.no_grad()
def output(
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    document_lengths: Tensor,
    visible: Tensor,
    scale: float,
    x: Tensor,
    documents: Tensor | None = None,
) -> Float[Tensor, "b h i d"]:
    """Return the attention output for as many queries as keys, where each pair has a span of its own.

    `positions` and `document_lengths` (of each token's document) are [b, j], `visible` is [b, i, j], and `x`, the
    layer's input, is [b, j, c]. `documents` [b|1, j] must be those of `visible`. What depends on content also depends
    on the tokens between query and key, so it is evaluated once for the whole sequence. So are transforms of whole rows
    of logits.
    """
    batch, heads, count, width = q.shape
    groups, length = heads // k.shape[1], int(positions.max()) + 1
    out = torch.zeros_like(q)
    content_terms: list[Term] = []
    rotations: list[Rotation] = []
    products: list[HouseholderProduct | DecayProduct] = []
    if encoding.reads_content():
        all_positions = positions.expand(batch, -1)
        computed = encoding.content(encoding.features(x), Span(all_positions, all_positions, length), documents)
        rotations = [form for form in computed if isinstance(form, Rotation)]
        products = [form for form in computed if isinstance(form, HouseholderProduct | DecayProduct)]
        content_terms = [term for term in computed if isinstance(term, Term)]
        assert len(content_terms) + len(rotations) + len(products) == len(computed), (
            "content forms must be Rotation, HouseholderProduct, DecayProduct or terms"
        )
    for b in range(batch):
        ids = positions[b].tolist()
        lengths = document_lengths[b : b + 1]
        row = Span(positions[b : b + 1], positions[b : b + 1], length, length_q=lengths, length_k=lengths)
        transform = encoding.modifiers(row).logit_transform
        logits = [[[-math.inf] * count for _ in range(count)] for _ in range(heads)]
        modifiers_of = {}
        for i, j in visible[b].nonzero().tolist():
            query, key, distance = torch.tensor([[ids[i]]]), torch.tensor([[ids[j]]]), ids[i] - ids[j]
            span = Span(query, key, length, length_q=lengths[:, i : i + 1], length_k=lengths[:, j : j + 1])
            modifiers_of[i, j] = modifiers = encoding.modifiers(span)
            if isinstance(modifiers.product, PiecewiseRotation):
                rotation = modifiers.product.rotations[int(modifiers.product.region(query, key))]
                modifiers = replace(modifiers, rotation=rotation, product=None)
            for rotation in rotations:
                modifiers = replace(modifiers, rotation=_of_pair(rotation, heads, (b, i, j)))
            for h in range(heads):
                query_numbers = q[b, h, i].tolist()
                for content_product in products:
                    query_numbers = _query_of_pair(content_product, query_numbers, (b, h, i, j))
                key_numbers = k[b, h // groups, j].tolist()
                logit = pair(modifiers, h, query_numbers, key_numbers, distance, scale)
                for term in content_terms:
                    value = term.plain_value((b, h, i, j), query_numbers, key_numbers, distance, scale)
                    logit += _term_gain(modifiers, h) * value
                logits[h][i][j] = logit
        if transform:
            all_logits = torch.tensor(logits, dtype=torch.float64)[None]
            logits = transform.function(all_logits, q[b : b + 1], visible[b : b + 1, None], scale, row)[0].tolist()
        for h, i in product(range(heads), range(count)):
            keys = [j for j in range(count) if visible[b, i, j]]
            normalized = transform is None or transform.softmax
            row_max = max(logits[h][i][j] for j in keys) if normalized else 0.0
            weights = [math.exp(logits[h][i][j] - row_max) for j in keys]
            values = [v[b, h // groups, j] for j in keys]
            sink = modifiers_of[i, keys[0]].sink
            sink_logits = [] if sink is None else [float(sink.logit[h if len(sink.logit) > 1 else 0])]
            sink_weight = [math.exp(logit - row_max) for logit in sink_logits]
            for n, j in enumerate(keys):
                for form in modifiers_of[i, j].values:
                    values[n] = values[n] + entry(form.table, h, ids[i] - ids[j], form.first)
            for d in range(width):
                total = math.fsum(weight * float(value[d]) for weight, value in zip(weights, values, strict=True))
                out[b, h, i, d] = total / math.fsum([*weights, *sink_weight]) if normalized else total
    return out


def _query_of_pair(product: HouseholderProduct | DecayProduct, q: Numbers, index: tuple[int, int, int, int]) -> Numbers:
    """Return what a product multiplies the key by: H_j+1 ... H_i q, or q with every channel decayed."""
    b, h, i, j = index
    if isinstance(product, DecayProduct):
        sums = zip(product.prefix_sum[b, h, i].tolist(), product.prefix_sum[b, h, j].tolist(), strict=True)
        return [x * math.exp(at_query - at_key) for x, (at_query, at_key) in zip(q, sums, strict=True)]
    ids = [0] * (i + 1) if product.documents is None else product.documents[b % len(product.documents)].tolist()
    for t in range(i, j, -1):
        if ids[t] == ids[i]:
            w, beta = product.w[b, h, t].tolist(), float(product.beta[b, h, t])
            factor = beta * math.fsum(x * y for x, y in zip(w, q, strict=True))
            q = [x - factor * y for x, y in zip(q, w, strict=True)]
    return q


def _of_pair(rotation: Rotation, heads: int, pair: tuple[int, int, int]) -> Rotation:
    """Return the rotation of one query and one key, for each head."""
    row, i, j = pair

    def entry(x: Any, token: int) -> Any:
        if not isinstance(x, Tensor):
            return x
        x = x[row if len(x) > 1 else 0][None, :, token : token + 1]
        return x.repeat_interleave(heads // x.shape[1], 1)

    r = rotation
    of_query = {"angle_q": entry(r.angle_q, i), "gain_q": entry(r.gain_q, i)}
    return replace(r, **of_query, angle_k=entry(r.angle_k, j), gain_k=entry(r.gain_k, j))


def pair(modifiers: AttentionModifiers, head: int, q: Numbers, k: Numbers, distance: int, scale: float) -> float:
    """Return the logit of one query and one key, before softmax and before any transform."""
    rotated_q, rotated_k = q, k
    if isinstance(r := modifiers.rotation, MatrixRotation):
        rotated_q, rotated_k = multiplied(q, head, r.matrix_q), multiplied(k, head, r.matrix_k)
    elif isinstance(r, Rotation):
        rotated_q, rotated_k = turn(q, r, head, r.angle_q, r.gain_q), turn(k, r, head, r.angle_k, r.gain_k)
    total = scale * math.fsum(a * b for a, b in zip(rotated_q, rotated_k, strict=True))
    total *= 1.0 if modifiers.gain is None else _gain(modifiers.gain, head)
    terms = sum(term.plain_value((0, head, 0, 0), q, k, distance, scale) for term in modifiers.terms)
    return total + _term_gain(modifiers, head) * terms


def _gain(gain: QueryGain, head: int) -> float:
    return float(gain.gain[0, head if gain.gain.shape[1] > 1 else 0, 0])


def _term_gain(modifiers: AttentionModifiers, head: int) -> float:
    """Return what multiplies the terms of a logit."""
    return _gain(modifiers.gain, head) if modifiers.gain and modifiers.gain.scales_terms else 1.0


def turn(x: Numbers, rotation: Rotation, head: int, angle: Tensor | None, gain: Tensor | float | None) -> Numbers:
    """Return one vector of a head rotated by its angle [1, 1|heads, 1, pairs] in radians, times the gain."""
    if angle is None:
        return x
    entry = 0, head if angle.shape[1] > 1 else 0, 0
    angles = angle[entry].tolist()
    gains = torch.as_tensor(1.0 if gain is None else gain, dtype=torch.float64).expand_as(angle)[entry].tolist()
    if rotation.polar:
        sizes = [math.log1p(math.exp(n)) * g for n, g in zip(x, gains, strict=True)]
        rotated = [size * cmath.exp(1j * radians) for size, radians in zip(sizes, angles, strict=True)]
        return [z.real for z in rotated] + [z.imag for z in rotated]
    out, pairs = list(x), len(angles)
    for p, (radians, factor) in enumerate(zip(angles, gains, strict=True)):
        a, b = (2 * p, 2 * p + 1) if rotation.layout == "interleaved" else (p, p + pairs)
        z = complex(x[a], x[b]) * cmath.exp(1j * radians) * factor
        out[a], out[b] = z.real, z.imag
    return out


def multiplied(x: Numbers, head: int, matrix: Tensor | None) -> Numbers:
    """Return one vector of a head with its blocks multiplied by their matrices of [1, 1|heads, 1, blocks, m, m]."""
    if matrix is None:
        return x
    rows = [row for block in matrix[0, head if matrix.shape[1] > 1 else 0, 0].tolist() for row in block]
    m, out = matrix.shape[-1], list(x)
    for n, row in enumerate(rows):
        first = n - n % m
        out[n] = math.fsum(a * b for a, b in zip(row, x[first : first + m], strict=True))
    return out
