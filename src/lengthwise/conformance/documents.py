"""Question 4: does a document's output depend only on its own tokens?"""

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from lengthwise.attention import KVCache
from lengthwise.conformance.answers import Failure, question
from lengthwise.conformance.batch_scenarios import packed, padded, require_close
from lengthwise.conformance.cases import (
    HEAD_DIM,
    HEADS,
    EncodingCase,
    Layer,
    numbers,
    on_axes,
    supported_positions,
    tokens,
)
from lengthwise.positions import consecutive


@question(4, "packed", "Packed documents give the same outputs as each document alone")
def packs(case: EncodingCase, backend: str) -> str:
    sizes = [5, 23, 1, 7]  # one exceeds the training length, to test encodings that depend on the document's length
    cuts = list(accumulate(sizes, initial=0))
    ranges, length = list(pairwise(cuts)), cuts[-1]
    documents, x, ids = (
        packed(tuple(cuts[1:-1]))(length),
        numbers(41, 2, length, HEADS * HEAD_DIM),
        tokens(42, 2, length),
    )
    layer, model = Layer(case.build(), backend, kv_heads=2), case.decoder(backend)
    with torch.no_grad():
        for name, run, inputs in (("layer", layer, x), ("2-layer model", model, ids)):
            together = run(inputs, documents=documents)
            for n, (start, end) in enumerate(ranges):
                alone, packed_outputs = run(inputs[:, start:end]), _tokens(together, start, end)
                require_close(f"{name}: document {n} of {sizes[n]} tokens", packed_outputs, alone)
            positions = on_axes(layer.encoding, consecutive(documents))
            if positions.ndim == 3:
                on_several = run(inputs, documents=documents, positions=positions)
                for start, end in ranges:
                    alone = run(inputs[:, start:end], positions=positions[:, start:end])
                    require_close(f"{name}: a document with several axes", _tokens(on_several, start, end), alone)
            # Document IDs only have to differ from each other; their values must not matter.
            if not torch.equal(run(inputs, documents=(7 - 3 * documents).expand(2, -1)), together):
                raise Failure(f"{name}: other document IDs change the output")
            for n, (start, end) in enumerate(ranges):
                changed = inputs.clone()
                changed[:, start:end] = inputs[:, start:end].flip(0)
                after = run(changed, documents=documents)
                others = (other for other in ranges if other != (start, end))
                if not all(torch.equal(_tokens(after, *other), _tokens(together, *other)) for other in others):
                    raise Failure(f"{name}: other tokens in document {n} change another document")
    return f"{len(sizes)} documents"


@question(4, "padding", "Left padding does not change the output")
def pads(case: EncodingCase, backend: str) -> None:
    layer, model, count = Layer(case.build(), backend), case.decoder(backend), 9
    x, ids = numbers(43, 1, count, HEADS * HEAD_DIM), tokens(44, 1, count)
    with torch.no_grad():
        for name, run, inputs in (("layer", layer, x), ("2-layer model", model, ids)):
            alone = run(inputs)
            for left in (1, 4, 3 * count):
                with_padding = torch.cat([inputs.repeat_interleave(3, 1)[:, -left:], inputs], 1)
                out = run(with_padding, documents=padded(left)(left + count))
                require_close(f"{name}: {left} tokens of padding", _tokens(out, left, left + count), alone)


@question(4, "history", "Other rows of the batch and earlier calls do not change the output")
def keeps_no_history(case: EncodingCase, backend: str) -> None:
    layer, model = Layer(case.build(), backend), case.decoder(backend)
    layer_again, model_again = Layer(case.build(), backend), case.decoder(backend)
    x, ids = numbers(45, 3, 12, HEADS * HEAD_DIM), tokens(46, 3, 12)
    far = torch.tensor([supported_positions(case.build(), 0, 5, 100, 700, 3000)])
    with torch.no_grad():
        for name, run, fresh, inputs in (("layer", layer, layer_again, x), ("2-layer model", model, model_again, ids)):
            positions = on_axes(layer.encoding, torch.arange(12) * torch.tensor([[1], [4], [2]]))  # one row is longer
            batched = run(inputs, positions=positions)
            for row in range(3):
                alone = run(inputs[row : row + 1], positions=positions[row : row + 1])
                require_close(f"{name}: a row alone, with its own positions", alone, batched[row : row + 1])
            first, state = run(inputs), torch.get_rng_state()
            for row in range(3):
                require_close(f"{name}: a row alone", run(inputs[row : row + 1]), first[row : row + 1])
            for keys in (1, 5, 30):
                run(torch.cat([inputs] * 3, 1)[:, :keys])
            run(inputs[:, : far.shape[1]], positions=far)
            if run is model:
                cache = KVCache(model.config.num_layers)
                for start in range(0, 12, 4):
                    model(ids[:, start : start + 4], cache=cache)
            if not torch.equal(run(inputs), first):
                raise Failure(f"{name}: the output for the same input differs after other calls")
            if not torch.equal(fresh(inputs), first):
                raise Failure(f"{name}: a new instance with the same weights gives another output")
            if not torch.equal(torch.get_rng_state(), state):
                raise Failure(f"{name}: evaluation uses random numbers")


def _tokens(out: Tensor, start: int, end: int) -> Tensor:
    """Return the tokens from `start` to `end` of [b, h, t, d] or [b, t, o]."""
    return out[..., start:end, :]
