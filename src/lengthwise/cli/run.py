"""`lengthwise run`: execute a study with progress display, then write the report."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.cli.options import DEFAULT_EXECUTION, Execution
from lengthwise.cli.printing import one_line
from lengthwise.cli.report import print_table

if TYPE_CHECKING:
    from lengthwise.studies import Study


def command(study: str, /, *, execution: Execution = DEFAULT_EXECUTION) -> int:
    """Train and evaluate the runs of a study file, then write the report of this study.

    `lengthwise report` writes one of all studies in the results folder.

    You can interrupt it at any time: the same command continues, and no finished run is repeated. Several such commands at the
    same time share the runs between them.

    Example: lengthwise run studies/quickstart.py --workers 2

    Args:
        study: A Python file that defines a variable named `study`.
    """
    from lengthwise.studies import load

    return run_study(load(study), execution)


def run_study(study: "Study", execution: Execution) -> int:
    """Execute the study, write the report, and return 1 if a run failed."""
    from lengthwise.cli.progress import display
    from lengthwise.store import open_results
    from lengthwise.studies import execute

    folder = Path(execution.results)
    with display(study, folder) as show:
        outcome = execute(study, **vars(execution), estimate=True, on_event=show)
    with open_results(folder, create=False) as store:
        page = print_table(store, study.name, store.folder / "report.html")
    print(f"Report: {one_line(page)}")
    if outcome.failed:
        runs = {run.key: run for run in study.runs}
        for key, error in outcome.failed:
            run = runs[key]
            line = f"lengthwise: failed: {run.label} on {run.task.label}, seed {run.seed} ({key[:8]}): {error}"
            print(one_line(line), file=sys.stderr)
        number = len(outcome.failed)
        failed = "the run" if len(study.runs) == 1 else f"{number} of {len(study.runs)} runs"
        if again := number - sum(key in outcome.permanent for key, _ in outcome.failed):
            others = f"the other{'s' if again > 1 else ''}"
            retry = f"run the same command again to retry {('it' if number == 1 else 'them') if again == number else others}"
        else:
            retry = "correct what the message names first, because the same command fails again"
        print(f"lengthwise: {failed} failed; {retry}", file=sys.stderr)
        return 1
    return 0
