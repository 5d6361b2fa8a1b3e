"""`Ranks`: the processes that compute one run together, one per device, and what they tell each other.

All ranks execute the same code with the same run. They stop as soon as any of them is asked to. Rank 0 decides when to
write a checkpoint, reports progress, and writes files; the others follow. Where a method is collective, every rank
calls it, in the same order.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from lengthwise.config import ConfigError, TrainingConfig

T = TypeVar("T")
Contents = tuple[dict[str, Tensor], dict[str, Any]]  # of a file: its tensors and its facts


@dataclass(frozen=True)
class Ranks:
    """The place of this process among the `size` ranks of a run. torch's default process group connects them, unless
    there is one.

    `sharding`: how they share the model, a name in `parallel.SHARDINGS`.
    """

    rank: int = 0
    size: int = 1
    sharding: str = "ddp"

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def any_rank(self, flag: bool) -> bool:
        """Return whether the flag of any rank is true. Collective."""
        if self.size == 1:
            return flag
        shared = torch.tensor(flag, dtype=torch.uint8)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return bool(shared)

    def flags_of_first(self, *flags: bool) -> tuple[bool, ...]:
        """Return the flags of rank 0. Collective."""
        if self.size == 1:
            return flags
        shared = torch.tensor(flags, dtype=torch.uint8)
        dist.broadcast(shared, 0)
        return tuple(map(bool, shared.tolist()))

    def contents_of_first(self, contents: Contents | None) -> Contents | None:
        """Return the contents of a file that rank 0 has read; other ranks pass None. Collective."""
        if self.size == 1:
            return contents
        described: list[Any] = [None]
        if contents is not None:
            described = [([(name, t.dtype, t.shape) for name, t in contents[0].items()], contents[1])]
        dist.broadcast_object_list(described, 0, device=torch.device("cpu"))
        if described[0] is None:
            return None
        names, facts = described[0]
        tensors: dict[str, Tensor] = {}
        for name, dtype, shape in names:
            t = contents[0][name].contiguous() if contents is not None else torch.empty(shape, dtype=dtype)
            if t.numel():
                dist.broadcast(t.reshape(-1).view(torch.uint8), 0)  # gloo does not know every dtype
            tensors[name] = t
        return tensors, facts

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over all ranks, computed in place. Collective."""
        if self.size > 1:
            dist.all_reduce(x)
        return x

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, by rank. Collective."""
        if self.size == 1:
            return [value]
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def micro_batches(self, training: TrainingConfig) -> list[tuple[int, slice]]:
        """Return the numbers and the rows of the micro-batches that this rank processes, one after another.

        A batch has as many micro-batches as the smallest multiple of `accumulation` that the ranks can share equally.
        So 4 micro-batches are the same on 1, 2 and 4 ranks: with fewer ranks, each accumulates the gradients of more of
        them.
        """
        count = math.lcm(training.accumulation, self.size)
        size, per_rank = training.batch_size, count // self.size
        numbers = range(self.rank * per_rank, (self.rank + 1) * per_rank)
        return [(n, slice(size * n // count, size * (n + 1) // count)) for n in numbers]

    def require_enough(self, training: TrainingConfig) -> None:
        """Raise `ConfigError` if a batch has too few sequences to give every micro-batch at least one."""
        count = math.lcm(training.accumulation, self.size)
        if training.batch_size < count:
            with_accumulation = f" with accumulation {training.accumulation}" if training.accumulation > 1 else ""
            raise ConfigError(
                f"{self.size} devices per run{with_accumulation} divide a batch into {count} micro-batches, so "
                f"batch_size must be at least {count}, got {training.batch_size}; use fewer devices per run, or a "
                "larger batch"
            )


ALONE = Ranks()
