"""The charts of answers in files as a picture, or with their tables on an HTML page without JavaScript."""

import html
from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.answers import Summary
from lengthwise.report.charts.pictures import Panel, page, picture
from lengthwise.report.measurements import Context, section
from lengthwise.report.palette import Look, looks
from lengthwise.report.pictures import charts_in
from lengthwise.report.provenance import facts_table


def content(summary: Summary, suffix: str) -> bytes:
    """Return a file of the format "svg", "png", "pdf" or "html". All texts of the files are escaped."""
    if suffix != "html":
        return picture(panels(summary), suffix)
    measurement, data = summary.measurement, _data(summary)
    abouts = dict.fromkeys(chart["about"] for chart in data["charts"])
    facts = "; ".join(f"{name} {text}" for name, text in facts_table(summary.facts))
    texts = [text for text in (*abouts, data["remarks"], f"{facts}.") if text]
    tables = [_table(table, measurement.series) for table in data["tables"] if table["rows"]]
    return page(measurement.chapter, texts, panels(summary), tables)


def panels(summary: Summary) -> list[Panel]:
    """Return the charts of a summary, each with its title."""
    return [Panel(chart.title, chart.note, chart) for chart in charts_in(_data(summary)["charts"])]


def _data(summary: Summary) -> dict[str, Any]:
    return section(summary, Context(summary.measurement.chapter, "tokens"), _looks(summary))


def _looks(summary: Summary) -> dict[str, Look]:
    return looks([series.label for series in summary.series])


def _table(table: Mapping[str, Any], head: str) -> str:
    """Return the data of a table as HTML."""
    heads = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in (head, *table["heads"]))
    rows = "".join(
        f'<tr><th scope="row">{html.escape(row["name"])}</th>{"".join(map(_cell, row["cells"]))}</tr>'
        for row in table["rows"]
    )
    caption = f"<caption>{html.escape(table['title'])}</caption>"
    about = f"<p>{html.escape(table['about'])}</p>" if table["about"] else ""
    return f"<div><table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{about}\n"


def _cell(cell: Mapping[str, str]) -> str:
    if cell["sort"] == cell["mean"] and cell["mean"]:  # a text
        return f'<td class="words">{html.escape(cell["mean"])}</td>'
    spread = f" <small>{html.escape(cell['spread'])}</small>" if cell["spread"] else ""
    return f"<td>{html.escape(cell['mean'])}{spread}</td>"
