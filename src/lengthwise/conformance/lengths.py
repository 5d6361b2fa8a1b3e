"""Questions 8 and 9: does it work at every length, and is it precise at every position?"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lengthwise import attention
from lengthwise.conformance.answers import Failure, Refused, question
from lengthwise.conformance.batch_scenarios import require_close
from lengthwise.conformance.cases import (
    HEAD_DIM,
    TRAIN_LENGTH,
    EncodingCase,
    Layer,
    modifiers_with,
    numbers,
    run,
    supported_positions,
    tokens,
)
from lengthwise.conformance.without_float32 import require_float64
from lengthwise.encodings import PositionEncoding
from lengthwise.forms import Rotation, TokenRotation
from lengthwise.span import Span


@question(8, "lengths", "It works at the lengths 1, L, 4 L and 64 L, or raises an error with the reason")
def lengths(case: EncodingCase, backend: str) -> str:
    limit = case.build().max_length
    refused = []
    with torch.no_grad():
        for train_length in (TRAIN_LENGTH, 512):
            past_limit = [limit, limit + 1] if limit else []
            for length in (1, train_length, 4 * train_length, 64 * train_length, *past_limit):
                try:
                    _require_works(case, backend, train_length, length)
                except ValueError as error:
                    _require_clear_error(case, error, limit, length)
                    refused.append((length, str(error)))
                else:
                    if limit is not None and length > limit:
                        expected = f"must raise an error, because max_length is {limit}"
                        raise Failure(f"length {length} {expected}, but gives no error")
        model = case.decoder(backend)
        for length in (1, 4 * TRAIN_LENGTH):
            if not torch.isfinite(model(tokens(81, 1, length))).all():
                raise Failure(f"the model's logits at length {length} are not finite")
    if refused:
        length, reason = min(refused)
        raise Refused(f"length {length}: {reason}")
    return f"up to {64 * 512}"


def _require_works(case: EncodingCase, backend: str, train_length: int, length: int) -> None:
    """Require finite outputs, and that the last query gets the same output in a call of its own.

    At large lengths only the last 3 queries are computed.
    """
    encoding = case.build(num_heads=2, train_length=train_length).float()
    layer = Layer(encoding, backend, num_heads=2)
    x = numbers(82, 1, length, layer.width).float()
    queries = length if length <= 64 * TRAIN_LENGTH else min(length, 3)
    out = layer(x, queries=queries)
    if not torch.isfinite(out).all():
        raise Failure(f"length {length}: {int((~torch.isfinite(out)).sum())} numbers are not finite")
    require_close(f"length {length}: the last token alone", layer(x, queries=1), out[:, :, -1:], 1e-4)


def _require_clear_error(case: EncodingCase, error: ValueError, limit: int | None, length: int) -> None:
    if limit is None or length <= limit:
        raise Failure(f"length {length} raises {error}, but max_length is {limit}")
    if case.cls.__name__ not in str(error) or "\n" in str(error):
        raise Failure(f"length {length}: the error must be one line that names {case.cls.__name__}, got {str(error)!r}")


@question(
    9,
    "precision",
    "float32 and bfloat16 agree with float64 at positions up to 10^6, and float64 is not computed in float32",
)
def precision(case: EncodingCase, backend: str) -> str:
    exact = case.build()
    top = 1_000_000 if exact.max_length is None else exact.max_length - 1
    scattered = _scattered(exact, backend, top)
    details = []
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.bfloat16, 1e-3)):
        low = case.build().to(dtype)
        exact = copy.deepcopy(low).double()  # the same rounded parameters
        worst = 0.0
        for positions in (list(range(top - 32, top + 1)), scattered, list(range(33))):
            for what, actual, expected, gain in _pairs(low, exact, backend, dtype, torch.tensor([positions])):
                if actual.dtype != dtype:
                    raise Failure(f"{what} in {dtype} has the dtype {actual.dtype}")
                # Every result is rounded once. A vector that is added to an embedding was rounded before, too.
                rounding = 0.51 * torch.finfo(dtype).eps * (expected.abs() + (what == "embedding"))
                error = float((((actual.double() - expected).abs() - rounding) / gain).max())
                limit = tolerance if what == "attention" else 2e-6
                if not error <= limit:
                    where = f"{what} in {dtype}, positions {positions[0]} to {positions[-1]}"
                    raise Failure(f"{where}: off by {error:.2g} beyond its rounding, allowed {limit:.2g}")
                worst = max(worst, error)
        details.append(f"{str(dtype).removeprefix('torch.')} off by {worst:.1e} beyond its rounding")
    if case.shift_invariant:
        layer, near = Layer(case.build(), backend), torch.arange(33)[None]
        x = numbers(96, 1, 33, layer.width)
        with torch.no_grad():
            # This finds a loss of precision at 10^6 that is the same in all dtypes.
            require_close(f"float64, positions {top - 32} to {top}", layer(x, near + top - 32), layer(x, near), 1e-8)
    for positions in (list(range(top - 32, top + 1)), _scattered(exact, "reference", top), list(range(33))):
        require_float64(case, positions)
    at_most = [f"positions up to {top}, the last below max_length"] if exact.max_length is not None else []
    return ", ".join(details + at_most)


def _scattered(encoding: PositionEncoding, backend: str, top: int) -> list[int]:
    """Return 30 random positions from 0 to `top`.

    A backend may need a table with all distances, and not support so many. Then they start 65,536 or 4,096 below `top`.
    """
    for reach in (1_000_000, 2**16, 2**12):
        random = torch.randperm(reach, generator=torch.Generator().manual_seed(91))[:29] + max(0, top - reach)
        positions = supported_positions(encoding, *random.sort().values.tolist(), top)
        ids = torch.tensor([positions])
        span = Span(ids, ids, top + 1)
        x = numbers(95, 1, len(positions), 4 * HEAD_DIM)
        if attention.unsupported_reason(backend, modifiers_with(encoding, span, x), span) is None:
            return positions
    return positions


def _pairs(
    low: PositionEncoding, exact: PositionEncoding, backend: str, dtype: torch.dtype, positions: Tensor
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Yield (name, result in `dtype`, result in float64, gain) of each effect. The gain multiplies the error too."""
    q, k, v = (numbers(92 + n, 2, 4, positions.shape[1], HEAD_DIM).to(dtype) for n in range(3))
    x = numbers(95, 2, positions.shape[1], 4 * HEAD_DIM).to(dtype)
    with torch.no_grad():
        expected = run(exact, "reference", q.double(), k.double(), v.double(), positions, x=x.double())
        yield "attention", run(low, backend, q, k, v, positions, x=x), expected, torch.ones(())
        yield "embedding", low.embed(x, positions), exact.embed(x.double(), positions), torch.ones(())
        span = Span(positions, positions, int(positions.max()) + 1)
        if not exact.modifiers(Span.of(1)).rotation:  # a short span avoids computing large tables
            return
        rotations: list[Any] = [low.modifiers(span).rotation, exact.modifiers(span).rotation]
        for what, x in (("query", q), ("key", k)):  # a KV cache holds rotated keys in the model's dtype
            actual, expected = (getattr(rotation, f"rotate_{what}") for rotation in rotations)
            gain = _gain(rotations[1], what, torch.ones_like(x, dtype=torch.float64))
            yield f"a rotated {what}", actual(x), expected(x.double()), gain


def _gain(rotation: TokenRotation, what: str, ones: Tensor) -> Tensor:
    """Return what a rotation multiplies the length of queries or keys by; 1 for polar rotations and matrices."""
    if not isinstance(rotation, Rotation) or rotation.polar or rotation.angle_q is None or rotation.angle_k is None:
        return torch.ones(())
    # With angles of 0, a rotation of ones returns its gain.
    gain_only = replace(rotation, angle_q=0 * rotation.angle_q, angle_k=0 * rotation.angle_k)
    gain: Tensor = getattr(gain_only, f"rotate_{what}")(ones)
    return gain
