"""A worker of any executor: it claims runs of a study from the store, trains and evaluates them."""

import os
import pickle
import random
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lengthwise.config import ConfigError, Run
from lengthwise.errors import error_line, is_own_error
from lengthwise.evaluation import Division, evaluate, shifted, together
from lengthwise.machine_memory import limited_to_machine
from lengthwise.plugins import load_plugins
from lengthwise.probes.development import DevelopmentQuestion
from lengthwise.store import (
    ClaimLost,
    RunRow,
    Store,
    StoreError,
    Unstorable,
    open_folder,
    open_store,
    worker_name,
)
from lengthwise.studies.background import Heartbeat, Sender
from lengthwise.studies.compute import Compute
from lengthwise.studies.events import Advanced, Done, Event, Failed, Note, Released, Started
from lengthwise.studies.loading import load_module
from lengthwise.studies.patience import patient, patiently
from lengthwise.studies.provenance import facts
from lengthwise.studies.rank_groups import RankDied, RankGroup, SpawnedRanks
from lengthwise.studies.stored import stored_run
from lengthwise.studies.tracking import Tracking, tracked_run
from lengthwise.trackers import Tracker
from lengthwise.training import Progress, Stopped, Trained, TrainingError, train
from lengthwise.training.checkpoint import deleted
from lengthwise.training.numerics import use_process
from lengthwise.user_classes import is_builtin_class
from lengthwise.values import WEIGHTS

# Clusters send SIGUSR2 shortly before they end a job, if they are asked to. Windows has no such signal.
STOP_SIGNALS = (signal.SIGTERM, *([signal.SIGUSR2] if hasattr(signal, "SIGUSR2") else []))
# Seconds between two attempts to claim a run, while other workers have all unfinished runs.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0


@dataclass(frozen=True)
class Spec:
    """The arguments of a worker: only plain data, because errors during its unpickling could not be caught."""

    store: str  # URL
    study: str
    results: str  # the path or the address of the results folder
    runs: bytes  # {key: Run}, pickled
    plugins: tuple[str, ...]  # those of the parent, so that the classes of stored runs are found by name
    source: str | None  # the study's file, if runs use classes from outside lengthwise
    compute: Compute
    retries: int = 0  # of a run that fails, unless its settings are the cause
    trackers: tuple[Tracker, ...] = ()  # their settings
    results_id: str | None = None  # of the results folder, if it may be another one for the worker than for its parent


class Flag:
    """What tells a worker to stop. The handler of a signal may set it, unlike a `threading.Event`, whose lock the code that the
    signal interrupts may hold."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, for at most about `seconds`. Return whether it is."""
        end = time.monotonic() + seconds
        while not self._is_set and (left := end - time.monotonic()) > 0:
            time.sleep(min(0.1, left))
        return self._is_set


class Parent(Protocol):
    """What a worker needs of the executor that started it."""

    stop_requested: Flag  # the worker saves a checkpoint, releases its run and ends

    def send(self, event: Event) -> None: ...


