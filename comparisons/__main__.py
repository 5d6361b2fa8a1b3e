"""Print the comparison, or its figures as JSON: python3 dev.py outside [ENCODINGS] [--json] [--save]

Prints how many answers of each implementation agree with the formula, the errors of those that do not, and the reason
of every difference. The exit code is 1 if Lengthwise departs from a formula or a difference has no known reason.
"""

import argparse
import json
import sys

from rich import box
from rich.console import Console
from rich.table import Table

from comparisons import answers, tables
from lengthwise.config import ConfigError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m comparisons", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument(
        "encodings", nargs="*", help="compare only these encodings of ours, such as alibi [default: all]"
    )
    parser.add_argument("--json", action="store_true", help="print every figure and every reason as JSON")
    parser.add_argument("--save", action="store_true", help="store the figures of the page in benchmarks/results")
    options = parser.parse_args(arguments)
    try:
        versions = answers.installed_versions()
        implementations = answers.select_implementations(options.encodings)
    except ConfigError as error:
        print(f"comparisons: {error}", file=sys.stderr)
        return 2
    results = []
    for implementation in implementations:
        print(f"comparing {implementation.library}: {implementation.name}", file=sys.stderr)
        version = versions[implementation.library]
        results += [answers.ask(implementation, question, version) for question in answers.QUESTIONS]
    data = answers.as_data(results)
    if options.json:
        print(json.dumps(data, indent=1, allow_nan=False))
    else:
        print_tables(data)
    if options.save:
        from benchmarks.record import save

        save("outside", data)
    return int(not all(answer.explained and not answer.ours_departs for answer in results))


def print_tables(data: tables.Figures) -> None:
    console = Console(markup=False, highlight=False)
    print_rows(console, tables.implementations_compared(data))
    for library, version in data["libraries"].items():
        if len(rows := tables.differences(data, library)) > 1:
            print_rows(console, rows, f"{library} {version}: errors of log-probabilities")
    for reason, places in tables.reasons(data).items():
        console.print(f"{reason}: {'; '.join(places)}")
    for place in data["ours_departs"]:
        console.print(f"OURS departs from the formula: {place}", style="bold red")


def print_rows(console: Console, rows: tables.Rows, title: str | None = None) -> None:
    table = Table(*rows[0], title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(main())
