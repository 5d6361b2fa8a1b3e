"""`lengthwise work`: take runs of a study from its store, on any machine, until none is left or the time is over."""

import sys
import time
from dataclasses import replace

from lengthwise.cli.options import Execution, Integer, LocalExecutors
from lengthwise.cli.run import StudyOptions, print_failures, stages, study_options
from lengthwise.config import ConfigError, ExecutorConfig, Inline, Local, Torchrun
from lengthwise.torchrun import Launch, launched

ONE_WORKER = Local(workers=1)


def command(
    study: str,
    /,
    *,
    max_minutes: Integer | None = None,
    settings: StudyOptions = (),
    executors: LocalExecutors = LocalExecutors(),
    execution: Execution = Execution(),
) -> int:
    """Train and evaluate runs of a study that other machines work on too, with one worker unless --workers is given.

    All machines need the same database server (--store) and the same results folder (--results). The command ends when
    all runs are finished. After Ctrl-C, SIGTERM or SIGUSR2, its workers save their checkpoints and release their runs,
    which other workers then continue. It writes no report, and does not try failed runs again. It works through the
    stages of a study in order: the next one begins when all runs of the one before are finished, on any machine. With
    torchrun -m lengthwise work, all processes of torchrun compute one run together.

    Example: lengthwise work quickstart --store postgresql://user@host/name --results /shared/results --max-minutes 230

    Args:
        study: A study of Lengthwise (lengthwise list studies --available), or a Python file that defines a variable or
            a function named `study`. It is added to the store if it is not there.
        max_minutes: Stop shortly before this time, with all progress saved. [default: when all runs are finished]
        settings: An option of the study, as NAME=VALUE, if its `study` is a function. May be repeated.
    """
    from lengthwise.cli.study_progress import display
    from lengthwise.studies import execute, load

    if max_minutes is not None and max_minutes < 1:
        raise ConfigError(f"--max-minutes must be at least 1, got {max_minutes}")
    executor = ONE_WORKER if executors == LocalExecutors() else executors.executor()
    if (launch := launched()) is not None:
        executor, execution = _under_torchrun(launch, executor, execution)
    loaded = load(study, study_options(settings))
    end = None if max_minutes is None else time.perf_counter() + 60 * max_minutes
    code = 0
    for stage in stages(loaded, execution):
        seconds = None if end is None else max(0.0, end - time.perf_counter())
        with display(stage, execution.results) as show:
            outcome = execute(
                stage, **execution.arguments(), executor=executor, join=True, max_seconds=seconds, on_event=show
            )
        code = print_failures(stage, outcome, how="use `lengthwise retry`")
        if outcome.out_of_time:
            done, total = outcome.counts["done"], sum(outcome.counts.values())
            print(
                f"lengthwise: --max-minutes is over; {done} of {total} runs are done; run the same command again to "
                "continue",
                file=sys.stderr,
            )
        if code or outcome.out_of_time:
            break
    return code


def _under_torchrun(launch: Launch, executor: ExecutorConfig, execution: Execution) -> tuple[ExecutorConfig, Execution]:
    """Return the executor and the settings for the processes of torchrun. Raise `ConfigError` for other ones."""
    if executor not in (ONE_WORKER, Inline()):
        raise ConfigError("under torchrun, one worker uses all processes; omit --workers, or start more commands")
    if execution.devices_per_run not in (None, launch.size):
        raise ConfigError(
            f"torchrun has started {launch.size} process{'es' if launch.size > 1 else ''}, but --devices-per-run is "
            f"{execution.devices_per_run}; omit the option, or start as many processes"
        )
    return Torchrun(), replace(execution, devices_per_run=launch.size)
