"""A worker of any executor: it claims runs of a study from the store, trains and evaluates them."""

import dataclasses
import os
import random
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from lengthwise.config import ConfigError, Run
from lengthwise.errors import error_line, is_own_error
from lengthwise.evaluation import Division, evaluate, shifted, together
from lengthwise.machine_memory import limited_to_machine
from lengthwise.measurements import Table, Training
from lengthwise.measurements.development import Development, development_rows
from lengthwise.measurements.scores import score_tables
from lengthwise.store import ClaimLost, RunRow, Store, StoreError, Unstorable, open_folder, open_store, worker_name
from lengthwise.studies.background import Heartbeat, Sender
from lengthwise.studies.events import Advanced, Done, Failed, Note, Released, Started
from lengthwise.studies.parent import Parent, when_reachable
from lengthwise.studies.provenance import facts
from lengthwise.studies.ranks import NO_GROUP, RankDied, RankGroup
from lengthwise.studies.spec import Spec, classes_listed
from lengthwise.studies.stored import stored_run
from lengthwise.studies.tracking import Tracking, tracked_run
from lengthwise.trackers import tracker_of
from lengthwise.training import Progress, Stopped, Trained, TrainingError, train
from lengthwise.training.checkpoint import deleted
from lengthwise.training.numerics import use_process
from lengthwise.values import CHECKPOINT, WEIGHTS

R = TypeVar("R")

# Seconds between two attempts to claim a run, while other workers have all unfinished runs.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0


