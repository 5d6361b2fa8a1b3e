"""The numbers of measurements as tables for the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from lengthwise.analysis.answers import NumbersRow, Summary, numbers_table
from lengthwise.measurements.base import Column
from lengthwise.report.measurements import cell, sequences_text
from lengthwise.report.provenance import facts_table

COLUMNS = 7  # of more numbers, the first and the last ones are shown


def answer_table(summary: Summary, head: str = "", unit: str = "") -> Table:
    """Return the first table of a measurement, with a row for each series. `head`: of the first column.

    `unit`: of lengths; with it, the table has a title.
    """
    heads, rows = numbers_table(summary, summary.measurement.tables[0])
    return _table(heads, rows, head, None if not unit else _title(summary, unit), with_intervals=False)


def file_tables(summary: Summary) -> Iterator[Table | Text]:
    """Yield the tables of answers in files that are not only for the page, each with its text, and remarks."""
    texts = summary.texts()
    for declared in summary.measurement.tables:
        heads, rows = numbers_table(summary, declared)
        if not rows or declared.on_page_only:
            continue
        yield Text(declared.title, "bold")
        yield _table(heads, rows, summary.measurement.series, with_intervals=True)
        if declared.about:
            yield Text(declared.about.format(**texts), "dim")
        yield Text()
    answers = {series.name: series.runs[0] for series in summary.series}
    yield from (Text(remark, "dim") for remark in summary.measurement.remarks(answers))
    facts = [f"{name} {text}" for name, text in facts_table(summary.facts)]
    yield Text(f"{'; '.join(facts)}.", "dim")


def _table(
    heads: Sequence[tuple[str, Column]],
    rows: Sequence[NumbersRow],
    head: str,
    title: Text | None = None,
    *,
    with_intervals: bool,
) -> Table:
    shown = Table(
        title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1)
    )
    width = max(len(row.name) for row in rows)
    shown.add_column(head, overflow="fold", min_width=min(width, 24), max_width=44)
    places: Sequence[int | None] = range(len(heads))
    if len(heads) > COLUMNS:
        places = [*range(COLUMNS - 3), None, *range(len(heads) - 2, len(heads))]
    for place in places:
        is_text = place is not None and heads[place][1].role == "note"
        justify: Literal["left", "right"] = "left" if is_text else "right"
        shown.add_column("…" if place is None else heads[place][0], justify=justify)
    for row in rows:
        cells = [None if n is None else cell(row.cells[n], heads[n][1]) for n in places]
        shown.add_row(Text(row.name), *(Text("…" if c is None else _text(c, with_intervals)) for c in cells))
    return shown


def _text(cell: Mapping[str, str], with_interval: bool) -> str:
    return f"{cell['mean']} ({cell['spread']})" if with_interval and cell["spread"] else cell["mean"]


def _title(summary: Summary, unit: str) -> Text:
    against = f" from {summary.reference}" if summary.reference else ""
    pairing = f"  {summary.pairing}" if summary.pairing else ""
    about = f"{pairing}\n{sequences_text(summary, unit)}"
    return Text.assemble((f"{summary.measurement.name}{against}", "bold"), about)
