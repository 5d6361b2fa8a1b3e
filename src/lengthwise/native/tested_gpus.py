"""The GPUs where `backend="auto"` and FIRE use the Triton kernels: those that passed `lengthwise check --device cuda`.

Another GPU or another version of Triton may compile the kernels differently, and only running them shows whether the
results are right. `check` compares them with the reference and records the result in the cache folder, for all GPUs of
the same kind.
"""

import functools
import hashlib
import json
import warnings
from pathlib import Path
from typing import NamedTuple

import torch

from lengthwise import cache_folder
from lengthwise.native.library import user_stacklevel

FILE = "tested-gpus"  # in the cache folder: a list of combinations as JSON
SEGMENTS = Path(__file__).parent / "gpu_segments.py"
KERNELS = Path(__file__).parents[1] / "attention" / "fused" / "gpu"


class Combination(NamedTuple):
    """What the machine code of the kernels depends on. Results on one GPU hold for others with the same combination."""

    capability: str  # compute capability, such as "9.0"; "ROCm 9.4" on AMD
    triton: str  # minor version, such as "3.6"
    kernels: str  # `kernels_hash()`

    def __str__(self) -> str:
        return f"compute capability {self.capability}, Triton {self.triton}"


# Combinations where the project itself ran `lengthwise check --device cuda`. There are none yet: the kernels ran on an
# NVIDIA H200 (compute capability 9.0) with Triton 3.6 on 2026-11-26, at commit 6ccd746069f6, and have been changed
# since.
TESTED: frozenset[Combination] = frozenset()

results: dict[torch.device, bool] = {}  # of `is_tested`; not functools.cache, because torch.compile traces through it


def is_tested(device: torch.device) -> bool:
    """Return whether the kernels passed the comparison on such a device. If not, warn once which command runs it."""
    if device not in results:
        results[device] = look_up(device)
    return results[device]


# A graph of torch.compile treats the result as a constant; see `native.unsupported_reason`.
is_tested._dynamo_marked_constant = True  # type: ignore[attr-defined]


def look_up(device: torch.device) -> bool:
    if not torch.cuda.is_available():  # a tracer's tensor, on a GPU that is not in this machine
        return False
    combination = combination_of(device)
    if combination in TESTED or combination in _recorded():
        return True
    warnings.warn(
        f"the GPU kernels of lengthwise were not tested on {torch.cuda.get_device_name(device)} ({combination}), so "
        "backend='auto' takes another backend; `lengthwise check --device cuda` tests them, and backend='auto' uses "
        "them if they pass",
        stacklevel=user_stacklevel(),
    )
    return False


def combination_of(device: torch.device) -> Combination:
    """Return the combination of a GPU of this machine with the installed version of Triton."""
    import triton

    major, minor = torch.cuda.get_device_capability(device)
    triton_version = ".".join(triton.__version__.split(".")[:2])
    return Combination(f"{'ROCm ' if torch.version.hip else ''}{major}.{minor}", triton_version, kernels_hash())


@functools.cache
def kernels_hash() -> str:
    """Return a hash of the source of the kernels."""
    digest = hashlib.sha256()
    for path in [SEGMENTS, *sorted(KERNELS.glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def record(combination: Combination, *, passed: bool) -> None:
    """Store in the cache folder whether the kernels passed the comparison, for processes that start from now on."""
    others = [entry for entry in _recorded() if entry != combination]
    combinations = [*others, combination] if passed else others
    cache_folder.store(FILE, json.dumps([entry._asdict() for entry in combinations], indent=1).encode())


def _recorded() -> list[Combination]:
    """Return the combinations in the cache folder; none if the file is damaged."""
    try:
        return [Combination(**entry) for entry in json.loads(cache_folder.load(FILE) or b"[]")]
    except (ValueError, TypeError):
        return []
