"""Estimate the duration of a study from a few measured training steps."""

import heapq
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import fmean

import torch

from lengthwise.config import Run
from lengthwise.studies.compute import Compute
from lengthwise.studies.cost import Cost
from lengthwise.training import measure_step
from lengthwise.training.numerics import torch_threads

MEASURING_SECONDS = 5.0  # for all measurements together, after the first
START_SECONDS = 3.0  # a guess of the time in which a worker imports torch and builds its first model


def estimate_seconds(
    runs: Sequence[Run], costs: dict[str, Cost], trained: Collection[str], *, workers: int, compute: Compute
) -> float | None:
    """Return about how many seconds `workers` processes need for `runs`, or None if no step could be measured.

    `costs` has the cost of every run by its key, `trained` the keys of runs that only have to be evaluated. Runs that
    differ only in their seed are assumed to take equally long. A few training steps of each kind of run are measured,
    for about five seconds in all, starting with the most different kinds. A kind that was not measured gets the mean
    time per unit of cost of the most similar kinds. The time of evaluation follows from `costs`. The estimate ignores
    other load on the machine, checkpoints of earlier calls, and other calls that share the runs.
    """
    kinds = {run.key: replace(run, seed=0) for run in runs}
    rates: dict[Run, float] = {}  # seconds per unit of cost
    start = time.perf_counter()
    with torch_threads(compute.threads):
        for n, run in enumerate(_most_different_first(runs)):
            left = MEASURING_SECONDS - (time.perf_counter() - start)
            if left <= 0 and n:
                break
            if not run.training.steps:
                continue
            try:
                seconds = measure_step(
                    run, device=compute.device, backend=compute.backend, seconds=min(0.5, max(left, 0.1))
                )
            except (Exception, SystemExit):  # the worker that trains this run will report the error
                continue
            rates[kinds[run.key]] = seconds * run.training.steps / costs[run.key].train
    if torch.device(compute.device).type == "cuda":
        torch.cuda.empty_cache()  # the workers need that memory
    if not rates:
        return None
    work = {run.key: costs[run.key].total - (costs[run.key].train if run.key in trained else 0) for run in runs}
    return START_SECONDS + _longest_queue([work[key] * _rate(kind, rates) for key, kind in kinds.items()], workers)


def _most_different_first(runs: Iterable[Run]) -> Iterator[Run]:
    """Yield one run of each task, model and training, then one with another encoding of each, and so on."""
    groups: dict[object, dict[str, Run]] = {}
    for run in runs:
        groups.setdefault((run.task, run.model, run.training), {}).setdefault(run.label, run)
    for round_of_groups in zip_longest(*(group.values() for group in groups.values())):
        yield from filter(None, round_of_groups)


def _rate(kind: Run, rates: dict[Run, float]) -> float:
    """Return the seconds per unit of cost: as measured, or the mean of the most similar measured kinds."""
    if kind in rates:
        return rates[kind]
    similar = [rate for other, rate in rates.items() if (other.task, other.model) == (kind.task, kind.model)]
    return fmean(similar or rates.values())


def _longest_queue(seconds: Sequence[float], workers: int) -> float:
    """Return when the last worker ends, if each one takes the next run as soon as it is free."""
    ends = [0.0] * max(1, workers)
    for run in seconds:
        heapq.heapreplace(ends, ends[0] + run)
    return max(ends)
