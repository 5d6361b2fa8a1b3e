"""Question 5: does it see what it may see, and position as it says it does?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lengthwise.attention import reference
from lengthwise.conformance.answers import Wrong, question
from lengthwise.conformance.batch_scenarios import difference
from lengthwise.conformance.cases import HEAD_DIM, HEADS, TRAIN_LENGTH, EncodingCase, Layer, numbers, tokens
from lengthwise.encodings import PositionEncoding, RotaryEncoding
from lengthwise.forms import AttentionModifiers
from lengthwise.span import Span

COUNT = 13
SHIFTS = (1, 17, 1000, 5000)
SHIFT_ALLOWED = 1e-9  # rotations by angles of 5000 radians in float64, two layers, and room


@question(5, "future", "The future does not leak")
def no_future(case: EncodingCase, backend: str) -> None:
    layer, model = Layer(case.build(), backend, kv_heads=2), case.decoder(backend)
    x, ids = numbers(51, 2, COUNT, HEADS * HEAD_DIM), tokens(52, 2, COUNT)
    with torch.no_grad():
        for name, run, given in (("layer", layer, x), ("2-layer model", model, ids)):
            whole = run(given)
            for now in range(1, COUNT):
                changed = torch.cat([given[:, :now], given[:, now:].flip(0, 1) * (50 if run is layer else 1)], 1)
                if not torch.equal(run(changed)[..., :now, :], whole[..., :now, :]):
                    raise Wrong(f"{name}: tokens from {now} on change what is said before")
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, :, : COUNT // 2].square().sum(), x)
    if gradient[:, COUNT // 2 :].any():
        raise Wrong("gradients of the past reach tokens of the future")


@question(5, "shift", "Shift invariance is what the class declares, both ways")
def shifts(case: EncodingCase, backend: str) -> str:
    moved = []
    for name, shift, off in moved_by_shifts(case, backend):
        moved.append(off)
        if case.shift_invariant and not off <= SHIFT_ALLOWED:
            raise Wrong(f"{name}: declared shift invariant, and moving by {shift} changes the output by {off:.3g}")
    if case.shift_invariant:
        return "no shift changes anything"
    if not max(moved) > 1e-6:
        raise Wrong(f"declared not shift invariant, and no shift changes the output by more than {max(moved):.3g}")
    _turns_by_distance(case)
    return f"not invariant: a shift changes the output by up to {max(moved):.2g}"


def moved_by_shifts(case: EncodingCase, backend: str) -> Iterator[tuple[str, int, float]]:
    """(layer or model, shift, by how much the output changes) for all shifts that the encoding serves."""
    layer, model = Layer(case.build(), backend), case.decoder(backend)
    ids = torch.randperm(31, generator=torch.Generator().manual_seed(53))[None, :COUNT]
    limit = case.build().max_length
    with torch.no_grad():
        for name, run, given in (
            ("layer", layer, numbers(54, 1, COUNT, HEADS * HEAD_DIM)),
            ("2-layer model", model, ids),
        ):
            for positions in (torch.arange(COUNT), torch.arange(COUNT) ** 2):
                here: Tensor = run(given, positions=positions[None])
                for shift in SHIFTS:
                    if limit is None or int(positions.max()) + shift < limit:
                        yield name, shift, difference(run(given, positions=positions[None] + shift), here)


def _turns_by_distance(case: EncodingCase) -> None:
    """What a rotation makes of a pair goes by its distance as long as the length stays what it is, whatever else does not."""
    encoding = case.build()
    if not isinstance(encoding, RotaryEncoding):
        return
    q, k = (numbers(n, 1, HEADS, COUNT, HEAD_DIM) for n in (55, 56))
    near, spread = torch.arange(COUNT)[None], torch.arange(COUNT)[None] ** 2
    # Every position is below the length that is held: the trained one, and one with room for the widest shift.
    for length, positions, shifts in (
        (TRAIN_LENGTH, near, (1, TRAIN_LENGTH - COUNT)),
        (2 * SHIFTS[-1], spread, SHIFTS),
    ):
        if encoding.max_length is None or length <= encoding.max_length:
            here = _turned(encoding, q, k, positions, length)
            for shift in shifts:
                off = difference(_turned(encoding, q, k, positions + shift, length), here)
                if not off <= SHIFT_ALLOWED:
                    raise Wrong(
                        f"its rotation goes by more than the distance: moving by {shift} changes products by {off:.3g} while "
                        f"the length stays {length}"
                    )


def _turned(encoding: PositionEncoding, q: Tensor, k: Tensor, positions: Tensor, length: int) -> Tensor:
    own = torch.full_like(positions, length)
    span = Span(positions, positions, length, length_q=own, length_k=own)
    visible = torch.ones(1, 1, COUNT, COUNT, dtype=torch.bool).tril()
    with torch.no_grad():
        return reference.logits(
            AttentionModifiers(rotation=encoding.modifiers(span).rotation), q, k, span, visible, HEAD_DIM**-0.5
        )
