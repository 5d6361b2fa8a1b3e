"""The local executor: worker processes on this machine take a study's runs from the store until none is left."""

import os
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from lengthwise.attention import check_backend
from lengthwise.child_processes import ctrl_c_held_back
from lengthwise.class_versions import is_own
from lengthwise.config import ConfigError
from lengthwise.plugins import loaded_plugins
from lengthwise.store import RunRow, Store, StoreError, StoreGone, open_results, run_folder
from lengthwise.studies.cost import costs
from lengthwise.studies.estimate import estimate_seconds
from lengthwise.studies.events import Begun, Counted, Done, Event, Failed, Note, Released, Started
from lengthwise.studies.stored import but_for_content, change_of_content
from lengthwise.studies.study import Study
from lengthwise.studies.worker import Exit, Ready, Spec, main
from lengthwise.training.checkpoint import WEIGHTS
from lengthwise.values import require_no_address

TICK_SECONDS = 0.2  # the longest that a signal waits
COUNT_SECONDS = 1.0  # between two looks at what other calls have done
STOP_SECONDS = 30.0  # for the workers' last checkpoints
MOST_DEATHS = 2  # of a run's worker, until the run is given up


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM. Everything done so far is kept: the same call continues."""

    def __init__(self, number: int, counts: dict[str, int]):
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.signal, self.counts = number, counts


class WorkerError(ValueError):
    """Worker processes that cannot work. One line."""


@dataclass(frozen=True)
class Outcome:
    """How a study stands at the end of a call."""

    counts: dict[str, int]  # of runs: pending, running, done, failed
    failed: tuple[tuple[str, str], ...]  # (key, one line)
    seconds: float


def execute(
    study: Study,
    results: str | Path,
    *,
    workers: int | None = None,
    device: str = "cpu",
    backend: str = "auto",
    threads: int = 1,
    estimate: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> Outcome:
    """Train and evaluate what the folder `results` does not have yet of `study`; finished runs are not repeated.

    Everything is checked before anything trains. `workers`: processes, one run each at a time; None: as many as there
    are cores (on a GPU one), and no more than runs. `threads`: of torch in each worker; the same number gives the same
    bits. `estimate`: measure a few training steps before the workers start, which takes about five seconds, and tell in
    `Begun` how long the study will take. Other calls may execute the same study in the same folder at the same time: no
    run is done twice, and all calls end when all runs are done. A run that fails does not stop the others.

    Raises `ConfigError`, `StoreError`, `WorkerError`; `Interrupted` after Ctrl-C or SIGTERM, when the workers have
    saved where they are. Workers are spawned: a script calls this under `if __name__ == "__main__":`.
    """
    require_no_address("the results folder", results)
    _check(workers, device, backend, threads)
    study.check()
    tell = on_event or (lambda event: None)
    with open_results(results) as store:
        spec = Spec(
            store=store.url,
            study=study.name,
            results=str(store.folder.resolve()),
            runs=_pickled(study),
            plugins=loaded_plugins(),
            source=_own_source(study),
            device=device,
            backend=backend,
            threads=threads,
        )
        notes = _add(store, study)
        return _WorkerPool(store, study, spec, workers, estimate, tell).work(notes)


def _add(store: Store, study: Study) -> list[str]:
    """Put the study into the store. Return what is different from before, in lines: runs that the study has no more, lengths that
    it asks no more, classes that have changed, weights that are missing."""
    known = any(row.name == study.name for row in store.studies())
    before = store.runs(study.name) if known else []
    left = store.add_study(**study.about(), runs=study.rows())
    now = store.runs(study.name)
    replaced = but_for_content(left, now)
    gone = [row for row in left if row.key not in replaced]
    notes = (
        _said_of_left(study.name, gone),
        _said_of_lengths(study.name, before, now),
        change_of_content(replaced.values()),
        _reopen(store, study.name),
    )
    return list(filter(None, notes))


def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _said_of_left(study: str, left: list[RunRow]) -> str:
    """One line about the runs that the study had before; "" where it has them all."""
    if not left:
        return ""
    named = ", ".join(f"{run.label} on {run.task}, seed {run.seed} ({run.key[:8]})" for run in left[:3])
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    one = len(left) == 1
    return (
        f"{study} does not list {len(left)} run{'' if one else 's'} any more that it had before: {named}{more}; "
        f"{'it leaves' if one else 'they leave'} its report and {'stays' if one else 'stay'} in the database "
        "(`lengthwise list runs` shows every run)"
    )


def _said_of_lengths(study: str, before: list[RunRow], now: list[RunRow]) -> str:
    """Return one line about the lengths that the study asked before and asks no more of the runs that it still lists; "" without
    any."""
    asks = {run.key: {question["length"] for question in run.asked} for run in now}
    lost = sorted({q["length"] for run in before if run.key in asks for q in run.asked} - set().union(*asks.values()))
    if not lost:
        return ""
    one = len(lost) == 1
    return (
        f"{study} asked length{'' if one else 's'} {', '.join(map(str, lost))} before and does not any more; "
        f"{'its' if one else 'their'} scores leave the report and stay in the database (list "
        f"{'it' if one else 'them'} again to see them; nothing is computed twice)"
    )


def _reopen(store: Store, study: str) -> str:
    """Have the study's finished runs trained again whose weights are not there any more; one line about them, or ""."""
    missing = [
        run.key
        for run in store.runs(study)
        if run.status == "done" and not (run_folder(store.folder, run.key) / WEIGHTS).is_file()
    ]
    reopened = store.reopen(missing)
    if not reopened:
        return ""
    one = reopened == 1
    return (
        f"{study}: the weights of {reopened} finished run{'' if one else 's'} are missing in {store.folder / 'runs'}, and "
        f"{'it is' if one else 'they are'} trained again; the scores are kept (`lengthwise report` needs no weights)"
    )


