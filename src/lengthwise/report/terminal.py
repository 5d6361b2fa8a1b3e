"""Findings as tables for the terminal, at most 80 columns wide."""

from collections.abc import Iterable

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lengthwise.analysis import Findings, Ranking, TaskFindings, Ties, ranking
from lengthwise.analysis.numbers import figure, spread, times
from lengthwise.analysis.reading import FLOOR_WORDS, remark, unlearned
from lengthwise.report.answer_table import answer_table

COLUMNS = 5  # lengths per table; further lengths are in a table below
NARROW = 9  # with intervals of at most so many characters, five columns fit
MOST = 12  # lengths per task; of more, these are spread evenly
NOTES = 2  # notes per task


def table(findings: Findings, ties: Ties = "average", option: str = "") -> Group:
    """Return what rich prints: a table and a conclusion for each task, and the ranks of the encodings.

    Each cell has a mean, and below it ± half of its 95 % interval. `ties`: the rule for equal scores, see `ranking`.
    `option`: see `Store.option`.
    """
    if not findings.runs and findings.unlisted:
        return Group(*_unlisted(findings.unlisted, "", option))
    if not findings.runs:
        return Group(Text("No results yet: no study has run here."))
    blocks: list[Table | Text] = []
    for task in findings.tasks:
        lengths = _shown(task)
        widths = [len(spread(point.interval)) for s in task.series for n in lengths if (point := s.point_at(n))]
        columns = COLUMNS if max(widths, default=0) <= NARROW else COLUMNS - 1
        blocks.append(_title(task))
        blocks += [_table(task, lengths[start : start + columns]) for start in range(0, len(lengths), columns)]
        if len(lengths) < len(task.lengths):
            note = f"({len(lengths)} of {len(task.lengths)} lengths are shown; the page has all)"
            blocks.append(Text(note, style="dim"))
        if task.of_kind("shorter"):
            trained = f"length{'s' if task.shortest < task.train_length else ''} of {task.training_lengths} {task.unit}"
            note = f"(shorter: below the training {trained}; these count in no score over several lengths)"
            blocks.append(Text(note, style="dim"))
        blocks += [Text(task.reading), *_notes(task), Text("")]
        for summary in (summary for summaries in task.answers.values() for summary in summaries):
            if summary.measurement.in_report_table:
                blocks += [answer_table(summary, unit=task.unit), Text("")]
    if any(task.baselines for task in findings.tasks):
        blocks += [Text(f"Baselines are predictions without a model; {FLOOR_WORDS}."), Text("")]
    if (order := ranking(findings.tasks, ties)) is not None:
        blocks.append(_ranks(order, findings))
        if order.ties == "published":
            blocks.append(Text("Equal scores are ranked in the order of the study's list, the published rule."))
        if failures := unlearned(findings.tasks):
            blocks.append(Text(failures))
        blocks.append(Text(""))
    blocks += _missing(findings, option)
    return Group(*blocks)


def empty_table(heads: Iterable[str | Text], title: Text | None = None) -> Table:
    """Return a table without rows. Its first column, of at most 24 characters, has no head."""
    shown = Table(
        title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1)
    )
    shown.add_column("", overflow="fold", max_width=24)
    for head in heads:
        shown.add_column(head, justify="right", no_wrap=True)
    return shown


def _shown(task: TaskFindings) -> tuple[int, ...]:
    """Return the lengths to show: all, or `MOST` of them with the first, the training length and the last."""
    if len(task.lengths) <= MOST:
        return task.lengths
    last = len(task.lengths) - 1
    chosen = [round(n * last / (MOST - 1)) for n in range(MOST)]
    trained = max((n for n, length in enumerate(task.lengths) if not task.is_new(length)), default=0)
    nearest = min(chosen[1:-1], key=lambda n: abs(n - trained))
    if trained not in chosen:
        chosen[chosen.index(nearest)] = trained
    return tuple(task.lengths[n] for n in chosen)


def _notes(task: TaskFindings) -> list[Text]:
    more = len(task.notes) - NOTES
    lines = [Text(f"Note: {note}.") for note in task.notes[:NOTES]]
    return [*lines, Text(f"({more} more note{'s' if more > 1 else ''} on the page)")] if more > 0 else lines


def _ranks(order: Ranking, findings: Findings) -> Table:
    about = f"  {len(order.tasks)} tasks × {len(order.seeds)} seed{'s' if len(order.seeds) != 1 else ''}"
    left_out = f", {order.dropped} left out because a score is missing" if order.dropped else ""
    cited = findings.published.ranks if findings.published else {}
    heads = ["longer lengths", "in distribution", *(["published"] if cited else [])]
    shown = empty_table(heads, Text.assemble(("Mean reciprocal rank", "bold"), about, left_out))
    for rank in order.ranks:
        cells = [f"{figure(i.mean)} {spread(i)}".strip() if i else "–" for i in (rank.longer, rank.within)]
        shown.add_row(
            Text(rank.label), *cells, *([figure(cited[rank.label]) if rank.label in cited else "–"] if cited else [])
        )
    return shown


def _title(task: TaskFindings) -> Text:
    longer = "; × is a multiple of the training length (extrapolation)" if any(map(task.is_new, task.lengths)) else ""
    about = f"{task.metric_label}, {task.metric.better} is better\nlength in {task.unit}{longer}"
    return Text.assemble((task.title, "bold"), f"  {about}")


def _table(task: TaskFindings, lengths: tuple[int, ...]) -> Table:
    kinds = {n: times(n / task.train_length) if task.is_new(n) else task.kind(n) for n in lengths}
    shown = empty_table([Text.assemble(f"{length:,}\n", (kind, "dim")) for length, kind in kinds.items()])
    for series in task.ranked(max(task.lengths)):
        cells = []
        for length in lengths:
            point, best = series.point_at(length), task.best(length)
            if point is None:
                cells.append(Text("–", style="dim"))
                continue
            is_best = best is not None and figure(point.mean) == figure(best.mean)
            cell = Text(figure(point.mean), style="bold" if is_best else "")
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


def _missing(findings: Findings, option: str) -> list[Text]:
    lines = []
    for state, runs in (("failed", findings.failed), ("not finished", findings.unfinished)):
        if runs:
            lines.append(Text(f"{len(runs)} of {len(findings.runs)} runs {state}:", style="bold"))
            for run in runs[:8]:
                steps = f"{run.step:,} of {run.steps:,} steps" if run.steps else "not started"
                reason = f": {run.error.splitlines()[0]}" if run.error else f" ({steps})"
                lines.append(Text(f"  {run.label}, {run.task}, seed {run.seed}, {run.key[:8]}{reason}"))
            if len(runs) > 8:
                lines.append(Text(f"  and {len(runs) - 8} more"))
    return [*lines, *_unlisted(findings.unlisted, " more", option)]


def _unlisted(count: int, more: str, option: str) -> list[Text]:
    """Say how many runs no study lists; nothing if there are none."""
    belong, are = ("run belongs", "is") if count == 1 else ("runs belong", "are")
    words = f"{count}{more} {belong} to no study and {are} not shown; `lengthwise list runs{option}` lists every run"
    return [Text(words)] if count else []
