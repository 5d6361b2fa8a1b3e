"""`Executor`: workers that finish the runs of one study, wherever they are."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from lengthwise.config import ExecutorConfig
from lengthwise.store import Store
from lengthwise.studies.compute import Compute
from lengthwise.studies.events import Event
from lengthwise.studies.parent import Flag
from lengthwise.studies.spec import Spec


class WorkerError(ValueError):
    """The workers cannot work. The message is one line."""


class Executor(ABC):
    """Workers that take a study's runs from the store until all are finished. One call of `execute` has one executor.

    `execute` adds the study to the store, decides how many workers are needed, and calls `start`. Then it calls `poll`
    again and again, until no worker is left or a signal arrives. At the end, also after an error, it calls `stop`,
    `poll` until no worker is left, and `close`.
    A new executor is one module and one line in `EXECUTORS` (`__init__.py`), and its settings in `config/executors.py`.

    `config`: its settings. `spec`: what a worker needs, as plain data for other processes. `emit`: takes the events of
    runs.
    """

    stop_seconds: ClassVar[float] = 30.0  # for the last checkpoints of the workers after `stop`
    in_this_process: ClassVar[bool] = False  # the calling process is the worker
    remote: ClassVar[bool] = False  # the workers are on other machines, so that nothing measured here is true there

    def __init__(self, config: Any, spec: Spec, store: Store, emit: Callable[[Event], None]):
        self.config, self.spec, self.store, self.emit = config, spec, store, emit
        self.stopping = Flag()  # `stop` was called, or will be as soon as `poll` returns: do not replace workers

    @classmethod
    def require_usable(cls, config: ExecutorConfig, compute: Compute, store: str | None) -> None:
        """Raise `ConfigError` if no worker could work. `store`: the address of the database, if it has one."""
        compute.require_usable()

    @abstractmethod
    def workers(self, unfinished: int) -> int:
        """Return how many workers to start for so many unfinished runs."""

    @abstractmethod
    def start(self, workers: int) -> None:
        """Start this number of workers."""

    @abstractmethod
    def poll(self, seconds: float) -> None:
        """Emit the events that have arrived. If there is none, wait for at most about this long.

        Raises `WorkerError` if the workers cannot work, for example because they cannot be started.
        """

    @property
    @abstractmethod
    def active(self) -> bool:
        """Whether any worker is left. A worker ends when all runs of the study are finished, and after `stop`."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether workers are ready, but none of them has a run."""

    def counts(self) -> dict[str, int]:
        """Return the current numbers of the study's runs by status."""
        return self.store.progress(self.spec.study)

    @abstractmethod
    def stop(self) -> None:
        """Ask all workers to save a checkpoint, to release their runs and to end. It may be called again."""

    @abstractmethod
    def kill(self) -> None:
        """End all workers at once, without checkpoints. A signal's handler may call this at any time."""

    @abstractmethod
    def close(self) -> None:
        """Wait for workers that were killed, and free what the executor holds. No worker is active then."""
