"""The executors, by the name of their settings: one module each, one line each in the list below."""

from lengthwise.studies.executors.base import Executor, WorkerError
from lengthwise.studies.executors.inline import InlineExecutor
from lengthwise.studies.executors.local import LocalExecutor
from lengthwise.studies.executors.ray import RayExecutor
from lengthwise.studies.executors.slurm import SlurmExecutor
from lengthwise.studies.executors.torchrun import TorchrunExecutor

EXECUTORS: dict[str, type[Executor]] = {
    "local": LocalExecutor,
    "inline": InlineExecutor,
    "slurm": SlurmExecutor,
    "ray": RayExecutor,
    "torchrun": TorchrunExecutor,
}

__all__ = ["EXECUTORS", "Executor", "WorkerError"]
