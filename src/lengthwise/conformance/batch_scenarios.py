"""Attention calls on which all backends must agree, and comparisons that several questions use."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.attention.backends import reference
from lengthwise.conformance.answers import Failure
from lengthwise.conformance.cases import HEAD_DIM, HEADS, modifiers_with, numbers, on_axes, supported_positions
from lengthwise.encodings import PositionEncoding
from lengthwise.span import Span


@dataclass(frozen=True)
class Scenario:
    """The shape of one attention call.

    `positions` and `documents` are functions of the number of keys. None means positions 0, 1, 2, ... and one document.
    """

    name: str
    keys: int
    queries: int | None = None
    batch: int = 1
    heads: int = HEADS
    kv_heads: int | None = None
    positions: Callable[[int], Tensor] | None = None
    documents: Callable[[int], Tensor] | None = None


def gaps(seed: int, rows: int, reach: int) -> Callable[[int], Int[Tensor, "b j"]]:
    """Return a function for random ascending positions below `distance_bound` with gaps, different in each row."""

    def positions(keys: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.stack([torch.randperm(reach, generator=generator)[:keys].sort().values for _ in range(rows)])

    return positions


def packed(*starts: tuple[int, ...]) -> Callable[[int], Int[Tensor, "b j"]]:
    """Return a function for documents 0, 1, ... that begin at the indices after the first, a tuple for each row."""

    def documents(keys: int) -> Tensor:
        index = torch.arange(keys)
        return torch.stack([torch.bucketize(index, torch.tensor(row, dtype=torch.long), right=True) for row in starts])

    return documents


def padded(*num_padding: int) -> Callable[[int], Int[Tensor, "b j"]]:
    """Return a function for rows with so many tokens of left padding (document -1), followed by document 0."""
    return lambda keys: torch.stack([torch.where(torch.arange(keys) < n, -1, 0) for n in num_padding])


SCENARIOS = (
    Scenario("one token", 1),
    Scenario("one head, odd length", 37, heads=1),
    Scenario("grouped queries", 19, batch=3, kv_heads=2),
    Scenario("one key head, the last 5 queries", 23, 5, kv_heads=1),
    Scenario("one query", 33, 1, batch=2),
    Scenario("more rows than a block holds", 131, batch=9),
    Scenario("positions with gaps, different in each row", 21, batch=3, heads=2, positions=gaps(1, 3, 1500)),
    Scenario(
        "positions with gaps, the same in all rows, the last 4 queries", 21, 4, batch=2, positions=gaps(2, 1, 1900)
    ),
    Scenario("packed documents", 29, batch=2, kv_heads=2, documents=packed((9, 13), (1, 28))),
    Scenario("left padding, the last 6 queries", 17, 6, batch=3, documents=padded(0, 3, 9)),
    Scenario("documents with given positions", 15, batch=1, documents=packed((6,)), positions=gaps(3, 1, 800)),
)


def observe(encoding: PositionEncoding, seed: int = 3) -> list[Float[Tensor, "..."]]:
    """Return all effects of an encoding at near and far positions: embeddings, logits, tables of values and sinks."""
    effects = []
    # Up to the training length, past it, and far beyond it.
    for positions in (
        supported_positions(encoding, *range(9)),
        supported_positions(encoding, *range(40)),
        supported_positions(encoding, 0, 3, 77, 150, 400, 511, 513, 640, 1000, 1001, 1499, 4000),
    ):
        ids = torch.tensor([positions])
        effects.append(encoding.embed(numbers(seed, 1, len(positions), HEADS * HEAD_DIM), ids))
        axes = on_axes(encoding, ids) if (encoding.num_axes or 1) > 1 else None
        span = Span(ids, ids, positions[-1] + 1, axes_q=axes, axes_k=axes)
        visible = torch.ones(1, len(positions), len(positions), dtype=torch.bool).tril()
        modifiers = modifiers_with(encoding, span, numbers(seed + 3, 1, len(positions), HEADS * HEAD_DIM))
        q, k = (numbers(seed + n, 1, HEADS, len(positions), HEAD_DIM) for n in (1, 2))
        visible = visible | modifiers.bidirectional
        logits = reference.logits(modifiers, q, k, span, visible[:, None], HEAD_DIM**-0.5)
        effects.append(logits.masked_fill(~visible[:, None], 0.0))
        effects.extend(value.table for value in modifiers.values)
        effects.extend([modifiers.sink.logit] if modifiers.sink else [])
    return effects


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    """Return whether two lists of tensors are equal bit for bit."""
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def require_close(what: str, actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    """Raise `Failure` if tensors differ by more than `tolerance`, absolute or relative to the largest expected one."""
    if actual.shape != expected.shape:
        raise Failure(f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}")
    error = difference(actual, expected)
    limit = tolerance * max(1.0, float(expected.detach().abs().max()) if expected.numel() else 1.0)
    if not error <= limit:
        raise Failure(f"{what}: off by {error:.3g}, allowed {limit:.3g}")


def difference(left: Tensor, right: Tensor) -> float:
    """Return the largest absolute difference of two tensors."""
    return float((left.detach().double() - right.detach().double()).abs().max()) if left.numel() else 0.0
