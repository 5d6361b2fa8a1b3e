"""How long a study will take, from a few measured training steps."""

import heapq
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from statistics import fmean

import torch

from lengthwise.config import Run
from lengthwise.studies.cost import Cost
from lengthwise.training import measure_step

MEASURING_SECONDS = 5.0  # for all measurements together, after the first
START_SECONDS = 3.0  # a guess: for a worker to import torch and to build its first model


def estimate_seconds(
    runs: Sequence[Run],
    costs: dict[str, Cost],
    trained: Collection[str],
    *,
    workers: int,
    device: str,
    backend: str,
    threads: int,
) -> float | None:
    """Return about how many seconds `workers` processes need for `runs`, or None where no step could be measured.

    `costs` has the cost of every run by its key, `trained` the keys of those that only have to be evaluated. Runs that
    differ in nothing but their seed take equally long. A few training steps of each kind are measured, for about five
    seconds in all, the most different kinds first; a kind that was not measured takes as long per unit of cost as the
    kinds that are most like it. The time of evaluation follows from `costs`. The estimate knows nothing of what else the
    machine does, of checkpoints of an earlier call, or of other calls that share the work.
    """
    kinds = {run.key: replace(run, seed=0) for run in runs}
    rates: dict[Run, float] = {}  # seconds per unit of cost
    begin = time.perf_counter()
    with _torch_threads(threads):
        for tried, run in enumerate(_most_different_first(runs)):
            left = MEASURING_SECONDS - (time.perf_counter() - begin)
            if left <= 0 and tried:
                break
            try:
                seconds = measure_step(run, device=device, backend=backend, seconds=min(0.5, max(left, 0.1)))
            except Exception:  # the run itself says what is wrong, in a worker process
                continue
            rates[kinds[run.key]] = seconds * run.training.steps / costs[run.key].train
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()  # the workers need that memory
    if not rates:
        return None
    work = {run.key: costs[run.key].total - (costs[run.key].train if run.key in trained else 0) for run in runs}
    return START_SECONDS + _longest_queue([work[key] * _rate(kind, rates) for key, kind in kinds.items()], workers)


def _most_different_first(runs: Iterable[Run]) -> Iterator[Run]:
    """Yield a run of each task, model and training, then one of another encoding of each, and so on; no second seed."""
    groups: dict[object, dict[str, Run]] = {}
    for run in runs:
        groups.setdefault((run.task, run.model, run.training), {}).setdefault(run.label, run)
    for same in zip_longest(*(group.values() for group in groups.values())):
        yield from filter(None, same)


def _rate(kind: Run, rates: dict[Run, float]) -> float:
    """Return the seconds per unit of cost: as measured, or else the mean of the measured kinds that are most like it."""
    if kind in rates:
        return rates[kind]
    alike = [rate for other, rate in rates.items() if (other.task, other.model) == (kind.task, kind.model)]
    return fmean(alike or rates.values())


def _longest_queue(seconds: Sequence[float], workers: int) -> float:
    """Return when the last worker ends, where each takes the next run as soon as it is free."""
    ends = [0.0] * max(1, workers)
    for run in seconds:
        heapq.heapreplace(ends, ends[0] + run)
    return max(ends)


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
