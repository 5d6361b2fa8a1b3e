"""No worker processes: one run after another in the calling process, where a debugger can stop in your encoding or task."""

import pickle
from collections.abc import Callable

from lengthwise.config import ExecutorConfig
from lengthwise.store import Store
from lengthwise.studies.events import Event
from lengthwise.studies.executors.base import Executor
from lengthwise.studies.rank_groups import RankGroup
from lengthwise.studies.worker import Spec, Worker
from lengthwise.training.numerics import torch_threads


class InlineExecutor(Executor):
    def __init__(
        self,
        config: ExecutorConfig,
        spec: Spec,
        store: Store,
        emit: Callable[[Event], None],
        group: RankGroup | None = None,
    ):
        super().__init__(config, spec, store, emit)
        self.stop_requested = self.stopping
        self.worker = Worker(spec, self, store, pickle.loads(spec.runs), group)
        self.unfinished = False

    def send(self, event: Event) -> None:
        """Emit an event of the worker."""
        self.emit(event)

    def workers(self, unfinished: int) -> int:
        return min(1, unfinished)

    def start(self, workers: int) -> None:
        self.unfinished = workers > 0

    def poll(self, seconds: float) -> None:
        """Finish a whole run, if one can be claimed."""
        with torch_threads(self.spec.compute.threads):
            self.unfinished = not self.stopping.is_set() and self.worker.step()

    @property
    def active(self) -> bool:
        return self.unfinished and not self.stopping.is_set()

    @property
    def idle(self) -> bool:
        return self.active

    def stop(self) -> None:
        self.stopping.set()

    def kill(self) -> None:
        raise KeyboardInterrupt

    def close(self) -> None:
        self.worker.close()
