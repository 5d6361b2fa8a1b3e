"""`execute`: decide which runs of a study are to be done, have an executor do them, and report what happens."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from lengthwise.analysis.protocol import canonical
from lengthwise.config import ConfigError, ExecutorConfig, Local, Run
from lengthwise.plugins import loaded_plugins
from lengthwise.store import RunRow, Store, StoreError, StoreGone, open_results
from lengthwise.studies.compute import DEFAULT_COMPUTE, Compute
from lengthwise.studies.cost import Cost, costs
from lengthwise.studies.estimate import estimate_seconds
from lengthwise.studies.events import Begun, Counted, Done, Event, Failed, Note
from lengthwise.studies.executors import EXECUTORS, Executor, WorkerError
from lengthwise.studies.parent import STOP_SIGNALS
from lengthwise.studies.spec import LOADING, OwnClasses, Spec, classes_of, listed, own_classes
from lengthwise.studies.stored import replaced_runs, retraining_note
from lengthwise.studies.study import Study
from lengthwise.trackers import Tracker, require_usable
from lengthwise.training import check_step
from lengthwise.training.numerics import torch_threads
from lengthwise.values import is_remote, require_results

POLL_SECONDS = 0.2  # the longest time until a signal is handled
COUNT_SECONDS = 1.0  # between two reads of the progress, which other processes may share
MAX_RETRIES = 100
LOCAL = Local()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGUSR2 stopped the execution. The same call continues.

    All progress is saved, unless workers did not answer and were `killed`: then the steps since their last checkpoints
    are lost.
    """

    def __init__(self, number: int, counts: dict[str, int], killed: bool = False):
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.signal, self.counts, self.killed = number, counts, killed


