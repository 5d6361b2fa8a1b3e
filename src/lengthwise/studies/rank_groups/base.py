"""`RankGroup`: the processes that train and evaluate a worker's runs together, one per device.

A worker is rank 0. It alone uses the store, reports what happens, and reads and writes the files of runs. It sends the other ranks
one command for each run.
"""

import os
import socket
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lengthwise.config import Run
from lengthwise.evaluation import Division, evaluate, shifted, together
from lengthwise.studies.compute import Compute
from lengthwise.training import train
from lengthwise.training.ranks import Ranks

START_SECONDS = 300.0  # for the import of torch in a process
END_SECONDS = 10.0  # for another rank to say why it has failed
PAUSE_SECONDS = 0.05
MAX_TEXT = 8000  # characters of an error
# Between two collectives, rank 0 writes scores, for which it waits up to an hour for an unreachable database.
COLLECTIVE_TIMEOUT = timedelta(hours=2)


class RankDied(ValueError):
    """A process of a run ended. The message is one line."""


class ErrorOfRank(Exception):
    """An error that lengthwise did not raise on purpose, in the process of another rank. The message is the line of the report."""


class RankGroup(ABC):
    """Rank 0's handle of the ranks of its runs."""

    is_broken = False  # no further run can be computed

    @abstractmethod
    def computing(self, run: Run, folder: Path, missing: list[dict[str, Any]]) -> AbstractContextManager[Ranks]:
        """Let all ranks train and evaluate a run, and yield the place of this process among them.

        `missing`: the questions to answer, as the store has them. Raises the error of another rank if there is one, and
        `RankDied` if another rank ended without an error.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what the group holds. No run is computed then."""


def join(device: str, store: Any, rank: int, size: int, on_one_machine: bool) -> None:
    """Connect the ranks of a run by torch's default process group. Collective. `store`: torch's, where they meet."""
    names = [name for _, name in socket.if_nameindex()]
    for loopback in ("lo", "lo0"):  # the host name of a single machine may not be resolvable
        if loopback in names and on_one_machine:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    is_cuda = torch.device(device).type == "cuda"
    if is_cuda:
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if is_cuda else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT)


def take_part(
    run: Run, folder: Path, missing: list[dict[str, Any]], compute: Compute, device: str, ranks: Ranks
) -> None:
    """Do in another rank what `Worker.run` does in rank 0, without the store."""
    trained = train(
        run, folder, device=device, backend=compute.backend, optimizations=compute.optimizations, ranks=ranks
    )
    for config, shift in together(missing):
        evaluate(
            trained.model,
            shifted(run.task, shift).build() if shift else trained.task,
            config,
            train_length=run.training.train_length,
            positions=run.training.positions,
            shift=shift,
            division=Division(ranks=ranks),
        )
