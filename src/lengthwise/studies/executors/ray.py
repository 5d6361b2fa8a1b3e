"""Tasks of a Ray cluster, one for each run that is not finished. Ray starts them where their resources are free.

A task claims whichever run is next. If a node is lost, Ray executes its tasks again elsewhere, and its runs can be
claimed after a minute without a sign of life.
"""

import logging
import queue
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from lengthwise.config import ConfigError, ExecutorConfig, Ray
from lengthwise.errors import error_line
from lengthwise.store import Store
from lengthwise.studies.compute import Compute
from lengthwise.studies.events import Event, Note
from lengthwise.studies.executors.base import WorkerError
from lengthwise.studies.executors.watching import RemoteExecutor, require_consistent
from lengthwise.studies.parent import Flag
from lengthwise.studies.spec import Spec
from lengthwise.studies.worker import Worker, worker_here
from lengthwise.studies.worker_process import Finished, WorkerProcess
from lengthwise.values import install_extra

PAUSE_SECONDS = 5.0  # until a task is submitted again after one that found no run to claim


class RayExecutor(RemoteExecutor):
    stop_seconds = 60.0

    def __init__(self, config: Ray, spec: Spec, store: Store, emit: Callable[[Event], None]):
        super().__init__(config, spec, store, emit)
        self.tasks: list[Any] = []  # of Ray, which have not ended
        self.next_submission = 0.0
        self.started_ray = False

    @classmethod
    def require_usable(cls, config: ExecutorConfig, compute: Compute, store: str | None) -> None:
        assert isinstance(config, Ray)
        try:
            import ray  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConfigError(f"--on ray needs the package ray; {install_extra('ray')}") from error
        require_consistent(config.gpus, compute, store)

    def workers(self, unfinished: int) -> int:
        return unfinished

    def start(self, workers: int) -> None:
        import ray

        if not workers:
            self.watcher.unfinished = 0
            return
        if not ray.is_initialized():
            try:
                ray.init(address=self.config.address, logging_level=logging.ERROR, log_to_driver=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                address = self.config.address or "started here"
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise WorkerError(
                    f"the Ray cluster {address} cannot be used: {reason}; start it, or correct the address (a cluster "
                    "with token authentication needs RAY_AUTH_MODE=token)"
                ) from error
            self.started_ray = True
        # With a GPU, Ray ends the process after each task, because the next one may get another GPU. It decides this
        # here, so `options` would be too late for the GPUs.
        task = ray.remote(
            num_cpus=self.config.cpus or self.spec.compute.threads * self.spec.compute.devices_per_run,
            num_gpus=self.config.gpus,
            max_retries=-1,
        )
        self.task = task(take_one).options(name=f"lengthwise: {self.spec.study}")
        self.shared_spec = ray.put(self.spec)
        self._submit(workers)
        total = ray.cluster_resources()
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        size = f"nodes: {nodes}, CPUs: {total.get('CPU', 0):g}, GPUs: {total.get('GPU', 0):g}"
        self.emit(Note(text=f"submitted the tasks of {workers} runs to Ray ({size})"))

    def _submit(self, number: int) -> None:
        self.tasks += [self.task.remote(self.shared_spec) for _ in range(number)]

    def poll(self, seconds: float) -> None:
        import ray

        self.watcher.look()
        try:
            ended, self.tasks = (
                ray.wait(self.tasks, num_returns=len(self.tasks), timeout=seconds) if self.tasks else ([], [])
            )
            results = [ray.get(task) for task in ended]
        except ray.exceptions.TaskCancelledError:
            return
        except ray.exceptions.RayTaskError as error:
            raise WorkerError(error_line(error.cause)) from error
        except ray.exceptions.RayError as error:
            raise WorkerError(f"Ray failed: {(str(error).strip().splitlines() or [''])[0]}") from error
        if not ended:
            time.sleep(0 if self.tasks else seconds)
        if not all(results):
            self.next_submission = time.monotonic() + PAUSE_SECONDS
        if not self.stopping.is_set() and time.monotonic() >= self.next_submission:
            self._submit(self.watcher.unfinished - len(self.tasks))

    @property
    def active(self) -> bool:
        return bool(self.tasks) if self.stopping.is_set() else super().active

    def stop(self) -> None:
        """Cancel the tasks that wait, and let the others save a checkpoint."""
        import ray

        self.stopping.set()
        for task in self.tasks:
            ray.cancel(task)

    def kill(self) -> None:
        import ray

        for task in self.tasks:
            ray.cancel(task, force=True)

    def close(self) -> None:
        super().close()
        if self.started_ray:
            import ray

            ray.shutdown()


# ---- in the processes of Ray ---


class _Parent:
    """The parent of the worker in a process of Ray, which executes many tasks. Ray's cancellation asks it to stop."""

    def __init__(self) -> None:
        self.stop_requested = Flag()

    def send(self, event: Event) -> None:
        """Do nothing: the store shows what happens."""


_open_workers: list[tuple[Spec, Worker, _Parent, ExitStack]] = []  # at most one, for the next task


def take_one(spec: Spec) -> bool:
    """Finish a run of the study. Return False if none can be claimed now.

    If each run has several devices, which need a process each, a worker process finishes all runs.
    """
    parent = _Parent()
    old = signal.signal(signal.SIGINT, lambda *_: parent.stop_requested.set())  # ray.cancel interrupts the main thread
    try:
        return _take_one(spec, parent) if spec.compute.devices_per_run == 1 else _take_all(spec, parent)
    finally:
        signal.signal(signal.SIGINT, old)


def _take_one(spec: Spec, parent: _Parent) -> bool:
    if not _open_workers or _open_workers[0][0] != spec:
        for *_, stack in _open_workers:
            stack.close()
        _open_workers.clear()
        stack = ExitStack()
        _open_workers.append((spec, stack.enter_context(worker_here(spec, parent)), parent, stack))
    _, worker, worker_parent, _ = _open_workers[0]
    worker_parent.stop_requested = parent.stop_requested
    try:
        return worker.take_one()
    finally:
        worker.store.disconnect()


def _take_all(spec: Spec, parent: _Parent) -> bool:
    inbox: queue.SimpleQueue[tuple[WorkerProcess, Event]] = queue.SimpleQueue()
    worker = WorkerProcess(spec, inbox)
    try:
        while not worker.has_ended():
            if parent.stop_requested.wait(0.2):
                worker.stop()
        while not inbox.empty():
            event = inbox.get()[1]
            worker.last = event if isinstance(event, Finished) else worker.last
    finally:
        worker.close()
    if isinstance(worker.last, Finished) and worker.last.error is not None:
        raise WorkerError(worker.last.error)
    return isinstance(worker.last, Finished)
