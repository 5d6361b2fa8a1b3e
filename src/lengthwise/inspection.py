"""Describe what an encoding does at positions 0 ... N-1, as data for `lengthwise inspect`, the gallery and others.

No encoding is treated by name. The data come from what its base class defines (frequencies, a bias for each distance,
an embedding), from `slopes` (of a bias that is linear in the distance), `bucket` and `coordinate` if it has them, and
from the forms of its modifiers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lengthwise import forms
from lengthwise.attention import BACKENDS, Mask, unsupported_reason, with_content
from lengthwise.attention.backends import reference
from lengthwise.config import Choice, ConfigError
from lengthwise.config.choices import require_choice
from lengthwise.encodings import DistanceBias, PositionEncoding, RotaryEncoding
from lengthwise.encodings.contract import effective_length_of, embedded, features_of, modifiers_of
from lengthwise.span import Span

MOST = 10_000_000  # numbers in one result: about a gigabyte while JSON is written
MOST_PARAMETERS = 50_000_000
LARGEST = 2**53  # float64 represents whole numbers exactly up to it
WIDEST = 10_000_000  # heads or dimensions
_INPUT = "an input drawn from N(0, 1)"

Data = dict[str, Any]


def inspect(
    choice: Choice,
    *,
    num_heads: int = 8,
    head_dim: int = 64,
    d_model: int | None = None,
    train_length: int = 128,
    length: int | None = None,
    seed: int = 0,
) -> Data:
    """Return what an encoding does at positions 0 ... N-1, N = `length` (default: twice `train_length`).

    The result has only numbers, lists and None (for numbers that are not finite, and for keys after the query). Numbers
    are float64 and not rounded, and parameters are initialized in float64 with `seed`. The result always has `name`,
    `label`, `settings` including defaults, the sizes, `seed`, `parameters` {name: shape}, `learned` (the number of
    parameters), the class's declarations, the `forms` of its modifiers, and `backends` {name: None, or why it is
    unsupported}. If they apply, it also has:

    - `frequencies` [pair] of the first head, in radians per position at length N, and `gain`, which multiplies q and k
      each. The gain is one number (1.0: none), or {"query": [position][pair], "key": ...} if it depends on the position
      (xPos). Encodings that depend on the length also have `effective_length`, the length that they are scaled for at
      N, and `frequencies_trained` and `gain_trained`, the same at `train_length`.
    - `angles` [h][pair][position] in radians if the rotation depends on content. `angles_given` states the input
      (random, with `seed`).
    - `bias` [h][distance] in nats for distances 0 ... N-1; `bias_ahead` [h][n] for distances -1, -2, ... if the
      encoding is bidirectional; `slopes` [h] if the bias is -slope times the distance; `buckets` [distance] and
      `buckets_ahead`. For Transformer-XL, the bias is the product of its vector v with each distance's vector, at the
      scale 1/sqrt(head_dim).
    - `bias` [h][i][j] if it depends on more than the distance, with `coordinate` [i][j] for a normalized distance.
      `bias_given` states the input if the bias depends on content (random, with `seed`).
    - `embedding` [position][c], what is added to the embeddings.
    - `query_gain` [h][i], which multiplies the logits of a query, and `sink_logits` [h], in the softmax's denominator.
    - `query_vectors`, `value_vectors` [{"first": distance of the first row, "table": [h][n][d]}], `key_vectors` [h][d].
      The product of q, plus a `vector` [h][d] if there is one, with the first of them is added to the logits, and so is
      the product of k with `key_vectors`. `value_vectors` are added to the values.
    - `logits_before`, `logits_after` [h][i][j] for encodings that transform logits, or that change the product of q and
      k other than by a rotation, with q and k from N(0, 1) and `seed`. Without a softmax, `logits_after` has the
      logarithms of the weights, and None for weights of 0.

    Raise `ConfigError` for sizes that are out of range and for results that would be too large.
    """
    require_choice("inspect()", choice)
    if choice.remaining_layers:
        raise ConfigError(f"{choice.label} is a pattern over layers; inspect its encodings one at a time")
    length = 2 * train_length if length is None else length
    width = num_heads * head_dim if d_model is None else d_model
    sizes = {"num_heads": num_heads, "head_dim": head_dim, "d_model": width, "train_length": train_length}
    _check(**sizes, length=length)
    encoding = _build(choice, sizes, seed)
    shapes = {name: list(p.shape) for name, p in encoding.named_parameters()}
    data: Data = {
        "name": choice.name,
        "label": choice.label,
        "settings": {name: _plain(value) for name, value in choice.settings},
        **sizes,
        "length": length,
        "seed": seed,
        "parameters": shapes,
        "learned": sum(math.prod(shape) for shape in shapes.values()),
        "shared_across_layers": encoding.shared_across_layers,
        "shift_invariant": encoding.shift_invariant,
        "depends_on_length": encoding.depends_on_length(),
        "reads_content": encoding.reads_content(),
        "max_length": encoding.max_length,
    }
    with torch.no_grad():
        few = _modifiers(encoding, data, min(length, 2))  # enough to know the forms and their widths, at little cost
        for quantities in (_forms, _rotation, _distances, _pairs, _vectors, _transformed, _embedding):
            data |= quantities(encoding, data, few)
    return data


def _check(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
        most = LARGEST if name.endswith("length") else WIDEST
        if value > most:
            name += " (default: num_heads times head_dim)" if name == "d_model" else ""
            raise ConfigError(f"{name} must be at most {most:,}, got {str(value)[:40]}")


def _build(choice: Choice, sizes: dict[str, int], seed: int) -> PositionEncoding:
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed must be in 0 ... 2^63 - 1, got {str(seed)[:40]}")
    with torch.device("meta"):
        learned = sum(p.numel() for p in choice.build(**sizes).parameters())
    if learned > MOST_PARAMETERS:
        raise ConfigError(
            f"{choice.label} must have at most {MOST_PARAMETERS:,} parameters to be inspected, got {learned:,} at "
            "these sizes; make the sizes smaller"
        )
    with torch.random.fork_rng(devices=[]), _default_float64():
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed the caller's GPUs
        encoding: PositionEncoding = choice.build(**sizes)
    return encoding.double().eval()


@contextmanager
def _default_float64() -> Iterator[None]:
    """Initialize parameters in float64, so that 0.1 is not rounded to float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def afford(data: Data, numbers: int) -> None:
    """Raise `ConfigError` if a result would have more than `MOST` numbers."""
    if numbers > MOST:
        raise ConfigError(
            f"{data['name']} at length {data['length']:,} must have at most {MOST:,} numbers, got {numbers:,}; choose "
            "a shorter length, fewer heads or smaller dimensions"
        )