@dataclass(frozen=True)
class Outcome:
    """The state of a study at the end of a call."""

    counts: dict[str, int]  # runs by status: pending, running, done, failed
    failed: tuple[tuple[str, str], ...]  # (key, error message in one line)
    permanent: frozenset[str] = frozenset()  # keys of runs that failed because of their settings, see `Failed`
    out_of_time: bool = False  # `max_seconds` ended the call before all runs were finished


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What workers do for each run beside computing it.

    `retries`: how often a run that fails is tried again, unless its settings are the cause. `trackers`: those that show
    its curve and its scores too, as from `parse_trackers("tensorboard,wandb:mode=offline")` of `lengthwise.trackers`.
    """

    retries: int = 0
    trackers: tuple[Tracker, ...] = ()

    def require_usable(self, results: str | Path) -> None:
        """Raise `ConfigError` for options that cannot be used on this machine."""
        if not 0 <= self.retries <= MAX_RETRIES:
            raise ConfigError(f"retries must be from 0 to {MAX_RETRIES}, got {self.retries}")
        require_usable(self.trackers, str(results), is_remote(results))


DEFAULT_OPTIONS = RunOptions()


def execute(
    study: Study,
    results: str | Path,
    *,
    store: str | None = None,
    executor: ExecutorConfig = LOCAL,
    compute: Compute = DEFAULT_COMPUTE,
    options: RunOptions = DEFAULT_OPTIONS,
    estimate: bool = False,
    join: bool = False,
    max_seconds: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Outcome:
    """Train and evaluate all runs of `study` that are not yet finished in the folder `results`.

    Everything is checked before anything trains. `store`: the address of the database, such as
    postgresql://user@host/name, which several machines can share; None: the database in `results`. With `store`,
    `results` may be an address too, such as s3://bucket/folder. `executor`: where the runs are executed:
    `Local(workers=4)` for processes on this machine, `Inline()` for one run after another in this process, as a
    debugger needs, `Slurm(slots=8)` for jobs of a cluster, or `Ray()` (all from `lengthwise.config`). `options`:
    retries and trackers. `estimate`: measure a few training steps first, which takes about five seconds, and report the
    expected duration in `Begun`, if the runs are executed on this machine, each on one device.
    `join`: if the store already has the study, leave it as it is, so that failed runs are not tried again.
    `max_seconds`: a little before this time, ask the workers to save their checkpoints and return.

    Several calls may execute the same study in the same folder at the same time: they share the runs, and all return
    when all runs are finished. A failing run does not stop the others.

    Raise `ConfigError`, `StoreError` or `WorkerError`, and `Interrupted` after Ctrl-C, SIGTERM or SIGUSR2, once the
    workers have saved their checkpoints. If a script defines classes of the study, worker processes load it, so it must
    call this under `if __name__ == "__main__":`.
    """
    if LOADING.get():
        raise ConfigError('a worker process loads this file; call execute() under if __name__ == "__main__":')
    require_results(results, store is not None)
    options.require_usable(results)
    compute.require_valid()
    kind = EXECUTORS[executor.name]
    kind.require_usable(executor, compute, store)
    study.check()
    compute.require_divisible(study.runs)
    if not kind.remote:
        _require_supported(study, compute)
    user_classes = OwnClasses() if kind.in_this_process else own_classes(study)
    with listed(classes_of(study)), open_results(results, store=store) as opened:
        _require_parents(opened, study)
        is_joined = join and _is_stored(opened, study)
        notes = [] if is_joined else _add(opened, study)
        spec = Spec(
            store=opened.url,
            study=study.name,
            results=opened.files.address,
            results_id=opened.files.identifier(create=False) if opened.files.is_remote else None,
            own_classes=user_classes,
            plugins=loaded_plugins(),
            runs=_other_descriptions(opened, study) if is_joined else {},
            compute=compute,
            retries=options.retries,
            trackers=tuple(tracker.to_data() for tracker in options.trackers),
        )
        execution = _Execution(opened, study, spec, executor, on_event or (lambda event: None))
        return execution.work(estimate, notes, max_seconds)


def _require_parents(store: Store, study: Study) -> None:
    """Raise `ConfigError` for a run whose parent is neither a run of the study nor trained in this results folder."""
    listed = {run.key for run in study.runs}
    others = {run.parent.key for run in study.runs if run.parent is not None} - listed
    finished = {row.key for row in store.runs() if row.finished is not None} if others else set()
    trained = store.files.trained(others & finished)
    for run in study.runs:
        if run.parent is not None and run.parent.key in others - trained:
            raise ConfigError(
                f"run {run.key} ({run.label}, seed {run.seed}) starts from run {run.parent.key} ({run.parent.label}, "
                f"seed {run.parent.seed}), which is not trained in {store.files}; add that run to the study"
            )


def _is_stored(store: Store, study: Study) -> bool:
    """Return whether the store has the study with the same runs and questions."""
    if all(row.name != study.name for row in store.studies()):
        return False
    stored = [(row.key, sorted(canonical(question) for question in row.questions)) for row in store.runs(study.name)]
    return stored == [
        (row["key"], sorted(canonical(question) for question in row["questions"])) for row in study.rows()
    ]


def _other_descriptions(store: Store, study: Study) -> dict[str, Any]:
    """Return, by key, the descriptions of runs that differ from the stored ones, such as in the path of a text."""
    stored = {row.key: canonical(row.config) for row in store.runs(study.name)}
    here = {run.key: run.to_data() for run in study.runs}
    return {key: data for key, data in here.items() if canonical(data) != stored[key]}


def _add(store: Store, study: Study) -> list[str]:
    """Add the study to the store. Return notes on removed runs and lengths, changed classes, and missing weights."""
    exists = any(row.name == study.name for row in store.studies())
    before = store.runs(study.name) if exists else []
    unlisted = store.add_study(**study.metadata(), runs=study.rows())
    now = store.runs(study.name)
    replaced = replaced_runs(unlisted, now)
    removed = [row for row in unlisted if row.key not in replaced]
    notes = (
        _removed_runs_note(study.name, removed, store.option),
        _removed_lengths_note(study.name, before, now),
        retraining_note(replaced.values()),
        _reopen(store, study.name),
    )
    return list(filter(None, notes))


def _removed_runs_note(study: str, removed: list[RunRow], option: str) -> str:
    """Return one line about runs that the study no longer lists, or an empty string."""
    if not removed:
        return ""
    runs = ", ".join(f"{run.label} on {run.task}, seed {run.seed} ({run.key[:8]})" for run in removed[:3])
    more = f" and {len(removed) - 3} more" if len(removed) > 3 else ""
    count, they_are = ("1 run", "it is") if len(removed) == 1 else (f"{len(removed)} runs", "they are")
    return (
        f"{study} no longer lists {count}: {runs}{more}; {they_are} not in its report, but still in the database "
        f"(`lengthwise list runs{option}` shows every run)"
    )


def _removed_lengths_note(study: str, before: list[RunRow], now: list[RunRow]) -> str:
    """Return one line about lengths that the study no longer evaluates for runs that it still lists, or ""."""
    lengths = {run.key: {question["length"] for question in run.questions} for run in now}
    lengths_before = {question["length"] for run in before if run.key in lengths for question in run.questions}
    removed = sorted(lengths_before - set().union(*lengths.values()))
    if not removed:
        return ""
    which, their, them = ("length", "its", "it") if len(removed) == 1 else ("lengths", "their", "them")
    return (
        f"{study} no longer evaluates {which} {', '.join(map(str, removed))}; {their} scores are not in the report, "
        f"but still in the database (list {them} again to show them; nothing is computed twice)"
    )


def _reopen(store: Store, study: str) -> str:
    """Mark finished runs whose weights are missing for training. Return one line about them, or an empty string."""
    done = [run.key for run in store.runs(study) if run.status == "done"]
    trained = store.files.trained(done)
    reopened = store.reopen([key for key in done if key not in trained])
    if not reopened:
        return ""
    runs, they_are = ("1 finished run", "it is") if reopened == 1 else (f"{reopened} finished runs", "they are")
    return (
        f"{study}: the weights of {runs} are missing in {store.files}/runs, so {they_are} trained again; the scores "
        f"are kept (`lengthwise report{store.option}` needs no weights)"
    )


def _require_supported(study: Study, compute: Compute) -> None:
    """Raise `ConfigError` for the first encoding that a named backend does not support, before anything is created."""
    kinds = {(run.encoding, run.model, run.training.positions, run.training.train_length): run for run in study.runs}
    for run in kinds.values() if compute.backend != "auto" else ():
        try:
            with torch_threads(compute.threads):
                check_step(run, device=compute.device, backend=compute.backend)
        except ConfigError as error:
            text = str(error).replace("backend='auto'", "backend='auto' (--backend auto)")
            raise ConfigError(f"{run.label} on {run.task.label}: {text}") from error
        except (Exception, SystemExit):  # the worker that trains this run will report the error
            continue


class _Execution:
    """One call: an executor, the events of its runs, and signals."""

    def __init__(
        self, store: Store, study: Study, spec: Spec, executor: ExecutorConfig, on_event: Callable[[Event], None]
    ):
        self.store, self.study, self.spec, self.on_event = store, study, spec, on_event
        self.executor: Executor = EXECUTORS[executor.name](executor, spec, store, self.emit)
        self.signal: int | None = None
        self.error: str | None = None
        self.killed = False  # workers that did not end in time
        self.last_counts: tuple[dict[str, int], bool] | None = None
        self.next_count = 0.0
        self.permanent: set[str] = set()  # keys of runs that failed because of their settings
        self.idle = False  # at the last count, only other calls had runs
        self.end = math.inf  # when workers are asked to stop, by time.perf_counter()

    def emit(self, event: Event) -> None:
        if self._time_is_over():
            self.executor.stopping.set()  # an executor in this process notices it here
        if isinstance(event, Failed) and event.permanent:
            self.permanent.add(event.key)
        if isinstance(event, (Done, Failed)):
            self._count(now=True)
        self.on_event(event)

    def work(self, estimate: bool, notes: list[str], max_seconds: float | None) -> Outcome:
        if max_seconds is not None:
            self.end = time.perf_counter() + max_seconds - min(self.executor.stop_seconds, max_seconds / 10)
        self._run(self._begin(estimate and not self.executor.remote and self.spec.compute.devices_per_run == 1, notes))
        counts = self.store.progress(self.study.name)
        unfinished = counts["pending"] + counts["running"] > 0
        if self.signal is not None:
            raise Interrupted(self.signal, counts, self.killed)
        if self.error is not None:
            raise WorkerError(self.error)
        failed = tuple((r.key, r.error or "") for r in self.store.runs(self.study.name) if r.status == "failed")
        return Outcome(counts, failed, frozenset(self.permanent), unfinished)

    def _begin(self, estimate: bool, notes: list[str]) -> int:
        """Emit `Begun` and the notes. Return the number of workers."""
        counts = self.store.progress(self.study.name)
        number = self.executor.workers(counts["pending"] + counts["running"])
        rows = {row.key: row for row in self.store.runs(self.study.name) if row.status in ("pending", "running")}
        runs = [run for run in self.study.runs if run.key in rows]
        cost_by_key = costs((run, self.study.evaluation_of(run)) for run in runs)
        trained = {row.key for row in rows.values() if row.finished is not None}
        seconds = self._estimate(runs, cost_by_key, trained, number) if estimate and runs else None
        cost_by_key = {key: replace(cost, train=0.0) if key in trained else cost for key, cost in cost_by_key.items()}
        self.emit(Begun(counts=counts, workers=number, costs=cost_by_key, seconds=seconds))
        for note in notes:
            self.emit(Note(text=note))
        return number

    def _estimate(self, runs: list[Run], costs: dict[str, Cost], trained: set[str], workers: int) -> float | None:
        self.emit(Note(text="measuring a few training steps to estimate the duration"))
        seconds = estimate_seconds(runs, costs, trained, workers=workers, compute=self.spec.compute)
        if seconds is None:
            self.emit(Note(text="no training step could be measured, so the duration is not estimated"))
        return seconds

    def _run(self, workers: int) -> None:
        with self._signals():
            try:
                self.executor.start(workers)
                while self.executor.active and self.signal is None and self.error is None and not self._time_is_over():
                    self.executor.poll(POLL_SECONDS)
                    self._count()
            except WorkerError as error:
                self.error = str(error)
            finally:
                self._stop()

    def _time_is_over(self) -> bool:
        return time.perf_counter() >= self.end

    def _count(self, now: bool = False) -> None:
        """Emit `Counted` if the numbers of runs by status have changed, which other calls may do too."""
        start = time.perf_counter()
        if not now and start < self.next_count:
            return
        try:
            counts = self.executor.counts()
        except StoreGone as error:
            self.error = str(error)
            return
        except StoreError:  # locked for long; count again later
            return
        end = time.perf_counter()
        self.next_count = end + max(COUNT_SECONDS, 10 * (end - start))  # counting thousands of runs takes a while
        # The message of a worker that has just taken a run may not have arrived: wait for the next count.
        idle = self.executor.idle and counts["running"] > 0 and not counts["pending"]
        waiting, self.idle = idle and self.idle and not now, idle
        if self.last_counts != (counts, waiting):
            self.last_counts = counts, waiting
            self.on_event(Counted(counts=counts, waiting=waiting))

    def _stop(self) -> None:
        """Let every worker save a checkpoint and release its run. Kill it after a timeout or a second signal."""
        first = self.signal
        self.executor.stop()
        end = time.perf_counter() + self.executor.stop_seconds
        while self.executor.active and time.perf_counter() < end and self.signal == first:
            self.executor.poll(POLL_SECONDS)
        if self.executor.active:
            self.killed = True
            self.executor.kill()
        self.executor.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Record Ctrl-C and SIGTERM, instead of raising an exception at an arbitrary line of the parent."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def record(number: int, frame: FrameType | None) -> None:
            if self.signal is not None:  # at the second signal, do not wait for checkpoints
                self.executor.kill()
            self.signal = number
            self.executor.stopping.set()

        old: dict[int, Any] = {number: signal.signal(number, record) for number in (signal.SIGINT, *STOP_SIGNALS)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
