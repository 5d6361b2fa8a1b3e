"""A worker process: claims runs of a study from the store, trains and evaluates them, until nothing is left."""

import os
import pickle
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lengthwise.class_versions import is_own
from lengthwise.config import ConfigError, Run
from lengthwise.evaluation import Score, evaluate, shifted, together
from lengthwise.plugins import fault_of_a_file, load_plugins
from lengthwise.store import (
    ClaimLost,
    RunRow,
    Store,
    StoreError,
    StoreGone,
    StoreWarning,
    Unstorable,
    open_store,
    run_folder,
    worker_name,
)
from lengthwise.studies.events import Advanced, Done, Event, Failed, Note, Released, Started
from lengthwise.studies.loading import load
from lengthwise.studies.provenance import facts
from lengthwise.studies.stored import stored_run
from lengthwise.training import Progress, Stopped, Trained, train
from lengthwise.training.checkpoint import WEIGHTS
from lengthwise.training.numerics import use_process

BEAT_SECONDS = 5.0  # the store takes a worker for dead after 60 s of silence
IDLE_SECONDS = 1.0  # between two looks for work, while others hold all runs that are left
ORPHAN_SECONDS = 20.0  # for a last checkpoint when the parent is gone


@dataclass(frozen=True)
class Spec:
    """What a worker is told: plain data, since it is unpickled before anything can be caught."""

    store: str  # URL
    study: str
    results: str
    runs: bytes  # {key: Run}, pickled
    plugins: tuple[str, ...]  # that the parent has loaded, so that stored runs find their classes by name
    source: str | None  # the study's file, when runs are made of classes from outside lengthwise
    device: str
    backend: str
    threads: int


@dataclass(frozen=True)
class Ready:
    """The first message: the worker is ready, and its name in the store."""

    name: str


@dataclass(frozen=True)
class Exit:
    """The last message; `error` when it cannot go on, in one line."""

    error: str | None = None


class ParentPipe:
    """The pipe to the parent: messages go out; what comes in says stop, and its end says that the parent is gone."""

    def __init__(self, pipe: Connection):
        self.stop = threading.Event()
        self._pipe, self._lock = pipe, threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, message: Event | Ready | Exit) -> None:
        # Without a parent nobody wants to know.
        with self._lock, suppress(OSError):
            self._pipe.send(message)

    def _listen(self) -> None:
        try:
            self._pipe.recv()
        except (EOFError, OSError):
            end = threading.Timer(ORPHAN_SECONDS, os._exit, (1,))
            end.daemon = True
            end.start()
        self.stop.set()


class Heartbeat:
    """Tells the store, from a thread, that the worker lives and how far it is."""

    def __init__(self, store: Store, key: str, worker: str):
        self.step = self.steps = 0
        self.lost = False
        self._store, self._key, self._worker = store, key, worker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            # A beat that the store could not take is not the end: many more come before it takes us for dead.
            try:
                self.lost = not self._store.heartbeat(self._key, self._worker, self.step, self.steps)
            except StoreGone:  # what is trained from now on could not be kept
                self.lost = True
            except StoreError:
                pass
            if self.lost:
                return


def main(pipe: Connection, spec: Spec) -> None:
    """Work until nothing is left, the parent says stop, or the parent is gone."""
    # Ctrl-C reaches the whole terminal; the parent hears it and says stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = ParentPipe(pipe)
    signal.signal(signal.SIGTERM, lambda *_: link.stop.set())
    try:
        use_process(spec.threads)
        warnings.simplefilter("ignore", StoreWarning)  # the parent reads the same rows, and says it
        load_plugins(spec.plugins)
        if spec.source is not None:
            load(spec.source)
        runs: dict[str, Run] = pickle.loads(spec.runs)
        require_same(runs)
        with open_store(spec.store, create=False) as store:
            Worker(spec, link, store, runs).work()
    except Exception as error:
        if debugging():
            traceback.print_exc()
        link.send(Exit(plain(error)))
    else:
        link.send(Exit())


