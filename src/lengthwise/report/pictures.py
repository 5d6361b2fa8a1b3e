"""Charts as files, with titles, names of axes and a legend: those of a study, and those of answers in files."""

import html
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis import Findings
from lengthwise.analysis.answers import Summary
from lengthwise.report import palette
from lengthwise.report.charts.chart import Chart
from lengthwise.report.charts.pictures import Panel, page, picture
from lengthwise.report.measurements import Context, section
from lengthwise.report.overview import overview
from lengthwise.report.page import section_ids, task_data
from lengthwise.report.provenance import facts_table
from lengthwise.values import ConfigError, install_extra, near_miss

FORMATS = ("png", "svg", "pdf")
LONGEST = 100  # characters of a file's name without its ending


@dataclass(frozen=True)
class Picture:
    """A chart of a page. `name`: of the file, without its ending: small letters, digits and hyphens."""

    name: str
    panel: Panel

    def content(self, form: str) -> bytes:
        """Return the file in one of `FORMATS`, in light colours on white."""
        return picture([self.panel], form)


def require_format(name: str) -> str:
    """Return the name of a format. Raises `ConfigError` for an unknown one, or if the drawing library is missing."""
    if name not in FORMATS:
        raise ConfigError(f"there is no format {name!r}{near_miss(name, FORMATS)}; available: {', '.join(FORMATS)}")
    if importlib.util.find_spec("vl_convert") is None:
        raise ConfigError(f"charts need the package vl-convert-python, which is not installed; {install_extra('lab')}")
    return name


def pictures(findings: Findings) -> list[Picture]:
    """Return all charts of the page: for each task the heat map, the scores, the training and the probes."""
    looks = palette.looks(findings.labels)
    ids = section_ids([task.title for task in findings.tasks])
    maps = {item["number"]: item["chart"] for item in overview(findings.tasks)}
    drawn: list[Picture] = []
    names: set[str] = set()
    for number, task in enumerate(findings.tasks):
        data = task_data(task, number, looks)
        for chart in (*([maps[number]] if number in maps else []), *charts_in(data)):
            name = _new_name(f"{ids[number].removeprefix('task-')}-{_words(chart.title)}", names)
            title = f"{task.title}: {chart.title}"
            drawn.append(Picture(name, Panel(title, chart.note, chart)))
    return drawn


def charts_in(data: Any) -> Iterator[Chart]:
    """Yield the charts in the data of a template."""
    if isinstance(data, Chart):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from charts_in(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from charts_in(value)


def _words(text: str) -> str:
    return "-".join(re.findall("[a-z0-9]+", text.lower())) or "chart"


def _new_name(name: str, known: set[str]) -> str:
    """Return a name that is not known yet, and remember it."""
    name, number = name[:LONGEST].rstrip("-"), 1
    new = name
    while new in known:
        number += 1
        new = f"{name}-{number}"
    known.add(new)
    return new


# ---- answers in files ------------------------------------------------------------------------------------------------


def content(summary: Summary, suffix: str) -> bytes:
    """Return the charts of answers in files in a format, as "html" with their tables and without JavaScript."""
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
    own_looks = palette.looks([series.label for series in summary.series])
    return section(summary, Context(summary.measurement.chapter, "tokens"), own_looks)


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
