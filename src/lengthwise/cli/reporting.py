"""`lengthwise report`: findings as a table, a page, or JSON. Imports no torch."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.cli.printing import print_json, shown, stdout

if TYPE_CHECKING:
    from lengthwise.analysis import Ties
    from lengthwise.store import Store


def make_report(results: str, study: str | None, output: str | None, json: bool, ties: str = "average") -> int:
    from lengthwise.analysis import findings, ranking, ties_of
    from lengthwise.report import write
    from lengthwise.store import open_results

    rule = ties_of(ties)
    with open_results(results, create=False) as store:
        if json:
            found = findings(store, study)
            if output is not None:
                write(found, Path(output), rule)
            order = ranking(found.tasks, rule)
            print_json({**as_data(found), "ranking": None if order is None else as_data(order)})
            return 0
        page = print_table(store, study, Path(output) if output is not None else store.folder / "report.html", rule)
    print(f"Report: {shown(page)}")
    return 0


def print_table(store: "Store", study: str | None, page: Path, ties: "Ties" = "average") -> Path:
    """Print the findings, write the page; where it is."""
    from lengthwise.analysis import findings
    from lengthwise.report import table, write

    found = findings(store, study)
    stdout().print(table(found, ties))
    return write(found, page, ties)


def as_data(value: Any) -> Any:
    """Findings as JSON has them."""
    return dataclasses.asdict(value)
