"""`Compute`: what computes the runs of a study."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from lengthwise.attention import check_backend
from lengthwise.config import ConfigError, Run
from lengthwise.machine_memory import is_cpu
from lengthwise.training.parallel import SHARDINGS, Optimizations
from lengthwise.training.ranks import Ranks
from lengthwise.values import unlisted

MAX_THREADS = 1024  # torch starts them all, and a huge number ends the process
MAX_DEVICES = 64  # of one machine


@dataclass(frozen=True, kw_only=True)
class Compute:
    """What computes one run: devices, threads and implementations. Results are the same bit for bit only with the same
    ones.

    The instruction set of the processor (AVX-512, AVX2 or none of these) must also be the same.

    `device`: cpu, cuda, cuda:1, ... `backend`: a name of an attention backend, or auto for the fastest that supports
    the encoding.
    `devices_per_run`: devices that train and evaluate one run together, each with a process of its own and with
    `threads` threads.
    `sharding`: how they share the model: ddp (each device has all of it) or fsdp (each has a part of it during
    training).
    `compile`, `recompute`: see `Optimizations`.
    """

    device: str = "cpu"
    backend: str = "auto"
    threads: int = 1
    devices_per_run: int = 1
    sharding: str = "ddp"
    compile: bool = False
    recompute: bool = False

    def require_valid(self) -> None:
        """Raise `ConfigError` for settings that cannot be used on any machine."""
        if self.threads < 1:
            raise ConfigError(f"threads must be at least 1, got {self.threads}")
        if self.threads > MAX_THREADS:
            raise ConfigError(
                f"threads must be at most {MAX_THREADS:,}, got {self.threads:,}; use at most one per core"
            )
        check_backend(self.backend)
        if not 1 <= self.devices_per_run <= MAX_DEVICES:
            raise ConfigError(f"devices_per_run must be from 1 to {MAX_DEVICES}, got {self.devices_per_run}")
        if self.sharding not in SHARDINGS:
            raise ConfigError(
                f"sharding must be {' or '.join(SHARDINGS)}, and there is no {unlisted(self.sharding, SHARDINGS)}"
            )
        if self.devices_per_run == 1 and self.sharding != "ddp":
            raise ConfigError(
                f"sharding {self.sharding} needs several devices per run; add --devices-per-run, or omit sharding"
            )
        if self.devices_per_run > 1 and self.device not in ("cpu", "cuda"):
            raise ConfigError(
                f"with several devices per run, device must be cpu or cuda, got {self.device!r}; process n uses cuda:n"
            )

    def require_divisible(self, runs: Iterable[Run]) -> None:
        """Raise `ConfigError` for a run whose batches cannot be divided among the devices."""
        ranks = Ranks(size=self.devices_per_run)
        for training in dict.fromkeys(run.training for run in runs):
            ranks.require_enough(training)

    @property
    def optimizations(self) -> Optimizations:
        return Optimizations(compile=self.compile, recompute=self.recompute)

    def unusual(self) -> dict[str, Any]:
        """Return what is stored with results, if the run has several devices or optimizations."""
        optimizations = {name: True for name in ("compile", "recompute") if getattr(self, name)}
        shared = {"devices_per_run": self.devices_per_run, "sharding": self.sharding}
        return optimizations | (shared if self.devices_per_run > 1 else {})

    def device_of(self, rank: int) -> str:
        """Return the device of one of the processes of a run."""
        return f"cuda:{rank}" if self.devices_per_run > 1 and self.device == "cuda" else self.device

    def require_usable(self, devices: Iterable[str] | None = None) -> None:
        """Raise `ConfigError` for settings that this machine cannot use. `devices`: those used here; default: all."""
        self.require_valid()
        if (
            self.compile
            and is_cpu(self.device)
            and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))
        ):
            raise ConfigError("compile needs a C++ compiler on a CPU, and none was found; install g++, or omit compile")
        try:
            for device in devices or map(self.device_of, range(self.devices_per_run)):
                torch.zeros(1, device=device).tolist()  # tolist fails on "meta", which has no data
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            count = torch.accelerator.device_count()
            kind = torch.accelerator.current_accelerator() if count else None
            names = ["cpu", *(f"{kind.type}:{n}" for n in range(count) if kind)]
            raise ConfigError(
                f"device {device!r} cannot be used with this PyTorch on this machine; available: {', '.join(names)}"
            ) from error


DEFAULT_COMPUTE = Compute()
