"""Pictures of a measurement: the time of each encoding relative to NoPE against the length, with intervals. Imports no torch."""

import html
import math
import statistics
from collections.abc import Iterator, Sequence

from lengthwise.analysis.intervals import Interval
from lengthwise.report.charts.lines import Columns, Line, Range, line_chart
from lengthwise.report.charts.pictures import Panel, page, picture
from lengthwise.report.palette import looks
from lengthwise.speed.results import BASELINE, KIND_NAMES, KINDS, Cell, Kind, Results
from lengthwise.speed.summary import Ratio, interval_rank, ratio_of

PADDING = 0.3  # space left and right of the outer lengths, in octaves
MANY_LINES, HEIGHT, ROW = 12, 300, 16  # pixels
REACH = 4.0  # the axis ends at most at this multiple of the median; arrows mark what is above


def file_content(results: Results, suffix: str) -> bytes:
    """Return the content of a picture of the format "svg", "png", "pdf" or "html"."""
    panels = [panel(results, kind) for kind in KINDS]
    if suffix != "html":
        return picture(panels, suffix)
    about = [machine_line(results), explanation(results)]
    return page("Time of position encodings relative to NoPE", about, panels, [_table(results, kind) for kind in KINDS])


def panel(results: Results, kind: Kind) -> Panel:
    """Return the chart of the forward pass or of the training step."""
    lengths, labels = sorted(results.lengths), results.encodings
    look = looks(labels)
    lines = [Line(label, look[label], list(_scores(results, label, lengths, kind)), "") for label in labels]
    columns = Columns(
        at=lengths,
        low=lengths[0] / 2**PADDING,
        high=lengths[-1] * 2**PADDING,
        ticks=[f"{n:,}" for n in lengths],
        heads=[(f"{n:,} tokens", "") for n in lengths],
        log=True,
    )
    name = KIND_NAMES[kind]
    described = (
        f"Line chart of the time of a {name} relative to NoPE, against the length from {lengths[0]:,} to {lengths[-1]:,} tokens, "
        f"with one line for each encoding: {', '.join(labels)}."
    )
    height = max(HEIGHT, ROW * len(labels))
    chart = line_chart(described, lines, columns, [_range(lines)], height=height)
    return Panel(f"Time of a {name} relative to NoPE", "against the tokens per sequence", chart)


def _scores(results: Results, label: str, lengths: Sequence[int], kind: Kind) -> Iterator[Interval | None]:
    for length in lengths:
        cell = results.cell(label, length)
        ratio = None if cell is None else ratio_of(results, cell, kind)
        if ratio is None:
            yield None
        elif ratio.low is None or ratio.high is None:
            yield Interval(ratio.median, ratio.median, ratio.median, math.nan, "none")
        else:
            yield Interval(ratio.median, ratio.low, ratio.high, (ratio.high - ratio.low) / 2, "rounds")


def _range(lines: Sequence[Line]) -> Range:
    means = sorted(mean for line in lines for mean in line.means)
    if not means:
        return Range("all", 0.0, 2.0)
    limit = min(means[-1], REACH * means[len(means) // 2])
    scores = [score for line in lines for score in line.scores if score is not None and score.mean <= limit]
    low = min((score.low for score in scores), default=means[0])
    high = max(limit, min(max(score.high for score in scores), 1.3 * limit))
    space = 0.07 * (high - low) or 0.1
    return Range("all", low - space, high + space)


# ---- texts --------------------------------------------------------------------------------------------------------


def machine_line(results: Results) -> str:
    """Return where the measurement was made: device, clock, versions, commit, date."""
    o, q = results.origin, results.question
    threads = f", {q.threads} thread{'s' if q.threads != 1 else ''}" if q.device.startswith("cpu") else ""
    changed = " with uncommitted changes" if o.uncommitted_changes else ""
    commit = f", commit {o.commit}{changed}" if o.commit else ""
    versions = ", ".join(f"{name} {o.versions[name]}" for name in ("lengthwise", "torch") if name in o.versions)
    return f"{o.device}{threads}, {o.clock}; {versions}{commit}; {o.date}"


def explanation(results: Results) -> str:
    """Return what was measured, and what the intervals are."""
    q = results.question
    counts = sorted({len(cell.forward) for cell in results.cells} - {0})
    rounds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "0"
    few = not counts or interval_rank(counts[0]) == 0
    interval = "; an interval needs at least 6 rounds" if few else ", with a 95 % interval by order statistics"
    stopped = "" if results.complete else " The measurement was stopped early, and unfinished rounds are not counted."
    return (
        f"Model: d_model {q.d_model}, {q.num_layers} layers, {q.num_heads} heads, byte vocabulary, {q.dtype}; about "
        f"{q.batch_tokens:,} tokens per batch. Each ratio is the median of {rounds} rounds of the time divided by that of NoPE "
        f"in the same round{interval}.{stopped}"
    )


def ratio_text(ratio: Ratio | None) -> str:
    """Return `1.23 (1.21–1.26)`, or `1.23` without an interval."""
    if ratio is None:
        return "–"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.median:.2f}"
    return f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def time_text(results: Results, cell: Cell, kind: Kind) -> str | None:
    """Return the ratio of an encoding, or the median time of NoPE itself; None if it was not measured."""
    ratio = ratio_of(results, cell, kind)
    if ratio is None:
        return None
    return seconds_text(statistics.median(cell.times(kind))) if cell.encoding == BASELINE else ratio_text(ratio)


def seconds_text(seconds: float) -> str:
    """Return a time with three digits: `0.123 ms`, `12.3 ms`, `1.23 s`."""
    value, unit = (seconds, "s") if seconds >= 1 else (seconds * 1e3, "ms")
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2 if value >= 0.9995 else 3
    return f"{value:,.{decimals}f} {unit}"


def _table(results: Results, kind: Kind) -> str:
    """Return a table as HTML, with the reason where an encoding has no time."""
    heads = "".join(f'<th scope="col">{length:,}</th>' for length in results.lengths)
    rows = []
    for label in results.encodings:
        cells = []
        for length in results.lengths:
            cell = results.cell(label, length)
            reason = "not measured" if cell is None else cell.refusal
            text = None if cell is None else time_text(results, cell, kind)
            cells.append(f"<td>{text or '<small>' + html.escape(reason or '') + '</small>'}</td>")
        rows.append(f'<tr><th scope="row">{html.escape(label)}</th>{"".join(cells)}</tr>')
    caption = f"Time of a {KIND_NAMES[kind]} relative to NoPE, by tokens per sequence"
    head = f'<thead><tr><th scope="col">encoding</th>{heads}</tr></thead>'
    return f"<div><table><caption>{caption}</caption>{head}<tbody>{''.join(rows)}</tbody></table></div>\n"
