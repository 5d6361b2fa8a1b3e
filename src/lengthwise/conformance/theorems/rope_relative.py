"""RoPE is relative: <R_m q, R_n k> = <R_{m+s} q, R_{n+s} k>, up to the rounding of angles, at positions up to 10^6.

It is checked for every rotary encoding that declares itself shift invariant and does not depend on the current length,
with its default settings and with each of them changed. Keys are at or before the query (xPos multiplies by ζ^(m - n),
which grows without bound for keys after it).

An encoding that rotates nothing would pass. So the same q and k must also give different products at different
distances, by far more than rounding. The result states by how much.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lengthwise.conformance.cases import HEAD_DIM, EncodingCase, numbers
from lengthwise.conformance.theorems.results import EPS, Result, Theorem
from lengthwise.conformance.theorems.shift_invariance import invariant
from lengthwise.encodings import PositionEncoding, RotaryEncoding
from lengthwise.forms import Rotation
from lengthwise.span import Span

FURTHEST = 1_000_000
TRIALS = 4096
DISTANCES = 64  # the same q and k are compared at the distances 0 ... 63
MIN_CHANGE = 1e-3  # a product that depends on the distance changes by more than this fraction of |q| |k|


def rotary() -> list[type[PositionEncoding]]:
    rotary = (make for make in invariant() if issubclass(make, RotaryEncoding))
    return [make for make in rotary if EncodingCase.of(make).modifiers().rotation is not None]


@torch.no_grad()
def change(case: EncodingCase) -> float:
    """Return the largest difference of products of equal q and k at other distances, as a fraction of |q| |k|."""
    q, k = numbers(333, 64, 1, 1, HEAD_DIM), numbers(334, 64, 1, 1, HEAD_DIM)
    positions = torch.arange(DISTANCES)[None]
    rotation = case.build().modifiers(Span(positions, torch.zeros_like(positions), DISTANCES)).rotation
    assert rotation is not None
    repeated_q, repeated_k = (x.expand(-1, -1, DISTANCES, -1) for x in (q, k))
    products = (rotation.rotate_query(repeated_q) * rotation.rotate_key(repeated_k)).sum(-1)
    products = products / (q.norm(dim=-1) * k.norm(dim=-1))
    return float((products.amax(-1) - products.amin(-1)).max())


@torch.no_grad()
def difference(case: EncodingCase) -> tuple[float, float]:
    """Return the largest change of a product by a shift, over random q, k and positions, and the allowed change."""
    encoding = case.build()
    top = FURTHEST if encoding.max_length is None else encoding.max_length - 1
    # Three sorted numbers are the positions of the key, the query, and the shifted query.
    generator = torch.Generator().manual_seed(330)
    key, query, shifted_query = torch.randint(top + 1, (3, TRIALS), generator=generator).sort(0).values
    shifted_query[:64] = top
    q, k = numbers(331, 1, 1, TRIALS, HEAD_DIM), numbers(332, 1, 1, TRIALS, HEAD_DIM)

    def products(shift: Tensor) -> tuple[Tensor, Rotation]:
        rotation = encoding.modifiers(Span((query + shift)[None], (key + shift)[None], top + 1)).rotation
        assert isinstance(rotation, Rotation)
        return (rotation.rotate_query(q) * rotation.rotate_key(k)).sum(-1), rotation

    original, rotation = products(torch.zeros_like(key))
    shifted, _ = products(shifted_query - query)
    gain: Tensor | float = 1.0
    if rotation.gain_q is not None and rotation.gain_k is not None:
        gain = torch.as_tensor(rotation.gain_q * rotation.gain_k).abs().max()
    # Four angles are rounded, each by half the spacing of float64 numbers near the highest position.
    spacing = float(torch.nextafter(torch.tensor(top).double(), torch.tensor(torch.inf).double())) - top
    size = float((q.norm(dim=-1) * k.norm(dim=-1)).max() * max(1.0, float(gain)))
    return float((original - shifted).abs().max()), (2 * spacing + 16 * EPS) * size


def prove(make: type[PositionEncoding]) -> Iterator[Result]:
    cases = EncodingCase.of(make).variants()
    limit = cases[0].build().max_length
    top = FURTHEST if limit is None else limit - 1
    changes = [change(case) for case in cases]
    change_of_products = f"other distances change them by {min(changes):.2g} |q| |k| or more"
    compared = f"products up to {top:,}, settings: {len(cases)}; {change_of_products}"
    pairs = [difference(case) for case in cases]
    # A product that does not depend on the distance is a failure.
    pairs += [(float("inf"), allowed) for (_, allowed), by in zip(pairs, changes, strict=True) if not by > MIN_CHANGE]
    yield Result.of(THEOREM, make, compared, pairs)


THEOREM = Theorem(
    name="RoPE is relative",
    statement="the products of rotated queries and keys depend only on their distance, at any position",
    source="Su et al. 2021, section 3.2",
    about=rotary,
    prove=prove,
)