class Worker:
    """The work of one process on a study. `group`: the processes that compute its runs with it as the first."""

    def __init__(self, spec: Spec, parent: Parent, store: Store, group: RankGroup = NO_GROUP):
        self.spec, self.parent, self.store, self.group = spec, parent, store, group
        self.files = open_folder(spec.results)
        self.trackers = [tracker_of(settings) for settings in spec.trackers]
        self.name = worker_name()
        self.facts = facts(spec.compute.device, spec.compute.threads) | spec.compute.unusual()
        self.pause = FIRST_PAUSE

    def step(self) -> bool:
        """Finish a run that can be claimed, or wait if others have all. Return False if all runs are finished."""
        if self.take_one():
            self.pause = FIRST_PAUSE
            return True
        if not self.when_reachable(self.store.is_unfinished, self.spec.study):
            return False
        # Other workers have the unfinished runs. If one of them dies, its run can be claimed here. Hundreds of workers
        # that wait for the same database ask it at different times, and less and less often.
        self.store.disconnect()
        self.parent.stop_requested.wait(self.pause * random.uniform(0.5, 1.5))
        self.pause = min(1.5 * self.pause, LONGEST_PAUSE)
        return True

    def take_one(self) -> bool:
        """Finish a run that can be claimed. Return False if there is none now."""
        row = self.when_reachable(self.store.claim, self.spec.study, self.name)
        if row is not None:
            self.process(row)
        return row is not None

    def process(self, row: RunRow) -> None:
        """Finish the run, release it, or mark it as failed."""
        start = time.perf_counter()
        folder = self.files.run_folder(row.key)
        with Heartbeat(self.store, row.key, self.name) as heartbeat:
            try:
                with self.warnings_as_notes(row.key):
                    scores, shift_scores = self.run(row, folder, heartbeat)
            except Stopped as stopped:
                if self.group is not NO_GROUP and not (heartbeat.lost or self.parent.stop_requested.is_set()):
                    signal.raise_signal(signal.SIGTERM)  # another process of the run was asked to stop
                self.store.require_file_unchanged()
                if stopped.phase == "train" and not heartbeat.lost:  # the step of the last checkpoint
                    heartbeat.step, heartbeat.steps = stopped.step, stopped.steps
                    self.when_reachable(self.store.heartbeat, row.key, self.name, stopped.step, stopped.steps)
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
        self.when_reachable(self.files.fetch, row.key)
        has_checkpoint = any(CHECKPOINT.fullmatch(path.name) for path in folder.glob("*"))
        unfinished: Literal["continue", "train"] = "continue" if has_checkpoint else "train"
        self.parent.send(Started(key=row.key, what="evaluate" if weights.is_file() else unfinished))
        run = stored_run(dataclasses.replace(row, config=self.spec.runs.get(row.key, row.config)))
        missing = self.when_reachable(self.store.missing, row.key, row.questions)
        is_trained = row.finished is not None
        if is_trained and not weights.is_file():
            self.parent.send(Note(key=row.key, text=f"its weights are missing ({weights}); training again"))

        if run.parent is not None:
            self.when_reachable(self.files.fetch, run.parent.key)
        sender = Sender(self.files, row.key, self.parent, heartbeat)

        def should_stop() -> bool:
            return heartbeat.lost or self.parent.stop_requested.is_set()

        def on_training(progress: Progress) -> None:
            heartbeat.step, heartbeat.steps = progress.step, progress.steps
            sender.note_problem()
            self.advance(row.key, progress)
            tracking.log_points(progress.points)

        start_time = time.time()
        tracking = Tracking(self.trackers, tracked_run(run, self.spec.study), self.files.path, self.parent)
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
            answers = [(Training.name, Table.from_rows(trained.curve), self.costs_of(trained))]
            if trained.tracked:
                answers.append((Development.name, Table.from_rows(development_rows(trained.tracked)), {}))
            self.add_answers(row.key, [(name, {}, table, facts) for name, table, facts in answers])
            tracking.log_points(trained.curve)
            scores = self.evaluate(run, trained, missing, should_stop, Division(ranks=ranks), row.key)
            tracking.log_scores(lambda: self.when_reachable(self.store.scores, [row.key]), row.questions, row.metric)
        if not weights.is_file():
            raise deleted(weights)
        new = not is_trained or weights.stat().st_mtime >= start_time
        self.when_reachable(self.store.heartbeat, row.key, self.name, trained.steps, trained.steps)
        self.when_reachable(self.store.finish, row.key, self.name, self.facts_of(row.key, trained) if new else {})
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
        """Store each score at once. Return (length, mean) for the task as trained, and the number under shifts."""
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
                positions=run.training.positions,
                shift=shift,
                division=division,
                on_progress=on_progress,
                should_stop=should_stop,
            )
            answers = []
            for score in scores:
                fewer = score.n if score.n < score.question.get("examples", 0) else None
                tables = score_tables(score, task.note(score.length, fewer))
                answers += [(name, score.question, table, {"seconds": score.seconds}) for name, table in tables]
            self.add_answers(key, answers)
            evaluated += len(scores)
            means += [] if shift else [(score.length, score.mean) for score in scores]
        return tuple(means), evaluated - len(means)

    def add_answers(self, key: str, answers: Iterable[tuple[str, dict[str, Any], Table, dict[str, Any]]]) -> None:
        """Store answers: the measurement, the question, the table and further facts of each."""
        rows = [
            {"measurement": name, "question": question, "rows": table.to_data(), "facts": self.facts | more}
            for name, question, table, more in answers
        ]
        self.when_reachable(self.store.add_answers, key, rows, worker=self.name)

    def when_reachable(self, call: Callable[..., R], *arguments: Any, **options: Any) -> R:
        """Return what a call of the store or of the files returns, once their server answers."""
        return when_reachable(self.parent, call, *arguments, **options)

    def costs_of(self, trained: Trained) -> dict[str, Any]:
        memory = {} if trained.peak_memory is None else {"peak_memory": trained.peak_memory}
        return {
            "parameters": trained.parameters,
            **memory,
            "seconds": round(trained.seconds, 3),
            "backend": trained.backend,
        }

    def facts_of(self, key: str, trained: Trained) -> dict[str, Any]:
        return {
            **self.facts,
            **self.costs_of(trained),
            "loop_overhead": round(trained.loop_overhead, 4),
            "steps": trained.steps,
            "weights": f"runs/{key}/{WEIGHTS}",
            **trained.task.provenance(),
        }

    def advance(self, key: str, progress: Progress, *, nth: int = 0, lengths: int = 0) -> None:
        values = {name: getattr(progress, name) for name in _PROGRESS}
        self.parent.send(Advanced(key=key, **values, nth=nth, lengths=lengths))

    def release(self, row: RunRow, reason: str) -> None:
        self.when_reachable(self.store.release, row.key, self.name)
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
            self.when_reachable(self.store.release, row.key, self.name, failed=True)
            retry = f"failed: {message}; it is tried again (retry {row.failures + 1} of {retries})"
            self.parent.send(Note(key=row.key, text=retry))
            self.parent.send(Released(key=row.key, reason="failed"))
            return
        self.when_reachable(self.store.fail, row.key, self.name, message)
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
def prepared(spec: Spec, parent: Parent) -> Iterator[None]:
    """Make this process ready to compute runs: its threads, the classes of the runs, and the results folder."""
    use_process(spec.compute.threads)
    with classes_listed(spec):
        files = open_folder(spec.results)
        if spec.results_id is not None and when_reachable(parent, files.identifier, create=False) != spec.results_id:
            raise StoreError(
                f"{spec.results} on {socket.gethostname()} is not the results folder of the study, so the files of its "
                "runs would be missing; give a folder that all machines share with --results"
            )
        yield


@contextmanager
def worker_here(spec: Spec, parent: Parent, group: RankGroup = NO_GROUP) -> Iterator[Worker]:
    """Yield a worker for this process, whose store is open."""
    limited = limited_to_machine(spec.compute.device)
    with prepared(spec, parent), limited, when_reachable(parent, open_store, spec.store, create=False) as store:
        yield Worker(spec, parent, store, group)


def work(
    spec: Spec, parent: Parent, ready: Callable[[str], None] = lambda name: None, group: RankGroup = NO_GROUP
) -> None:
    """Work in this process until all runs are finished, the parent asks to stop, or the processes of `group` cannot
    continue.

    `ready` gets the worker's name.
    """
    with worker_here(spec, parent, group) as worker:
        group.start(spec, parent.stop_requested)
        ready(worker.name)
        while not parent.stop_requested.is_set() and not group.is_broken and worker.step():
            pass


def debugging() -> bool:
    return os.environ.get("LENGTHWISE_DEBUG", "") not in ("", "0")