def _check(workers: int | None, device: str, backend: str, threads: int) -> None:
    for name, value in (("workers", workers), ("threads", threads)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}; it has to be at least 1")
    check_backend(backend)
    try:
        torch.zeros(1, device=device).tolist()  # "meta" makes tensors and has no numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).strip().splitlines()[0]
        hint = "this PyTorch or this machine has no CUDA" if device.startswith("cuda") else first
        raise ConfigError(f"device {device!r} cannot be used: {hint}; use cpu, or another device") from error


def _pickled(study: Study) -> bytes:
    """The runs, for the workers, which import each class by its name."""
    for run in study.runs:
        for choice in run.choices:
            try:
                pickle.dumps(choice.make)
            except (pickle.PicklingError, AttributeError) as error:
                raise ConfigError(
                    f"{choice.name} cannot be found by its name in {choice.make.__module__}, as worker processes have "
                    "to; define it at the top level of a module or of the study's file"
                ) from error
    return pickle.dumps({run.key: run for run in study.runs})


def _own_source(study: Study) -> str | None:
    """The study's file when some class is from outside lengthwise: defined there, or in a neighbour that the file imports."""
    outside = any(not is_own(choice.make) for run in study.runs for choice in run.choices)
    return str(study.source) if outside and study.source is not None else None


class _Worker:
    """A worker process as its parent sees it."""

    def __init__(self, spec: Spec):
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=main, args=(theirs, spec), daemon=True)
        with ctrl_c_held_back():  # the child inherits that, so that Ctrl-C does not hit it while it starts
            self.process.start()
        theirs.close()
        self.name: str | None = None  # in the store; None until it is ready
        self.key = ""  # the run it works on
        self.bye: Exit | None = None

    def stop(self) -> None:
        with suppress(OSError):  # it has ended
            self.pipe.send("stop")
        if self.name is None:
            self.process.terminate()  # it is still importing and holds nothing


