"""The pictures of `lengthwise inspect`: one part for each quantity that an encoding has."""

import math
from typing import TYPE_CHECKING, Any

from lengthwise.cli.inspect.tables import (
    ROWS,
    FittedTable,
    ShadedMatrix,
    cosine,
    draw_curves,
    draw_strip,
    evenly_spaced,
    note_lines,
    omission_note,
    title_line,
)
from lengthwise.cli.printing import column, figure, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

Data = dict[str, Any]


def pictures(data: Data, description: str) -> list["RenderableType"]:
    """Return what is printed: a heading, and one part for each quantity that the encoding has."""
    parts: list[RenderableType] = [_heading(data, description)]
    for key, draw in (
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
            parts += ["", *draw(data, key)]
    if len(parts) == 1:
        parts += ["", "It changes neither embeddings nor attention, so there is nothing to draw."]
    return parts


def _heading(data: Data, description: str) -> "RenderableType":
    from rich.console import Group

    facts = plain_table(column("", style="dim", no_wrap=True), column("", overflow="fold"), show_header=False)
    heads = f"{data['num_heads']} head{'s' if data['num_heads'] > 1 else ''}"
    sizes = f"{heads} of {data['head_dim']}, d_model {data['d_model']}"
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


def _rotation(data: Data, key: str) -> list["RenderableType"]:
    """Return one row per pair of dimensions: its frequency, wavelength and rotations. Waves too fast to draw are shaded."""
    n, trained = data["length"], data["train_length"]
    frequencies: list[float] = data["frequencies"]
    wave_header = f"cosine at 0 … {n - 1:,}"
    names = ["pair", "radians", "wavelength", "rotations", wave_header]
    at_training_length: list[float] = data.get("frequencies_trained", frequencies)
    rescaled = at_training_length != frequencies
    gain = data["gain"]
    gains: Data | None = gain if isinstance(gain, dict) else None
    if rescaled:
        names.append(f"× at {trained:,}")
    if gains:
        names.append("gain, far key")
    rows: list[list[str]] = []
    columns = 24
    for pair in evenly_spaced(len(frequencies), ROWS):
        f = frequencies[pair]
        wave = [math.cos(position * f) for position in evenly_spaced(n, columns)]
        too_fast = abs(f) * max(n - 1, 1) / min(columns, n) > 1
        cells = [
            f"{pair}",
            figure(f),
            figure(2 * math.pi / abs(f) if f else None),
            figure(n * abs(f) / (2 * math.pi), 3),
            "░" * len(wave) if too_fast else draw_strip(wave, -1.0, 1.0),
        ]
        if rescaled:
            cells.append(figure(f / at_training_length[pair] if at_training_length[pair] else None, 3))
        if gains:
            cells.append(figure(gains["query"][-1][pair] * gains["key"][0][pair], 3))
        rows.append(cells)
    notes = [f"radians per token; wavelength in tokens; rotations in {n:,} tokens; ░ too fast to draw"]
    if rescaled:
        notes.append(f"× at {trained:,}: the frequency relative to that at length {trained:,}")
    if isinstance(gain, float) and gain != 1.0:
        notes.append(f"q and k are both multiplied by {figure(gain, 6)}, so logits by {figure(gain**2, 6)}")
    if gains:
        notes.append(f"gain, far key: factor of the logit of query {n - 1:,} and key 0")
    if "effective_length" in data:
        notes.append(
            f"effective length {data['effective_length']:,}" if data["effective_length"] else "the same at every length"
        )
    return [
        title_line(f"rotation of each pair of dimensions, at length {n:,}"),
        FittedTable(names, rows, left=(wave_header,), drop=(wave_header, "rotations", "wavelength", *names[:4:-1])),
        *note_lines(notes),
        *omission_note(len(frequencies), "pairs"),
    ]


def _slopes(data: Data, key: str) -> list["RenderableType"]:
    return note_lines([f"slopes, nats per token: {', '.join(figure(s, 6) for s in data['slopes'])}"])


def _angles(data: Data, key: str) -> list["RenderableType"]:
    """Return curves over positions for the fastest and the slowest pair of every head."""
    last = data["head_dim"] // 2 - 1
    parts: list[RenderableType] = []
    for pair in dict.fromkeys((0, last)):
        title = f"angle of pair {pair}, radians (given {data['angles_given']}), at position"
        parts += [*([""] if parts else []), *draw_curves(title, [head[pair] for head in data["angles"]], "head")]
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
    """Return the coordinate of every pair as shades, with queries as rows and keys as columns."""
    n = data["length"]
    title = f"coordinate, 0 (blank) to 1 (█): queries down, keys across, 0 … {n - 1:,}"
    return [title_line(title), ShadedMatrix(data["coordinate"])]


def _bias(data: Data, key: str) -> list["RenderableType"]:
    """Return a curve over distances for every head, all on the same scale."""
    bias, n = data["bias"], data["length"]
    if not isinstance(bias[0][0], list):
        parts = draw_curves("bias, nats, at distance", bias, "head")
        if "bias_ahead" in data and n > 1:
            title = "bias, nats, for keys after the query, at distance"
            parts += ["", *draw_curves(title, data["bias_ahead"], "head", -1)]
        return parts
    condition = f" (given {data['bias_given']})" if "bias_given" in data else ""
    parts = []
    for query in dict.fromkeys((n - 1, (n - 1) // 4)):
        curves = [head[query][query::-1] for head in bias]
        title = f"bias, nats{condition}, of query {query:,} at distance"
        parts += [*([""] if parts else []), *draw_curves(title, curves, "head")]
    return parts


def _embedding(data: Data, key: str) -> list["RenderableType"]:
    dims = list(zip(*data["embedding"], strict=True))
    return draw_curves("added to the embeddings, at position", dims, "dim")


def _query_gain(data: Data, key: str) -> list["RenderableType"]:
    return draw_curves("factor of a query's logits, at position", data["query_gain"], "head")


def _sink_logits(data: Data, key: str) -> list["RenderableType"]:
    return [f"logits of the sinks, one for each head: {', '.join(map(figure, data[key]))}"]


def _vectors(data: Data, key: str) -> list["RenderableType"]:
    """Return the norm of each vector, and its cosine with the vector of distance 0."""
    kind = {"query_vectors": "vectors multiplied with q", "value_vectors": "vectors added to the values"}[key]
    parts: list[RenderableType] = []
    for form in data[key]:
        first, table = form["first"], form["table"]
        last = first + len(table[0]) - 1
        title = f"{kind}, at distances {first} … {last}"
        norms = [[math.hypot(*vector) for vector in head] for head in table]
        parts += [*([""] if parts else []), *draw_curves(f"norm of the {title}", norms, "head", first)]
        zero = min(max(-first, 0), len(table[0]) - 1)
        cosines = [[cosine(vector, head[zero]) for vector in head] for head in table]
        parts += ["", *draw_curves("cosine with the vector of the distance nearest to 0", cosines, "head", first)]
    return parts


def _key_vectors(data: Data, key: str) -> list["RenderableType"]:
    norms = ", ".join(figure(math.hypot(*vector)) for vector in data[key])
    return note_lines([f"one vector that is multiplied with every key; its norm for each head: {norms}"])


def _transformed_logits(data: Data, key: str) -> list["RenderableType"]:
    n = data["length"]
    before, after = ([head[n - 1][::-1] for head in data[name]] for name in ("logits_before", "logits_after"))
    change = [
        [None if b is None else b - a for a, b in zip(x, y, strict=True)] for x, y in zip(before, after, strict=True)
    ]
    return [
        *note_lines([f"q and k drawn from N(0, 1) with seed {data['seed']}; query {n - 1:,}, by distance"]),
        *draw_curves("logits before", before, "head"),
        "",
        *draw_curves("change of the logits", change, "head"),
    ]
