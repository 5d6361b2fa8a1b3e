"""Every chart of a study's page as a file of its own, with its title, the names of its axes and a legend."""

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis import Findings
from lengthwise.report import palette
from lengthwise.report.charts.chart import Chart
from lengthwise.report.charts.pictures import Panel, picture
from lengthwise.report.overview import overview
from lengthwise.report.page import section_ids, task_data
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
    """Return the name of a format. Raises `ConfigError` for an unknown one, and if the library that draws
    is missing.
    """
    if name not in FORMATS:
        raise ConfigError(f"there is no format {name!r}{near_miss(name, FORMATS)}; available: {', '.join(FORMATS)}")
    if importlib.util.find_spec("vl_convert") is None:
        raise ConfigError(f"charts need the package vl-convert-python, which is not installed; {install_extra('lab')}")
    return name


def pictures(findings: Findings) -> list[Picture]:
    """Return all charts of the page in its order: for each task the heat map, the scores, the training and
    the probes.
    """
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
