"""The numbers of measurements as tables for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from lengthwise.analysis.answers import Summary, numbers_table
from lengthwise.report.measurements import cell, sequences_text

COLUMNS = 7  # of more numbers, the first and the last ones are shown


def answer_table(summary: Summary, head: str = "", unit: str = "") -> Table:
    """Return the first table of a measurement, with a row for each series. `head`: of the first column.

    `unit`: of lengths; with it, the table has a title.
    """
    title = None if not unit else _title(summary, unit)
    shown = Table(
        title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1)
    )
    heads, rows = numbers_table(summary, summary.measurement.tables[0])
    width = max(len(row.name) for row in rows)
    shown.add_column(head, overflow="fold", min_width=min(width, 24), max_width=44)
    places: Sequence[int | None] = range(len(heads))
    if len(heads) > COLUMNS:
        places = [*range(COLUMNS - 3), None, *range(len(heads) - 2, len(heads))]
    for place in places:
        shown.add_column("…" if place is None else heads[place][0], justify="right")
    for row in rows:
        cells = ["…" if n is None else cell(row.cells[n], heads[n][1])["mean"] for n in places]
        shown.add_row(Text(row.name), *cells)
    return shown


def _title(summary: Summary, unit: str) -> Text:
    against = f" from {summary.reference}" if summary.reference else ""
    pairing = f"  {summary.pairing}" if summary.pairing else ""
    about = f"{pairing}\n{sequences_text(summary, unit)}"
    return Text.assemble((f"{summary.measurement.name}{against}", "bold"), about)