class Worker:
    """One process's work on a study."""

    def __init__(self, spec: Spec, link: ParentPipe, store: Store, runs: dict[str, Run]):
        self.spec, self.link, self.store, self.runs = spec, link, store, runs
        self.name = worker_name()
        self.facts = facts(spec.device, spec.threads)

    def work(self) -> None:
        self.link.send(Ready(self.name))
        while not self.link.stop.is_set():
            row = self.store.claim(self.spec.study, self.name)
            if row is not None:
                self.take(row)
                continue
            counts = self.store.progress(self.spec.study)
            if not counts["running"] and not counts["pending"]:
                return
            # Others hold what is left; one that dies leaves its run to us.
            self.link.stop.wait(IDLE_SECONDS)

    def take(self, row: RunRow) -> None:
        """Bring the run to its end, or give it back, or give it up."""
        begin = time.perf_counter()
        folder = run_folder(self.spec.results, row.key)
        with Heartbeat(self.store, row.key, self.name) as beat:
            try:
                with self.warnings_as_notes(row.key):
                    scores, of_shifts = self.run(row, folder, beat)
            except Stopped as stopped:
                self.store.require_there()
                if stopped.phase == "training" and not beat.lost:  # what the last checkpoint has
                    beat.step, beat.steps = stopped.step, stopped.steps
                    self.store.heartbeat(row.key, self.name, stopped.step, stopped.steps)
                self.give_back(row, "claim lost" if beat.lost else "stopped")
            except ClaimLost:
                self.link.send(Released(key=row.key, reason="claim lost"))
            except Unstorable as error:
                self.give_up(row, folder, error)
            except StoreError:
                with suppress(StoreError):
                    self.give_back(row, "the store failed")
                raise
            except Exception as error:
                self.store.require_there()  # else whatever went wrong follows from that
                self.give_up(row, folder, error)
            else:
                seconds = time.perf_counter() - begin
                self.link.send(Done(key=row.key, scores=scores, of_shifts=of_shifts, seconds=seconds))

    def run(self, row: RunRow, folder: Path, beat: Heartbeat) -> tuple[tuple[tuple[int, float], ...], int]:
        run = self.runs.get(row.key) or stored_run(row)
        missing = self.store.missing(row.key, row.asked)
        is_trained = row.finished is not None
        weights = folder / WEIGHTS
        self.link.send(Started(key=row.key, what="evaluate" if weights.is_file() else "train"))
        if is_trained and not weights.is_file():
            self.note(row.key, f"its weights are missing ({weights}); training again")

        def should_stop() -> bool:
            return beat.lost or self.link.stop.is_set()

        def on_training(progress: Progress) -> None:
            beat.step, beat.steps = progress.step, progress.steps
            self.advance(row.key, progress)

        trained_at = time.time()
        trained = train(
            run,
            folder,
            device=self.spec.device,
            backend=self.spec.backend,
            on_progress=on_training,
            should_stop=should_stop,
        )
        beat.step = beat.steps = run.training.steps
        self.store.add_curve(row.key, trained.curve, worker=self.name)
        scores = self.ask(row, run, trained, missing, should_stop)
        new = not is_trained or weights.stat().st_mtime >= trained_at
        self.store.heartbeat(row.key, self.name, run.training.steps, run.training.steps)
        self.store.finish(row.key, self.name, self.facts_of(row.key, trained) if new else {})
        return scores

    def ask(
        self, row: RunRow, run: Run, trained: Trained, missing: list[dict[str, Any]], should_stop: Callable[[], bool]
    ) -> tuple[tuple[tuple[int, float], ...], int]:
        """Score the trained model; each answer is stored as soon as it is there. (length, mean) of the task as it was trained, and
        how many answers there are of shifts."""
        found: list[tuple[int, float]] = []
        asked = 0
        for config, shift in together(missing):

            def on_progress(progress: Progress, nth: int = asked + 1) -> None:
                self.advance(row.key, progress, nth=nth, lengths=len(missing))

            task = shifted(run.task, shift).build() if shift else trained.task
            scores = evaluate(
                trained.model,
                task,
                config,
                train_length=row.train_length,
                positions=run.training.positions,
                shift=shift,
                on_progress=on_progress,
                should_stop=should_stop,
            )
            answers = []
            for score in scores:
                facts = {**self.facts, **_said_of(score, task.note(score.length, _fewer(score)))}
                answers.append({name: getattr(score, name) for name in _SCORE} | {"facts": facts})
            self.store.add_scores(row.key, answers, worker=self.name)
            asked += len(scores)
            found += [] if shift else [(score.length, score.mean) for score in scores]
        return tuple(found), asked - len(found)

    def facts_of(self, key: str, trained: Trained) -> dict[str, Any]:
        return {
            **self.facts,
            "parameters": trained.parameters,
            "seconds": round(trained.seconds, 3),
            "loop_overhead": round(trained.loop_overhead, 4),
            "backend": trained.backend,
            "weights": f"runs/{key}/{WEIGHTS}",
            **trained.task.provenance(),
        }

    def advance(self, key: str, progress: Progress, *, nth: int = 0, lengths: int = 0) -> None:
        values = {name: getattr(progress, name) for name in _PROGRESS}
        self.link.send(Advanced(key=key, **values, nth=nth, lengths=lengths))

    def give_back(self, row: RunRow, reason: str) -> None:
        self.store.release(row.key, self.name)
        self.link.send(Released(key=row.key, reason=reason))

    def give_up(self, row: RunRow, folder: Path, error: Exception) -> None:
        said = plain(error)
        if not is_plain(error):  # a fault in the code of an encoding or a task: its author wants to see where
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "error.txt").unlink(missing_ok=True)  # a link there may lead anywhere
                with open(folder / "error.txt", "x", encoding="utf-8") as file:
                    file.write("".join(traceback.format_exception(error)))
                said += f" (see {folder / 'error.txt'})"
        if debugging():
            traceback.print_exception(error)
        self.store.fail(row.key, self.name, said)
        self.link.send(Failed(key=row.key, error=said))

    def note(self, key: str, text: str) -> None:
        self.link.send(Note(key=key, text=text))

    @contextmanager
    def warnings_as_notes(self, key: str) -> Iterator[None]:
        """Warnings go to the parent, which knows how to print beside moving bars; each once."""
        with warnings.catch_warnings():
            said: set[str] = set()

            def show(message: Warning | str, *_: Any, **__: Any) -> None:
                first = (str(message).strip().splitlines() or [""])[0]
                if first not in said:
                    said.add(first)
                    self.note(key, first)

            warnings.showwarning = show
            yield


