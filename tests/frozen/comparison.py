"""What the frozen tests share: tensors as a few numbers, the comparison with recorded ones, and the files of records.

`python -m tests.frozen.record NAME` (in the repository's root) records anew, see record.py.
"""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FOLDER = Path(__file__).parent
DIGITS = 11  # of recorded numbers
# By which share of its norm a tensor may differ: processors round differently, and kernels add in other orders.
TOLERANCE = {
    # measured: 1.2e-11 with AVX-512, with AVX2 and without both, the rounding of the record included
    torch.float64: 1e-9,
    torch.float32: 1e-4,  # measured: 5e-5, of gradients in which most terms cancel
}


def summary(values: Tensor) -> list[float]:
    """Return two random projections of a tensor and its norm, computed in float64.

    The projections have normally distributed coefficients that depend on nothing but the tensor's size. If the tensor
    changes by δ, they change by about |δ|.
    """
    flat = values.detach().double().flatten()
    return [*(_coefficients(flat.numel()) @ flat).tolist(), float(flat.norm())]


@cache
def _coefficients(size: int) -> Tensor:
    return torch.randn(2, size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)


def differences(current: dict[str, list[float]], recorded: dict[str, list[float]], tolerance: float) -> list[str]:
    """Return the names of the tensors whose summaries differ by more than a share of the recorded norm, with both
    summaries.
    """
    changed = [f"{name}: only in one of the two" for name in sorted(current.keys() ^ recorded.keys())]
    for name in current.keys() & recorded.keys():
        allowed = tolerance * max(1.0, recorded[name][-1])
        pairs = zip(current[name], recorded[name], strict=True)
        if not all(math.isclose(a, b, rel_tol=0, abs_tol=allowed) for a, b in pairs):
            changed.append(f"{name}: {current[name]} instead of {recorded[name]}")
    return changed


def load(name: str) -> dict[str, Any]:
    """Return a record."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def save(name: str, record: dict[str, Any], digits: int = DIGITS) -> None:
    """Write a record, with one line for each entry of its entries, so that changes can be read in a diff."""

    def text(value: Any) -> str:
        return json.dumps(_rounded(value, digits), ensure_ascii=False, allow_nan=False)

    blocks = []
    for title, entries in record.items():
        if isinstance(entries, dict):
            lines = ",\n".join(f"    {text(key)}: {text(value)}" for key, value in entries.items())
            blocks.append(f"  {text(title)}: {{\n{lines}\n  }}")
        else:
            blocks.append(f"  {text(title)}: {text(entries)}")
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
