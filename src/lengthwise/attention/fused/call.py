"""The structure of a call of the C++ library, as ctypes passes it and as C++ reads it in csrc/call.h.

A test compares the header with the list of arguments. After a change of the list, write it again:

    python -c "from lengthwise.attention.fused import call; call.HEADER.write_text(call.header())"

The structure holds only pointers, 64-bit integers and doubles, so it has no padding. If an axis has a size that does
not follow from q and k, this size is a field. An axis that may have size 1 has a field for each tensor: `table_heads`
is 1 or the number of heads.
"""

import ctypes
from typing import Any

import torch

from lengthwise.attention.fused.arguments import CALL_AXES, COMPUTE, CPP, NUMBERS, TENSORS, names_for
from lengthwise.native.building import CSRC
from lengthwise.native.openmp import Threads

HEADER = CSRC / "call.h"

_DTYPES = {COMPUTE: " in the compute dtype", torch.float64: " in float64", torch.int64: ""}
_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64


class View(ctypes.Structure):
    """A tensor [batch, head, token, dim]; `TensorView` in csrc/params.h."""

    _fields_ = (("data", _POINTER), *((f"{axis}_stride", _INTEGER) for axis in ("batch", "head", "token")))


Field = tuple[str, Any, str]  # name, type in ctypes, type in C++


def _fields() -> list[Field]:
    """Return the fields of a call: those of every call, and then those of the arguments."""
    fields: list[Field] = [
        *((name, _INTEGER, "i64") for name in (*CALL_AXES, "kv_heads", "dtype", "target", "backward")),
        ("threads", Threads, "Threads"),
        *((name, View, "TensorView") for name in ("q", "k", "v", "out", "grad", "dq", "dk", "dv")),
        ("lse", _POINTER, "void*"),
        ("statistics", _POINTER, "double*"),
        *((name, _POINTER, "const i64*") for name in ("edges", "rank")),
        *((name, _INTEGER, "i64") for name in ("edges_size", "rank_batch", "first_keys", "last_keys")),
    ]
    for name in names_for(CPP):
        fields += _fields_of(name)
    unique = {field[0]: field for field in fields}
    return list(unique.values())


def _fields_of(name: str) -> list[Field]:
    if name in NUMBERS:
        kind = NUMBERS[name]
        return [(name, ctypes.c_double, "double") if kind is float else (name, _INTEGER, "i64")]
    argument = TENSORS[name]
    fields: list[Field] = [(name, _POINTER, "const i64*" if argument.dtype == torch.int64 else "const void*")]
    if argument.learned:
        fields.append((f"grad_{name}", _POINTER, "double*" if argument.sums else "void*"))
    for axis in argument.axes:
        if axis.shared:
            fields.append((f"{name}_{axis.name}", _INTEGER, "i64"))
        elif axis.is_sized_by_tensor:
            fields.append((axis.name, _INTEGER, "i64"))
    return fields


FIELDS = _fields()
_TITLE = """\
// Made by attention/fused/call.py from the list of arguments in attention/fused/arguments.py, which explains them.
// params.h explains the fields that every call has."""


class Call(ctypes.Structure):
    _fields_ = tuple((name, kind) for name, kind, _ in FIELDS)


def header() -> str:
    """Return the text of csrc/call.h."""
    lines = [f"  {kind} {name};{_shape(name)}" for name, _, kind in FIELDS]
    return "\n".join([_TITLE, "#pragma once", "", "struct Call {", *lines, "};", ""])


def _shape(name: str) -> str:
    if name not in TENSORS:
        return ""
    axes = (f"{'1 or ' if a.shared else ''}{a.name}{f' - {a.less}' if a.less else ''}" for a in TENSORS[name].axes)
    return f"  // [{', '.join(axes)}]{_DTYPES[TENSORS[name].dtype]}"