_SCORE = ("asked", "length", "metric", "better", "n", "mean", "standard_error", "out_of_distribution", "seconds")
_PROGRESS = ("phase", "step", "steps", "loss", "steps_per_second", "eta_seconds", "length")


def _fewer(score: Score) -> int | None:
    """How many examples were scored, if fewer than were asked for."""
    return score.n if score.n < score.asked.get("examples", 0) else None


def _said_of(score: Score, note: str | None) -> dict[str, Any]:
    """What is stored beside a score: a note for readers, and the details of decoded answers."""
    return {**({"note": note} if note else {}), **({"details": score.details} if score.details else {})}


def require_same(runs: dict[str, Run]) -> None:
    """Raise `ConfigError` where a class is another one in this process than where the study was read: its file was edited
    since."""
    for key, run in runs.items():
        if run.key != key:
            names = ", ".join(sorted({choice.name for choice in run.choices if not is_own(choice.make)}))
            raise ConfigError(f"the file of {names} changed while the study was at work; run the same command again")


def is_plain(error: BaseException) -> bool:
    """Whether the error is one of ours, which say what to do in one line."""
    return isinstance(error, ValueError) and type(error).__module__.startswith("lengthwise.")


def plain(error: BaseException) -> str:
    """An error in one line; the kind of error too, unless it is one of ours, and the line of a user's file that it came from."""
    first = (str(error).strip().splitlines() or [""])[0]
    if is_plain(error):
        return first
    return fault_of_a_file(error) or (f"{type(error).__name__}: {first}" if first else type(error).__name__)


def debugging() -> bool:
    return os.environ.get("LENGTHWISE_DEBUG", "") not in ("", "0")
