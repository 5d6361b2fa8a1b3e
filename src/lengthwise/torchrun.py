"""What `torchrun` tells the processes that it starts: their place among all of them."""

import os
from dataclasses import dataclass

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")


@dataclass(frozen=True)
class Launch:
    """The place of this process: its rank among `size` processes, and its rank on this machine, which selects its GPU.

    `on_one_machine`: the same agent of torchrun started all of them.
    """

    rank: int
    size: int
    local_rank: int
    on_one_machine: bool

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def device(self, device: str) -> str:
        """Return the device of this process, where all processes use `device`."""
        return f"cuda:{self.local_rank}" if device == "cuda" and self.size > 1 else device


def launched() -> Launch | None:
    """Return the place of this process if torchrun has started it, else None."""
    if any(name not in os.environ for name in _NAMES):
        return None
    rank, size, local_rank, local_size = (int(os.environ[name]) for name in _NAMES[:4])
    return Launch(rank=rank, size=size, local_rank=local_rank, on_one_machine=local_size == size)
