"""`lengthwise run`: execute a study with progress display, then write the report."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lengthwise.cli.options import Execution, Executors
from lengthwise.cli.printing import one_line
from lengthwise.cli.report import page_here, print_table
from lengthwise.config import ConfigError, ExecutorConfig, Slurm
from lengthwise.values import require_results

if TYPE_CHECKING:
    from lengthwise.studies import Outcome, Study

StudyOptions = Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)]


def command(
    study: str,
    /,
    *,
    dry_run: bool = False,
    settings: StudyOptions = (),
    executors: Executors = Executors(),
    execution: Execution = Execution(),
) -> int:
    """Train and evaluate the runs of a study file, then write the report of this study.

    `lengthwise report` writes one of all studies in the results folder.

    You can interrupt it at any time: the same command continues, and no finished run is repeated. Several such commands
    at the same time share the runs between them.

    Example: lengthwise run quickstart --workers 2

    Args:
        study: A study of Lengthwise (lengthwise list studies --available), or a Python file that defines a variable or
            a function named `study`.
        dry_run: Print the script that would be submitted to Slurm, and do nothing.
        settings: An option of the study, as NAME=VALUE, if its `study` is a function. May be repeated. `lengthwise list
            studies NAME` prints those of a study of Lengthwise.
    """
    from lengthwise.studies import load

    executor = executors.executor()
    if dry_run and not isinstance(executor, Slurm):
        raise ConfigError("--dry-run prints the script for Slurm; add --on slurm, or omit --dry-run")
    loaded = load(study, study_options(settings))
    if isinstance(executor, Slurm) and dry_run:
        from lengthwise.store import open_folder
        from lengthwise.studies.executors.slurm import script

        require_results(execution.results, execution.store is not None)
        print(script(executor, execution.compute(), loaded.name, open_folder(execution.results)))
        return 0
    code = 0
    for stage in stages(loaded, execution):
        if code := run_study(stage, execution, executor):
            break
    return code


def stages(study: "Study", execution: Execution) -> Iterator["Study"]:
    """Yield the study and the stages after it. Each follows from the stored scores of the finished one before."""
    following: Study | None = study
    names = set[str]()
    while following is not None:
        if following.name in names:
            raise ConfigError(
                f"study {study.name!r}: a second stage has the name {following.name!r}; give each stage its own name, "
                "and the last one no `then`"
            )
        names.add(following.name)
        yield following
        with execution.open() as store:
            following = following.following(store)


def study_options(settings: Sequence[str]) -> dict[str, str]:
    """Return the options of `--set NAME=VALUE`, by name. Raise `ConfigError` for anything else."""
    options: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"--set must be NAME=VALUE, got {setting[:40]!r}; write for example --set seeds=5")
        if name in options:
            raise ConfigError(f"--set {name} is given twice; give it once")
        options[name] = value
    return options


def run_study(study: "Study", execution: Execution, executor: ExecutorConfig) -> int:
    """Execute the study, write the report, and return 1 if a run failed."""
    from lengthwise.cli.study_progress import display
    from lengthwise.studies import execute

    page = page_here(execution)
    with display(study, execution.results) as show:
        outcome = execute(study, **execution.arguments(), executor=executor, estimate=True, on_event=show)
    with execution.open() as store:
        page = print_table(store, study.name, page or store.files.path / "report.html")
    print(f"Report: {one_line(page)}")
    return print_failures(study, outcome)


def print_failures(study: "Study", outcome: "Outcome", how: str = "run the same command again") -> int:
    """Print the failed runs with their errors, and how to retry them. Return the exit code: 1 if there are any."""
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
            retry = f"{how} to retry {('it' if number == 1 else 'them') if again == number else others}"
        else:
            retry = "correct what the message names first, because the same command fails again"
        print(f"lengthwise: {failed} failed; {retry}", file=sys.stderr)
        return 1
    return 0
