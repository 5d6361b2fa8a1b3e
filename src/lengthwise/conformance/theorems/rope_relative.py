"""RoPE's relativity: <R_m q, R_n k> = <R_{m+s} q, R_{n+s} k>, up to the rounding of angles, at positions up to 10^6.

It is asked of every rotary encoding that declares itself shift invariant and does not depend on the current length, with
its usual settings and with each of them changed. Keys are at or before the query (xPos multiplies by ζ^(m - n), which
grows without bound for keys after it).

What never turned would pass: so the same q and k have to give another product at some other distance, by far more than
rounding. By how much they do is said beside.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lengthwise.conformance.cases import HEAD_DIM, EncodingCase, numbers
from lengthwise.conformance.theorems.results import EPS, Result, Theorem
from lengthwise.encodings import ENCODINGS, PositionEncoding, RotaryEncoding
from lengthwise.forms import Rotation
from lengthwise.span import Span

FURTHEST = 1_000_000
TRIALS = 4096
DISTANCES = 64  # at which the same q and k are compared, from 0 on
SEEN = 1e-3  # a product that changes with the distance changes by more than this part of |q| |k|


def rotary() -> list[type[PositionEncoding]]:
    return [
        make
        for make in ENCODINGS
        if issubclass(make, RotaryEncoding) and make.shift_invariant and not make.depends_on_length()
    ]


@torch.no_grad()
def change(case: EncodingCase) -> float:
    """How far products of the same q and k are apart at distances 0, 1, 2, ..., as a part of |q| |k|: the most there is."""
    q, k = numbers(333, 64, 1, 1, HEAD_DIM), numbers(334, 64, 1, 1, HEAD_DIM)
    at = torch.arange(DISTANCES)[None]
    rotation = case.build().modifiers(Span(at, torch.zeros_like(at), DISTANCES)).rotation
    assert rotation is not None
    turned_q, turned_k = (x.expand(-1, -1, DISTANCES, -1) for x in (q, k))
    products = (rotation.query(turned_q) * rotation.key(turned_k)).sum(-1) / (q.norm(dim=-1) * k.norm(dim=-1))
    return float((products.amax(-1) - products.amin(-1)).max())


@torch.no_grad()
def difference(case: EncodingCase) -> tuple[float, float]:
    """The largest difference of a product to itself moved, over random q, k, positions and shifts; and what is allowed."""
    encoding = case.build()
    top = FURTHEST if encoding.max_length is None else encoding.max_length - 1
    # Three numbers in order are key, query, and how far the query can go.
    generator = torch.Generator().manual_seed(330)
    key, query, moved = torch.randint(top + 1, (3, TRIALS), generator=generator).sort(0).values
    moved[:64] = top
    q, k = numbers(331, 1, 1, TRIALS, HEAD_DIM), numbers(332, 1, 1, TRIALS, HEAD_DIM)

    def products(shift: Tensor) -> tuple[Tensor, Rotation]:
        rotation = encoding.modifiers(Span((query + shift)[None], (key + shift)[None], top + 1)).rotation
        assert rotation is not None
        return (rotation.query(q) * rotation.key(k)).sum(-1), rotation

    here, rotation = products(torch.zeros_like(key))
    there, _ = products(moved - query)
    gain: Tensor | float = 1.0
    if rotation.gain_q is not None and rotation.gain_k is not None:
        gain = torch.as_tensor(rotation.gain_q * rotation.gain_k).abs().max()
    # Four angles are rounded, each by half the distance of numbers near the furthest position.
    spacing = float(torch.nextafter(torch.tensor(top).double(), torch.tensor(torch.inf).double())) - top
    size = float((q.norm(dim=-1) * k.norm(dim=-1)).max() * max(1.0, float(gain)))
    return float((here - there).abs().max()), (2 * spacing + 16 * EPS) * size


def prove(make: type[PositionEncoding]) -> Iterator[Result]:
    cases = EncodingCase.of(make).variants()
    limit = cases[0].build().max_length
    top = FURTHEST if limit is None else limit - 1
    changes = [change(case) for case in cases]
    what = f"products up to {top:,}, settings: {len(cases)}; other distances: {min(changes):.2g} |q| |k| or more apart"
    found = [difference(case) for case in cases]
    # What depends on no distance at all is not what the theorem says, however exactly it is so.
    found += [(float("inf"), allowed) for (_, allowed), by in zip(found, changes, strict=True) if not by > SEEN]
    yield Result.of(THEOREM, make, what, found)


THEOREM = Theorem(
    name="RoPE is relative",
    says="rotated queries and keys have products that depend on their distance alone, wherever they are",
    source="Su et al. 2021, section 3.2",
    about=rotary,
    prove=prove,
)