class Worker:
    """The work of one process on a study. `group`: the processes of its runs, unless the worker starts them."""

    def __init__(self, spec: Spec, parent: Parent, store: Store, runs: dict[str, Run], group: RankGroup | None = None):
        self.spec, self.parent, self.runs = spec, parent, runs
        self.store, self.impatient_store = patient(store, parent), store
        self.files = open_folder(spec.results)
        self.name = worker_name()
        self.facts = facts(spec.compute.device, spec.compute.threads) | spec.compute.unusual()
        self.pause = FIRST_PAUSE
        self.group = group or SpawnedRanks(spec.compute, spec.plugins, spec.source)

    def step(self) -> bool:
        """Finish a run that can be claimed, or wait if others have all of them. Return False if all runs are finished."""
        if self.take_one():
            self.pause = FIRST_PAUSE
            return True
        if not self.store.is_unfinished(self.spec.study):
            return False
        # Other workers have the unfinished runs. If one of them dies, its run can be claimed here. Hundreds of workers that
        # wait for the same database ask it at different times, and less and less often.
        self.store.disconnect()
        self.parent.stop_requested.wait(self.pause * random.uniform(0.5, 1.5))
        self.pause = min(1.5 * self.pause, LONGEST_PAUSE)
        return True

    def take_one(self) -> bool:
        """Finish a run that can be claimed. Return False if there is none now."""
        row = self.store.claim(self.spec.study, self.name)
        if row is not None:
            self.process(row)
        return row is not None

    def process(self, row: RunRow) -> None:
        """Finish the run, release it, or mark it as failed."""
        start = time.perf_counter()
        folder = self.files.run_folder(row.key)
        with Heartbeat(self.impatient_store, row.key, self.name) as heartbeat:
            try:
                with self.warnings_as_notes(row.key):
                    scores, shift_scores = self.run(row, folder, heartbeat)
            except Stopped as stopped:
                self.store.require_file_unchanged()
                if stopped.phase == "train" and not heartbeat.lost:  # the step of the last checkpoint
                    heartbeat.step, heartbeat.steps = stopped.step, stopped.steps
                    self.store.heartbeat(row.key, self.name, stopped.step, stopped.steps)
                self.release(row, "claim lost" if heartbeat.lost else "stopped")
            except ClaimLost:
                self.parent.send(Released(key=row.key, reason="claim lost"))
            except Unstorable as error:
                self.fail(row, folder, error)
            except StoreError:
                with suppress(StoreError):
                    self.release(row, "the store failed")
                raise
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                    raise  # otherwise it does not come from Ctrl-C, but from a user's code
                self.store.require_file_unchanged()  # a missing store would be the cause of the error
                self.fail(row, folder, error)
            else:
                seconds = time.perf_counter() - start
                self.parent.send(Done(key=row.key, scores=scores, shift_scores=shift_scores, seconds=seconds))

    def run(self, row: RunRow, folder: Path, heartbeat: Heartbeat) -> tuple[tuple[tuple[int, float], ...], int]:
        weights = folder / WEIGHTS
        patiently(self.parent, self.files.fetch, row.key)
        self.parent.send(Started(key=row.key, what="evaluate" if weights.is_file() else "train"))
        run = self.runs.get(row.key) or stored_run(row)
        missing = self.store.missing(row.key, row.asked)
        is_trained = row.finished is not None
        if is_trained and not weights.is_file():
            self.parent.send(Note(key=row.key, text=f"its weights are missing ({weights}); training again"))

        if run.parent is not None:
            patiently(self.parent, self.files.fetch, run.parent.key)
        sender = Sender(self.files, row.key, self.parent, heartbeat)

        def should_stop() -> bool:
            return heartbeat.lost or self.parent.stop_requested.is_set()

        def on_training(progress: Progress) -> None:
            heartbeat.step, heartbeat.steps = progress.step, progress.steps
            sender.note_problem()
            self.advance(row.key, progress)
            tracking.log_points(progress.points)

        start_time = time.time()
        tracking = Tracking(self.spec.trackers, tracked_run(run, self.spec.study), self.files.path, self.parent)
        with sender, tracking, self.group.computing(run, folder, missing) as ranks:
            trained = train(
                run,
                folder,
                device=self.spec.compute.device_of(0),
                backend=self.spec.compute.backend,
                on_progress=on_training,
                should_stop=should_stop,
                optimizations=self.spec.compute.optimizations,
                ranks=ranks,
            )
            heartbeat.step = heartbeat.steps = trained.steps
            self.store.add_curve(row.key, trained.curve, worker=self.name)
            tracking.log_points(trained.curve)
            if trained.tracked:
                self.store.add_probe(row.key, DevelopmentQuestion().to_data(), trained.tracked, self.facts)
            scores = self.evaluate(run, trained, missing, should_stop, Division(ranks=ranks), row.key)
            tracking.log_scores(lambda: self.store.scores([row.key]), row.asked)
        if not weights.is_file():
            raise deleted(weights)
        new = not is_trained or weights.stat().st_mtime >= start_time
        self.store.heartbeat(row.key, self.name, trained.steps, trained.steps)
        self.store.finish(row.key, self.name, self.facts_of(row.key, trained) if new else {})
        return scores

    def evaluate(
        self,
        run: Run,
        trained: Trained,
        missing: list[dict[str, Any]],
        should_stop: Callable[[], bool],
        division: Division,
        key: str,
    ) -> tuple[tuple[tuple[int, float], ...], int]:
        """Evaluate and store each score at once. Return (length, mean) for the task as trained, and the number under shifts."""
        means: list[tuple[int, float]] = []
        evaluated = 0
        for config, shift in together(missing):

            def on_progress(progress: Progress, nth: int = evaluated + 1) -> None:
                self.advance(key, progress, nth=nth, lengths=len(missing))

            task = shifted(run.task, shift).build() if shift else trained.task
            scores = evaluate(
                trained.model,
                task,
                config,
                train_length=run.training.train_length,
                positions=run.training.positions,
                shift=shift,
                division=division,
                on_progress=on_progress,
                should_stop=should_stop,
            )
            rows = []
            for score in scores:
                fewer = score.n if score.n < score.asked.get("examples", 0) else None
                further = {"note": task.note(score.length, fewer), "details": score.details}
                row_facts = self.facts | {name: value for name, value in further.items() if value}
                rows.append({**{k: v for k, v in vars(score).items() if k != "details"}, "facts": row_facts})
            self.store.add_scores(key, rows, worker=self.name)
            evaluated += len(scores)
            means += [] if shift else [(score.length, score.mean) for score in scores]
        return tuple(means), evaluated - len(means)

    def facts_of(self, key: str, trained: Trained) -> dict[str, Any]:
        return {
            **self.facts,
            "parameters": trained.parameters,
            **({} if trained.peak_memory is None else {"peak_memory": trained.peak_memory}),
            "seconds": round(trained.seconds, 3),
            "loop_overhead": round(trained.loop_overhead, 4),
            "steps": trained.steps,
            "backend": trained.backend,
            "weights": f"runs/{key}/{WEIGHTS}",
            **trained.task.provenance(),
        }

    def advance(self, key: str, progress: Progress, *, nth: int = 0, lengths: int = 0) -> None:
        values = {name: getattr(progress, name) for name in _PROGRESS}
        self.parent.send(Advanced(key=key, **values, nth=nth, lengths=lengths))

    def close(self) -> None:
        """End what the worker holds for its runs, such as other processes."""
        self.group.close()

    def release(self, row: RunRow, reason: str) -> None:
        self.store.release(row.key, self.name)
        self.parent.send(Released(key=row.key, reason=reason))

    def fail(self, row: RunRow, folder: Path, error: BaseException) -> None:
        if isinstance(error, OSError) and not folder.is_dir():
            error = deleted(folder)
        message = error_line(error)
        if not is_own_error(error):  # a bug in an encoding or a task, whose author needs the traceback
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                text = "".join(traceback.format_exception(error))
                (folder / "error.txt").write_text(text, encoding="utf-8", errors="backslashreplace")
                message += f" (see {self.files}/runs/{row.key}/error.txt)"
            with suppress(StoreError):
                self.files.send(row.key)
        if debugging():
            traceback.print_exception(error)
        permanent = isinstance(error, (ConfigError, TrainingError))
        retries = max(1, self.spec.retries) if isinstance(error, RankDied) else self.spec.retries
        if not permanent and row.failures < retries:
            self.store.release(row.key, self.name, failed=True)
            retry = f"failed: {message}; it is tried again (retry {row.failures + 1} of {retries})"
            self.parent.send(Note(key=row.key, text=retry))
            self.parent.send(Released(key=row.key, reason="failed"))
            return
        self.store.fail(row.key, self.name, message)
        self.parent.send(Failed(key=row.key, error=message, permanent=permanent))

    @contextmanager
    def warnings_as_notes(self, key: str) -> Iterator[None]:
        """Send each warning once to the parent, which can print it beside progress bars."""
        with warnings.catch_warnings():
            sent: set[str] = set()

            def show(message: Warning | str, *_: Any, **__: Any) -> None:
                first = (str(message).strip().splitlines() or [""])[0]
                if first not in sent:
                    sent.add(first)
                    self.parent.send(Note(key=key, text=first))

            warnings.showwarning = show
            yield