# ---- the parts --------------------------------------------------------------------------------------------------


def _modifiers(encoding: PositionEncoding, data: Data, length: int) -> forms.AttentionModifiers:
    """Return the modifiers; for encodings that read content, with the terms of a random input."""
    span = Span.of(length)
    modifiers = modifiers_of(encoding, span)
    if encoding.reads_content():
        generator = torch.Generator().manual_seed(data["seed"])
        x = torch.randn(1, length, data["d_model"], generator=generator, dtype=torch.float64)
        modifiers = with_content(modifiers, encoding, features_of(encoding, x), span, Mask(length, length))
    modifiers.check(torch.empty(1, data["num_heads"], length, data["head_dim"]), length, length)
    return modifiers


def _forms(encoding: PositionEncoding, data: Data, few: forms.AttentionModifiers) -> Data:
    all_forms = (few.rotation, *few.terms, *few.values, few.logit_transform, few.gain, few.sink, few.product)
    return {
        "forms": list(dict.fromkeys(type(form).__name__ for form in all_forms if form is not None)),
        "backends": {name: unsupported_reason(name, few, Span.of(min(data["length"], 2))) for name in BACKENDS},
    }


def _rotation(encoding: PositionEncoding, data: Data, few: forms.AttentionModifiers) -> Data:
    if not isinstance(encoding, RotaryEncoding):
        return {} if few.rotation is None else _other_rotation(encoding, data)

    def at(length: int) -> tuple[list[Any], Any]:
        frequencies, gain = encoding.checked_frequencies(torch.tensor(length))
        if isinstance(gain, Tensor):
            gain = _listed(gain.flatten()) if gain.numel() > 1 else float(gain)
        return _listed(frequencies.flatten()), 1.0 if gain is None else gain

    result: Data = {"layout": encoding.layout}
    result["frequencies"], result["gain"] = at(data["length"])
    if isinstance(getattr(few.rotation, "gain_q", None), Tensor) and encoding.gain(torch.tensor(1)) is None:
        afford(data, 2 * data["length"] * len(result["frequencies"]))
        rotation = modifiers_of(encoding, Span.of(data["length"])).rotation
        assert isinstance(rotation, forms.Rotation)
        result["gain"] = {
            "query": _listed(rotation.gain_q[0, 0]),  # type: ignore[index]
            "key": _listed(rotation.gain_k[0, 0]),  # type: ignore[index]
        }
    if encoding.depends_on_length():
        result["effective_length"] = int(effective_length_of(encoding, torch.tensor(data["length"])))
        result["frequencies_trained"], result["gain_trained"] = at(data["train_length"])
    return result


