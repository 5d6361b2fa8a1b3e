"""Adapt Triton's interpreter to our kernels. Import this module before anything that imports Triton.

These differences from a GPU remain: how tensor cores round and in which order they add, the order of sums along a row,
fused multiply-adds that a compiler generates, and the error of exp2, which is larger in the interpreter.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from lengthwise.attention.fused import operator
from lengthwise.encodings import piecewise


def ready_once() -> None:
    """Triton replaces its language by the interpreter's at every call of a function inside a kernel, though it is
    replaced already since the kernel's start: a quarter of the time. Where its own names have changed, nothing is
    saved."""
    original, scope = getattr(interpreter, "_patch_lang", None), getattr(interpreter, "_LangPatchScope", None)

    def patch(fn: Any) -> Any:
        used = [x for x in fn.__globals__.values() if x is tl or x is tl.core]
        return original(fn) if any(tl.core.is_builtin(x.load) for x in used) else scope()  # type: ignore[misc]

    if original and scope:
        interpreter._patch_lang = patch


def check_overflow(wanted: bool) -> None:
    """Let the interpreter check every sum and product of integers for overflow, or not, as on a GPU.

    The checks take a third of the time. An overflow also changes results, which every test compares.
    """
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=wanted)


def as_on_a_gpu() -> None:
    """Products of matrices as a GPU makes them, and bfloat16.

    Of float32, one fused multiply-add after the other in the order of the inner dimension, which is what Triton
    compiles them to: the same bits whatever the blocks, where the order of NumPy's changes with them, and what one
    kernel mends for another is mended. (The sum is rounded to float64 before it is rounded to float32.) Of halves:
    exact products, added up in float32 by NumPy.

    The interpreter keeps bfloat16 as the 16 bits that it is, multiplies these as whole numbers, and cuts float32 off to
    it. Here products are of the numbers, and rounding is to the nearest, ties to even."""
    builder = interpreter.InterpreterBuilder
    cast = builder.cast_impl

    def product(self: Any, a: Any, b: Any, total: Any, *rest: Any) -> Any:
        x, y = (widened_bits(z.data) if z.dtype.scalar == tl.bfloat16 else z.data.astype(np.float32) for z in (a, b))
        if tl.float32 in (a.dtype.scalar, b.dtype.scalar):
            found = _in_order(x, y, total.data)
        else:
            found = x @ y + total.data
        return interpreter.TensorHandle(found, total.dtype.scalar)

    def convert(self: Any, source: Any, to: Any) -> Any:
        kinds = source.dtype.scalar, to.scalar
        if kinds == (tl.float32, tl.bfloat16):
            return interpreter.TensorHandle(rounded_bits(source.data), tl.bfloat16)
        if kinds == (tl.bfloat16, tl.float32):
            return interpreter.TensorHandle(widened_bits(source.data), tl.float32)
        assert tl.bfloat16 not in kinds, f"from {kinds[0]} to {kinds[1]}"
        return cast(self, source, to)

    builder.create_dot, builder.cast_impl = product, convert
    builder.create_fp_ext = builder.create_fp_trunc = lambda self, x, to: self.cast_impl(x, to)


def _in_order(x: np.ndarray, y: np.ndarray, total: np.ndarray) -> np.ndarray:
    """total + x @ y, a multiply-add at a time; the product of two float32 is exact in float64."""
    rows, columns = np.ascontiguousarray(x.T, np.float64)[:, :, None], y.astype(np.float64)[:, None]
    sums = np.empty((x.shape[0], y.shape[1]), np.float32)
    sums[...] = total
    wide = np.empty(sums.shape, np.float64)
    for row, column in zip(rows, columns, strict=True):
        np.multiply(row, column, out=wide)
        wide += sums
        sums[...] = wide
    return sums


def widened_bits(bits: np.ndarray) -> np.ndarray:
    """bfloat16's bits -> the same numbers in float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded_bits(x: np.ndarray) -> np.ndarray:
    """float32 -> the bits of the nearest bfloat16."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    near = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), near)


@contextmanager
def in_place_of_the_cpu() -> Iterator[None]:
    """`fused` on a CPU by the GPU's kernels, and what goes around them as on a GPU."""
    with (
        mock.patch.object(operator, "on_gpu", return_value=True),
        mock.patch.object(operator, "_is_eager_on_cpu", return_value=False),
        mock.patch.object(piecewise, "uses_library", return_value=False),
        mock.patch.object(piecewise, "uses_gpu_kernels", return_value=True),
    ):
        yield
