"""Findings as tables for the terminal; they fit 80 columns."""

from typing import TYPE_CHECKING

from lengthwise.analysis import Distances, Findings, Ranking, TaskFindings, Ties, ranking
from lengthwise.analysis.numbers import figure, spread, times
from lengthwise.analysis.reading import FLOOR_WORDS, remark, unlearned
from lengthwise.report.attention import nats

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

COLUMNS = 5  # lengths side by side; more go into a table below
NARROW = 9  # characters of an interval, so that five fit
MOST = 12  # lengths of a task that are shown; of more, so many, spread evenly
NOTES = 2  # of a task


def table(findings: Findings, ties: Ties = "average") -> "Group":
    """What rich prints: per task a table (mean, and ± half of the 95 % interval below it) and its plain reading, and the
    encodings' ranks (`ties`: of equal scores, see `ranking`)."""
    from rich.console import Group
    from rich.text import Text

    if not findings.runs and findings.apart:
        return Group(*_unlisted(findings.apart, ""))
    if not findings.runs:
        return Group(Text("There are no results yet: no study has been run here."))
    parts: list[Table | Text] = []
    for task in findings.tasks:
        lengths = _shown(task)
        widths = [len(spread(point.interval)) for s in task.series for n in lengths if (point := s.at(n))]
        columns = COLUMNS if max(widths, default=0) <= NARROW else COLUMNS - 1
        for start in range(0, len(lengths), columns):
            parts.append(_table(task, lengths[start : start + columns], first=start == 0))
        if len(lengths) < len(task.lengths):
            parts.append(Text(f"({len(lengths)} of {len(task.lengths)} lengths; the page has all)", style="dim"))
        if task.of_kind("shorter"):
            within = f"{task.shortest:,} to {task.train_length:,} {task.unit}"
            parts.append(
                Text(f"(shorter: than any in training, {within}; in no score over several lengths)", style="dim")
            )
        parts += [Text(task.reading), *_notes(task), Text("")]
        for group in task.distances:
            parts += [_attention(group, task), Text("")]
    if any(task.baselines for task in findings.tasks):
        parts += [Text(f"Baselines need no model: {FLOOR_WORDS}."), Text("")]
    if (order := ranking(findings.tasks, ties)) is not None:
        parts.append(_ranks(order, findings))
        if order.ties == "published":
            parts.append(Text("Equal scores are ranked in the order of the list, as published."))
        if failures := unlearned(findings.tasks):
            parts.append(Text(failures))
        parts.append(Text(""))
    parts += _missing(findings)
    return Group(*parts)


def _shown(task: TaskFindings) -> tuple[int, ...]:
    """The lengths that are shown: all, or some from the first to the last, with the trained one."""
    if len(task.lengths) <= MOST:
        return task.lengths
    last = len(task.lengths) - 1
    chosen = [round(n * last / (MOST - 1)) for n in range(MOST)]
    home = max((n for n, length in enumerate(task.lengths) if not task.is_new(length)), default=0)
    nearest = min(chosen[1:-1], key=lambda n: abs(n - home))
    if home not in chosen:
        chosen[chosen.index(nearest)] = home
    return tuple(task.lengths[n] for n in chosen)


