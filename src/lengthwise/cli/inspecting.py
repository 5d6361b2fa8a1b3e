"""`lengthwise inspect`: what an encoding computes at positions 0 ... N-1, as text of 80 columns or as JSON."""

import inspect as python
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.class_versions import is_builtin_class
from lengthwise.cli.printing import figure, own_docstring, print_json, stdout
from lengthwise.config import Choice, annotation, choose, settings_of
from lengthwise.values import ConfigError, parse_value, require_known

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

BARS = "▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
WIDTH = 80
STRIP = 40  # columns of a curve
ROWS = 16  # maximal heads, pairs or dimensions shown; of more, evenly spaced ones are shown

Data = dict[str, Any]


def show_inspection(encoding: str, settings: Sequence[str], sizes: dict[str, int | None], json: bool) -> int:
    from lengthwise import inspection

    choice = with_settings(_single(encoding), settings)
    data = inspection.inspect(choice, **sizes)  # type: ignore[arg-type]
    if json:
        print_json(data, indent=None)
        return 0
    console = stdout()
    console.width = min(console.width, WIDTH)
    for part in pictures(data, summary(choice.cls)):
        console.print(part)
    return 0


def _single(text: str) -> "Choice":
    """Return the encoding of a text such as `rope:base=1e4`. `fire-s` is FIRE, since sharing changes nothing in one layer."""
    from lengthwise import studies
    from lengthwise.config.choices import UnknownName
    from lengthwise.encodings import ENCODINGS

    if "," in text.partition(":")[0]:
        raise ConfigError(f"inspect shows one encoding, got {text!r}; run the command once for each")
    try:
        return ENCODINGS.parse(text)
    except UnknownName:
        return studies.encoding(text)[0]


def summary(make: type) -> str:
    """Return a one-line description of an encoding: its module's docstring without the name, or its class docstring.

    The class docstring is used for classes from outside, whose file may define several classes.
    """
    from_module = (
        (python.getdoc(python.getmodule(make)) or "").partition("\n")[0].partition(": ")[2]
        if is_builtin_class(make)
        else ""
    )
    from_class = own_docstring(make).partition("\n\n")[0]
    return from_module[:1].upper() + from_module[1:] or " ".join(from_class.split())


def with_settings(choice: Choice, settings: Sequence[str]) -> Choice:
    """Return the choice with further `name=value` settings. If a name is repeated, the last value counts."""
    known = settings_of(choice.cls)
    values = dict(choice.settings)
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise ConfigError(f"--set must be name=value, got {setting!r}; write, for example, --set max_length=256")
        require_known(choice.name, [key], known)
        values[key] = parse_value(value.strip(), annotation(choice.cls, known[key]), f"{choice.name}.{key}")
    return choose(choice.cls, **values) if settings else choice


# ---- the picture ------------------------------------------------------------------------------------------------


def pictures(data: Data, description: str) -> list["RenderableType"]:
    """Return what is printed: a heading, and one part for each quantity that the encoding has."""
    parts: list[RenderableType] = [_heading(data, description)]
    for key, draw in (
        ("frequencies", _rotation),
        ("slopes", _slopes),
        ("buckets", _buckets),
        ("coordinate", _coordinate),
        ("bias", _bias),
        ("embedding", _embedding),
        ("query_gain", _query_gain),
        ("query_vectors", _vectors),
        ("value_vectors", _vectors),
        ("key_vectors", _key_vectors),
        ("logits_after", _transformed_logits),
    ):
        if key in data:
            parts += ["", *draw(data, key)]
    if len(parts) == 1:
        parts += ["", "It changes neither embeddings nor attention, so there is nothing to draw."]
    return parts


