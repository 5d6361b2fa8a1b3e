"""`lengthwise report`: findings as a table, an HTML page or JSON. Imports no torch."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.cli.options import Place
from lengthwise.cli.output_file import output_file
from lengthwise.cli.printing import one_line, print_json, stdout
from lengthwise.values import is_remote

if TYPE_CHECKING:
    from lengthwise.analysis import Findings, Ties
    from lengthwise.store import Store


def command(
    *,
    study: str | None = None,
    ties: str = "average",
    place: Place = Place(),
    output: str | None = None,
    json: bool = False,
) -> int:
    """Print a table of the stored results and write the report, one HTML file.

    Example: lengthwise report --study quickstart --output quickstart.html

    Args:
        study: Study to report. [default: all studies in the results folder]
        ties: How encodings with equal scores are ranked. The summary of several tasks shows each encoding's mean of 1 /
            rank.
            average: they share the mean of their ranks.
            published: ranks follow the order of the study's list, as in the NoPE study.
        output: The HTML file to write. [default: report.html in the results folder, or here if that is at an address]
        json: Print the results as JSON; the HTML file is then written only with --output.
    """
    from lengthwise.analysis import findings, ranking, require_ties
    from lengthwise.report import write

    rule = require_ties(ties)
    file = output_file(output, "HTML page") if output is not None else None if json else page_here(place)
    with place.reading() as store:
        if json:
            data = findings(store, study)
            if file is not None:
                write(data, file, rule)
            ranks = ranking(data.tasks, rule)
            print_json({**_findings_data(data), "ranking": None if ranks is None else dataclasses.asdict(ranks)})
            return 0
        page = print_table(store, study, file or store.files.path / "report.html", rule)
    print(f"Report: {one_line(page)}")
    return 0


def page_here(place: Place) -> Path | None:
    """Return the page in the current folder to which the report is written if the results are at an address, and else
    None.

    Raise `ConfigError` if it cannot be written.
    """
    return output_file("report.html", "HTML page", "The report") if is_remote(place.results) else None


def print_table(store: "Store", study: str | None, page: Path, ties: "Ties" = "average") -> Path:
    """Print the findings as a table, write the HTML page and return its path."""
    from lengthwise.analysis import findings
    from lengthwise.report import table, write

    data = findings(store, study)
    stdout().print(table(data, ties, store.option))
    return write(data, page, ties)


def _findings_data(findings: "Findings") -> dict[str, Any]:
    """Return findings as plain data, in which a task has the name and the direction of its metric."""
    from lengthwise.analysis.answers import numbers_of

    bare = [dataclasses.replace(task, answers={}) for task in findings.tasks]
    data = dataclasses.asdict(dataclasses.replace(findings, tasks=tuple(bare)))
    data["tasks"] = [_task_data(task) for task in data["tasks"]]
    for task, findings_of_task in zip(data["tasks"], findings.tasks, strict=True):
        task["answers"] = {
            name: list(map(numbers_of, summaries)) for name, summaries in findings_of_task.answers.items()
        }
    return data


def _task_data(task: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, value in task.items():
        data |= {"metric": value["name"], "better": value["better"]} if name == "metric" else {name: value}
    return data
