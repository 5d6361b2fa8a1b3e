"""Finds the OpenMP runtime that torch computes with, whose threads the library uses too (csrc/threads.cpp)."""

import ctypes
import functools
from pathlib import Path

import torch


class Threads(ctypes.Structure):
    """The threads that a call may use; `Threads` in csrc/threads.h."""

    _fields_ = (("openmp", ctypes.c_void_p), ("count", ctypes.c_int64))


def threads() -> Threads:
    """Return the threads that torch would use for an operation now."""
    return Threads(parallel_region(), torch.get_num_threads())


@functools.cache
def parallel_region() -> int | None:
    """Return the address of `GOMP_parallel` in torch's OpenMP runtime; None if there is none (macOS)."""
    if "parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return None
    # In the order in which torch finds it: what all libraries share (a runtime in LD_PRELOAD comes first), then its own
    # libraries.
    for library in (None, str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")):
        try:
            function = ctypes.CDLL(library).GOMP_parallel
        except (AttributeError, OSError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value
    return None
