"""`lengthwise inspect`: what an encoding does at positions 0 ... N-1, as a picture of 80 columns or as JSON."""

import inspect as python
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.choices import Choice, annotation, choose, settings_of
from lengthwise.class_versions import is_own
from lengthwise.cli.printing import described, figure, print_json, stdout
from lengthwise.values import ConfigError, parse_value, require_known

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

BARS = "▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
WIDTH = 80
STRIP = 40  # columns of a curve
ROWS = 16  # of heads, pairs, dims; more are picked evenly

Data = dict[str, Any]


def show_inspection(word: str, settings: Sequence[str], sizes: dict[str, int | None], json: bool) -> int:
    from lengthwise import inspection
    from lengthwise.encodings import ENCODINGS

    choice = changed(ENCODINGS.parse(word), settings)
    data = inspection.inspect(choice, **sizes)  # type: ignore[arg-type]
    if json:
        print_json(data, indent=None)
        return 0
    console = stdout()
    console.width = min(console.width, WIDTH)
    for part in pictures(data, summary(choice.make)):
        console.print(part)
    return 0


def summary(make: type) -> str:
    """What an encoding is, in one line: its module's docstring without the name, or how its own begins.

    A file from outside may define several classes, and its docstring says what the file is.
    """
    of_module = (
        (python.getdoc(python.getmodule(make)) or "").partition("\n")[0].partition(": ")[2] if is_own(make) else ""
    )
    own = described(make).partition("\n\n")[0]
    return of_module[:1].upper() + of_module[1:] or " ".join(own.split())


def changed(choice: Choice, settings: Sequence[str]) -> Choice:
    """The choice with `key=value` settings on top of its own; the last of several counts."""
    known = settings_of(choice.make)
    values = dict(choice.settings)
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise ConfigError(f"--set has {setting!r}, which is no setting; write --set name=value")
        require_known(choice.name, [key], known)
        values[key] = parse_value(value.strip(), annotation(choice.make, known[key]), f"{choice.name}.{key}")
    return choose(choice.make, **values) if settings else choice


# ---- the picture ------------------------------------------------------------------------------------------------


def pictures(data: Data, said: str) -> list["RenderableType"]:
    """What is printed: a heading, and one part for each thing that the encoding has."""
    parts: list[RenderableType] = [_heading(data, said)]
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
        ("logits_after", _rewritten),
    ):
        if key in data:
            parts += ["", *draw(data, key)]
    if len(parts) == 1:
        parts += ["", "It does nothing to embeddings and nothing to attention: there is nothing to draw."]
    return parts


