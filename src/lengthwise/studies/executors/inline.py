"""One run after another in the calling process, where a debugger can stop in your encoding or task."""

from collections.abc import Callable

from lengthwise.config import ConfigError, ExecutorConfig
from lengthwise.store import Store
from lengthwise.studies.compute import Compute
from lengthwise.studies.events import Event
from lengthwise.studies.executors.base import Executor
from lengthwise.studies.ranks import NO_GROUP, RankGroup
from lengthwise.studies.spec import Spec
from lengthwise.studies.worker import Worker
from lengthwise.training.numerics import torch_threads


class InlineExecutor(Executor):
    in_this_process = True

    def __init__(
        self,
        config: ExecutorConfig,
        spec: Spec,
        store: Store,
        emit: Callable[[Event], None],
        group: RankGroup = NO_GROUP,
    ):
        super().__init__(config, spec, store, emit)
        self.stop_requested = self.stopping
        self.worker = Worker(spec, self, store, group)
        self.unfinished = False

    @classmethod
    def require_usable(cls, config: ExecutorConfig, compute: Compute, store: str | None) -> None:
        super().require_usable(config, compute, store)
        if compute.devices_per_run > 1:
            raise ConfigError(
                "inline executes runs in this process, which has one device; use --on local, or torchrun -m lengthwise "
                "work"
            )

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

    def close(self) -> None: ...
