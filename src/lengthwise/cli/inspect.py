"""`lengthwise inspect`: what an encoding computes at positions 0 ... N-1, as tables of 80 columns or as JSON."""

import inspect as python
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.options import Integer
from lengthwise.cli.printing import (
    FittedTable,
    column,
    counted,
    figure,
    note_lines,
    own_docstring,
    plain_table,
    print_json,
    stdout,
    title_line,
)
from lengthwise.config import Choice, annotation, choose, settings_of
from lengthwise.user_classes import is_builtin_class
from lengthwise.validation import parse_value
from lengthwise.values import ConfigError, require_known

if TYPE_CHECKING:
    from rich.console import RenderableType

Data = dict[str, Any]
Numbers = Sequence[float | None]

WIDTH = 80
ROWS = 16  # heads, pairs or dimensions in a table, at most; of more, evenly spaced ones are shown


def command(
    encoding: str,
    /,
    *,
    num_heads: Integer = 8,
    head_dim: Integer = 64,
    d_model: Integer | None = None,
    train_length: Integer = 128,
    length: Integer | None = None,
    set: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    seed: Integer = 0,
    json: bool = False,
) -> int:
    """Show what an encoding computes, such as its bias, wavelengths or vectors, at any length. Nothing is trained.

    Example: lengthwise inspect alibi; lengthwise inspect fire --set L=64 --length 256; lengthwise inspect rope --json

    Args:
        encoding: The encoding, optionally with settings: fire or fire:hidden_layers=1.
        num_heads: Number of attention heads.
        head_dim: Dimensions of each head.
        d_model: Width of the model. [default: num_heads x head_dim]
        train_length: Training length that the encoding is built for.
        length: Number of positions to show. [default: 2x the training length]
        set: A setting of the encoding as name=value. May be repeated.
        seed: Seed of the initial values of learned parameters.
        json: Print one JSON object with unrounded numbers.
    """
    from lengthwise import inspection

    choice = with_settings(_single(encoding), set)
    data = inspection.inspect(
        choice,
        num_heads=num_heads,
        head_dim=head_dim,
        d_model=d_model,
        train_length=train_length,
        length=length,
        seed=seed,
    )
    if json:
        print_json(data, indent=None)
        return 0
    console = stdout()
    console.width = min(console.width, WIDTH)
    for part in tables(data, summary(choice.cls)):
        console.print(part)
    return 0


def _single(text: str) -> "Choice":
    """Return the encoding of a text such as `rope:base=1e4`. `fire-s` is FIRE, since sharing changes nothing in one
    layer."""
    from lengthwise import studies
    from lengthwise.config.choices import UnknownName
    from lengthwise.config.layers import with_colon
    from lengthwise.encodings import ENCODINGS

    if "," in with_colon(text).partition(":")[0]:
        raise ConfigError(f"inspect shows one encoding, got {text!r}; run the command once for each")
    try:
        return ENCODINGS.parse(text)
    except UnknownName:
        return studies.encoding(text)[0]


def summary(make: type) -> str:
    """Return an encoding in one line: its module's docstring without the name, or that of a class from outside."""
    if is_builtin_class(make):
        of_module = (python.getdoc(python.getmodule(make)) or "").partition("\n")[0].partition(": ")[2]
        if of_module:
            return of_module[0].upper() + of_module[1:]
    return " ".join(own_docstring(make).partition("\n\n")[0].split())


def with_settings(choice: Choice, settings: Sequence[str]) -> Choice:
    """Return the choice with further `name=value` settings, each of which must occur once."""
    known = settings_of(choice.cls)
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise ConfigError(f"--set must be name=value, got {setting!r}; write, for example, --set max_length=256")
        require_known(choice.name, [key], known)
        if key in values:
            raise ConfigError(f"--set sets {key} twice; omit one of them")
        values[key] = parse_value(value.strip(), annotation(choice.cls, known[key]), f"{choice.name}.{key}")
    return choose(choice.cls, **{**dict(choice.settings), **choice.layer_settings, **values}) if settings else choice


# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(data: Data, description: str) -> list["RenderableType"]:
    """Return what is printed: a heading, and one part for each quantity that the encoding has."""
    parts: list[RenderableType] = [_heading(data, description)]
    for key, part in (
        ("frequencies", _rotation),
        ("angles", _angles),
        ("slopes", _slopes),
        ("buckets", _buckets),
        ("coordinate", _coordinate),
        ("bias", _bias),
        ("embedding", _embedding),
        ("query_gain", _query_gain),
        ("sink_logits", _sink_logits),
        ("query_vectors", _vectors),
        ("value_vectors", _vectors),
        ("key_vectors", _key_vectors),
        ("logits_after", _transformed_logits),
    ):
        if key in data:
            parts += ["", *part(data, key)]
    if len(parts) == 1:
        parts += ["", "It changes neither embeddings nor attention, so there are no numbers."]
    return parts