def _other_rotation(encoding: PositionEncoding, data: Data) -> Data:
    """Return the angles of a rotation that depends on content, or the frequencies of one that does not."""
    length = data["length"] if encoding.reads_content() else 2
    afford(data, length * (data["num_heads"] * data["head_dim"] + data["d_model"]))
    rotation = _modifiers(encoding, data, length).rotation
    if isinstance(rotation, forms.MatrixRotation):
        return {"layout": "blocks", "frequencies": _listed(rotation.frequencies()), "gain": 1.0}
    assert isinstance(rotation, forms.Rotation) and rotation.angle_k is not None
    layout = "polar" if rotation.polar else rotation.layout
    if encoding.reads_content():
        return {"layout": layout, "angles": _listed(rotation.angle_k[0].mT), "angles_given": _INPUT}
    return {"layout": layout, "frequencies": _listed(rotation.angle_k[0, 0].diff(dim=0)[0]), "gain": 1.0}


def _distances(encoding: PositionEncoding, data: Data, few: forms.AttentionModifiers) -> Data:
    """Return a bias that depends only on the distance, as a table over distances, with its slopes and buckets."""
    n = data["length"]
    result: Data = {}
    if (slopes := _slopes(encoding)) is not None:
        result["slopes"] = slopes
    tables = _tables(few)
    if not tables or not all(isinstance(t, forms.ToeplitzBias) for t in _biases(few)):
        return result
    afford(data, max(table.heads for table in tables) * n)
    distances_of = {"": torch.arange(n)} | ({"_ahead": -torch.arange(1, n)} if all(t.first < 0 for t in tables) else {})
    bucket: Callable[[Tensor], Tensor] | None = getattr(encoding, "bucket", None)
    for suffix, distances in distances_of.items():
        result[f"bias{suffix}"] = _listed(_by_distance(encoding, data, distances))
        if bucket is not None:
            result[f"buckets{suffix}"] = _listed(bucket(distances))
    return result


def _slopes(encoding: PositionEncoding) -> list[float] | None:
    """Return the attribute `slopes` m_h of an encoding if its bias is -m_h times the distance, or else None."""
    slopes = getattr(encoding, "slopes", None)
    if not isinstance(encoding, DistanceBias) or not isinstance(slopes, tuple | list | Tensor):
        return None
    each, distance = torch.as_tensor(slopes, dtype=torch.float64).detach(), torch.arange(4)
    table = encoding.checked_bias(distance).double()
    if each.shape != table.shape[:1] or not torch.allclose(table, -each[:, None] * distance, rtol=1e-6, atol=0):
        return None
    return each.tolist()


def _tables(modifiers: forms.AttentionModifiers) -> list[forms.ToeplitzBias | forms.RelativeKeyBias]:
    """Return the terms with a number for each distance: Toeplitz biases, and key biases with a vector added to q."""
    kinds = (forms.ToeplitzBias, forms.RelativeKeyBias)
    return [term for term in modifiers.terms if isinstance(term, kinds) and term.has_bias]


def _by_distance(encoding: PositionEncoding, data: Data, distances: Tensor) -> Tensor:
    if isinstance(encoding, DistanceBias):
        return encoding.checked_bias(distances)
    total = torch.zeros(1, len(distances), dtype=torch.float64)
    for form in _tables(modifiers_of(encoding, Span.of(data["length"]))):
        table = form.table
        if isinstance(form, forms.RelativeKeyBias):
            assert form.vector is not None
            table = torch.einsum("hd,hnd->hn", form.vector.to(table.dtype), table.expand(len(form.vector), -1, -1))
            table = table * data["head_dim"] ** -0.5
        total = total + table[:, (distances - form.first).clamp(0, table.shape[1] - 1)]
    return total


def _pairs(encoding: PositionEncoding, data: Data, few: forms.AttentionModifiers) -> Data:
    """Return a bias that needs query and key, as a number for every pair, and the normalized distance."""
    result: Data = {}
    biases = _biases(few)
    n, heads = data["length"], max((bias.heads for bias in biases), default=0)
    coordinate = getattr(encoding, "coordinate", None)
    pairs = any(not isinstance(t, forms.ToeplitzBias) for t in biases)
    afford(data, n * n * (heads * pairs + (coordinate is not None)) + n * data["d_model"] * data["reads_content"])
    if coordinate is not None:
        i = torch.arange(n)[:, None]
        result["coordinate"] = _causal(coordinate(i, torch.minimum(i, torch.arange(n))))
    if pairs:
        span = Span.of(n)
        nothing = torch.zeros(1, heads, n, 1, dtype=torch.float64)
        total = sum(t.dense(nothing, nothing, span, 1.0)[0] for t in _biases(_modifiers(encoding, data, n)))
        assert isinstance(total, Tensor)
        result["bias"] = _causal(total)
        if encoding.reads_content():
            result["bias_given"] = _INPUT
    return result