_PROGRESS = ("phase", "step", "steps", "loss", "steps_per_second", "eta_seconds", "length")


@contextmanager
def worker_here(spec: Spec, parent: Parent) -> Iterator[Worker]:
    """Yield a worker for this process, whose store is open."""
    use_process(spec.compute.threads)
    load_plugins(spec.plugins)
    if spec.source is not None:
        load_module(spec.source)
    files = open_folder(spec.results)
    if spec.results_id is not None and patiently(parent, files.identifier, create=False) != spec.results_id:
        raise StoreError(
            f"{spec.results} on {socket.gethostname()} is not the results folder of the study, so the files of its runs would be "
            "missing; give a folder that all machines share with --results"
        )
    runs: dict[str, Run] = pickle.loads(spec.runs)
    require_same_keys(runs)
    limited = limited_to_machine(spec.compute.device)
    with limited, patiently(parent, open_store, spec.store, create=False) as store:
        worker = Worker(spec, parent, store, runs)
        try:
            yield worker
        finally:
            worker.close()


def work(spec: Spec, parent: Parent, ready: Callable[[str], None] = lambda name: None) -> None:
    """Work in this process until all runs are finished, or until the parent asks to stop. `ready` gets the worker's name."""
    with worker_here(spec, parent) as worker:
        ready(worker.name)
        while not parent.stop_requested.is_set() and worker.step():
            pass


def require_same_keys(runs: dict[str, Run]) -> None:
    """Raise `ConfigError` if a run's key differs from the parent's, because a class's file was edited in the meantime."""
    for key, run in runs.items():
        if run.key != key:
            names = ", ".join(sorted({choice.name for choice in run.choices if not is_builtin_class(choice.cls)}))
            raise ConfigError(
                f"the file of {names} changed while the study was running, and every edit counts, even of a comment; run "
                "the same command again, or declare version = 1 in the class to decide yourself what counts"
            )


def debugging() -> bool:
    return os.environ.get("LENGTHWISE_DEBUG", "") not in ("", "0")
