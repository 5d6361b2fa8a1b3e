"""Shift invariance: moving all positions by the same amount changes nothing, in a layer and in a model of two layers.

It is asked of every encoding that declares it and does not depend on the current length, with its usual settings and with
each of them changed. The question is that of the conformance suite (`causality.py`), here with the number that came out. A
setting with which the encoding declares that it is not invariant (DAPE on FIRE) has to change something, or it fails.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from lengthwise.conformance.cases import HEAD_DIM, HEADS, EncodingCase, Layer, numbers
from lengthwise.conformance.causality import COUNT, SHIFT_TOLERANCE, shift_effects
from lengthwise.conformance.theorems.results import EPS, Result, Theorem
from lengthwise.encodings import ENCODINGS, PositionEncoding
from lengthwise.forms import DenseBias, Rotation
from lengthwise.span import Span


def invariant() -> list[type[PositionEncoding]]:
    listed = (cast(type[PositionEncoding], make) for make in ENCODINGS)
    return [make for make in listed if make.shift_invariant and not make.depends_on_length()]


@torch.no_grad()
def allowed(case: EncodingCase, shift: int) -> float:
    """What a shift may change by rounding: 0 where positions enter as distances alone, or not at all.

    A rotation's angles are products of a position and a frequency, off by half an EPS of themselves: two of them before
    the shift and two after it. A logit is off by that in each pair of dims, times what q and k have there; by the rotation
    itself, a few EPS of the same for q and for k; and by its products and their sum, half an EPS of all of them for each
    dim. The output is off by twice the mean of that over a query's keys, times the largest value, and by sums over keys.
    This is reckoned for the layer that is asked. The model has two of them, on smaller queries, keys and values.
    """
    encoding = case.build()
    at = torch.arange(COUNT)[None] ** 2 + shift
    modifiers = encoding.modifiers(Span(at, at, int(at.max()) + 1))
    turn = modifiers.rotation
    if turn is None:
        return SHIFT_TOLERANCE if any(isinstance(term, DenseBias) for term in modifiers.terms) else 0.0
    q, k, v = Layer(encoding, "reference").qkv(numbers(54, 1, COUNT, HEADS * HEAD_DIM))
    q, k = turn.query(q), turn.key(k)
    angle = torch.as_tensor(turn.angle_q).abs()  # of queries and keys alike: they are the same tokens
    in_q, in_k = _in_pairs(q, turn), _in_pairs(k, turn)
    off = (in_q * angle) @ in_k.mT + in_q @ (in_k * angle).mT + 8 * in_q @ in_k.mT + HEAD_DIM * (q.abs() @ k.abs().mT)
    unseen = torch.ones(COUNT, COUNT, dtype=torch.bool).triu(1)
    weight = (q @ k.mT * HEAD_DIM**-0.5).masked_fill(unseen, -torch.inf).softmax(-1)
    mean = HEAD_DIM**-0.5 * float((weight * off).sum(-1).max())
    return (2 * mean + 2 * COUNT) * EPS * float(v.abs().max())


def _in_pairs(x: Tensor, turn: Rotation) -> Tensor:
    """The length of each pair of dims that turns together, [b, h, t, pairs]."""
    pairs = torch.as_tensor(turn.angle_q).shape[-1]
    if turn.layout == "half":
        return x[..., : 2 * pairs].unflatten(-1, (2, pairs)).norm(dim=-2)
    return x[..., : 2 * pairs].unflatten(-1, (pairs, 2)).norm(dim=-1)


def prove(make: type[PositionEncoding]) -> Iterator[Result]:
    cases = EncodingCase.of(make).variants()
    found, others, furthest = [], [], 0
    for case in cases:
        moved = list(shift_effects(case, "reference"))
        furthest = max(furthest, *(shift for _, shift, _ in moved))
        if case.shift_invariant:
            found += [(off, allowed(case, shift)) for _, shift, off in moved]
        else:
            most = max(off for _, _, off in moved)
            others.append(f"{case.label} is declared not invariant, and moves by {most:.2g}")
            if not most > SHIFT_TOLERANCE:
                found.append((float("nan"), 0.0))
    what = f"layer and model, moved by up to {furthest:,}, settings: {len(cases) - len(others)}"
    yield Result.of(THEOREM, make, "; ".join([what, *others]), found)


THEOREM = Theorem(
    name="Shift invariance",
    says="moving every position by the same amount changes no output (by construction where an encoding sees distances "
    "alone, or no positions: for these it is the code that makes distances, not a theorem, that is put to the test)",
    source="declared by each class (`shift_invariant`)",
    about=invariant,
    prove=prove,
)
