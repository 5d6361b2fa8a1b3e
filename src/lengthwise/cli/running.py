"""`lengthwise run`: a study executed before people's eyes, with the report at the end."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.cli.printing import shown

if TYPE_CHECKING:
    from lengthwise.cli.options import Execution
    from lengthwise.studies import Study


def run_file(path: str, execution: "Execution") -> int:
    from lengthwise.studies import load

    return run_study(load(path), execution)


def run_study(study: "Study", execution: "Execution") -> int:
    """Execute, report; 1 when a run failed."""
    from lengthwise.cli.progress import display
    from lengthwise.cli.reporting import print_table
    from lengthwise.store import open_results
    from lengthwise.studies import execute

    folder = Path(execution.results)
    with display(study, folder) as show:
        outcome = execute(
            study,
            folder,
            workers=execution.workers,
            device=execution.device,
            backend=execution.backend,
            threads=execution.threads,
            estimate=True,
            on_event=show,
        )
    with open_results(folder, create=False) as store:
        page = print_table(store, study.name, store.folder / "report.html")
    print(f"Report: {shown(page)}")
    if outcome.failed:
        runs = {run.key: run for run in study.runs}
        for key, error in outcome.failed:
            run = runs[key]
            print(
                shown(f"lengthwise: failed: {run.label} on {run.task.label}, seed {run.seed} ({key[:8]}): {error}"),
                file=sys.stderr,
            )
        number = len(outcome.failed)
        print(
            f"lengthwise: {number} of {len(study.runs)} runs failed; the same command tries "
            f"{'it' if number == 1 else 'them'} again",
            file=sys.stderr,
        )
        return 1
    return 0
