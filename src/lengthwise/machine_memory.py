"""The memory of this machine, a limit for a process that would otherwise be killed, and errors without memory."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

INFORMATION = Path("/proc/meminfo")
PROCESS_GROUPS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
THREADS = 4  # of a process for each core, at most
ANY_SIZE = "shorter lengths, fewer examples, smaller batches or a smaller model"  # what can need less memory


class NotEnoughMemory(ValueError):
    """Memory ran out. The message is one line that says what was computed."""


def machine_memory() -> int | None:
    """Return the bytes that all processes together can have, with swap; None if the system does not tell.

    A control group, such as that of a container or of a job on a cluster, may allow less than the machine has.
    """
    try:
        lines = (line.split() for line in INFORMATION.read_text(encoding="ascii").splitlines())
        sizes = {words[0]: int(words[1]) * 1024 for words in lines if len(words) > 1}
        return min([sizes["MemTotal:"], *_group_limits()]) + sizes.get("SwapTotal:", 0)
    except (OSError, ValueError, KeyError):
        return None


def _group_limits() -> list[int]:
    """Return the limits of the control groups, of either version, to which this process belongs."""
    limits = []
    with suppress(OSError):
        for line in PROCESS_GROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                root, name = (GROUPS, "memory.max") if not controllers else (GROUPS / "memory", "memory.limit_in_bytes")
                group = root / path.lstrip("/")
                limits += [parent / name for parent in (group, *group.parents) if parent.is_relative_to(root)]
    return [limit for limit in map(_limit, limits) if limit is not None]


def _limit(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group or limit; "max" stands for none
        return None


def is_cpu(device: str) -> bool:
    """Return whether a device such as `cpu`, `cpu:0` or `cuda:1` is the CPU."""
    return device.partition(":")[0] == "cpu"


@contextmanager
def limited_to_machine(device: str) -> Iterator[None]:
    """Let this process allocate no more memory than the machine has, if it computes on the CPU.

    An allocation beyond it, such as that of a bias for each head, query and key, raises an error, which one line
    explains. Without a limit, Linux gives any amount, and kills the process when it uses what does not exist. On other
    devices nothing is limited, because drivers reserve memory that they never use.
    """
    memory = machine_memory() if is_cpu(device) and sys.platform == "linux" else None
    if memory is None:
        yield
        return
    import resource

    # Besides the stacks of threads, a process that trains and evaluates reserves about 0.1 GiB that it never uses.
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)  # each thread reserves so much
    stacks = THREADS * (os.cpu_count() or 1) * (2**23 if stack == resource.RLIM_INFINITY else stack)
    limits = [limit for limit in (memory + stacks, before, most) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


@contextmanager
def naming_what_needs_memory(what: str, fix: str = ANY_SIZE) -> Iterator[None]:
    """Convert errors about memory in this block to `NotEnoughMemory`.

    `what`: what is computed, such as "length 4,096 symbols". `fix`: what would need less memory.
    """
    try:
        yield
    except Exception as error:
        if (line := out_of_memory_line(error, fix)) is None:
            raise
        raise NotEnoughMemory(f"{what}: {line}") from error


def out_of_memory_line(error: BaseException, fix: str = ANY_SIZE) -> str | None:
    """Return a line about memory that ran out, or None for another error. `fix`: what would need less memory."""
    if not is_out_of_memory(error):
        return None
    size = refused_allocation(error)
    request = f" (one allocation of {size} failed)" if size else ""
    return f"not enough memory{request}; use {fix}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python or PyTorch says that memory ran out.

    The type counts too, because a message can contain the name of a folder.
    """
    # PyTorch, which is not imported here, has an OutOfMemoryError.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return type(error) is RuntimeError and re.match(r"\[enforce fail at .*DefaultCPUAllocator", str(error)) is not None


def refused_allocation(error: BaseException) -> str | None:
    """Return the size of the allocation that failed, as the error says it, or None if it says none."""
    size = re.search(r"allocate ([\d.]+ ?\w+)", " ".join(str(error).split()))
    return size[1] if size else None
