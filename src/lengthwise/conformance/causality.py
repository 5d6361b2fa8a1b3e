"""Question 5: is it causal, and is it shift invariant exactly if it declares so?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lengthwise.attention.backends import reference
from lengthwise.conformance.answers import Failure, question
from lengthwise.conformance.batch_scenarios import difference
from lengthwise.conformance.cases import HEAD_DIM, HEADS, TRAIN_LENGTH, EncodingCase, Layer, numbers, on_axes, tokens
from lengthwise.encodings import PositionEncoding, RotaryEncoding
from lengthwise.forms import AttentionModifiers
from lengthwise.span import Span

COUNT = 13
SHIFTS = (1, 17, 1000, 5000)
SHIFT_TOLERANCE = 1e-9  # for rotations by 5000 radians in float64 through two layers, with a margin


@question(5, "future", "Later tokens do not change earlier outputs")
def no_future(case: EncodingCase, backend: str) -> None:
    layer, model = Layer(case.build(), backend, kv_heads=2), case.decoder(backend)
    x, ids = numbers(51, 2, COUNT, HEADS * HEAD_DIM), tokens(52, 2, COUNT)
    with torch.no_grad():
        for name, run, inputs in (("layer", layer, x), ("2-layer model", model, ids)):
            original = run(inputs)
            for start in range(1, COUNT):
                changed = torch.cat([inputs[:, :start], inputs[:, start:].flip(0, 1) * (50 if run is layer else 1)], 1)
                if not torch.equal(run(changed)[..., :start, :], original[..., :start, :]):
                    raise Failure(f"{name}: tokens from index {start} on change earlier outputs")
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, :, : COUNT // 2].square().sum(), x)
    if gradient[:, COUNT // 2 :].any():
        raise Failure("gradients of earlier outputs reach later tokens")


@question(5, "shift", "Shifting all positions changes the output if and only if the class declares it")
def shifts(case: EncodingCase, backend: str) -> str:
    changes = []
    for name, shift, change in shift_effects(case, backend):
        changes.append(change)
        if case.shift_invariant and not change <= SHIFT_TOLERANCE:
            effect = f"a shift by {shift} changes the output by {change:.3g}"
            raise Failure(f"{name}: declared shift invariant, but {effect}")
    if case.shift_invariant:
        return "shifts do not change the output"
    if not max(changes) > 1e-6:
        raise Failure(f"declared not shift invariant, but no shift changes the output by more than {max(changes):.3g}")
    _rotates_by_distance(case)
    return f"not invariant: a shift changes the output by up to {max(changes):.2g}"


def shift_effects(case: EncodingCase, backend: str) -> Iterator[tuple[str, int, float]]:
    """Yield (layer or model, shift, change of the output) for all shifts that the encoding supports."""
    layer, model = Layer(case.build(), backend), case.decoder(backend)
    ids = torch.randperm(31, generator=torch.Generator().manual_seed(53))[None, :COUNT]
    encoding = case.build()
    x, limit = numbers(54, 1, COUNT, HEADS * HEAD_DIM), encoding.max_length
    with torch.no_grad():
        for name, run, inputs in (("layer", layer, x), ("2-layer model", model, ids)):
            for row in (torch.arange(COUNT), torch.arange(COUNT) ** 2):
                positions = on_axes(encoding, row[None])
                original: Tensor = run(inputs, positions=positions)
                for shift in SHIFTS:
                    if limit is None or int(positions.max()) + shift < limit:
                        yield name, shift, difference(run(inputs, positions=positions + shift), original)
                        if positions.ndim == 3:  # shift the last axis only
                            moved = positions.clone()
                            moved[..., -1] += shift
                            yield f"{name}, one axis", shift, difference(run(inputs, positions=moved), original)


def _rotates_by_distance(case: EncodingCase) -> None:
    """Require that at a fixed length, rotated products depend only on the distance, even without shift invariance."""
    encoding = case.build()
    if not isinstance(encoding, RotaryEncoding):
        return
    q, k = (numbers(n, 1, HEADS, COUNT, HEAD_DIM) for n in (55, 56))
    near, spread = torch.arange(COUNT)[None], torch.arange(COUNT)[None] ** 2
    # All positions are below the fixed length: the training length, and one that is long enough for the largest shift.
    fixed = [(TRAIN_LENGTH, near, (1, TRAIN_LENGTH - COUNT)), (2 * SHIFTS[-1], spread, SHIFTS)]
    for length, positions, shifts in fixed:
        if encoding.max_length is None or length <= encoding.max_length:
            original = _rotated_logits(encoding, q, k, positions, length)
            for shift in shifts:
                change = difference(_rotated_logits(encoding, q, k, positions + shift, length), original)
                if not change <= SHIFT_TOLERANCE:
                    where = f"at the fixed length {length}, a shift by {shift} changes products by {change:.3g}"
                    raise Failure(f"its rotation depends on more than the distance: {where}")


def _rotated_logits(encoding: PositionEncoding, q: Tensor, k: Tensor, positions: Tensor, length: int) -> Tensor:
    lengths = torch.full_like(positions, length)
    span = Span(positions, positions, length, length_q=lengths, length_k=lengths)
    visible = torch.ones(1, 1, COUNT, COUNT, dtype=torch.bool).tril()
    with torch.no_grad():
        rotation = AttentionModifiers(rotation=encoding.modifiers(span).rotation)
        return reference.logits(rotation, q, k, span, visible, HEAD_DIM**-0.5)
