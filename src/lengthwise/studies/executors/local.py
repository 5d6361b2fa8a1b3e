"""Worker processes on this machine, each with one run at a time."""

import queue
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import torch

from lengthwise.child_processes import cores
from lengthwise.config import Local
from lengthwise.store import Store
from lengthwise.studies.events import Done, Event, Failed, Note, Released, Started
from lengthwise.studies.executors.base import Executor, WorkerError
from lengthwise.studies.spec import Spec
from lengthwise.studies.worker_process import Finished, RankLost, Ready, WorkerProcess

MAX_DEATHS = 2  # of the workers of one run, before the run fails


class LocalExecutor(Executor):
    def __init__(self, config: Local, spec: Spec, store: Store, emit: Callable[[Event], None]):
        super().__init__(config, spec, store, emit)
        self.processes: list[WorkerProcess] = []
        self.inbox: queue.SimpleQueue[tuple[WorkerProcess, Event]] = queue.SimpleQueue()
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
            self.processes.append(WorkerProcess(self.spec, self.inbox))

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
            worker.close()
        self.processes.clear()

    def poll(self, seconds: float) -> None:
        ended = [worker for worker in self.processes if worker.has_ended()]  # their events have arrived, too
        with suppress(queue.Empty):
            self._handle(*self.inbox.get(timeout=0 if ended else seconds))
            while True:
                self._handle(*self.inbox.get_nowait())
        for worker in ended:
            self._handle_end(worker)
        if self.error is not None and not self.stopping.is_set():
            raise WorkerError(self.error)

    def _handle(self, worker: WorkerProcess, event: Event) -> None:
        if isinstance(event, Ready):
            worker.name = event.name
        elif isinstance(event, Finished) or (isinstance(event, RankLost) and not worker.error):
            worker.last = event  # if both come, a process was lost while the others finished their run
        else:
            if isinstance(event, Started):
                worker.key, self.idle_deaths = event.key, 0
            elif isinstance(event, (Done, Failed, Released)):
                worker.key = ""
            self.emit(event)

    def _handle_end(self, worker: WorkerProcess) -> None:
        """Handle the end of a process: the worker sent `Finished` before, or it was killed."""
        self.processes.remove(worker)
        worker.close()
        self.error = self.error or worker.error
        if isinstance(worker.last, Finished) or self.stopping.is_set() or self.error is not None:
            return
        if worker.key:
            self._handle_death(worker, worker.key)
        else:
            self.idle_deaths += 1
            if self.idle_deaths > len(self.processes) + 1:
                cause = "see their output above for the cause"
                self.error = f"worker processes end before they start a run ({worker.reason}); {cause}"
                return
        self.start(1)

    def _handle_death(self, worker: WorkerProcess, key: str) -> None:
        self.deaths[key] += 1
        if self.deaths[key] < MAX_DEATHS or worker.name is None:
            self.emit(Released(key=key, reason=f"its worker ended ({worker.reason})"))
            self.emit(
                Note(key=key, text=f"a worker ended ({worker.reason}); the run continues from its last checkpoint")
            )
            return
        advice = "if memory ran out, use fewer --workers or shorter lengths"
        error = f"its worker ended {self.deaths[key]} times ({worker.reason}); {advice}"
        # In the store, the dead worker still holds the run, so no other worker can take it before this.
        if self.store.fail(key, worker.name, error):
            self.emit(Failed(key=key, error=error))
