"""Question 3: does decoding piece by piece equal one forward pass over the prefix?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lengthwise.attention import KVCache
from lengthwise.conformance.answers import Wrong, question
from lengthwise.conformance.cases import HEAD_DIM, HEADS, EncodingCase, Layer, numbers, tokens
from lengthwise.conformance.scenes import packed, padded, require_close
from lengthwise.models import Decoder

LENGTH = 19  # more than a cache's first size


@question(3, "decoding", "Decoding token by token, in chunks and at every split equals one forward over the prefix")
def decoding(case: EncodingCase, backend: str) -> str:
    # How effects are cached is asked of the defaults at length; another setting only changes the effect.
    length = LENGTH if case.is_usual else 7
    _layer(case, backend, min(length, 11))
    model = case.decoder(backend)
    ids = tokens(3, 2, length)
    offset = torch.arange(length)[None] + 300
    layouts: list[tuple[str, dict[str, Tensor]]] = [
        ("", {}),
        (", positions from 300", {"positions": offset}),
        (
            ", positions with gaps, other in each row",
            {"positions": torch.stack([offset[0] * 2, offset[0] ** 2 // 100])},
        ),
        (", packed documents", {"documents": packed((5, 11), (16,))(length)}),
        (", left padding", {"documents": padded(0, 4)(length)}),
    ]
    if not case.is_usual:
        layouts = layouts[:1]
    with torch.no_grad():
        for name, given in layouts:
            prefixes = {n: _cut(model, ids, given, n) for n in range(1, length + 1)}
            plans: list[tuple[str, list[int]]] = [
                ("token by token", [1] * length),
                ("chunks of 3, 1, 5, ...", [3, 1, 5, 2, 8] if case.is_usual else [3, 1, 3]),
            ]
            if case.is_usual and not given:
                plans += [(f"split at {n}", [n, length - n]) for n in range(1, length)]
            for how, sizes in plans:
                for start, end, got in _pieces(model, ids, given, sizes):
                    require_close(f"{how}{name}: tokens {start} to {end - 1}", got, prefixes[end][:, start:end], 1e-9)
        if case.is_usual:
            _generates(model)
    return f"{len(layouts)} layouts"


def _layer(case: EncodingCase, backend: str, length: int) -> None:
    """One layer, keys not rotated, every split of every prefix."""
    layer = Layer(case.build(), backend, kv_heads=2)
    x = numbers(31, 2, length, HEADS * HEAD_DIM)
    with torch.no_grad():
        for end in range(1, length + 1):
            whole = layer(x[:, :end])
            for queries in range(1, end):
                require_close(
                    f"attend: the last {queries} of {end}",
                    layer(x[:, :end], queries=queries),
                    whole[:, :, -queries:],
                    1e-11,
                )


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


def _generates(model: Decoder) -> None:
    for name, documents in (("", None), (", left padding", padded(0, 2)(6))):
        prompt = tokens(4, 2, 6)
        one, other = (model.generate(prompt, 14, documents=documents, cached=cached) for cached in (True, False))
        if not torch.equal(one, other):
            raise Wrong(f"generate{name}: with a cache {one[0].tolist()}..., without {other[0].tolist()}...")