def _heading(data: Data, description: str) -> "RenderableType":
    from rich.console import Group

    facts = plain_table(column("", style="dim", no_wrap=True), column("", overflow="fold"), show_header=False)
    sizes = f"{counted(data['num_heads'], 'head')} of {data['head_dim']}, d_model {data['d_model']}"
    facts.add_row("sizes", f"{sizes}; training length {data['train_length']:,}, shown at length {data['length']:,}")
    settings = ", ".join(f"{name}={value}" for name, value in data["settings"].items())
    facts.add_row("settings", settings or "none")
    shapes = ", ".join(f"{n} {'×'.join(map(str, s)) or 'scalar'}" for n, s in data["parameters"].items())
    learned = f"{data['learned']:,} numbers ({shapes}), initialized with seed {data['seed']}" if shapes else "none"
    facts.add_row("parameters", learned)
    if data["forms"]:
        backends = ", ".join(name for name, reason in data["backends"].items() if reason is None)
        facts.add_row("forms", f"{', '.join(data['forms'])}; supported by {backends}")
    return Group(title_line(data["label"]), description, "", facts)


def _table(title: str, rows: Sequence[Numbers], row_name: str, first: int = 0, step: int = 1) -> list["RenderableType"]:
    """Return a table with a row for each head or dimension, and a column for some of the positions or distances.

    `first`, `step`: the position of the first number, and from one number to the next.
    """
    shown = _selected(len(rows[0]))
    heads = [row_name, *(f"{first + step * k:,}" for k in shown)]
    alone = row_name == "head" and len(rows) == 1
    numbers = _evenly_spaced(len(rows))
    cells = [["all" if alone else f"{n}", *(figure(rows[n][k]) for k in shown)] for n in numbers]
    more = [f"{len(numbers)} of {len(rows)} {row_name}s; --json has all"] if len(numbers) < len(rows) else []
    # The first and the last number say most, so they are omitted last.
    return [title_line(title), FittedTable(heads, cells, drop=tuple(heads[-2:1:-1])), *note_lines(more)]


def _selected(n: int) -> list[int]:
    """Return 0, 1, 2, 4, 8 ... n-1, or 0, 1, 4, 16 ... n-1 for many numbers."""
    factor = 2 if n <= 32 else 4
    powers = [factor**k for k in range(20) if factor**k < n - 1]
    return sorted({0, *powers, n - 1})


def _evenly_spaced(n: int) -> list[int]:
    """Return at most `ROWS` evenly spaced integers of 0 ... n-1, including both ends."""
    return list(range(n)) if n <= ROWS else [round(c * (n - 1) / (ROWS - 1)) for c in range(ROWS)]


def _rotation(data: Data, key: str) -> list["RenderableType"]:
    """Return one row per pair of dimensions: its frequency, wavelength and rotations."""
    n, trained = data["length"], data["train_length"]
    frequencies: list[float] = data["frequencies"]
    names = ["pair", "radians", "wavelength", "rotations"]
    at_training_length: list[float] = data.get("frequencies_trained", frequencies)
    rescaled = at_training_length != frequencies
    gain = data["gain"]
    gains: Data | None = gain if isinstance(gain, dict) else None
    if rescaled:
        names.append(f"× at {trained:,}")
    if gains:
        names.append("gain, far key")
    rows: list[list[str]] = []
    for pair in _evenly_spaced(len(frequencies)):
        f, before = frequencies[pair], at_training_length[pair]
        wavelength = 2 * math.pi / abs(f) if f else None
        cells = [f"{pair}", figure(f), figure(wavelength), figure(n * abs(f) / (2 * math.pi), 3)]
        if rescaled:
            cells.append(figure(f / before if before else None, 3))
        if gains:
            cells.append(figure(gains["query"][-1][pair] * gains["key"][0][pair], 3))
        rows.append(cells)
    notes = [f"radians per token; wavelength in tokens; rotations in {n:,} tokens"]
    if rescaled:
        notes.append(f"× at {trained:,}: the frequency relative to that at length {trained:,}")
    if isinstance(gain, float) and gain != 1.0:
        notes.append(f"q and k are both multiplied by {figure(gain, 6)}, so logits by {figure(gain**2, 6)}")
    if gains:
        notes.append(f"gain, far key: factor of the logit of query {n - 1:,} and key 0")
    if "effective_length" in data:
        effective = data["effective_length"]
        notes.append(f"effective length {effective:,}" if effective else "the same at every length")
    if len(rows) < len(frequencies):
        notes.append(f"{len(rows)} of {len(frequencies)} pairs; --json has all")
    title = f"rotation of each pair of dimensions, at length {n:,}"
    table = FittedTable(names, rows, drop=("rotations", "wavelength", *names[:3:-1]))
    return [title_line(title), table, *note_lines(notes)]


