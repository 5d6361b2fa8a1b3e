"""Shapes of attention calls in which all backends must agree, and observations that questions share."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.attention import reference
from lengthwise.conformance.answers import Wrong
from lengthwise.conformance.cases import HEAD_DIM, HEADS, modifiers_with, numbers, served
from lengthwise.encodings import PositionEncoding
from lengthwise.span import Span


@dataclass(frozen=True)
class Scenario:
    """`positions` and `documents` are made from the number of keys; None: 0, 1, 2, ... and one document."""

    name: str
    keys: int
    queries: int | None = None
    batch: int = 1
    heads: int = HEADS
    kv_heads: int | None = None
    positions: Callable[[int], Tensor] | None = None
    documents: Callable[[int], Tensor] | None = None


def gaps(seed: int, rows: int, reach: int) -> Callable[[int], Int[Tensor, "b j"]]:
    """Rising positions below `reach` with gaps, other ones in every row."""

    def make(keys: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.stack([torch.randperm(reach, generator=generator)[:keys].sort().values for _ in range(rows)])

    return make


def packed(*starts: tuple[int, ...]) -> Callable[[int], Int[Tensor, "b j"]]:
    """Documents numbered 0, 1, ... that begin at the given places, one tuple for every row."""

    def make(keys: int) -> Tensor:
        index = torch.arange(keys)
        return torch.stack([torch.bucketize(index, torch.tensor(row, dtype=torch.long), right=True) for row in starts])

    return make


def padded(*left: int) -> Callable[[int], Int[Tensor, "b j"]]:
    """Left padding of the given numbers of tokens: document -1, then document 0."""
    return lambda keys: torch.stack([torch.where(torch.arange(keys) < n, -1, 0) for n in left])


SCENARIOS = (
    Scenario("one token", 1),
    Scenario("one head, odd length", 37, heads=1),
    Scenario("grouped queries", 19, batch=3, kv_heads=2),
    Scenario("one key head, the last 5 queries", 23, 5, kv_heads=1),
    Scenario("one query", 33, 1, batch=2),
    Scenario("more rows than a block holds", 131, batch=9),
    Scenario("positions with gaps, other in each row", 21, batch=3, heads=2, positions=gaps(1, 3, 1500)),
    Scenario("positions with gaps, alike in all rows, the last 4 queries", 21, 4, batch=2, positions=gaps(2, 1, 1900)),
    Scenario("packed documents", 29, batch=2, kv_heads=2, documents=packed((9, 13), (1, 28))),
    Scenario("left padding, the last 6 queries", 17, 6, batch=3, documents=padded(0, 3, 9)),
    Scenario("documents with positions of their own", 15, batch=1, documents=packed((6,)), positions=gaps(3, 1, 800)),
)


def observe(encoding: PositionEncoding, seed: int = 3) -> list[Float[Tensor, "..."]]:
    """Everything that an encoding does, in numbers: embeddings, logits, tables of values; positions near and far."""
    seen = []
    # Within what is trained, past it, and far.
    for positions in (
        served(encoding, *range(9)),
        served(encoding, *range(40)),
        served(encoding, 0, 3, 77, 150, 400, 511, 513, 640, 1000, 1001, 1499, 4000),
    ):
        at = torch.tensor([positions])
        seen.append(encoding.embed(numbers(seed, 1, len(positions), HEADS * HEAD_DIM), at))
        span = Span(at, at, positions[-1] + 1)
        visible = torch.ones(1, len(positions), len(positions), dtype=torch.bool).tril()
        modifiers = modifiers_with(encoding, span, numbers(seed + 3, 1, len(positions), HEADS * HEAD_DIM))
        q, k = (numbers(seed + n, 1, HEADS, len(positions), HEAD_DIM) for n in (1, 2))
        if modifiers.bidirectional:
            visible = torch.ones_like(visible)
        logits = reference.logits(modifiers, q, k, span, visible[:, None], HEAD_DIM**-0.5)
        seen.append(logits.masked_fill(~visible[:, None], 0.0))
        seen.extend(value.table for value in modifiers.values)
    return seen


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    """Bit for bit."""
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def require_close(what: str, got: Tensor, wanted: Tensor, tolerance: float = 1e-10) -> None:
    """Raise `Wrong` when two tensors differ by more than `tolerance`, absolute or relative to the largest wanted."""
    if got.shape != wanted.shape:
        raise Wrong(f"{what}: shape {tuple(got.shape)}, expected {tuple(wanted.shape)}")
    off = difference(got, wanted)
    limit = tolerance * max(1.0, float(wanted.detach().abs().max()) if wanted.numel() else 1.0)
    if not off <= limit:
        raise Wrong(f"{what}: off by {off:.3g}, allowed {limit:.3g}")


def difference(got: Tensor, wanted: Tensor) -> float:
    return float((got.detach().double() - wanted.detach().double()).abs().max()) if got.numel() else 0.0
