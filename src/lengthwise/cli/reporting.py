"""`lengthwise report`: findings as a table, an HTML page or JSON. Imports no torch."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.cli.output_file import output_file
from lengthwise.cli.printing import one_line, print_json, stdout

if TYPE_CHECKING:
    from lengthwise.analysis import Ties
    from lengthwise.store import Store


def make_report(results: str, study: str | None, output: str | None, json: bool, ties: str = "average") -> int:
    from lengthwise.analysis import findings, ranking, require_ties
    from lengthwise.report import write
    from lengthwise.store import open_results

    rule = require_ties(ties)
    file = None if output is None else output_file(output, "HTML page")
    with open_results(results, create=False) as store:
        if json:
            data = findings(store, study)
            if file is not None:
                write(data, file, rule)
            ranks = ranking(data.tasks, rule)
            print_json({**as_data(data), "ranking": None if ranks is None else as_data(ranks)})
            return 0
        page = print_table(store, study, file or store.folder / "report.html", rule)
    print(f"Report: {one_line(page)}")
    return 0


def print_table(store: "Store", study: str | None, page: Path, ties: "Ties" = "average") -> Path:
    """Print the findings as a table, write the HTML page and return its path."""
    from lengthwise.analysis import findings
    from lengthwise.report import table, write

    data = findings(store, study)
    stdout().print(table(data, ties))
    return write(data, page, ties)


def as_data(value: Any) -> Any:
    """Return a dataclass of findings as plain data for JSON."""
    return dataclasses.asdict(value)
