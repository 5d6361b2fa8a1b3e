"""Questions 8 and 9: does it work at every length and position, in every precision?"""

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lengthwise import attention
from lengthwise.conformance.answers import Refused, Wrong, question
from lengthwise.conformance.batch_scenarios import require_close
from lengthwise.conformance.cases import (
    HEAD_DIM,
    TRAIN_LENGTH,
    EncodingCase,
    Layer,
    modifiers_with,
    numbers,
    run,
    served,
    tokens,
)
from lengthwise.encodings import PositionEncoding
from lengthwise.span import Span


@question(8, "lengths", "Lengths 1, L, 4 L, 64 L: works, or an error that says why")
def lengths(case: EncodingCase, backend: str) -> str:
    limit = case.build().max_length
    refused = []
    with torch.no_grad():
        for train_length in (TRAIN_LENGTH, 512):
            for length in (
                1,
                train_length,
                4 * train_length,
                64 * train_length,
                *([limit, limit + 1] if limit else []),
            ):
                try:
                    _works(case, backend, train_length, length)
                except ValueError as error:
                    _is_plain(case, error, limit, length)
                    refused.append((length, str(error)))
                else:
                    if limit is not None and length > limit:
                        raise Wrong(f"max_length is {limit}, and length {length} gives no error")
        model = case.decoder(backend)
        for length in (1, 4 * TRAIN_LENGTH):
            if not torch.isfinite(model(tokens(81, 1, length))).all():
                raise Wrong(f"the model's logits at length {length} are not finite")
    if refused:
        length, reason = min(refused)
        raise Refused(f"length {length}: {reason}")
    return f"up to {64 * 512}"


def _works(case: EncodingCase, backend: str, train_length: int, length: int) -> None:
    """Finite, and the last queries get what they get in a call of their own. All queries where that is small."""
    encoding = case.build(num_heads=2, train_length=train_length).float()
    layer = Layer(encoding, backend, num_heads=2)
    x = numbers(82, 1, length, layer.width).float()
    few = min(length, 3)
    many = length if length <= 64 * TRAIN_LENGTH else few
    out = layer(x, queries=many)
    if not torch.isfinite(out).all():
        raise Wrong(f"length {length}: {int((~torch.isfinite(out)).sum())} numbers are not finite")
    require_close(f"length {length}: the last token alone", layer(x, queries=1), out[:, :, -1:], 1e-4)


def _is_plain(case: EncodingCase, error: ValueError, limit: int | None, length: int) -> None:
    if limit is None or length <= limit:
        raise Wrong(f"length {length} raises {error}, and max_length is {limit}")
    if case.make.__name__ not in str(error) or "\n" in str(error):
        raise Wrong(f"length {length}: the error {str(error)!r} has to be one line that names {case.make.__name__}")


@question(9, "precision", "float32 and bfloat16 against float64 at positions up to 10^6")
def precision(case: EncodingCase, backend: str) -> str:
    exact = case.build()
    top = 1_000_000 if exact.max_length is None else exact.max_length - 1
    scattered = _scattered(exact, backend, top)
    worst = []
    for dtype, allowed in ((torch.float32, 2e-5), (torch.bfloat16, 1e-3)):
        low = case.build().to(dtype)
        exact = copy.deepcopy(low).double()  # the same rounded parameters
        off = 0.0
        for positions in (list(range(top - 32, top + 1)), scattered, list(range(33))):
            for what, got, wanted, gain in _pairs(low, exact, backend, dtype, torch.tensor([positions])):
                if got.dtype != dtype:
                    raise Wrong(f"{what} in {dtype} comes back in {got.dtype}")
                # Its own rounding, once, is in every result; a vector that is added was rounded before.
                rounded = 0.51 * torch.finfo(dtype).eps * (wanted.abs() + (what == "embedding"))
                beyond = float((((got.double() - wanted).abs() - rounded) / gain).max())
                limit = allowed if what == "attention" else 2e-6
                if not beyond <= limit:
                    where = f"positions {positions[0]} to {positions[-1]}"
                    raise Wrong(
                        f"{what} in {dtype}, {where}: off by {beyond:.2g} beyond its rounding, allowed {limit:.2g}"
                    )
                off = max(off, beyond)
        worst.append(f"{str(dtype).removeprefix('torch.')} off by {off:.1e} beyond its rounding")
    if case.shift_invariant:
        layer, near = Layer(case.build(), backend), torch.arange(33)[None]
        x = numbers(96, 1, 33, layer.width)
        with torch.no_grad():
            # What is lost at 10^6 in every precision alike shows here.
            require_close(f"float64, positions {top - 32} to {top}", layer(x, near + top - 32), layer(x, near), 1e-8)
    _has_the_digits(case, torch.arange(top - 32, top + 1)[None])
    at_most = [f"positions to {top}, where its table ends"] if exact.max_length is not None else []
    return ", ".join(worst + at_most)


