"""`lengthwise inspect`: what an encoding computes at positions 0 ... N-1, as tables of 80 columns or as JSON."""

import inspect as python
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.options import Integer
from lengthwise.cli.output_file import picture_file
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
from lengthwise.config import Choice, ConfigError
from lengthwise.user_classes import is_builtin_class

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
    picture: str | None = None,
    json: bool = False,
) -> int:
    """Show what an encoding computes, such as its bias, wavelengths or vectors, at any length. Nothing is trained.

    Example: lengthwise inspect alibi; lengthwise inspect fire --set L=64 --length 256 --picture fire.svg;
    lengthwise inspect rope --json

    Args:
        encoding: The encoding, optionally with settings: fire or fire:hidden_layers=1.
        num_heads: Number of attention heads.
        head_dim: Dimensions of each head.
        d_model: Width of the model. [default: num_heads x head_dim]
        train_length: Training length that the encoding is built for.
        length: Number of positions to show. [default: 2x the training length]
        set: A setting of the encoding as name=value. May be repeated.
        seed: Seed of the initial values of learned parameters.
        picture: File for a picture of what distinguishes the encoding: .svg or .png.
        json: Print one JSON object with unrounded numbers.
    """
    from lengthwise import inspection

    file = None if picture is None else picture_file(picture, (".svg", ".png"), "--picture")
    choice = _choice(encoding, set)
    data = inspection.inspect(
        choice,
        num_heads=num_heads,
        head_dim=head_dim,
        d_model=d_model,
        train_length=train_length,
        length=length,
        seed=seed,
    )
    if file is not None:
        _draw(data, file)
    if json:
        print_json(data, indent=None)
        return 0
    console = stdout()
    console.width = min(console.width, WIDTH)
    for renderable in tables(data, summary(choice.cls)):
        console.print(renderable)
    return 0


def _draw(data: Data, file: Path) -> None:
    from lengthwise import cache_folder
    from lengthwise.inspection_picture import as_png, picture

    svg, _ = picture(data)
    if not svg:
        raise ConfigError(f"{data['label']} changes nothing with its initial parameters, so omit --picture")
    cache_folder.write(file, as_png(svg) if file.suffix.lower() == ".png" else svg.encode())


def _choice(text: str, settings: Sequence[str]) -> Choice:
    """Return the encoding of a text such as `rope:base=1e4`, with further settings.

    `fire-s` is FIRE, since sharing changes nothing in one layer.
    """
    from lengthwise.config.layers import with_colon
    from lengthwise.studies import encoding

    text = with_colon(text)
    if "," in text.partition(":")[0]:
        raise ConfigError(f"inspect shows one encoding, got {text!r}; run the command once for each")
    joined = ",".join(settings)
    return encoding(f"{text}{',' if ':' in text else ':'}{joined}" if joined else text)[0]


def summary(make: type) -> str:
    """Return an encoding in one line: that of its module's docstring, or the first paragraph of a class from outside.

    A module with several encodings has a line `Name: summary` for each; otherwise it is the first line.
    """
    if is_builtin_class(make):
        lines = (python.getdoc(python.getmodule(make)) or "").splitlines()
        named = [line for line in lines if line.startswith(f"{make.__name__}: ")] or lines[:1]
        of_module = "".join(named).partition(": ")[2]
        if of_module:
            return of_module[0].upper() + of_module[1:]
    return " ".join(own_docstring(make).partition("\n\n")[0].split())


# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(data: Data, description: str) -> Iterator["RenderableType"]:
    """Yield what is printed: a heading, and a section for each quantity that the encoding has, after an empty line."""
    yield _heading(data, description)
    sections = list(_sections(data))
    for section in sections or [["It changes neither embeddings nor attention, so there are no numbers."]]:
        yield ""
        yield from section


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


def _rotation(data: Data) -> list["RenderableType"]:
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