def _biases(modifiers: forms.AttentionModifiers) -> list[forms.Term]:
    """Return the terms that do not depend on q and k."""
    return [term for term in modifiers.terms if not term.reads_q and not term.reads_k]


def _vectors(encoding: PositionEncoding, data: Data, few: forms.AttentionModifiers) -> Data:
    def vector_terms(modifiers: forms.AttentionModifiers) -> tuple[list[forms.RelativeKeyBias], list[forms.KeyBias]]:
        terms = modifiers.terms
        return [t for t in terms if isinstance(t, forms.RelativeKeyBias)], [
            t for t in terms if isinstance(t, forms.KeyBias)
        ]

    n, (queries, keys) = data["length"], vector_terms(few)
    if few.gain is None and few.sink is None and not queries and not keys and not few.values:
        return {}
    # Shaw's tables have fixed sizes. Transformer-XL's grow with the length, in both directions if it is bidirectional.
    tables: list[forms.RelativeKeyBias | forms.RelativeValues] = [*queries, *few.values]
    afford(data, n * (few.gain.gain.shape[1] if few.gain else 0))
    afford(data, 2 * n * sum(form.table.shape[0] * form.table.shape[2] for form in tables))
    modifiers = _modifiers(encoding, data, n)
    queries, keys = vector_terms(modifiers)
    result: Data = {}
    if modifiers.gain is not None:
        result["query_gain"] = _listed(modifiers.gain.gain[0])
    if modifiers.sink is not None:
        result["sink_logits"] = _listed(modifiers.sink.logit)
    if queries:
        result["query_vectors"] = [
            {"first": form.first, "table": _listed(form.table)}
            | ({} if form.vector is None else {"vector": _listed(form.vector)})
            for form in queries
        ]
    if modifiers.values:
        result["value_vectors"] = [{"first": form.first, "table": _listed(form.table)} for form in modifiers.values]
    if keys:
        result["key_vectors"] = _listed(torch.stack([form.vector for form in keys]).sum(0))
    return result


def _transformed(encoding: PositionEncoding, data: Data, few: forms.AttentionModifiers) -> Data:
    own_product = few.product is not None and not isinstance(few.product, forms.PiecewiseRotation)
    gated = any(_reads_both(term) for term in few.terms)
    if few.logit_transform is None and not own_product and not gated:
        return {}
    n, heads, dim = data["length"], data["num_heads"], data["head_dim"]
    afford(data, 2 * heads * n * n)
    modifiers, span = _modifiers(encoding, data, n), Span.of(n)
    generator = torch.Generator().manual_seed(data["seed"])
    q, k = torch.randn(2, 1, heads, n, dim, generator=generator, dtype=torch.float64)
    visible, scale = Mask(n, n).visible(q.device)[:, None], dim**-0.5
    before, after = (
        reference.logits(version, q, k, span, visible, scale)[0] for version in (_plain_product(modifiers), modifiers)
    )
    # The weight of a key is 0 if its logarithm is below that of any float64.
    if few.logit_transform is not None and not few.logit_transform.softmax:
        after = after.masked_fill(after < -1e4, math.nan)
    return {"logits_before": _causal(before), "logits_after": _causal(after)}


def _reads_both(term: forms.Term) -> bool:
    return term.reads_q and term.reads_k


def _plain_product(modifiers: forms.AttentionModifiers) -> forms.AttentionModifiers:
    """Return the modifiers without what `_transformed` shows."""
    terms = tuple(term for term in modifiers.terms if not _reads_both(term))
    return replace(modifiers, logit_transform=None, product=None, terms=terms)


def _embedding(encoding: PositionEncoding, data: Data, few: forms.AttentionModifiers) -> Data:
    if not encoding.acts_on_embedding():
        return {}
    n, width = data["length"], data["d_model"]
    afford(data, n * width)
    zeros = torch.zeros(1, n, width, dtype=torch.float64)
    return {"embedding": _listed(embedded(encoding, zeros, torch.arange(n)[None])[0])}


# ---- plain data -------------------------------------------------------------------------------------------------


def _causal(x: Tensor) -> list[Any]:
    """Return [..., i, j] as lists, with None for keys after the query."""
    ahead = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return _listed(x.masked_fill(ahead, math.nan))


def _listed(x: Tensor) -> Any:
    """Return nested lists of float64 or whole numbers, with None for numbers that are not finite."""
    if not x.is_floating_point():
        return x.tolist()
    values = x.double() + 0.0  # turns -0.0 into 0.0
    return values.tolist() if bool(values.isfinite().all()) else _plain(values.tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _listed(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors, or 0 if one of them is 0."""
    lengths = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0