def _heading(data: Data, said: str) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    facts = _plain_table(header=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    heads = f"{data['num_heads']} head{'s' if data['num_heads'] > 1 else ''}"
    sizes = f"{heads} of {data['head_dim']}, d_model {data['d_model']}"
    facts.add_row("sizes", f"{sizes}; trained at {data['train_length']:,}, shown at length {data['length']:,}")
    settings = ", ".join(f"{name}={value}" for name, value in data["settings"].items())
    facts.add_row("settings", Text(settings or "none"))
    shapes = ", ".join(f"{n} {'×'.join(map(str, s)) or 'one number'}" for n, s in data["parameters"].items())
    learned = f"{data['learned']:,} numbers ({shapes}), drawn with seed {data['seed']}" if shapes else "nothing"
    facts.add_row("learned", Text(learned))
    if data["forms"]:
        served = ", ".join(name for name, reason in data["backends"].items() if reason is None)
        facts.add_row("forms", f"{', '.join(data['forms'])}; served by {served}")
    return Group(Text(data["label"], style="bold"), Text(said), "", facts)


def _rotation(data: Data, key: str) -> list["RenderableType"]:
    """One row a pair: its speed, its wave, and how far it comes. Waves too fast for the columns are not drawn."""
    n, trained = data["length"], data["train_length"]
    frequencies: list[float] = data["frequencies"]
    wave_at = f"cosine at 0 … {n - 1:,}"
    names = ["pair", "radians", "wavelength", "turns", wave_at]
    before: list[float] = data.get("frequencies_trained", frequencies)
    slowed = before != frequencies
    gains: Data | None = data["gain"] if isinstance(data["gain"], dict) else None
    if slowed:
        names.append(f"× at {trained:,}")
    if gains:
        names.append("gain, far key")
    rows: list[list[str]] = []
    strip = 24
    for pair in _spread(len(frequencies), ROWS):
        f = frequencies[pair]
        wave = [math.cos(position * f) for position in _spread(n, strip)]
        too_fast = abs(f) * max(n - 1, 1) / min(strip, n) > 1
        cells = [
            f"{pair}",
            figure(f),
            figure(2 * math.pi / abs(f) if f else None),
            figure(n * abs(f) / (2 * math.pi), 3),
            "░" * len(wave) if too_fast else _strip(wave, -1.0, 1.0),
        ]
        if slowed:
            cells.append(figure(f / before[pair] if before[pair] else None, 3))
        if gains:
            cells.append(figure(gains["query"][-1][pair] * gains["key"][0][pair], 3))
        rows.append(cells)
    notes = [f"wavelength in tokens; turns: of the pair in {n:,} tokens; ░ turns too fast to draw"]
    if gains is None and isinstance(data["gain"], float) and data["gain"] != 1.0:
        notes.append(
            f"q and k are both stretched by {figure(data['gain'], 6)}, so logits by {figure(data['gain'] ** 2, 6)}"
        )
    if gains:
        notes.append(f"gain, far key: what query {n - 1:,} and key 0 are stretched by together")
    if "effective_length" in data:
        notes.append(
            f"made for length {data['effective_length']:,}" if data["effective_length"] else "the same at every length"
        )
    return [
        _title(f"turn of each pair of dims, at length {n:,}"),
        Fitted(names, rows, left=(wave_at,), drop=(wave_at, "turns", "wavelength", *names[:4:-1])),
        *_notes(notes),
        *_more(len(frequencies), "pairs"),
    ]


def _slopes(data: Data, key: str) -> list["RenderableType"]:
    return _notes([f"slopes, nats per token: {', '.join(figure(s, 6) for s in data['slopes'])}"])


def _buckets(data: Data, key: str) -> list["RenderableType"]:
    """Where each bucket begins."""
    firsts: dict[int, int] = {}
    for distance, bucket in enumerate(data["buckets"]):
        firsts.setdefault(bucket, distance)
    alone = next((b for b in sorted(firsts) if firsts[b] != b), len(firsts))
    later = ", ".join(f"{bucket} from {firsts[bucket]:,}" for bucket in sorted(firsts) if bucket >= alone)
    said = [f"{alone} buckets begin at the distance of their own number"] if alone else []
    return _notes([f"{'; '.join([*said, later] if later else said)}; {len(firsts)} in all"])


def _coordinate(data: Data, key: str) -> list["RenderableType"]:
    """The coordinate of every pair as shades: a row a query, a column a key."""
    n = data["length"]
    title = f"coordinate, 0 (blank) to 1 (█): queries down, keys across, 0 … {n - 1:,}"
    return [_title(title), Shaded(data["coordinate"])]


def _bias(data: Data, key: str) -> list["RenderableType"]:
    """A curve over distances for every head, all on one scale."""
    bias, n = data["bias"], data["length"]
    if not isinstance(bias[0][0], list):
        parts = _curves("bias, nats, at distance", bias, "head")
        if "bias_ahead" in data and n > 1:
            parts += ["", *_curves("bias, nats, for keys after the query, at distance", data["bias_ahead"], "head", -1)]
        return parts
    given = f" (given {data['bias_given']})" if "bias_given" in data else ""
    parts = []
    for query in dict.fromkeys((n - 1, (n - 1) // 4)):
        curves = [head[query][query::-1] for head in bias]
        parts += [
            *([""] if parts else []),
            *_curves(f"bias, nats{given}, of query {query:,} at distance", curves, "head"),
        ]
    return parts


def _embedding(data: Data, key: str) -> list["RenderableType"]:
    dims = list(zip(*data["embedding"], strict=True))
    return _curves("added to the embeddings, at position", dims, "dim")


def _query_gain(data: Data, key: str) -> list["RenderableType"]:
    return _curves("what the logits of a query are multiplied by, at position", data["query_gain"], "head")


def _vectors(data: Data, key: str) -> list["RenderableType"]:
    """The length of each vector, and how far it points the way of distance 0's."""
    where = {"query_vectors": "vectors that q meets", "value_vectors": "vectors added to the values"}[key]
    parts: list[RenderableType] = []
    for form in data[key]:
        first, table = form["first"], form["table"]
        last = first + len(table[0]) - 1
        title = f"{where}, at distances {first} … {last}"
        norms = [[math.hypot(*vector) for vector in head] for head in table]
        parts += [*([""] if parts else []), *_curves(f"length of the {title}", norms, "head", first)]
        at_zero = min(max(-first, 0), len(table[0]) - 1)
        alike = [[_cosine(vector, head[at_zero]) for vector in head] for head in table]
        parts += ["", *_curves("their cosine with that of the nearest distance to 0", alike, "head", first)]
    return parts


def _key_vectors(data: Data, key: str) -> list["RenderableType"]:
    lengths = ", ".join(figure(math.hypot(*vector)) for vector in data[key])
    return _notes([f"one vector that every key meets; its length for each head: {lengths}"])


def _rewritten(data: Data, key: str) -> list["RenderableType"]:
    n = data["length"]
    before, after = ([head[n - 1][::-1] for head in data[name]] for name in ("logits_before", "logits_after"))
    change = [[b - a for a, b in zip(x, y, strict=True)] for x, y in zip(before, after, strict=True)]
    return [
        *_notes([f"q and k drawn from N(0, 1) with seed {data['seed']}; query {n - 1:,}, by distance"]),
        *_curves("logits before", before, "head"),
        "",
        *_curves("what is added to them", change, "head"),
    ]


# ---- curves -----------------------------------------------------------------------------------------------------


def _curves(title: str, curves: Sequence[Sequence[float]], what: str, first: int = 0) -> list["RenderableType"]:
    """A row for each curve: its ends, and a strip of bars on one scale for all."""
    n = len(curves[0])
    step = -1 if first == -1 else 1
    values = [v for curve in curves for v in curve if v is not None]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    names = [what, f"{first:,}", "", f"{first + step * (n - 1):,}"]
    rows: list[list[str]] = []
    too_fast = False
    for row in _spread(len(curves), ROWS):
        curve = curves[row]
        strip = _strip(_columns(curve, high - low), low, high)
        too_fast |= "░" in strip
        name = "all" if what == "head" and len(curves) == 1 else f"{row}"
        rows.append([name, figure(curve[0]), strip, figure(curve[-1])])
    scale = f"▁ is {figure(low)}, █ is {figure(high)}" if high > low else f"all are {figure(low)}"
    scale = scale if values else "none is a finite number"
    scale += "; ░ changes too fast to draw" if too_fast else ""
    return [
        _title(title),
        Fitted(names, rows, left=("",), drop=("",)),
        *_notes([scale]),
        *_more(len(curves), f"{what}s"),
    ]


def _columns(curve: Sequence[float | None], span: float) -> list[float | None]:
    """One value for each column: the mean of what falls into it, NaN where that is half of the whole span apart."""
    n, columns = len(curve), min(len(curve), STRIP)
    cuts = [round(c * n / columns) for c in range(columns + 1)]
    found: list[float | None] = []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        part = [v for v in curve[start:stop] if v is not None]
        apart = max(part) - min(part) > span / 2 if part else False
        found.append(math.nan if apart else sum(part) / len(part) if part else None)
    return found


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


def _spread(n: int, columns: int) -> list[int]:
    """At most `columns` of 0 ... n-1, evenly, both ends among them."""
    if n <= columns:
        return list(range(n))
    return [round(c * (n - 1) / (columns - 1)) for c in range(columns)]


class Fitted:
    """A table that leaves whole columns out, those of `drop` one after the other, where the terminal is too narrow: a number
    is never cut. Columns are on the right side of their place, but for those of `left`."""

    def __init__(self, names: list[str], rows: list[list[str]], left: tuple[str, ...], drop: tuple[str, ...]):
        self.names, self.rows, self.left, self.drop = names, rows, left, drop

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["RenderableType"]:
        out = 0
        free = options.update(max_width=10_000)
        while out < len(self.drop):
            if console.measure(self._without(self.drop[:out]), options=free).maximum <= options.max_width:
                break
            out += 1
        yield self._without(self.drop[:out])
        if out:
            yield from _notes([f"too narrow for {len(self.names)} columns, left out: {out}; --json has all"])

    def _without(self, out: tuple[str, ...]) -> "Table":
        table, shown = _plain_table(), [k for k, name in enumerate(self.names) if name not in out]
        for k in shown:
            table.add_column(self.names[k], justify="left" if self.names[k] in self.left else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(row[k] for k in shown))
        return table


class Shaded:
    """A square of numbers from 0 to 1 as shades, its lower half: as many columns as there is room for, evenly picked."""

    def __init__(self, values: Sequence[Sequence[float]]):
        self.values = values

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["RenderableType"]:
        n = len(self.values)
        table = _plain_table(header=False)
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column(no_wrap=True)
        keys = _spread(n, max(2, min(48, options.max_width - len(f"{n - 1:,}") - 2)))
        for i in _spread(n, 12):
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


def _more(count: int, what: str) -> list["RenderableType"]:
    return _notes([f"{ROWS} of {count} {what}; --json has all"]) if count > ROWS else []
