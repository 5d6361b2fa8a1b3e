"""The page on which several models are compared: charts, maps of depth against length, and tables. Imports no torch."""

import html
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.numbers import figure, spread
from lengthwise.reach.plan import MARGIN, PASS, TEXT
from lengthwise.reach.results import ProgramFlags, Results
from lengthwise.reach.summary import effective, headline, label, position_losses, score
from lengthwise.reach.tasks import TASKS
from lengthwise.report.charts.lines import Columns, Line, Range, even_columns, line_chart, zero_to
from lengthwise.report.charts.pictures import Panel, page
from lengthwise.report.palette import looks
from lengthwise.values import join_names

SMALLEST_SPAN = 0.25  # nats on a vertical axis
PADDING = 0.3  # space left and right of the outer lengths, in octaves
Series = Sequence[tuple[str, Results, str]]  # label, results, method


def title(task: str) -> str:
    """Return what a task measures: `retrieval: one needle`."""
    return "cross-entropy of the same targets" if task == TEXT else f"retrieval: {TASKS[task].about}"


def series_of(measurements: Sequence[Results]) -> Series:
    """Return all models with all methods. Equal names get a number."""
    found: list[tuple[str, Results, str]] = []
    for results, method in [(entry, method) for entry in measurements for method in entry.plan.methods]:
        name, taken = label(results, method), {other for other, _, _ in found}
        number = next(n for n in itertools.count(1) if (name if n == 1 else f"{name} ({n})") not in taken)
        found.append((name if number == 1 else f"{name} ({number})", results, method))
    return found


def tasks_of(measurements: Sequence[Results]) -> list[str]:
    """Return the tasks that some measurement has, in the order of the list."""
    return [task for task in (TEXT, *TASKS) if any(task in results.plan.tasks for results in measurements)]


def lengths_of(measurements: Sequence[Results]) -> list[int]:
    return sorted({length for results in measurements for length in results.plan.lengths})


def render(
    measurements: Sequence[Results],
    heading: str = "How far do these models reach?",
    texts: Sequence[str] = (),
    first: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = (),
    reference: Results | None = None,
    flags: Sequence[ProgramFlags] = (),
) -> bytes:
    """Return the page as one HTML file without JavaScript. All texts of the files are escaped.

    `texts`: paragraphs before the explanation. `first`: further tables (caption, heads, rows of texts), before the others.
    `reference`: see `effective`. `flags`: of methods that are not those of the measurements.
    """
    series = series_of(measurements)
    tables = [_text_table(caption, heads, rows) for caption, heads, rows in first]
    tables.append(_effective_table(series, measurements, reference))
    for task in tasks_of(measurements):
        tables.append(_score_table(series, measurements, task))
        if task == TEXT:
            tables.append(_position_table(series))
        if task != TEXT and TASKS[task].has_depth:
            tables += [_map(name, results, method, task) for name, results, method in series]
    tables.append(_skipped_table(series))
    tables.append(_flags_table([*_flags_of(series), *((entry.method, entry) for entry in flags)]))
    return page(
        heading,
        [*texts, *explanation(measurements)],
        list(_panels(series, measurements)),
        [t for t in tables if t],
    )


def explanation(measurements: Sequence[Results]) -> list[str]:
    """Return what was measured, the rule of the effective length, and where the numbers come from."""
    texts = [
        "Effective length: the longest length up to which a non-increasing curve through the scores passes. The cross-entropy of "
        f"the same target tokens passes up to {MARGIN:g} nats above that of the model as it is at the shortest tested length, and "
        f"a retrieval task with at least {PASS:.0%} of the answers correct. Of a model: the smaller of those of the cross-entropy "
        "and of one needle. Scores between tested lengths are interpolated.",
        "All intervals are 95 % intervals over examples: a bootstrap over texts for cross-entropies, Wilson's for shares. They say "
        "nothing about other texts. An answer is correct if greedy decoding gives all of its tokens.",
    ]
    if len({results.plan.text_sha256 for results in measurements}) > 1:
        texts.append("The measurements read different texts, so their cross-entropies cannot be compared.")
    elif len({results.model.name for results in measurements}) > 1:
        texts.append(
            "Cross-entropies are per token of each model's own tokenizer. Compare them between models with the same tokenizer only."
        )
    for results in measurements:
        model, plan, origin = results.model, results.plan, results.origin
        claims = "claims no length" if model.claimed is None else f"claims {model.claimed:,} tokens"
        original = f" (originally {model.original:,})" if model.original not in (None, model.claimed) else ""
        texts.append(
            f"{model.name}: {model.architecture}, {model.parameters:,} parameters, {model.encoding}, {claims}{original}. "
            f"{plan.examples} examples requested, {plan.targets} targets, seed {plan.seed}, {plan.dtype}. "
            f"{'; '.join(f'{name} {value}' for name, value in origin.items())}."
        )
        if results.chat is not None:
            before, after = (" ".join(text.split()) for text in (results.chat.before, results.chat.after))
            texts.append(
                f"{model.name}: retrieval prompts are in the model's chat template: {before} [text and question] {after} "
                "[beginning of the answer]"
            )
    return texts


