"""What position does, asked pair by pair and computed with plain numbers: the judge of the reference backend."""

import cmath
import math

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.encodings import PositionEncoding
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
    DenseBias,
    KeyBias,
    PiecewiseLinearBias,
    RelativeKeyBias,
    Rotation,
    ToeplitzBias,
)
from lengthwise.span import Span

Numbers = list[float]


@torch.no_grad()
def output(
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    own: Tensor,
    visible: Tensor,
    scale: float,
    x: Tensor,
    documents: Tensor | None = None,
) -> Float[Tensor, "b h i d"]:
    """Attention, as many queries as keys. `positions`, `own` (lengths of the tokens' documents) [b, j], `visible` [b, i, j],
    `x` [b, j, c], the layer's input, `documents` [b|1, j], which `visible` goes by too; each pair gets a span of its own.
    What follows from content depends on the tokens between, so it is asked for whole and looked up; so is what rewrites
    whole rows of logits."""
    batch, heads, count, width = q.shape
    groups, length = heads // k.shape[1], int(positions.max()) + 1
    out = torch.zeros_like(q)
    read: list[DenseBias | CumulativeBias | ContentBias] = []
    if encoding.reads_content():
        at_all = positions.expand(batch, -1)
        terms = encoding.content(encoding.features(x), Span(at_all, at_all, length), documents)
        read = [term for term in terms if isinstance(term, (DenseBias, CumulativeBias, ContentBias))]
        assert len(read) == len(terms), "the oracle knows content as DenseBias, CumulativeBias and ContentBias alone"
    for b in range(batch):
        at = positions[b].tolist()
        row = Span(positions[b : b + 1], positions[b : b + 1], length, length_q=own[b : b + 1], length_k=own[b : b + 1])
        rewrite = encoding.modifiers(row).rewrite
        logits = [[[-math.inf] * count for _ in range(count)] for _ in range(heads)]
        effects = {}
        for i in range(count):
            for j in range(count):
                if not visible[b, i, j]:
                    continue
                span = Span(
                    torch.tensor([[at[i]]]),
                    torch.tensor([[at[j]]]),
                    length,
                    length_q=own[b : b + 1, i : i + 1],
                    length_k=own[b : b + 1, j : j + 1],
                )
                effects[i, j] = modifiers = encoding.modifiers(span)
                for h in range(heads):
                    logits[h][i][j] = pair(
                        modifiers, h, q[b, h, i].tolist(), k[b, h // groups, j].tolist(), at[i] - at[j], scale
                    )
                    for term in read:
                        logits[h][i][j] += _of_content(term, batch, heads, (b, h, i, j), at[i] - at[j])
        if rewrite:
            whole = torch.tensor(logits, dtype=torch.float64)[None]
            logits = rewrite.function(whole, q[b : b + 1], visible[b : b + 1, None], scale, row)[0].tolist()
        for h in range(heads):
            for i in range(count):
                seen = [j for j in range(count) if visible[b, i, j]]
                top = max(logits[h][i][j] for j in seen)
                mass = [math.exp(logits[h][i][j] - top) for j in seen]
                for d in range(width):
                    parts = []
                    for j, m in zip(seen, mass, strict=True):
                        values = float(v[b, h // groups, j, d])
                        for form in effects[i, j].values:
                            values += float(_entry(form.table, h, at[i] - at[j] - form.first)[d])
                        parts.append(m * values)
                    out[b, h, i, d] = math.fsum(parts) / math.fsum(mass)
    return out


def pair(modifiers: AttentionModifiers, head: int, q: Numbers, k: Numbers, distance: int, scale: float) -> float:
    """The logit of one query and one key, before softmax and before any rewrite."""
    turned_q, turned_k = q, k
    if (r := modifiers.rotation) is not None:
        turned_q, turned_k = turn(q, r, r.angle_q, r.gain_q), turn(k, r, r.angle_k, r.gain_k)
    total = scale * math.fsum(a * b for a, b in zip(turned_q, turned_k, strict=True))
    if modifiers.gain:
        total *= float(modifiers.gain.gain[0, head if modifiers.gain.gain.shape[1] > 1 else 0, 0])
    for term in modifiers.terms:
        match term:
            case ToeplitzBias(table, first, distances):
                total += float(_entry(table, head, _column(distance, first, distances)))
            case PiecewiseLinearBias(slope, intercept, knots, distance_feature, query_scale, exact, distances):
                x = float(_entry(distance_feature[None], 0, _column(distance, 0, distances))) * float(query_scale)
                if exact is not None:
                    total += float(exact(torch.tensor([x], dtype=torch.float64))[head])
                    continue
                s = sum(knot <= x for knot in knots.tolist())
                total += float(slope[head, s]) * x + float(intercept[head, s])
            case RelativeKeyBias(table, first, vector, distances):
                more = [0.0] * len(q) if vector is None else vector[head].tolist()
                entry = _entry(table, head, _column(distance, first, distances)).tolist()
                total += scale * math.fsum((a + m) * b for a, m, b in zip(q, more, entry, strict=True))
            case KeyBias(vector):
                total += scale * math.fsum(a * b for a, b in zip(k, vector[head].tolist(), strict=True))
            case DenseBias(bias):
                total += float(bias[0, head if bias.shape[1] > 1 else 0, 0, 0])
    return total


def _of_content(
    term: DenseBias | CumulativeBias | ContentBias,
    batch: int,
    heads: int,
    place: tuple[int, int, int, int],
    distance: int,
) -> float:
    b, h, i, j = place
    if isinstance(term, DenseBias):
        return float(term.bias.expand(batch, heads, -1, -1)[b, h, i, j])
    if isinstance(term, CumulativeBias):
        total = term.total.expand(batch, heads, -1)[b, h]
        return float(total[i]) - float(total[j])
    entry = _entry(term.table, h, distance - term.first).tolist()
    return math.fsum(a * b for a, b in zip(term.content[b, h, i].tolist(), entry, strict=True))


def turn(x: Numbers, rotation: Rotation, angle: Tensor | None, gain: Tensor | float | None) -> Numbers:
    if angle is None:
        return x
    angles = angle.flatten().tolist()
    out, pairs = list(x), len(angles)
    for p, radians in enumerate(angles):
        a, b = (2 * p, 2 * p + 1) if rotation.layout == "interleaved" else (p, p + pairs)
        stretch = (
            1.0
            if gain is None
            else float(gain)
            if not isinstance(gain, Tensor)
            else float(gain.expand_as(angle).flatten()[p])
        )
        z = complex(x[a], x[b]) * cmath.exp(1j * radians) * stretch
        out[a], out[b] = z.real, z.imag
    return out


def _column(distance: int, first: int, distances: Tensor | None) -> int:
    return distance - first if distances is None else distances.tolist().index(max(distance, int(distances[0])))


def _entry(table: Tensor, head: int, column: int) -> Tensor:
    return table[head if len(table) > 1 else 0, min(max(column, 0), table.shape[1] - 1)]
