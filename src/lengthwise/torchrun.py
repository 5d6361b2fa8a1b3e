"""What `torchrun` tells the processes that it starts: their place among all of them, and where they find each other."""

import os
from contextvars import ContextVar
from dataclasses import dataclass

SESSION = ContextVar("SESSION", default="")
"""What tells the messages of these processes from those of earlier ones: after a restart, torchrun keeps its store."""

_NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
)


@dataclass(frozen=True)
class Launch:
    """The place of this process: its rank among `size` processes, and its rank on this machine, which selects its GPU.

    `address`, `port`: a key-value store that all of them reach. `has_store`: torchrun itself provides it, and not rank 0.
    `on_one_machine`: the same agent of torchrun started all of them. `session`: see `SESSION`; "" until it is known.
    """

    rank: int
    size: int
    local_rank: int
    address: str
    port: int
    has_store: bool
    on_one_machine: bool
    session: str

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
    rank, size, local_rank, local_size, address, port, _ = (os.environ[name] for name in _NAMES)
    return Launch(
        rank=int(rank),
        size=int(size),
        local_rank=int(local_rank),
        address=address,
        port=int(port),
        has_store=os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        on_one_machine=local_size == size,
        session=SESSION.get(),
    )
