"""Where the runs of a study are executed: one class per executor. Its fields are options of `lengthwise run`."""

import re
from dataclasses import dataclass
from typing import ClassVar

from lengthwise.config.base import Config
from lengthwise.values import ConfigError

MAX_WORKERS = 10_000
MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
MAX_MINUTES = 366 * MINUTES["d"]


@dataclass(frozen=True, kw_only=True)
class ExecutorConfig(Config):
    """The settings of an executor, which `lengthwise.studies.executors` lists."""

    name: ClassVar[str]

    def require_workers(self, field: str) -> None:
        if (value := getattr(self, field)) is not None and not 1 <= value <= MAX_WORKERS:
            raise ConfigError(f"{field} must be from 1 to {MAX_WORKERS:,}, got {value}")


@dataclass(frozen=True, kw_only=True)
class Local(ExecutorConfig):
    """Processes on this machine, each with one run at a time."""

    name = "local"
    workers: int | None = None
    """Number of runs at the same time. [default: the number of CPU cores, divided by the devices per run; 1 on a GPU]
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_workers("workers")


@dataclass(frozen=True, kw_only=True)
class Inline(ExecutorConfig):
    """One run after another in this process, where a debugger can stop in your encoding or task."""

    name = "inline"


@dataclass(frozen=True, kw_only=True)
class Slurm(ExecutorConfig):
    """Workers in a job array of a Slurm cluster, each with one run at a time."""

    name = "slurm"
    slots: int = 1
    """Number of workers. Each is a job that trains one run after the other, so a study may have more runs than slots.
    """
    partition: str | None = None
    """Slurm partition of the jobs. [default: that of the cluster]"""
    time: str = "1h"
    """Time limit of a job, such as 30m, 4h or 2d. A job that reaches it saves its progress and is queued again."""
    gpus: float = 0
    """GPUs for each run. On Ray, it may be a fraction."""
    memory: str | None = None
    """Memory of each job, such as 16G. [default: that of the cluster]"""
    sbatch: tuple[str, ...] = ()
    """Another option of sbatch, as NAME=VALUE, such as account=physics. May be repeated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_workers("slots")
        if not 2 <= self.minutes <= MAX_MINUTES:
            raise ConfigError(f"time must be from 2m to 366d, got {self.time!r}; a job needs time to save its progress")
        if self.gpus != int(self.gpus) or not 0 <= self.gpus <= 64:
            raise ConfigError(f"gpus must be a whole number from 0 to 64 on Slurm, got {self.gpus}")
        if self.memory is not None and not re.fullmatch(r"[1-9][0-9]*[MGT]", self.memory):
            raise ConfigError(f"memory must be a whole number with M, G or T, such as 16G, got {self.memory!r}")
        if self.partition is not None and not re.fullmatch(r"[\w.,-]+", self.partition):
            raise ConfigError(f"partition must be the name of a partition, got {self.partition!r}; `sinfo` lists them")
        self.sbatch_options  # noqa: B018  checks them

    @property
    def minutes(self) -> int:
        match = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", self.time)
        if match is None:
            raise ConfigError(f"time must be a whole number with m, h or d, such as 4h, got {self.time!r}")
        return int(match[1]) * MINUTES[match[2]]

    @property
    def sbatch_options(self) -> dict[str, str | bool]:
        """The options of `sbatch` by name; True for one without a value."""
        options: dict[str, str | bool] = {}
        for option in self.sbatch:
            name, equals, value = option.removeprefix("--").partition("=")
            if not re.fullmatch("[a-z][a-z0-9-]*", name) or (equals and not value) or not value.isprintable():
                raise ConfigError(f"sbatch must be NAME=VALUE or NAME, such as account=physics, got {option[:40]!r}")
            if name in RESERVED or name in FIELDS:
                fix = f"use {FIELDS[name]}" if name in FIELDS else "omit it"
                raise ConfigError(f"the sbatch option {name} is set by Lengthwise; {fix}")
            options[name] = value if equals else True
        return options


@dataclass(frozen=True, kw_only=True)
class Ray(ExecutorConfig):
    """Tasks of a Ray cluster, one for each run; ray:ADDRESS names a cluster."""

    name = "ray"
    address: str | None = None
    cpus: float | None = None
    """CPUs that Ray reserves for each run. [default: --threads times --devices-per-run]"""
    gpus: float = 0
    """GPUs for each run. On Ray, it may be a fraction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cpus is not None and not 0 < self.cpus <= 4096:
            raise ConfigError(f"cpus must be above 0 and at most 4096, got {self.cpus:g}")
        if not 0 <= self.gpus <= 64 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ConfigError(f"gpus must be from 0 to 64, and a whole number above 1, got {self.gpus:g}")


@dataclass(frozen=True, kw_only=True)
class Torchrun(ExecutorConfig):
    """One run after another in the processes that torchrun has started, of which this process is the first."""

    name = "torchrun"


FIELDS = {  # options of sbatch and the settings that they follow from
    "array": "slots",
    "time": "time",
    "partition": "partition",
    "mem": "memory",
    "gpus-per-node": "gpus",
    "cpus-per-task": "threads",
}
RESERVED = ("signal", "output", "error", "open-mode", "job-name", "nodes", "ntasks-per-node", "wrap", "requeue")

EXECUTOR_CONFIGS: dict[str, type[ExecutorConfig]] = {
    config.name: config for config in (Local, Inline, Slurm, Ray, Torchrun)
}
