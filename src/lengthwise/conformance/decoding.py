"""Question 3: does decoding with a cache equal one forward pass over the prefix?"""

from collections.abc import Iterator
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from lengthwise.attention import KVCache
from lengthwise.conformance.answers import Failure, question
from lengthwise.conformance.batch_scenarios import gaps, packed, padded, require_close
from lengthwise.conformance.cases import HEAD_DIM, HEADS, EncodingCase, Layer, numbers, on_axes, tokens
from lengthwise.models import Decoder

LENGTH = 19  # more than the initial size of a cache


@question(3, "decoding", "Decoding token by token, in chunks and in two parts equals one forward pass over the prefix")
def decoding(case: EncodingCase, backend: str) -> str:
    # Only the defaults with consecutive positions grow the cache. Everything else is tested at a shorter length, to
    # save time.
    _layer(case, backend, 9 if case.is_default else 7)
    model = case.decoder(backend)
    ids, short = tokens(3, 2, LENGTH), 9
    offset = torch.arange(short) + 300
    gap_positions = torch.stack([offset * 2, offset**2 // 100])
    scenarios: list[tuple[str, int, dict[str, Tensor]]] = [("", LENGTH if case.is_default else 7, {})]
    if case.is_default:
        scenarios += [
            (", positions from 300", short, {"positions": offset[None]}),
            (
                ", gaps, different in each row",
                short,
                {"positions": on_axes(model.encoding_modules()[0], gap_positions)},
            ),
            (", packed documents", short, {"documents": packed((3, 6), (7,))(short)}),
            (", left padding", short, {"documents": padded(0, 4)(short)}),
        ]
    with torch.no_grad():
        for name, length, arguments in scenarios:
            prefixes = {n: model(ids[:, :n], **_tokens(arguments, 0, n)) for n in range(1, length + 1)}
            splits: list[tuple[str, list[int]]] = [("token by token", [1] * length), ("chunks", [3, 1, length - 4])]
            if length == LENGTH:
                near_the_ends = (1, 2, length // 2, length - 3, length - 2, length - 1)  # the cache grows at 16 tokens
                splits += [(f"split at {n}", [n, length - n]) for n in near_the_ends]
            for how, sizes in splits:
                for start, end, actual in _chunk_outputs(model, ids, arguments, sizes):
                    what = f"{how}{name}: tokens {start} to {end - 1}"
                    require_close(what, actual, prefixes[end][:, start:end], 1e-9)
        if case.is_default:
            _continues_after_positions(model, ids)
            _generates(model)
    return f"{len(scenarios)} scenarios"


def _layer(case: EncodingCase, backend: str, length: int) -> None:
    """Test one layer with unrotated keys and every split of every prefix."""
    layer = Layer(case.build(), backend, kv_heads=2)
    x = numbers(31, 2, length, HEADS * HEAD_DIM)
    scenarios: list[tuple[str, dict[str, Tensor]]] = [
        ("", {}),
        (", positions with gaps", {"positions": on_axes(layer.encoding, gaps(32, 2, 900)(length))}),
        (", packed documents", {"documents": packed((2, 5), (4,))(length)}),
    ]
    with torch.no_grad():
        for name, arguments in scenarios:
            for end in range(1, length + 1):
                prefix = _tokens(arguments, 0, end)
                full = layer(x[:, :end], **prefix)
                for queries in range(1, end) if not arguments else {1, end // 2} - {0}:
                    outputs = layer(x[:, :end], **prefix, queries=queries)
                    require_close(f"attend: the last {queries} of {end}{name}", outputs, full[:, :, -queries:], 1e-11)


def _tokens(arguments: dict[str, Tensor], start: int, end: int) -> dict[str, Tensor]:
    return {name: value[:, start:end] for name, value in arguments.items()}


def _chunk_outputs(
    model: Decoder, ids: Tensor, arguments: dict[str, Tensor], sizes: list[int]
) -> Iterator[tuple[int, int, Tensor]]:
    """Yield (start, end, output) of each chunk, decoded with a cache."""
    cache = KVCache(model.config.num_layers)
    for start, end in pairwise(accumulate(sizes, initial=0)):
        yield start, end, model(ids[:, start:end], **_tokens(arguments, start, end), cache=cache)


def _continues_after_positions(model: Decoder, ids: Tensor) -> None:
    """Require that tokens without positions continue after the highest position ID in the cache."""
    positions = torch.tensor([[300, 301, 302, 303, 304, 305, 100, 101, 306, 307, 308]])
    if (positions := on_axes(model.encoding_modules()[0], positions)).ndim == 3:
        positions[:, 8:] = positions[:, 8:, :1]  # the highest position of a row is that of any axis
    cache = KVCache(model.config.num_layers)
    full = model(ids[:, :11], positions=positions)
    model(ids[:, :6], positions=positions[:, :6], cache=cache)
    model(ids[:, 6:8], positions=positions[:, 6:8], cache=cache)
    require_close("continuing after given positions", model(ids[:, 8:11], cache=cache), full[:, 8:], 1e-9)


def _generates(model: Decoder) -> None:
    for name, documents in (("", None), (", left padding", padded(0, 2)(6))):
        prompt = tokens(4, 2, 6)
        cached, uncached = (model.generate(prompt, 14, documents=documents, cached=c) for c in (True, False))
        if not torch.equal(cached, uncached):
            raise Failure(f"generate{name}: with a cache {cached[0].tolist()}..., without {uncached[0].tolist()}...")
