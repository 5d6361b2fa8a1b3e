"""Shift invariance: adding the same number to all positions does not change the output of a layer or a 2-layer model.

It is checked for every encoding that declares it and does not depend on the current length, with its default settings
and with each of them changed. The conformance suite asks the same question (`causality.py`); here the difference is
reported. If an encoding declares that it is not invariant with some setting (DAPE on FIRE), a shift has to change the
output.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from lengthwise.conformance.cases import HEAD_DIM, HEADS, EncodingCase, Layer, numbers
from lengthwise.conformance.causality import COUNT, SHIFT_TOLERANCE, shift_effects
from lengthwise.conformance.theorems.results import EPS, Result, Theorem
from lengthwise.encodings import ENCODINGS, PositionEncoding
from lengthwise.forms import DenseBias, PiecewiseRotation, Rotation
from lengthwise.span import Span


def invariant() -> list[type[PositionEncoding]]:
    listed = (cast(type[PositionEncoding], make) for make in ENCODINGS)
    return [make for make in listed if make.shift_invariant and not make.depends_on_length()]


@torch.no_grad()
def allowed(case: EncodingCase, shift: int) -> float:
    """Return the rounding error that a shift may cause: 0 if positions enter only as distances, or not at all.

    A rotation's angles are products of a position and a frequency, each with a relative rounding error of EPS / 2.
    There are two of them before the shift and two after it. So the error of a logit has three parts. The angles
    contribute, for each pair of dimensions, their error times the norms of q and k in that pair. The rotation itself
    contributes a few EPS of the same product, for q and for k. The products and their sum contribute EPS / 2 of all of
    them for each dimension. The error of the output is twice the mean of that over a query's keys, times the largest
    value, plus that of sums over keys. This bound is computed for the layer. The model has two layers, with smaller
    queries, keys and values.
    """
    encoding = case.build()
    positions = torch.arange(COUNT)[None] ** 2 + shift
    modifiers = encoding.modifiers(Span(positions, positions, int(positions.max()) + 1))
    if isinstance(modifiers.product, PiecewiseRotation):  # for every pair, the largest bound of a rotation
        return max(_allowed(encoding, rotation) for rotation in modifiers.product.rotations)
    if isinstance(modifiers.rotation, Rotation):
        return _allowed(encoding, modifiers.rotation)
    # Matrices have angles that are not known here.
    rounds = modifiers.rotation is not None or any(isinstance(term, DenseBias) for term in modifiers.terms)
    return SHIFT_TOLERANCE if rounds else 0.0


def _allowed(encoding: PositionEncoding, turn: Rotation) -> float:
    q, k, v = Layer(encoding, "reference").qkv(numbers(54, 1, COUNT, HEADS * HEAD_DIM))
    q, k = turn.rotate_query(q), turn.rotate_key(k)
    angle = torch.as_tensor(turn.angle_q).abs()  # the same for queries and keys, which are the same tokens
    norm_q, norm_k = _pair_norms(q, turn), _pair_norms(k, turn)
    by_angles = (norm_q * angle) @ norm_k.mT + norm_q @ (norm_k * angle).mT
    error = by_angles + 8 * norm_q @ norm_k.mT + HEAD_DIM * (q.abs() @ k.abs().mT)
    masked = torch.ones(COUNT, COUNT, dtype=torch.bool).triu(1)
    weight = (q @ k.mT * HEAD_DIM**-0.5).masked_fill(masked, -torch.inf).softmax(-1)
    mean = HEAD_DIM**-0.5 * float((weight * error).sum(-1).max())
    return (2 * mean + 2 * COUNT) * EPS * float(v.abs().max())


def _pair_norms(x: Tensor, turn: Rotation) -> Tensor:
    """Return the norm of each pair of dimensions that is rotated together, [b, h, t, pairs]."""
    pairs = torch.as_tensor(turn.angle_q).shape[-1]
    if turn.layout == "half":
        return x[..., : 2 * pairs].unflatten(-1, (2, pairs)).norm(dim=-2)
    return x[..., : 2 * pairs].unflatten(-1, (pairs, 2)).norm(dim=-1)


def prove(make: type[PositionEncoding]) -> Iterator[Result]:
    cases = EncodingCase.of(make).variants()
    pairs, not_invariant, largest_shift = [], [], 0
    for case in cases:
        effects = list(shift_effects(case, "reference"))
        largest_shift = max(largest_shift, *(shift for _, shift, _ in effects))
        if case.shift_invariant:
            pairs += [(change, allowed(case, shift)) for _, shift, change in effects]
        else:
            largest = max(change for _, _, change in effects)
            not_invariant.append(f"{case.label} is declared not invariant, and changes by {largest:.2g}")
            if not largest > SHIFT_TOLERANCE:
                pairs.append((float("nan"), 0.0))  # NaN is a failure
    compared = f"layer and model, shifted by up to {largest_shift:,}, settings: {len(cases) - len(not_invariant)}"
    yield Result.of(THEOREM, make, "; ".join([compared, *not_invariant]), pairs)


THEOREM = Theorem(
    name="Shift invariance",
    statement="adding the same number to every position does not change the output (for encodings that depend only on "
    "distances, or not on positions, this holds by construction and tests only the code that computes distances)",
    source="declared by each class (`shift_invariant`)",
    about=invariant,
    prove=prove,
)
