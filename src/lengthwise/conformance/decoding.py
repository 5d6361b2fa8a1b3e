"""Question 3: does decoding piece by piece equal one forward pass over the prefix?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lengthwise.attention import KVCache
from lengthwise.conformance.answers import Wrong, question
from lengthwise.conformance.batch_scenarios import gaps, packed, padded, require_close
from lengthwise.conformance.cases import HEAD_DIM, HEADS, EncodingCase, Layer, numbers, tokens
from lengthwise.models import Decoder

LENGTH = 19  # more than a cache's first size


@question(3, "decoding", "Decoding token by token, in chunks and at every split equals one forward over the prefix")
def decoding(case: EncodingCase, backend: str) -> str:
    # Past a cache's first size with the defaults and plain positions; what else may vary is asked at a length that is short.
    _layer(case, backend, 11 if case.is_usual else 7)
    model = case.decoder(backend)
    ids, short = tokens(3, 2, LENGTH), 9
    offset = torch.arange(short) + 300
    layouts: list[tuple[str, int, dict[str, Tensor]]] = [("", LENGTH if case.is_usual else 7, {})]
    if case.is_usual:
        layouts += [
            (", positions from 300", short, {"positions": offset[None]}),
            (", gaps, other in each row", short, {"positions": torch.stack([offset * 2, offset**2 // 100])}),
            (", packed documents", short, {"documents": packed((3, 6), (7,))(short)}),
            (", left padding", short, {"documents": padded(0, 4)(short)}),
        ]
    with torch.no_grad():
        for name, length, given in layouts:
            prefixes = {n: _cut(model, ids, given, n) for n in range(1, length + 1)}
            plans: list[tuple[str, list[int]]] = [("token by token", [1] * length), ("chunks", [3, 1, length - 4])]
            if length == LENGTH:
                plans += [(f"split at {n}", [n, length - n]) for n in range(1, length)]
            for how, sizes in plans:
                for start, end, got in _pieces(model, ids, given, sizes):
                    require_close(f"{how}{name}: tokens {start} to {end - 1}", got, prefixes[end][:, start:end], 1e-9)
        if case.is_usual:
            _goes_on(model, ids)
            _generates(model)
    return f"{len(layouts)} layouts"


def _layer(case: EncodingCase, backend: str, length: int) -> None:
    """One layer, keys not rotated, every split of every prefix."""
    layer = Layer(case.build(), backend, kv_heads=2)
    x = numbers(31, 2, length, HEADS * HEAD_DIM)
    layouts: list[tuple[str, dict[str, Tensor]]] = [
        ("", {}),
        (", positions with gaps", {"positions": gaps(32, 2, 900)(length)}),
        (", packed documents", {"documents": packed((2, 5), (4,))(length)}),
    ]
    with torch.no_grad():
        for name, given in layouts:
            for end in range(1, length + 1):
                now = {key: value[:, :end] for key, value in given.items()}
                whole = layer(x[:, :end], **now)
                for queries in range(1, end) if not given else {1, end // 2} - {0}:
                    part = layer(x[:, :end], **now, queries=queries)
                    require_close(f"attend: the last {queries} of {end}{name}", part, whole[:, :, -queries:], 1e-11)


def _cut(model: Decoder, ids: Tensor, given: dict[str, Tensor], end: int) -> Tensor:
    out: Tensor = model(ids[:, :end], **{name: value[:, :end] for name, value in given.items()})
    return out


def _pieces(
    model: Decoder, ids: Tensor, given: dict[str, Tensor], sizes: list[int]
) -> Iterator[tuple[int, int, Tensor]]:
    cache, start = KVCache(model.config.num_layers), 0
    for size in sizes:
        end = start + size
        yield (
            start,
            end,
            model(ids[:, start:end], **{name: value[:, start:end] for name, value in given.items()}, cache=cache),
        )
        start = end


def _goes_on(model: Decoder, ids: Tensor) -> None:
    """Without positions, tokens go on from the furthest position that the cache holds."""
    claimed = torch.tensor([[300, 301, 302, 303, 304, 305, 100, 101, 306, 307, 308]])
    cache = KVCache(model.config.num_layers)
    whole = model(ids[:, :11], positions=claimed)
    model(ids[:, :6], positions=claimed[:, :6], cache=cache)
    model(ids[:, 6:8], positions=claimed[:, 6:8], cache=cache)
    require_close("going on after given positions", model(ids[:, 8:11], cache=cache), whole[:, 8:], 1e-9)


def _generates(model: Decoder) -> None:
    for name, documents in (("", None), (", left padding", padded(0, 2)(6))):
        prompt = tokens(4, 2, 6)
        one, other = (model.generate(prompt, 14, documents=documents, cached=cached) for cached in (True, False))
        if not torch.equal(one, other):
            raise Wrong(f"generate{name}: with a cache {one[0].tolist()}..., without {other[0].tolist()}...")
