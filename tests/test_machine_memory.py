"""The memory of a machine and of its control groups, from files as Linux writes them, and the limit of a process."""

import resource
from pathlib import Path

import pytest
import torch

from lengthwise import machine_memory
from lengthwise.machine_memory import limited_to_machine

GIB = 2**30
INFORMATION = f"MemTotal: {16 * 2**20} kB\nMemFree: 1 kB\nSwapTotal: {2 * 2**20} kB\nHugePages_Total: 0\n"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 16 GiB and 2 GiB of swap, without control groups."""
    for name, file in (("INFORMATION", "meminfo"), ("PROCESS_GROUPS", "cgroup"), ("GROUPS", "groups")):
        monkeypatch.setattr(machine_memory, name, tmp_path / file)
    (tmp_path / "meminfo").write_text(INFORMATION)
    return tmp_path


def group(folder: Path, name: str, limit: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{limit}\n")


def test_memory_and_swap(system: Path) -> None:
    assert machine_memory.machine_memory() == 18 * GIB


def test_the_smallest_limit_of_nested_groups(system: Path) -> None:
    (system / "cgroup").write_text("0::/jobs/one\n")
    group(system / "groups", "memory.max", "max")
    group(system / "groups/jobs", "memory.max", 4 * GIB)
    group(system / "groups/jobs/one", "memory.max", 8 * GIB)
    assert machine_memory.machine_memory() == 6 * GIB


def test_the_first_version_of_groups(system: Path) -> None:
    (system / "cgroup").write_text("5:cpu,cpuacct:/\n4:memory:/box\n0::/\n")
    group(system / "groups/memory", "memory.limit_in_bytes", 2**63 - 4096)
    group(system / "groups/memory/box", "memory.limit_in_bytes", 3 * GIB)
    assert machine_memory.machine_memory() == 5 * GIB


@pytest.mark.parametrize("content", [None, "", "MemTotal: many kB\n", "MemFree: 3 kB\n"])
def test_a_system_that_does_not_tell(system: Path, content: str | None) -> None:
    (system / "meminfo").unlink()
    if content is not None:
        (system / "meminfo").write_text(content)
    assert machine_memory.machine_memory() is None
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited_to_machine("cpu"):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_an_allocation_beyond_the_machine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written into the tensor, so it takes no memory either way."""
    monkeypatch.setattr(machine_memory, "machine_memory", lambda: 8 * GIB)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(RuntimeError, match="can't allocate memory"), limited_to_machine("cpu"):
        torch.empty(20 * GIB, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with limited_to_machine("cuda"):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_stacks_of_many_threads_do_not_count(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread reserves the whole stack, and uses little of it."""
    monkeypatch.setattr(machine_memory, "machine_memory", lambda: 8 * GIB)
    monkeypatch.setattr(machine_memory.os, "cpu_count", lambda: 2)
    before = resource.getrlimit(resource.RLIMIT_STACK)
    try:
        resource.setrlimit(resource.RLIMIT_STACK, (2**30, before[1]))
        with limited_to_machine(device):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] == (8 + 2 * 4) * GIB
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)


def test_a_lower_limit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the user, for example by `ulimit -d`."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (50 * GIB, before[1]))
    try:
        monkeypatch.setattr(machine_memory, "machine_memory", lambda: 100 * GIB)
        with limited_to_machine("cpu"):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 50 * GIB
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