class _WorkerPool:
    """The workers of one call, and what they say."""

    def __init__(
        self,
        store: Store,
        study: Study,
        spec: Spec,
        workers: int | None,
        estimate: bool,
        tell: Callable[[Event], None],
    ):
        self.store, self.study, self.spec, self.tell = store, study, spec, tell
        self.wanted, self.estimate = workers, estimate
        self.crew: list[_Worker] = []
        self.deaths: Counter[str] = Counter()
        self.idle_deaths = 0  # of workers without a run, since a run was begun
        self.signal: int | None = None
        self.error: str | None = None
        self.counted: tuple[dict[str, int], bool] | None = None
        self.count_at = 0.0
        self.idle = False  # at the last look no worker of ours had a run, and another call had

    def work(self, notes: list[str]) -> Outcome:
        begin = time.perf_counter()
        counts = self.store.progress(self.study.name)
        left = counts["pending"] + counts["running"]
        usual = 1 if torch.device(self.spec.device).type == "cuda" else cores()
        number = min(self.wanted or usual, left)
        todo = {row.key: row for row in self.store.runs(self.study.name) if row.status in ("pending", "running")}
        runs = [run for run in self.study.runs if run.key in todo]
        cost = costs((run, self.study.evaluation_of(run)) for run in runs)
        trained = {row.key for row in todo.values() if row.finished is not None}
        seconds = None
        if self.estimate and runs:
            self.tell(Note(text="measuring a few training steps, to estimate how long this takes"))
            spec = self.spec
            seconds = estimate_seconds(
                runs, cost, trained, workers=number, device=spec.device, backend=spec.backend, threads=spec.threads
            )
            if seconds is None:
                self.tell(Note(text="no training step could be measured, so the duration is not estimated"))
        cost = {key: replace(own, train=0.0) if key in trained else own for key, own in cost.items()}
        self.tell(Begun(total=len(self.study.runs), counts=counts, workers=number, costs=cost, seconds=seconds))
        for note in notes:
            self.tell(Note(text=note))
        with self._signals():
            try:
                for _ in range(number):
                    self.crew.append(_Worker(self.spec))
                while self.crew and self.signal is None and self.error is None:
                    self._listen(TICK_SECONDS)
                    self._count()
            finally:
                self._stop()
        counts = self.store.progress(self.study.name)
        if self.signal is not None:
            raise Interrupted(self.signal, counts)
        if self.error is not None:
            raise WorkerError(self.error)
        failed = tuple((r.key, r.error or "") for r in self.store.runs(self.study.name) if r.status == "failed")
        return Outcome(counts, failed, time.perf_counter() - begin)

    # ---- what workers say ---------------------------------------------------------------------------------------

    def _listen(self, seconds: float) -> None:
        """Hear what has been said, waiting at most so long for the first word."""
        by_pipe = {worker.pipe: worker for worker in self.crew}
        for pipe in connection.wait(list(by_pipe), seconds):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                while worker.pipe.poll():
                    self._hear(worker, worker.pipe.recv())
            except (EOFError, OSError, pickle.UnpicklingError):
                self._ended(worker)

    def _hear(self, worker: _Worker, message: Event | Ready | Exit) -> None:
        if isinstance(message, Ready):
            worker.name = message.name
        elif isinstance(message, Exit):
            worker.bye = message
            self.error = self.error or message.error
            worker.process.kill()  # it has let go of everything; taking torch down would only take time
        else:
            if isinstance(message, Started):
                worker.key, self.idle_deaths = message.key, 0
            elif isinstance(message, (Done, Failed, Released)):
                worker.key = ""
            self.tell(message)
            if isinstance(message, (Done, Failed)):
                self._count(now=True)

    def _ended(self, worker: _Worker) -> None:
        """A worker's pipe is closed: it said good-bye, or it was killed."""
        self.crew.remove(worker)
        worker.process.join(STOP_SECONDS)
        worker.pipe.close()
        if worker.bye is not None or self._stopping:
            return
        how = _how(worker.process.exitcode)
        if worker.key:
            self._died_at(worker, worker.key, how)
        else:
            self.idle_deaths += 1
            if self.idle_deaths > len(self.crew) + 1:
                self.error = f"worker processes end before they begin a run ({how}); what they printed may say why"
                return
        self.crew.append(_Worker(self.spec))

    def _died_at(self, worker: _Worker, key: str, how: str) -> None:
        self.deaths[key] += 1
        if self.deaths[key] < MOST_DEATHS or worker.name is None:
            self.tell(Released(key=key, reason=f"its worker ended ({how})"))
            self.tell(Note(key=key, text=f"a worker ended ({how}); the run continues from its last checkpoint"))
            return
        error = f"its worker ended {self.deaths[key]} times ({how}); if memory was short, use fewer --workers"
        # The dead worker still holds the run: nobody else takes it before this.
        if self.store.fail(key, worker.name, error):
            self.tell(Failed(key=key, error=error))

    def _count(self, now: bool = False) -> None:
        """Tell how many runs are done, other calls' too, when that has changed."""
        begin = time.perf_counter()
        if not now and begin < self.count_at:
            return
        try:
            counts = self.store.progress(self.study.name)
        except StoreGone as error:
            self.error = str(error)
            return
        except StoreError:  # locked for long: the next look will tell
            return
        end = time.perf_counter()
        self.count_at = end + max(COUNT_SECONDS, 10 * (end - begin))  # counting thousands of runs takes a while
        ours = sum(1 for worker in self.crew if worker.key)
        ready = any(worker.name for worker in self.crew)
        # A worker of ours that took a run a moment ago may not have said so yet: only the next look tells.
        idle = ready and not ours and counts["running"] > 0 and not counts["pending"]
        waiting, self.idle = idle and self.idle and not now, idle
        if self.counted != (counts, waiting):
            self.counted = counts, waiting
            self.tell(Counted(counts=counts, waiting=waiting))

    # ---- the end ------------------------------------------------------------------------------------------------

    @property
    def _stopping(self) -> bool:
        return self.signal is not None or self.error is not None

    def _stop(self) -> None:
        """Let every worker save where it is and give its run back; after a while, or a second signal, end it."""
        first = self.signal
        for worker in self.crew:
            worker.stop()
        end = time.perf_counter() + STOP_SECONDS
        while self.crew and time.perf_counter() < end and self.signal == first:
            self._listen_to_the_end()
        for worker in self.crew:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()
        self.crew.clear()

    def _listen_to_the_end(self) -> None:
        if self.error is None and self.signal is None:
            self.error = "stopped"  # an exception is under way: no worker is replaced
        self._listen(TICK_SECONDS)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM are noted instead of raised wherever the parent happens to be."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            if self.signal is not None:  # the second one: do not wait for checkpoints
                for worker in self.crew:
                    worker.process.kill()
            self.signal = number

        old: dict[int, Any] = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"