def _attention(group: Distances, task: TaskFindings) -> "Table":
    """The mean over all layers, and the two outer ones."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    which = f"{'different seeds' if group.across else 'same seed'}, {group.variant}, in nats"
    lengths = ", ".join(f"{length:,}" for length in group.lengths)
    about = f"  {which}\n{group.n} examples at each of {lengths} {task.unit}"
    shown = Table(
        title=Text.assemble((f"Attention's distance from {group.reference}", "bold"), about),
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    shown.add_column("", overflow="fold", max_width=34)
    for head in ("seeds", "all layers", "first", "last"):
        shown.add_column(head, justify="right", no_wrap=True)
    for series in group.series:
        ends = (series.mean, series.layers[0].mean, series.layers[-1].mean)
        name = f"{series.label} (another seed)" if series.baseline else series.label
        shown.add_row(Text(name), f"{series.seeds}", *map(nats, ends))
    return shown


def _notes(task: TaskFindings) -> list["Text"]:
    """The first notes; that there are more, which the page has."""
    from rich.text import Text

    more = len(task.notes) - NOTES
    lines = [Text(f"Note: {note}.") for note in task.notes[:NOTES]]
    return [*lines, Text(f"({more} more note{'s' if more > 1 else ''} on the page)")] if more > 0 else lines


def _ranks(order: Ranking, findings: Findings) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    about = f"  {len(order.tasks)} tasks × {len(order.seeds)} seed{'s' if len(order.seeds) != 1 else ''}"
    left_out = f", {order.dropped} left out for want of a score" if order.dropped else ""
    shown = Table(
        title=Text.assemble(("Mean reciprocal rank", "bold"), about, left_out),
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    cited = findings.published.ranks if findings.published else {}
    shown.add_column("", overflow="fold", max_width=24)
    for head in ("longer", "in distribution", *(["published"] if cited else [])):
        shown.add_column(head, justify="right", no_wrap=True)
    for rank in order.ranks:
        cells = [f"{figure(i.mean)} {spread(i)}".strip() if i else "–" for i in (rank.longer, rank.within)]
        shown.add_row(
            Text(rank.label), *cells, *([figure(cited[rank.label]) if rank.label in cited else "–"] if cited else [])
        )
    return shown


def _table(task: TaskFindings, lengths: tuple[int, ...], first: bool) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    better = f"{task.metric}, {task.better} is better, by {task.unit}"
    shown = Table(
        title=Text.assemble((task.title, "bold"), f"  {better}") if first else None,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    shown.add_column("", overflow="fold", max_width=24)
    for length in lengths:
        kind = f"{times(length / task.train_length)} new" if task.is_new(length) else task.kind(length)
        shown.add_column(Text.assemble(f"{length:,}\n", (kind, "dim")), justify="right", no_wrap=True)
    longest = max(task.lengths)
    for series in task.ranked(longest):
        cells = []
        for length in lengths:
            point, best = series.at(length), task.best(length)
            if point is None:
                cells.append(Text("–", style="dim"))
                continue
            strong = best is not None and figure(point.mean) == figure(best.mean)
            cell = Text(figure(point.mean), style="bold" if strong else "")
            cell.append(f"\n{spread(point.interval)}", style="dim not bold")
            cells.append(cell)
        name = Text(series.label)
        if note := remark(task, series):
            name.append(f"\n({note})", style="dim")
        shown.add_row(name, *cells)
    if task.baselines:
        shown.add_section()
    for baseline in task.baselines:
        values = [baseline.scores.get(length) for length in lengths]
        cells = [Text("–" if value is None else figure(value), style="dim") for value in values]
        shown.add_row(Text(f"{baseline.label}\n({baseline.kind})", style="dim"), *cells)
    return shown


def _missing(findings: Findings) -> list["Text"]:
    from rich.text import Text

    lines = []
    for words, runs in (("failed", findings.failed), ("not finished", findings.unfinished)):
        if runs:
            lines.append(Text(f"{len(runs)} of {len(findings.runs)} runs {words}:", style="bold"))
            for run in runs[:8]:
                how_far = f"{run.step:,} of {run.steps:,} steps" if run.steps else "not started"
                why = f": {run.error.splitlines()[0]}" if run.error else f" ({how_far})"
                lines.append(Text(f"  {run.label}, {run.task}, seed {run.seed}, {run.key[:8]}{why}"))
            if len(runs) > 8:
                lines.append(Text(f"  and {len(runs) - 8} more"))
    return [*lines, *_unlisted(findings.apart, " more")]


def _unlisted(count: int, more: str) -> list["Text"]:
    """Say how many runs no study lists any more; nothing where there are none."""
    from rich.text import Text

    runs_are = f"1{more} run is" if count == 1 else f"{count}{more} runs are"
    words = f"{runs_are} in no study any more, and not shown; `lengthwise list runs` shows every run"
    return [Text(words)] if count else []
