"""`Compute`: what computes the runs of a study."""

from dataclasses import dataclass

import torch

from lengthwise.attention import check_backend
from lengthwise.config import ConfigError

MAX_THREADS = 1024  # torch starts them all, and a huge number ends the process


@dataclass(frozen=True, kw_only=True)
class Compute:
    """The device, the attention backend and the torch threads of one run. Results are the same bit for bit only with the same ones.

    `device`: cpu, cuda, cuda:1, ... `backend`: a name of an attention backend, or auto for the fastest that supports the encoding.
    """

    device: str = "cpu"
    backend: str = "auto"
    threads: int = 1

    def require_valid(self) -> None:
        """Raise `ConfigError` for a number of threads or a backend that cannot be used on any machine."""
        if self.threads < 1:
            raise ConfigError(f"threads must be at least 1, got {self.threads}")
        if self.threads > MAX_THREADS:
            raise ConfigError(
                f"threads must be at most {MAX_THREADS:,}, got {self.threads:,}; use at most one per core"
            )
        check_backend(self.backend)

    def require_usable(self) -> None:
        """Raise `ConfigError` for a number of threads, a backend or a device that cannot be used on this machine."""
        self.require_valid()
        try:
            torch.zeros(1, device=self.device).tolist()  # tolist fails on "meta", which has no data
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            count = torch.accelerator.device_count()
            kind = torch.accelerator.current_accelerator() if count else None
            names = ["cpu", *(f"{kind.type}:{n}" for n in range(count) if kind)]
            raise ConfigError(
                f"device {self.device!r} cannot be used with this PyTorch on this machine; available: {', '.join(names)}"
            ) from error


DEFAULT_COMPUTE = Compute()
