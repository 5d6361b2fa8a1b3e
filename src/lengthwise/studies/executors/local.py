"""Worker processes on this machine, each with one run at a time."""

import os
import pickle
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection

import torch

from lengthwise.child_processes import exit_reason, starting_processes
from lengthwise.config import Local
from lengthwise.errors import error_line
from lengthwise.store import Store
from lengthwise.studies.events import Done, Event, Failed, Note, Released, Started
from lengthwise.studies.executors.base import Executor, WorkerError
from lengthwise.studies.worker import STOP_SIGNALS, Flag, Spec, debugging, work

JOIN_SECONDS = 30.0  # for a process that has closed its pipe
MAX_DEATHS = 2  # of the workers of one run, before the run fails
ORPHAN_SECONDS = 20.0  # for a last checkpoint after the parent has ended


@dataclass(frozen=True)
class Ready:
    """The first message: the worker is ready, and its name in the store."""

    name: str


@dataclass(frozen=True)
class Exit:
    """The last message. `error` is one line if the worker cannot continue."""

    error: str | None = None


class ParentPipe:
    """The pipe to the parent. A received message means stop, and a closed pipe means that the parent has ended."""

    def __init__(self, pipe: Connection):
        self.stop_requested = Flag()
        self._pipe, self._lock = pipe, threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, message: Event | Ready | Exit) -> None:
        with self._lock, suppress(OSError):  # the parent may have ended
            self._pipe.send(message)

    def _listen(self) -> None:
        try:
            self._pipe.recv()
        except (EOFError, OSError):
            end = threading.Timer(ORPHAN_SECONDS, os._exit, (1,))
            end.daemon = True
            end.start()
        self.stop_requested.set()


class _Worker:
    """The parent's handle of a worker process."""

    def __init__(self, spec: Spec):
        context = get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        may_have_children = spec.compute.devices_per_run > 1  # which Python does not allow to a daemon
        self.process = context.Process(target=main, args=(child_pipe, spec), daemon=not may_have_children)
        with starting_processes():  # the child inherits this, so Ctrl-C cannot hit it while it starts
            self.process.start()
        child_pipe.close()
        self.name: str | None = None  # its name in the store; None until it is ready
        self.key = ""  # of its current run
        self.exit: Exit | None = None

    def stop(self) -> None:
        with suppress(OSError):  # the process has already ended
            self.pipe.send("stop")
        if self.name is None:
            self.process.terminate()  # it is still importing, and has no run yet


class LocalExecutor(Executor):
    def __init__(self, config: Local, spec: Spec, store: Store, emit: Callable[[Event], None]):
        super().__init__(config, spec, store, emit)
        self.processes: list[_Worker] = []
        self.deaths: Counter[str] = Counter()  # of workers, by run
        self.idle_deaths = 0  # of workers without a run, since a run last started
        self.error: str | None = None

    def workers(self, unfinished: int) -> int:
        compute = self.spec.compute
        on_cuda = torch.device(compute.device).type == "cuda"
        default = 1 if on_cuda else max(1, cores() // compute.devices_per_run)
        return min(self.config.workers or default, unfinished)

    def start(self, workers: int) -> None:
        for _ in range(workers):
            self.processes.append(_Worker(self.spec))

    @property
    def active(self) -> bool:
        return bool(self.processes)

    @property
    def idle(self) -> bool:
        return any(worker.name for worker in self.processes) and not any(worker.key for worker in self.processes)

    def stop(self) -> None:
        self.stopping.set()
        for worker in self.processes:
            worker.stop()

    def kill(self) -> None:
        for worker in self.processes:
            worker.process.kill()

    def close(self) -> None:
        for worker in self.processes:
            worker.process.join()
            worker.pipe.close()
        self.processes.clear()

    def poll(self, seconds: float) -> None:
        by_pipe = {worker.pipe: worker for worker in self.processes}
        for pipe in connection.wait(list(by_pipe), seconds):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                while worker.pipe.poll():
                    self._handle(worker, worker.pipe.recv())
            except (EOFError, OSError, pickle.UnpicklingError):
                self._handle_end(worker)
        if self.error is not None and not self.stopping.is_set():
            raise WorkerError(self.error)

    def _handle(self, worker: _Worker, message: Event | Ready | Exit) -> None:
        if isinstance(message, Ready):
            worker.name = message.name
        elif isinstance(message, Exit):
            worker.exit = message
            self.error = self.error or message.error
            worker.process.kill()  # it has released everything; shutting torch down would only take time
        else:
            if isinstance(message, Started):
                worker.key, self.idle_deaths = message.key, 0
            elif isinstance(message, (Done, Failed, Released)):
                worker.key = ""
            self.emit(message)

    def _handle_end(self, worker: _Worker) -> None:
        """Handle a closed pipe: the worker sent `Exit` before, or it was killed."""
        self.processes.remove(worker)
        worker.process.join(JOIN_SECONDS)
        worker.pipe.close()
        if worker.exit is not None or self.stopping.is_set() or self.error is not None:
            return
        reason = exit_reason(worker.process.exitcode)
        if worker.key:
            self._handle_death(worker, worker.key, reason)
        else:
            self.idle_deaths += 1
            if self.idle_deaths > len(self.processes) + 1:
                self.error = (
                    f"worker processes end before they start a run ({reason}); see their output above for the cause"
                )
                return
        self.processes.append(_Worker(self.spec))

    def _handle_death(self, worker: _Worker, key: str, reason: str) -> None:
        self.deaths[key] += 1
        if self.deaths[key] < MAX_DEATHS or worker.name is None:
            self.emit(Released(key=key, reason=f"its worker ended ({reason})"))
            self.emit(Note(key=key, text=f"a worker ended ({reason}); the run continues from its last checkpoint"))
            return
        error = f"its worker ended {self.deaths[key]} times ({reason}); if memory ran out, use fewer --workers or shorter lengths"
        # In the store, the dead worker still holds the run, so no other worker can take it before this.
        if self.store.fail(key, worker.name, error):
            self.emit(Failed(key=key, error=error))


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# ---- in the worker process ---


def main(pipe: Connection, spec: Spec) -> None:
    """Work until all runs are finished, the parent sends stop, or the parent has ended."""
    # Ctrl-C is sent to all processes of the terminal; the parent handles it and sends stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = ParentPipe(pipe)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: parent.stop_requested.set())
    try:
        work(spec, parent, lambda name: parent.send(Ready(name)))
    except (Exception, SystemExit) as error:
        if debugging():
            traceback.print_exc()
        parent.send(Exit(error_line(error)))
    else:
        parent.send(Exit())
