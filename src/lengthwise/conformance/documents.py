"""Question 4: does anything but a document's own tokens change what is said about it?"""

import torch
from torch import Tensor

from lengthwise.attention import KVCache
from lengthwise.conformance.answers import Wrong, question
from lengthwise.conformance.batch_scenarios import packed, padded, require_close
from lengthwise.conformance.cases import HEAD_DIM, HEADS, EncodingCase, Layer, numbers, served, tokens


@question(4, "packed", "Packed documents equal each alone")
def packs(case: EncodingCase, backend: str) -> str:
    sizes = [5, 23, 1, 7]  # one is longer than the trained length: what depends on length goes by each alone
    cuts = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    starts = tuple(cuts[1:-1])
    documents, x, ids = packed(starts)(cuts[-1]), numbers(41, 2, cuts[-1], HEADS * HEAD_DIM), tokens(42, 2, cuts[-1])
    layer, model = Layer(case.build(), backend, kv_heads=2), case.decoder(backend)
    with torch.no_grad():
        for name, run, given in (("layer", layer, x), ("2-layer model", model, ids)):
            together = run(given, documents=documents)
            for n, (start, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
                alone, part = run(given[:, start:end]), _tokens(together, start, end)
                require_close(f"{name}: document {n} of {sizes[n]} tokens", part, alone)
            # A document's id is a name: any other that differs from its neighbours says the same.
            if not torch.equal(run(given, documents=(7 - 3 * documents).expand(2, -1)), together):
                raise Wrong(f"{name}: documents with other ids give other numbers")
            for n, (start, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
                changed = given.clone()
                changed[:, start:end] = given[:, start:end].flip(0)
                kept = [slice(a, b) for m, (a, b) in enumerate(zip(cuts, cuts[1:], strict=False)) if m != n]
                after = run(changed, documents=documents)
                if any(
                    not torch.equal(_tokens(after, s.start, s.stop), _tokens(together, s.start, s.stop)) for s in kept
                ):
                    raise Wrong(f"{name}: other tokens in document {n} change another document")
    return f"{len(sizes)} documents"


@question(4, "padding", "Left padding changes nothing")
def pads(case: EncodingCase, backend: str) -> None:
    layer, model = Layer(case.build(), backend), case.decoder(backend)
    count = 9
    with torch.no_grad():
        for name, run, given in (
            ("layer", layer, numbers(43, 1, count, HEADS * HEAD_DIM)),
            ("2-layer model", model, tokens(44, 1, count)),
        ):
            alone = run(given)
            for left in (1, 4, 3 * count):
                filled = torch.cat([given.repeat_interleave(3, 1)[:, -left:], given], 1)
                require_close(
                    f"{name}: {left} of padding",
                    _tokens(run(filled, documents=padded(left)(left + count)), left, left + count),
                    alone,
                )


@question(4, "history", "Batch mates and what was called before change nothing")
def keeps_no_history(case: EncodingCase, backend: str) -> None:
    layer, model = Layer(case.build(), backend), case.decoder(backend)
    layer_again, model_again = Layer(case.build(), backend), case.decoder(backend)
    x, ids = numbers(45, 3, 12, HEADS * HEAD_DIM), tokens(46, 3, 12)
    far = torch.tensor([served(case.build(), 0, 5, 100, 700, 3000)])
    with torch.no_grad():
        for name, run, fresh, given in (("layer", layer, layer_again, x), ("2-layer model", model, model_again, ids)):
            at = torch.arange(12) * torch.tensor([[1], [4], [2]])  # a batch mate that is longer
            spread = run(given, positions=at)
            for row in range(3):
                alone = run(given[row : row + 1], positions=at[row : row + 1])
                require_close(f"{name}: a row alone, positions of its own", alone, spread[row : row + 1])
            first, state = run(given), torch.get_rng_state()
            for row in range(3):
                require_close(f"{name}: a row alone", run(given[row : row + 1]), first[row : row + 1])
            for keys in (1, 5, 30):
                run(torch.cat([given] * 3, 1)[:, :keys])
            run(given[:, : far.shape[1]], positions=far)
            if run is model:
                cache = KVCache(model.config.num_layers)
                for start in range(0, 12, 4):
                    model(ids[:, start : start + 4], cache=cache)
            if not torch.equal(run(given), first):
                raise Wrong(f"{name}: other numbers for the same input after other calls")
            if not torch.equal(fresh(given), first):
                raise Wrong(f"{name}: other numbers from another object with the same weights that saw no other call")
            if not torch.equal(torch.get_rng_state(), state):
                raise Wrong(f"{name}: evaluation draws random numbers")


def _tokens(out: Tensor, start: int, end: int) -> Tensor:
    """Of [b, h, t, d] or [b, t, o], the tokens from `start` to `end`."""
    return out[..., start:end, :]
