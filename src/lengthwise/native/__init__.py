"""The compiled C++ library: attention on a CPU, and FIRE's segments (segments.py).

library.py finds or compiles it, and building.py compiles the sources in csrc/. attention/fused/call.py has the
parameters of an attention call.
"""

import ctypes
import functools
import warnings

from lengthwise.native import library
from lengthwise.native.building import CannotBuild

TARGETS = ("portable", "avx2", "avx512")

_reason: list[
    str | None
] = []  # the result of `unsupported_reason`; a list, because torch.compile traces through functools.cache


def unsupported_reason() -> str | None:
    """Return why there is no compiled kernel, or None. The first call loads or compiles it, and warns if that fails."""
    if not _reason:
        _reason.append(_load_or_warn())
    return _reason[0]


# A compiled graph treats the result as a constant. This is what `torch.compiler.assume_constant_result` sets, without
# importing torch's compiler.
unsupported_reason._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _load_or_warn() -> str | None:
    try:
        loaded()
    except CannotBuild as error:
        warnings.warn(
            f"lengthwise computes attention on the CPU several times more slowly, with the same results: {error}",
            stacklevel=library.user_stacklevel(),
        )
        return f"its compiled kernel is not available: {error}"
    return None


@functools.cache
def loaded() -> ctypes.CDLL:
    """Return the library. Raise `CannotBuild` if there is none."""
    return library.load()


def best_target() -> str:
    """Return the instruction set that the kernel uses on this processor: "portable", "avx2" or "avx512"."""
    return TARGETS[loaded().lengthwise_target()]
