"""What an encoding does at positions 0 ... N-1, as plain data: `lengthwise inspect`, the gallery and other programs read it.

Nothing here knows a method by name: an encoding is asked for what its family has (frequencies, a bias per distance, an
embedding), for `slopes` (of a bias that is linear in the distance), `bucket` and `coordinate` where it has them, and its
effect for the forms it is made of.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention import BACKENDS, Mask, reference, unsupported_reason, with_content
from lengthwise.attention.fit import require_fit
from lengthwise.choices import require_choice
from lengthwise.config import Choice, ConfigError
from lengthwise.encodings import DistanceBias, PositionEncoding, RotaryEncoding
from lengthwise.forms import AttentionModifiers, KeyBias, RelativeKeyBias, RelativeValues, Term, ToeplitzBias
from lengthwise.span import Span

MOST = 10_000_000  # numbers in one answer: about a gigabyte as JSON is written
MOST_PARAMETERS = 50_000_000
LARGEST = 2**53  # positions past it are no exact float64 numbers
WIDEST = 10_000_000  # heads, dims

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
    """What an encoding does at positions 0 ... N-1, N = `length` (twice `train_length` when not given).

    Plain numbers, lists and None (for what is no finite number, and for keys after the query), in float64 and never
    rounded: parameters are drawn in float64 with `seed`. Always there: `name`, `label`, `settings` with defaults written
    out, the sizes, `seed`, `parameters` {name: shape}, `learned` (their count), what the class declares, `forms` of its
    effect, and `backends` {name: None, or why it refuses}. And where they apply:

    - `frequencies` [pair], radians per position at length N, and `gain`, by which q and k are both stretched: one number
      (1.0: nothing), or, where it depends on the position (xPos), {"query": [position][pair], "key": ...}. Methods that
      depend on the length also have `effective_length`, the length that they are made for at N, and `frequencies_trained` and
      `gain_trained`, the same at `train_length`.
    - `bias` [h][distance] in nats for distances 0 ... N-1; `bias_ahead` [h][n] for distances -1, -2, ... where the method
      looks both ways; `slopes` [h] of a bias that is -slope times
      the distance; `buckets` [distance] and `buckets_ahead`. Of Transformer-XL, what its vector v makes
      of each distance at the scale 1/sqrt(head_dim).
    - `bias` [h][i][j] where the distance alone does not decide, with `coordinate` [i][j] for a normalised distance.
      `bias_given`: what it was computed for, where it depends on the tokens' content (drawn with `seed` too).
    - `embedding` [position][c], what is added to the embeddings.
    - `query_gain` [h][i], which multiplies the logits of a query.
    - `query_vectors`, `value_vectors` [{"first": distance of the first row, "table": [h][n][d]}], `key_vectors` [h][d]:
      tables whose product with q (and a `vector` [h][d] that joins it) or k is added to the logits, or which is added to
      the values.
    - `logits_before`, `logits_after` [h][i][j] for methods that rewrite logits: q, k drawn from N(0, 1) with `seed`.
    """
    require_choice("inspect()", choice)
    if choice.remaining_layers:
        raise ConfigError(f"{choice.label} is a pattern over layers; inspect its encodings one by one")
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
        for part in (_forms, _rotation, _distances, _pairs, _vectors, _rewritten, _embedding):
            data |= part(encoding, data)
    return data


def _check(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise ConfigError(f"{name} is {value}; it has to be at least 1")
        most = LARGEST if name.endswith("length") else WIDEST
        if value > most:
            name += " (num_heads times head_dim, where it is not given)" if name == "d_model" else ""
            raise ConfigError(f"{name} is {str(value)[:40]}; more than {most:,} cannot be shown")


def _build(choice: Choice, sizes: dict[str, int], seed: int) -> PositionEncoding:
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed is {str(seed)[:40]}; it has to lie in 0 ... 2^63 - 1")
    with torch.device("meta"):
        learned = sum(p.numel() for p in choice.build(**sizes).parameters())
    if learned > MOST_PARAMETERS:
        raise ConfigError(
            f"{choice.label} has {learned:,} parameters at these sizes; at most {MOST_PARAMETERS:,} are made"
        )
    with torch.random.fork_rng(devices=[]), _doubles():
        torch.manual_seed(seed)
        encoding: PositionEncoding = choice.build(**sizes)
    return encoding.double().eval()


@contextmanager
def _doubles() -> Iterator[None]:
    """Parameters are made in float64, so that 0.1 is 0.1 and not the float32 number next to it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def afford(data: Data, numbers: int) -> None:
    """Refuse what would be more numbers than can be shown."""
    if numbers > MOST:
        raise ConfigError(
            f"{data['name']} at length {data['length']:,} would be {numbers:,} numbers at these sizes, and at most "
            f"{MOST:,} are shown; ask for a shorter length, fewer heads or smaller dims"
        )