# ---- charts -------------------------------------------------------------------------------------------------------


def _panels(series: Series, measurements: Sequence[Results]) -> Iterator[Panel]:
    lengths, look = lengths_of(measurements), looks([name for name, _, _ in series])
    for task in tasks_of(measurements):
        lines = []
        for name, results, method in series:
            cells = [score(results.find(method, task, length)) for length in lengths]
            counts = ["" if cell is None else f"{cell[1]} examples" for cell in cells]
            lines.append(Line(name, look[name], [None if cell is None else cell[0] for cell in cells], counts))
        unit = "nats per token, lower is better" if task == TEXT else "share of correct answers, higher is better"
        columns = Columns(
            at=lengths,
            low=lengths[0] / 2**PADDING,
            high=lengths[-1] * 2**PADDING,
            ticks=[f"{length:,}" for length in lengths],
            heads=[(f"{length:,} tokens", "") for length in lengths],
            log=True,
        )
        yield _panel(
            f"{title(task)[0].upper()}{title(task)[1:]}", f"{unit}; against tokens", lines, columns, task == TEXT
        )
        if task == TEXT and (panel := _position_panel(series, look)) is not None:
            yield panel


def _position_panel(series: Series, look: Any) -> Panel | None:
    found = {name: position_losses(results, method) for name, results, method in series}
    starts = sorted({start for entry in found.values() if entry for start, _, _ in entry[1]})
    if not starts:
        return None
    lines = []
    for name, entry in found.items():
        losses = {} if entry is None else {start: loss for start, loss, _ in entry[1]}
        lines.append(Line(name, look[name], [losses.get(start) for start in starts], ""))
    columns = even_columns([f"{start:,}" for start in starts], "position")
    below = "nats per token, lower is better; from this position to the next"
    return _panel("Cross-entropy by position", below, lines, columns, True)


def _panel(name: str, below: str, lines: Sequence[Line], columns: Columns, is_loss: bool) -> Panel:
    (first, _), (last, _) = columns.heads[0], columns.heads[-1]
    described = f"{name}: line chart, {first} to {last}. Lines: {join_names([line.label for line in lines])}."
    chart = line_chart(described, lines, columns, [_loss_range(lines) if is_loss else zero_to(1.0)])
    return Panel(name, below, chart)