def _scattered(encoding: PositionEncoding, backend: str, top: int) -> list[int]:
    """30 positions up to `top`, from 0 on. For a backend whose tables have every distance, and which refuses such ones where a
    table would be large, from 65,536 or 4,096 below `top` on."""
    for reach in (1_000_000, 2**16, 2**12):
        drawn = torch.randperm(reach, generator=torch.Generator().manual_seed(91))[:29] + max(0, top - reach)
        positions = served(encoding, *drawn.sort().values.tolist(), top)
        at = torch.tensor([positions])
        span = Span(at, at, top + 1)
        x = numbers(95, 1, len(positions), 4 * HEAD_DIM)
        if attention.unsupported_reason(backend, modifiers_with(encoding, span, x), span) is None:
            return positions
    return positions


def _pairs(
    low: PositionEncoding, exact: PositionEncoding, backend: str, dtype: torch.dtype, at: Tensor
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """What the encoding makes of numbers in `dtype`, in float64, and what both are stretched by."""
    q, k, v = (numbers(92 + n, 2, 4, at.shape[1], HEAD_DIM).to(dtype) for n in range(3))
    x = numbers(95, 2, at.shape[1], 4 * HEAD_DIM).to(dtype)
    with torch.no_grad():
        wanted = run(exact, "reference", q.double(), k.double(), v.double(), at, x=x.double())
        yield "attention", run(low, backend, q, k, v, at, x=x), wanted, torch.ones(())
        yield "embedding", low.embed(x, at), exact.embed(x.double(), at), torch.ones(())
        span = Span(at, at, int(at.max()) + 1)
        one = other = None
        if exact.modifiers(Span.of(1)).rotation:  # or else tables are made for nothing
            one, other = low.modifiers(span).rotation, exact.modifiers(span).rotation
        if one and other:  # keys go into a cache rotated, in the model's own dtype
            assert other.angle_q is not None
            assert other.angle_k is not None
            # A gain stretches the error too, and is what becomes of ones that do not turn.
            still = replace(other, angle_q=0 * other.angle_q, angle_k=0 * other.angle_k)
            ones = torch.ones_like(q, dtype=torch.float64)
            yield "a rotated query", one.query(q), other.query(q.double()), still.query(ones)
            yield "a rotated key", one.key(k), other.key(k.double()), still.key(ones)


def _has_the_digits(case: EncodingCase, at: Tensor) -> None:
    """What is computed in float32 is a float32 number in float64 too; all numbers are that for no other reason."""
    encoding = case.build()
    with torch.no_grad():
        for tensor in (*encoding.parameters(), *encoding.buffers()):
            if tensor.is_floating_point():  # drawn in float32
                tensor.mul_(1 + 2**-40)
        nothing = torch.zeros(1, at.shape[1], 4 * HEAD_DIM, dtype=torch.float64)
        seen = {"the embedding": encoding.embed(nothing, at)}
        if encoding.modifiers(Span.of(1)).rotation:
            rotation = encoding.modifiers(Span(at, at, int(at.max()) + 1)).rotation
            assert rotation
            angles = {"the angle of queries": rotation.angle_q, "the angle of keys": rotation.angle_k}
            seen |= {what: angle for what, angle in angles.items() if angle is not None}
    for what, x in seen.items():
        # Whole numbers (nothing is added, pairs that turn by 1) are exact in either.
        if not torch.equal(x, x.round()) and torch.equal(x.double(), x.float().double()):
            raise Wrong(f"{what} in float64 has float32's digits at positions {int(at.min())} to {int(at.max())}")