# ---- the parts --------------------------------------------------------------------------------------------------


def _glimpse(encoding: PositionEncoding, data: Data) -> AttentionModifiers:
    """The modifiers for so few positions that it costs nothing: which forms there are, and how wide they are."""
    return _effect(encoding, data, min(data["length"], 2))


def _effect(encoding: PositionEncoding, data: Data, length: int) -> AttentionModifiers:
    """The modifiers; for encodings that read content, with the terms that an input drawn with the seed gives."""
    span = Span.of(length)
    modifiers = encoding.modifiers(span)
    if encoding.reads_content():
        drawn = torch.Generator().manual_seed(data["seed"])
        x = torch.randn(1, length, data["d_model"], generator=drawn, dtype=torch.float64)
        modifiers = with_content(modifiers, encoding, encoding.features(x), span, Mask(length, length))
    modifiers = replace(modifiers, encoding=type(encoding).__name__)
    require_fit(modifiers, Mask(length, length), torch.empty(1, data["num_heads"], length, data["head_dim"]))
    return modifiers


def _forms(encoding: PositionEncoding, data: Data) -> Data:
    modifiers = _glimpse(encoding, data)
    alone = (modifiers.rotation, *modifiers.terms, *modifiers.values, modifiers.rewrite, modifiers.gain)
    names = list(dict.fromkeys(type(form).__name__ for form in alone if form is not None))
    return {
        "forms": names,
        "backends": {name: unsupported_reason(name, modifiers, Span.of(min(data["length"], 2))) for name in BACKENDS},
    }


def _rotation(encoding: PositionEncoding, data: Data) -> Data:
    if not isinstance(encoding, RotaryEncoding):
        return {}

    def at(length: int) -> tuple[list[Any], Any]:
        gain = encoding.gain(torch.tensor(length))
        if isinstance(gain, Tensor):
            gain = _listed(gain.flatten()) if gain.numel() > 1 else float(gain)
        return _listed(encoding.frequencies(torch.tensor(length)).flatten()), 1.0 if gain is None else gain

    found: Data = {"layout": encoding.layout}
    found["frequencies"], found["gain"] = at(data["length"])
    if (
        isinstance(getattr(_glimpse(encoding, data).rotation, "gain_q", None), Tensor)
        and encoding.gain(torch.tensor(1)) is None
    ):
        afford(data, 2 * data["length"] * len(found["frequencies"]))
        rotation = encoding.modifiers(Span.of(data["length"])).rotation
        assert rotation is not None
        found["gain"] = {"query": _listed(rotation.gain_q[0]), "key": _listed(rotation.gain_k[0])}  # type: ignore[index]
    if encoding.depends_on_length():
        found["effective_length"] = int(encoding.effective_length(torch.tensor(data["length"])))
        found["frequencies_trained"], found["gain_trained"] = at(data["train_length"])
    return found