def _loss_range(lines: Sequence[Line]) -> Range:
    means = sorted(mean for line in lines for mean in line.means)
    if not means:
        return Range("all", 0.0, 1.0)
    top = min(means[-1], means[0] + 4 * max(means[len(means) // 2] - means[0], SMALLEST_SPAN))
    space = max(0.08 * (top - means[0]), (SMALLEST_SPAN - (top - means[0])) / 2)
    return Range("all", means[0] - space, top + space)


# ---- tables -------------------------------------------------------------------------------------------------------


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table. `rows`: cells as HTML, of which the first is the row's head."""
    words = [any(cell.startswith('<td class="words"') for cell in column) for column in zip(*rows, strict=True)]
    head = "".join(
        f'<th scope="col"{" class=words" if is_words else ""}>{html.escape(text)}</th>'
        for text, is_words in itertools.zip_longest(heads, words)
    )
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    inside = f"<caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f"<div><table>{inside}</table></div>\n"


def _text_table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of texts. Those of a column with words are wrapped."""
    cells = [list(map(html.escape, row)) for row in rows]
    for column in range(1, len(heads)):
        if any(letter.isalpha() for row in rows for letter in row[column]):
            for row in cells:
                row[column] = f'<td class="words">{row[column]}</td>'
    return _table(caption, heads, cells)


def _effective_table(series: Series, measurements: Sequence[Results], reference: Results | None) -> str:
    tasks = tasks_of(measurements)
    rows = []
    for name, results, method in series:
        claimed = "–" if results.model.claimed is None else f"{results.model.claimed:,}"
        overall = headline(results, method, reference)
        cells = [effective(results, method, task, reference) if task in results.plan.tasks else None for task in tasks]
        rows.append(
            [
                html.escape(name),
                claimed,
                *(
                    "–" if e is None else f"{html.escape(e.text)}{_small(e.interval_text or 'no interval')}"
                    for e in (overall, *cells)
                ),
            ]
        )
    return _table("Effective length (95 % interval)", ["model", "claimed", "effective", *tasks], rows)


def _score_table(series: Series, measurements: Sequence[Results], task: str) -> str:
    lengths = lengths_of(measurements)
    rows = []
    for name, results, method in series:
        cells = []
        for length in lengths:
            cell = score(results.find(method, task, length))
            cells.append("–" if cell is None else _cell(cell[0], cell[1]))
        rows.append([html.escape(name), *cells])
    return _table(title(task), ["model", *(f"{length:,}" for length in lengths)], rows)


def _cell(interval: Interval, count: int) -> str:
    if interval.half_width == 0:  # a share, whose interval is Wilson's
        ends = f"{figure(interval.low)}\u00a0… {figure(interval.high)}"
    else:
        ends = spread(interval)
    return f"{figure(interval.mean)}{_small(ends, f'n = {count}')}"


def _small(*lines: str) -> str:
    """Return lines in small letters below a cell's text, as HTML. The spaces are for readers that ignore the layout."""
    return f" <small>{' <br>'.join(map(html.escape, lines))}</small>"


def _position_table(series: Series) -> str:
    """Return the loss by position of each model at its longest measured length."""
    found = [(name, position_losses(results, method)) for name, results, method in series]
    starts = sorted({start for _, entry in found if entry for start, _, _ in entry[1]})
    rows = []
    for name, entry in found:
        cells = {start: (loss, count) for start, loss, count in entry[1]} if entry else {}
        shown = [f"{figure(loss.mean)}{_small(spread(loss), f'{count:,} tokens')}" for loss, count in cells.values()]
        texts = dict(zip(cells, shown, strict=True))
        length = _small(f"length {entry[0]:,}") if entry else ""
        rows.append([f"{html.escape(name)}{length}", *(texts.get(start, "–") for start in starts)])
    heads = ["model", *(f"{start:,}" for start in starts)]
    return _table("Cross-entropy by position: from this position to the next (tokens of each text)", heads, rows)


def _map(name: str, results: Results, method: str, task: str) -> str:
    """Return the map of depth against length: one cell for each, whose colour is the share of correct answers."""
    if task not in results.plan.tasks:
        return ""
    rows = []
    for depth in results.plan.depths_of(task):
        cells = []
        for length in results.plan.lengths:
            found = score([unit for unit in results.find(method, task, length) if unit.depth == depth])
            if found is None:
                cells.append("–")
                continue
            interval, count = found
            share = round(100 * interval.mean) if math.isfinite(interval.mean) else 0
            colour = f"background: color-mix(in srgb, var(--c5) {round(share * 0.6)}%, transparent)"
            about = f"{figure(interval.low)} … {figure(interval.high)}, n = {count}"
            cells.append(f'<td style="{colour}" title="{about}">{figure(interval.mean)}{_small(f"n = {count}")}</td>')
        rows.append([f"depth {depth:.0%}", *cells])
    caption = f"{name}: {TASKS[task].about}, depth of the sentence against length, share of correct answers"
    return _table(caption, ["", *(f"{length:,}" for length in results.plan.lengths)], rows)


def _skipped_table(series: Series) -> str:
    rows = [
        [html.escape(name), f"{skip.length:,}", _small(skip.reason)]
        for name, results, method in series
        for skip in results.skipped
        if skip.method == method
    ]
    return _table("Not reached on the machine of the measurement", ["model", "length", "reason"], rows) if rows else ""


def _flags_of(series: Series) -> Iterator[tuple[str, ProgramFlags]]:
    for name, results, method in series:
        yield from ((name, entry) for entry in results.flags if entry.method == method)


def _flags_table(entries: Sequence[tuple[str, ProgramFlags]]) -> str:
    rows = []
    for name, entry in entries:
        flags = html.escape(entry.flags).replace(" --", "</span> <span>--")  # each stays in one line
        text = f"<code><span>{flags}</span></code>" if flags else f"none: {html.escape(entry.reason)}"
        rows.append([f"{html.escape(name)}{_small(entry.program)}", f'<td class="words">{text}</td>'])
    caption = "Flags with which other programs compute these methods in the original model"
    return _table(caption, ["model", "flags"], rows) if rows else ""
