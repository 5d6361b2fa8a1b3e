"""One run after another in the processes that torchrun has started. This process is rank 0, and the worker."""

from collections.abc import Callable
from dataclasses import replace

from lengthwise.config import ConfigError, ExecutorConfig, Torchrun
from lengthwise.store import Store
from lengthwise.studies.compute import Compute
from lengthwise.studies.events import Event
from lengthwise.studies.executors.base import WorkerError
from lengthwise.studies.executors.inline import InlineExecutor
from lengthwise.studies.ranks import ranks_of
from lengthwise.studies.spec import Spec
from lengthwise.torchrun import launched
from lengthwise.training.numerics import use_process


class TorchrunExecutor(InlineExecutor):
    in_this_process = False  # the other processes need the classes too

    def __init__(self, config: Torchrun, spec: Spec, store: Store, emit: Callable[[Event], None]):
        launch = launched()
        assert launch is not None
        super().__init__(config, spec, store, emit, ranks_of(launch))

    @classmethod
    def require_usable(cls, config: ExecutorConfig, compute: Compute, store: str | None) -> None:
        launch = launched()
        if launch is None or not launch.is_first or launch.size != compute.devices_per_run:
            raise ConfigError(
                "the executor torchrun needs rank 0 of a torchrun with one process for each device of a run; "
                "start it with torchrun -m lengthwise work"
            )
        compute.require_usable([launch.device(compute.device)])

    def start(self, workers: int) -> None:
        super().start(workers)
        if workers:
            use_process(self.spec.compute.threads)
            # After a restart, rank 0 may be on another machine, so all of them need the same results folder.
            spec = replace(self.spec, results_id=self.store.files.identifier(create=True))
            self.worker.group.start(spec, self.stopping)

    def poll(self, seconds: float) -> None:
        super().poll(seconds)
        if self.worker.group.is_broken and self.unfinished:
            self.unfinished = self.store.is_unfinished(self.spec.study)
            if self.unfinished:
                raise WorkerError(
                    "the processes cannot continue together after an error in one of them; run the same command again, "
                    "or let torchrun do so with --max-restarts"
                )

    def kill(self) -> None:
        """Do nothing: torchrun passes a signal on that this process may have received too, and kills it after 30 s."""