def _distances(encoding: PositionEncoding, data: Data) -> Data:
    """What depends on the distance alone: a table over distances."""
    n = data["length"]
    found: Data = {}
    if (slopes := _slopes(encoding)) is not None:
        found["slopes"] = slopes
    few = _glimpse(encoding, data)
    tables = _tables(few)
    if not tables or not all(isinstance(t, ToeplitzBias) for t in _biases(few)):
        return found
    afford(data, max(_heads(table) for table in tables) * n)
    asked = {"": torch.arange(n)} | ({"_ahead": -torch.arange(1, n)} if all(t.first < 0 for t in tables) else {})
    bucket: Callable[[Tensor], Tensor] | None = getattr(encoding, "bucket", None)
    for suffix, distances in asked.items():
        found[f"bias{suffix}"] = _listed(_by_distance(encoding, data, distances))
        if bucket is not None:
            found[f"buckets{suffix}"] = _listed(bucket(distances))
    return found


def _slopes(encoding: PositionEncoding) -> list[float] | None:
    """The `slopes` m_h of an encoding whose bias is -m_h times the distance; None where it has none, or they mean something
    else."""
    slopes = getattr(encoding, "slopes", None)
    if not isinstance(encoding, DistanceBias) or not isinstance(slopes, tuple | list | Tensor):
        return None
    try:
        each = torch.as_tensor(slopes, dtype=torch.float64).detach()
    except (TypeError, ValueError):
        return None
    distance = torch.arange(4)
    table = encoding.checked_bias(distance).double()
    if each.shape != table.shape[:1] or not torch.allclose(table, -each[:, None] * distance, rtol=1e-6, atol=0):
        return None
    return each.tolist()


def _tables(modifiers: AttentionModifiers) -> list[ToeplitzBias | RelativeKeyBias]:
    """The terms that are a number for each distance: tables, and what a vector that joins the query makes of one."""
    kinds = (ToeplitzBias, RelativeKeyBias)
    return [
        t for t in modifiers.terms if isinstance(t, kinds) and not (isinstance(t, RelativeKeyBias) and t.vector is None)
    ]


def _by_distance(encoding: PositionEncoding, data: Data, distances: Tensor) -> Tensor:
    if isinstance(encoding, DistanceBias):
        return encoding.checked_bias(distances)
    total = torch.zeros(1, len(distances), dtype=torch.float64)
    for form in _tables(encoding.modifiers(Span.of(data["length"]))):
        table = form.table
        if isinstance(form, RelativeKeyBias):
            assert form.vector is not None
            table = torch.einsum("hd,hnd->hn", form.vector.to(table.dtype), table.expand(len(form.vector), -1, -1))
            table = table * data["head_dim"] ** -0.5
        total = total + table[:, (distances - form.first).clamp(0, table.shape[1] - 1)]
    return total


def _pairs(encoding: PositionEncoding, data: Data) -> Data:
    """What needs query and key: a number for every pair that is seen."""
    found: Data = {}
    few = _biases(_glimpse(encoding, data))
    n, heads = data["length"], max((_heads(t) for t in few), default=0)
    coordinate = getattr(encoding, "coordinate", None)
    pairs = any(not isinstance(t, ToeplitzBias) for t in few)
    afford(data, n * n * (heads * pairs + (coordinate is not None)) + n * data["d_model"] * data["reads_content"])
    if coordinate is not None:
        i = torch.arange(n)[:, None]
        found["coordinate"] = _causal(coordinate(i, torch.minimum(i, torch.arange(n))))
    if pairs:
        span = Span.of(n)
        nothing = torch.zeros(1, heads, n, 1, dtype=torch.float64)
        total = sum(reference.dense(t, nothing, nothing, span, 1.0)[0] for t in _biases(_effect(encoding, data, n)))
        assert isinstance(total, Tensor)
        found["bias"] = _causal(total)
        if encoding.reads_content():
            found["bias_given"] = "an input drawn from N(0, 1)"
    return found