def _heading(data: Data, description: str) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    facts = _plain_table(header=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    heads = f"{data['num_heads']} head{'s' if data['num_heads'] > 1 else ''}"
    sizes = f"{heads} of {data['head_dim']}, d_model {data['d_model']}"
    facts.add_row("sizes", f"{sizes}; training length {data['train_length']:,}, shown at length {data['length']:,}")
    settings = ", ".join(f"{name}={value}" for name, value in data["settings"].items())
    facts.add_row("settings", Text(settings or "none"))
    shapes = ", ".join(f"{n} {'×'.join(map(str, s)) or 'scalar'}" for n, s in data["parameters"].items())
    learned = f"{data['learned']:,} numbers ({shapes}), initialized with seed {data['seed']}" if shapes else "none"
    facts.add_row("parameters", Text(learned))
    if data["forms"]:
        backends = ", ".join(name for name, reason in data["backends"].items() if reason is None)
        facts.add_row("forms", f"{', '.join(data['forms'])}; supported by {backends}")
    return Group(Text(data["label"], style="bold"), Text(description), "", facts)


def _rotation(data: Data, key: str) -> list["RenderableType"]:
    """Return one row per pair of dimensions: its frequency, wavelength and rotations. Waves too fast to draw are shaded."""
    n, trained = data["length"], data["train_length"]
    frequencies: list[float] = data["frequencies"]
    wave_header = f"cosine at 0 … {n - 1:,}"
    names = ["pair", "radians", "wavelength", "rotations", wave_header]
    at_training_length: list[float] = data.get("frequencies_trained", frequencies)
    rescaled = at_training_length != frequencies
    gains: Data | None = data["gain"] if isinstance(data["gain"], dict) else None
    if rescaled:
        names.append(f"× at {trained:,}")
    if gains:
        names.append("gain, far key")
    rows: list[list[str]] = []
    columns = 24
    for pair in _evenly_spaced(len(frequencies), ROWS):
        f = frequencies[pair]
        wave = [math.cos(position * f) for position in _evenly_spaced(n, columns)]
        too_fast = abs(f) * max(n - 1, 1) / min(columns, n) > 1
        cells = [
            f"{pair}",
            figure(f),
            figure(2 * math.pi / abs(f) if f else None),
            figure(n * abs(f) / (2 * math.pi), 3),
            "░" * len(wave) if too_fast else _strip(wave, -1.0, 1.0),
        ]
        if rescaled:
            cells.append(figure(f / at_training_length[pair] if at_training_length[pair] else None, 3))
        if gains:
            cells.append(figure(gains["query"][-1][pair] * gains["key"][0][pair], 3))
        rows.append(cells)
    notes = [f"radians per token; wavelength in tokens; rotations in {n:,} tokens; ░ too fast to draw"]
    if rescaled:
        notes.append(f"× at {trained:,}: the frequency relative to that at length {trained:,}")
    if gains is None and isinstance(data["gain"], float) and data["gain"] != 1.0:
        notes.append(
            f"q and k are both multiplied by {figure(data['gain'], 6)}, so logits by {figure(data['gain'] ** 2, 6)}"
        )
    if gains:
        notes.append(f"gain, far key: factor of the logit of query {n - 1:,} and key 0")
    if "effective_length" in data:
        notes.append(
            f"effective length {data['effective_length']:,}" if data["effective_length"] else "the same at every length"
        )
    return [
        _title(f"rotation of each pair of dimensions, at length {n:,}"),
        FittedTable(names, rows, left=(wave_header,), drop=(wave_header, "rotations", "wavelength", *names[:4:-1])),
        *_notes(notes),
        *_more(len(frequencies), "pairs"),
    ]


def _slopes(data: Data, key: str) -> list["RenderableType"]:
    return _notes([f"slopes, nats per token: {', '.join(figure(s, 6) for s in data['slopes'])}"])


def _buckets(data: Data, key: str) -> list["RenderableType"]:
    """Return a note on the first distance of each bucket."""
    firsts: dict[int, int] = {}
    for distance, bucket in enumerate(data["buckets"]):
        firsts.setdefault(bucket, distance)
    exact = next((b for b in sorted(firsts) if firsts[b] != b), len(firsts))
    wide = ", ".join(f"{bucket} from {firsts[bucket]:,}" for bucket in sorted(firsts) if bucket >= exact)
    parts = [f"buckets 0 … {exact - 1} begin at the distance of the same number"] if exact else []
    parts += [f"buckets with their first distances: {wide}"] if wide else []
    return _notes([f"{'; '.join(parts)}; {len(firsts)} buckets in all"])


def _coordinate(data: Data, key: str) -> list["RenderableType"]:
    """Return the coordinate of every pair as shades, with queries as rows and keys as columns."""
    n = data["length"]
    title = f"coordinate, 0 (blank) to 1 (█): queries down, keys across, 0 … {n - 1:,}"
    return [_title(title), ShadedMatrix(data["coordinate"])]


def _bias(data: Data, key: str) -> list["RenderableType"]:
    """Return a curve over distances for every head, all on the same scale."""
    bias, n = data["bias"], data["length"]
    if not isinstance(bias[0][0], list):
        parts = _curves("bias, nats, at distance", bias, "head")
        if "bias_ahead" in data and n > 1:
            parts += ["", *_curves("bias, nats, for keys after the query, at distance", data["bias_ahead"], "head", -1)]
        return parts
    condition = f" (given {data['bias_given']})" if "bias_given" in data else ""
    parts = []
    for query in dict.fromkeys((n - 1, (n - 1) // 4)):
        curves = [head[query][query::-1] for head in bias]
        parts += [
            *([""] if parts else []),
            *_curves(f"bias, nats{condition}, of query {query:,} at distance", curves, "head"),
        ]
    return parts


def _embedding(data: Data, key: str) -> list["RenderableType"]:
    dims = list(zip(*data["embedding"], strict=True))
    return _curves("added to the embeddings, at position", dims, "dim")


def _query_gain(data: Data, key: str) -> list["RenderableType"]:
    return _curves("factor of a query's logits, at position", data["query_gain"], "head")


def _vectors(data: Data, key: str) -> list["RenderableType"]:
    """Return the norm of each vector, and its cosine with the vector of distance 0."""
    kind = {"query_vectors": "vectors multiplied with q", "value_vectors": "vectors added to the values"}[key]
    parts: list[RenderableType] = []
    for form in data[key]:
        first, table = form["first"], form["table"]
        last = first + len(table[0]) - 1
        title = f"{kind}, at distances {first} … {last}"
        norms = [[math.hypot(*vector) for vector in head] for head in table]
        parts += [*([""] if parts else []), *_curves(f"norm of the {title}", norms, "head", first)]
        zero = min(max(-first, 0), len(table[0]) - 1)
        cosines = [[_cosine(vector, head[zero]) for vector in head] for head in table]
        parts += ["", *_curves("cosine with the vector of the distance nearest to 0", cosines, "head", first)]
    return parts


def _key_vectors(data: Data, key: str) -> list["RenderableType"]:
    norms = ", ".join(figure(math.hypot(*vector)) for vector in data[key])
    return _notes([f"one vector that is multiplied with every key; its norm for each head: {norms}"])


def _transformed_logits(data: Data, key: str) -> list["RenderableType"]:
    n = data["length"]
    before, after = ([head[n - 1][::-1] for head in data[name]] for name in ("logits_before", "logits_after"))
    change = [[b - a for a, b in zip(x, y, strict=True)] for x, y in zip(before, after, strict=True)]
    return [
        *_notes([f"q and k drawn from N(0, 1) with seed {data['seed']}; query {n - 1:,}, by distance"]),
        *_curves("logits before", before, "head"),
        "",
        *_curves("change of the logits", change, "head"),
    ]


# ---- curves -----------------------------------------------------------------------------------------------------


def _curves(title: str, curves: Sequence[Sequence[float]], row_name: str, first: int = 0) -> list["RenderableType"]:
    """Return a row for each curve: its first and last value, and a strip of bars with the same scale for all."""
    n = len(curves[0])
    step = -1 if first == -1 else 1
    values = [v for curve in curves for v in curve if v is not None]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    names = [row_name, f"{first:,}", "", f"{first + step * (n - 1):,}"]
    rows: list[list[str]] = []
    too_fast = False
    for row in _evenly_spaced(len(curves), ROWS):
        curve = curves[row]
        strip = _strip(_columns(curve, high - low), low, high)
        too_fast |= "░" in strip
        name = "all" if row_name == "head" and len(curves) == 1 else f"{row}"
        rows.append([name, figure(curve[0]), strip, figure(curve[-1])])
    scale = f"▁ is {figure(low)}, █ is {figure(high)}" if high > low else f"all values are {figure(low)}"
    scale = scale if values else "no value is finite"
    scale += "; ░ changes too fast to draw" if too_fast else ""
    return [
        _title(title),
        FittedTable(names, rows, left=("",), drop=("",)),
        *_notes([scale]),
        *_more(len(curves), f"{row_name}s"),
    ]


def _columns(curve: Sequence[float | None], span: float) -> list[float | None]:
    """Return the mean of the values in each column, or NaN if they differ by more than half of the span."""
    n, columns = len(curve), min(len(curve), STRIP)
    cuts = [round(c * n / columns) for c in range(columns + 1)]
    means: list[float | None] = []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        part = [v for v in curve[start:stop] if v is not None]
        too_fast = max(part) - min(part) > span / 2 if part else False
        means.append(math.nan if too_fast else sum(part) / len(part) if part else None)
    return means


def _strip(values: Sequence[float | None], low: float, high: float) -> str:
    return "".join(_bar(v, low, high - low) for v in values)


def _bar(value: float | None, low: float, span: float) -> str:
    if value is None:
        return "·"
    if math.isnan(value):
        return "░"
    return BARS[min(max(round((value - low) / span * (len(BARS) - 1)), 0), len(BARS) - 1)] if span > 0 else BARS[0]


def _shade(value: float | None) -> str:
    return "?" if value is None else SHADES[min(max(math.ceil(value * (len(SHADES) - 1) - 1e-9), 0), len(SHADES) - 1)]


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    lengths = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def _evenly_spaced(n: int, count: int) -> list[int]:
    """Return at most `count` evenly spaced integers of 0 ... n-1, including both ends."""
    if n <= count:
        return list(range(n))
    return [round(c * (n - 1) / (count - 1)) for c in range(count)]


class FittedTable:
    """A table that omits whole columns, in the order of `drop`, if the terminal is too narrow; numbers are never cut.

    Columns are right-aligned, except those in `left`.
    """

    def __init__(self, names: list[str], rows: list[list[str]], left: tuple[str, ...], drop: tuple[str, ...]):
        self.names, self.rows, self.left, self.drop = names, rows, left, drop

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["RenderableType"]:
        dropped = 0
        unlimited = options.update(max_width=10_000)
        while dropped < len(self.drop):
            if console.measure(self._without(self.drop[:dropped]), options=unlimited).maximum <= options.max_width:
                break
            dropped += 1
        yield self._without(self.drop[:dropped])
        if dropped:
            yield from _notes(
                [f"the terminal is too narrow for {len(self.names)} columns, {dropped} omitted; --json has all"]
            )

    def _without(self, dropped: tuple[str, ...]) -> "Table":
        table, columns = _plain_table(), [k for k, name in enumerate(self.names) if name not in dropped]
        for k in columns:
            table.add_column(self.names[k], justify="left" if self.names[k] in self.left else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(row[k] for k in columns))
        return table


class ShadedMatrix:
    """The lower triangle of a square matrix with values from 0 to 1, as shades. Evenly spaced columns fill the terminal's width."""

    def __init__(self, values: Sequence[Sequence[float]]):
        self.values = values

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["RenderableType"]:
        n = len(self.values)
        table = _plain_table(header=False)
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column(no_wrap=True)
        keys = _evenly_spaced(n, max(2, min(48, options.max_width - len(f"{n - 1:,}") - 2)))
        for i in _evenly_spaced(n, 12):
            table.add_row(f"{i:,}", "".join(_shade(self.values[i][j]) if j <= i else " " for j in keys))
        yield table


def _title(text: str) -> "RenderableType":
    from rich.text import Text

    return Text(text, style="bold")


def _plain_table(header: bool = True) -> "Table":
    from rich.table import Table

    return Table(
        header_style="dim",
        show_header=header,
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )


def _notes(lines: Sequence[str]) -> list["RenderableType"]:
    from rich.text import Text

    return [Text(line, style="dim") for line in lines]


def _more(count: int, name: str) -> list["RenderableType"]:
    return _notes([f"{ROWS} of {count} {name}; --json has all"]) if count > ROWS else []