def _slopes(data: Data, key: str) -> list["RenderableType"]:
    return note_lines([f"slopes, nats per token: {', '.join(figure(s, 6) for s in data['slopes'])}"])


def _angles(data: Data, key: str) -> list["RenderableType"]:
    """Return the angles of the fastest and the slowest pair of every head."""
    parts: list[RenderableType] = []
    for pair in dict.fromkeys((0, data["head_dim"] // 2 - 1)):
        title = f"angle of pair {pair}, radians (given {data['angles_given']}), at position"
        parts += [*([""] if parts else []), *_table(title, [head[pair] for head in data["angles"]], "head")]
    return parts


def _buckets(data: Data, key: str) -> list["RenderableType"]:
    """Return a note on the first distance of each bucket."""
    firsts: dict[int, int] = {}
    for distance, bucket in enumerate(data["buckets"]):
        firsts.setdefault(bucket, distance)
    exact = next((b for b in sorted(firsts) if firsts[b] != b), len(firsts))
    wide = ", ".join(f"{bucket} from {firsts[bucket]:,}" for bucket in sorted(firsts) if bucket >= exact)
    parts = [f"buckets 0 … {exact - 1} begin at the distance of the same number"] if exact else []
    parts += [f"buckets with their first distances: {wide}"] if wide else []
    return note_lines([f"{'; '.join(parts)}; {len(firsts)} buckets in all"])


def _coordinate(data: Data, key: str) -> list["RenderableType"]:
    """Return the coordinate of some pairs, with queries as rows and keys as columns."""
    shown, values = _selected(data["length"]), data["coordinate"]
    heads = ["query", *(f"{k:,}" for k in shown)]
    rows = [[f"{i:,}", *(figure(values[i][j]) if j <= i else "" for j in shown)] for i in shown]
    return [title_line("coordinate, by query and key"), FittedTable(heads, rows, drop=tuple(heads[-2:1:-1]))]


def _bias(data: Data, key: str) -> list["RenderableType"]:
    bias, n = data["bias"], data["length"]
    if not isinstance(bias[0][0], list):
        parts = _table("bias, nats, at distance", bias, "head")
        if "bias_ahead" in data and n > 1:
            title = "bias, nats, for keys after the query, at distance"
            parts += ["", *_table(title, data["bias_ahead"], "head", first=-1, step=-1)]
        return parts
    condition = f" (given {data['bias_given']})" if "bias_given" in data else ""
    parts = []
    for query in dict.fromkeys((n - 1, (n - 1) // 4)):
        title = f"bias, nats{condition}, of query {query:,} at distance"
        parts += [*([""] if parts else []), *_table(title, [head[query][query::-1] for head in bias], "head")]
    return parts


def _embedding(data: Data, key: str) -> list["RenderableType"]:
    dims = list(zip(*data["embedding"], strict=True))
    return _table("added to the embeddings, at position", dims, "dim")


def _query_gain(data: Data, key: str) -> list["RenderableType"]:
    return _table("factor of a query's logits, at position", data["query_gain"], "head")


def _sink_logits(data: Data, key: str) -> list["RenderableType"]:
    return [f"logits of the sinks, one for each head: {', '.join(map(figure, data[key]))}"]


def _vectors(data: Data, key: str) -> list["RenderableType"]:
    """Return the norm of each vector, and its cosine with the vector of distance 0."""
    kind = {"query_vectors": "vectors multiplied with q", "value_vectors": "vectors added to the values"}[key]
    parts: list[RenderableType] = []
    for form in data[key]:
        first, table = form["first"], form["table"]
        title = f"{kind}, at distances {first} … {first + len(table[0]) - 1}"
        norms = [[math.hypot(*vector) for vector in head] for head in table]
        parts += [*([""] if parts else []), *_table(f"norm of the {title}", norms, "head", first)]
        zero = min(max(-first, 0), len(table[0]) - 1)
        cosines = [[_cosine(vector, head[zero]) for vector in head] for head in table]
        parts += ["", *_table("cosine with the vector of the distance nearest to 0", cosines, "head", first)]
    return parts


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    lengths = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def _key_vectors(data: Data, key: str) -> list["RenderableType"]:
    norms = ", ".join(figure(math.hypot(*vector)) for vector in data[key])
    return note_lines([f"one vector that is multiplied with every key; its norm for each head: {norms}"])


def _transformed_logits(data: Data, key: str) -> list["RenderableType"]:
    n = data["length"]
    before, after = ([head[n - 1][::-1] for head in data[name]] for name in ("logits_before", "logits_after"))
    return [
        *note_lines([f"q and k drawn from N(0, 1) with seed {data['seed']}; query {n - 1:,}, by distance"]),
        *_table("logits before", before, "head"),
        "",
        *_table("logits after", after, "head"),
    ]