def _biases(modifiers: AttentionModifiers) -> list[Term]:
    """The terms that say something without knowing q and k."""
    return [term for term in modifiers.terms if not isinstance(term, (RelativeKeyBias, KeyBias))]


def _heads(term: Term) -> int:
    for name, axis in (("content", 1), ("table", 0), ("slope", 0), ("vector", 0), ("bias", 1), ("total", 1)):
        if hasattr(term, name):
            return int(getattr(term, name).shape[axis])
    raise AssertionError(f"a term that is not in the vocabulary: {term}")


def _vectors(encoding: PositionEncoding, data: Data) -> Data:
    def asked(modifiers: AttentionModifiers) -> tuple[list[RelativeKeyBias], list[KeyBias]]:
        terms = modifiers.terms
        return [t for t in terms if isinstance(t, RelativeKeyBias)], [t for t in terms if isinstance(t, KeyBias)]

    few = _glimpse(encoding, data)
    n, (queries, keys) = data["length"], asked(few)
    if few.gain is None and not queries and not keys and not few.values:
        return {}
    # Shaw's tables have fixed sizes, Transformer-XL's grow with the length, to both sides at most.
    tables: list[RelativeKeyBias | RelativeValues] = [*queries, *few.values]
    afford(data, n * (few.gain.gain.shape[1] if few.gain else 0))
    afford(data, 2 * n * sum(form.table.shape[0] * form.table.shape[2] for form in tables))
    modifiers = _effect(encoding, data, n)
    queries, keys = asked(modifiers)
    found: Data = {}
    if modifiers.gain is not None:
        found["query_gain"] = _listed(modifiers.gain.gain[0])
    if queries:
        found["query_vectors"] = [
            {"first": form.first, "table": _listed(form.table)}
            | ({} if form.vector is None else {"vector": _listed(form.vector)})
            for form in queries
        ]
    if modifiers.values:
        found["value_vectors"] = [{"first": form.first, "table": _listed(form.table)} for form in modifiers.values]
    if keys:
        found["key_vectors"] = _listed(torch.stack([form.vector for form in keys]).sum(0))
    return found


def _rewritten(encoding: PositionEncoding, data: Data) -> Data:
    if _glimpse(encoding, data).rewrite is None:
        return {}
    n, heads, dim = data["length"], data["num_heads"], data["head_dim"]
    afford(data, 2 * heads * n * n)
    modifiers, span = _effect(encoding, data, n), Span.of(n)
    drawn = torch.Generator().manual_seed(data["seed"])
    q, k = torch.randn(2, 1, heads, n, dim, generator=drawn, dtype=torch.float64)
    visible, scale = Mask(n, n).visible(q.device)[:, None], dim**-0.5
    before, after = (
        reference.logits(one, q, k, span, visible, scale)[0] for one in (replace(modifiers, rewrite=None), modifiers)
    )
    return {"logits_before": _causal(before), "logits_after": _causal(after)}


def _embedding(encoding: PositionEncoding, data: Data) -> Data:
    if not encoding.acts_on_embedding():
        return {}
    n, width = data["length"], data["d_model"]
    afford(data, n * width)
    zeros = torch.zeros(1, n, width, dtype=torch.float64)
    return {"embedding": _listed(encoding.embed(zeros, torch.arange(n)[None])[0])}


# ---- plain data -------------------------------------------------------------------------------------------------


def _causal(x: Tensor) -> list[Any]:
    """[..., i, j] as lists, with None for keys after the query."""
    ahead = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return _listed(x.masked_fill(ahead, math.nan))


def _listed(x: Tensor) -> Any:
    """Nested lists of float64 numbers (or whole ones), None where one is not finite."""
    if not x.is_floating_point():
        return x.tolist()
    values = x.double() + 0.0  # -0.0 is 0.0
    return values.tolist() if bool(values.isfinite().all()) else _plain(values.tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _listed(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