def _sections(data: Data) -> Iterator[list["RenderableType"]]:
    n = data["length"]
    if "frequencies" in data:
        yield _rotation(data)
    if "angles" in data:
        for pair in dict.fromkeys((0, data["head_dim"] // 2 - 1)):  # the fastest and the slowest one
            title = f"angle of pair {pair}, radians (given {data['angles_given']}), at position"
            yield _table(title, [head[pair] for head in data["angles"]], "head")
    if "slopes" in data:
        yield note_lines([f"slopes, nats per token: {', '.join(figure(s, 6) for s in data['slopes'])}"])
    if "buckets" in data:
        yield note_lines([_buckets(data["buckets"])])
    if "coordinate" in data:
        yield _coordinate(data["coordinate"])
    if "bias" in data:
        yield from _bias(data)
    if "embedding" in data:
        dims = list(zip(*data["embedding"], strict=True))
        yield _table("added to the embeddings, at position", dims, "dim")
    if "query_gain" in data:
        yield _table("factor of a query's logits, at position", data["query_gain"], "head")
    if "sink_logits" in data:
        yield note_lines([f"logits of the sinks, one for each head: {', '.join(map(figure, data['sink_logits']))}"])
    for key, kind in (("query_vectors", "multiplied with q"), ("value_vectors", "added to the values")):
        for form in data.get(key, ()):
            yield from _vectors(form, kind)
    if "key_vectors" in data:
        norms = ", ".join(figure(math.hypot(*vector)) for vector in data["key_vectors"])
        yield note_lines([f"one vector that is multiplied with every key; its norm for each head: {norms}"])
    if "logits_after" in data:
        yield note_lines([f"q and k drawn from N(0, 1) with seed {data['seed']}; query {n - 1:,}, by distance"])
        for when in ("before", "after"):
            yield _table(f"logits {when}", [head[n - 1][::-1] for head in data[f"logits_{when}"]], "head")


def _buckets(buckets: list[int]) -> str:
    """Return the first distance of each bucket in words."""
    firsts: dict[int, int] = {}
    for distance, bucket in enumerate(buckets):
        firsts.setdefault(bucket, distance)
    exact = next((b for b in sorted(firsts) if firsts[b] != b), len(firsts))
    wide = ", ".join(f"{bucket} from {firsts[bucket]:,}" for bucket in sorted(firsts) if bucket >= exact)
    descriptions = [f"buckets 0 … {exact - 1} begin at the distance of the same number"] if exact else []
    descriptions += [f"buckets with their first distances: {wide}"] if wide else []
    return f"{'; '.join(descriptions)}; {len(firsts)} buckets in all"


def _coordinate(values: Sequence[Numbers]) -> list["RenderableType"]:
    """Return the coordinate of some pairs, with queries as rows and keys as columns."""
    shown = _selected(len(values))
    heads = ["query", *(f"{k:,}" for k in shown)]
    rows = [[f"{i:,}", *(figure(values[i][j]) if j <= i else "" for j in shown)] for i in shown]
    return [title_line("coordinate, by query and key"), FittedTable(heads, rows, drop=tuple(heads[-2:1:-1]))]


def _bias(data: Data) -> Iterator[list["RenderableType"]]:
    bias, n = data["bias"], data["length"]
    if not isinstance(bias[0][0], list):
        yield _table("bias, nats, at distance", bias, "head")
        if "bias_ahead" in data and n > 1:
            title = "bias, nats, for keys after the query, at distance"
            yield _table(title, data["bias_ahead"], "head", first=-1, step=-1)
        return
    condition = f" (given {data['bias_given']})" if "bias_given" in data else ""
    for query in dict.fromkeys((n - 1, (n - 1) // 4)):
        title = f"bias, nats{condition}, of query {query:,} at distance"
        yield _table(title, [head[query][query::-1] for head in bias], "head")


def _vectors(form: Data, kind: str) -> Iterator[list["RenderableType"]]:
    """Yield the norm of each vector, and its cosine with the vector of distance 0."""
    from lengthwise.inspection import cosine

    first, table = form["first"], form["table"]
    last = first + len(table[0]) - 1
    norms = [[math.hypot(*vector) for vector in head] for head in table]
    yield _table(f"norm of the vectors {kind}, at distances {first} … {last}", norms, "head", first)
    zero = min(max(-first, 0), len(table[0]) - 1)
    cosines = [[cosine(vector, head[zero]) for vector in head] for head in table]
    yield _table("cosine with the vector of the distance nearest to 0", cosines, "head", first)
