"""`lengthwise check --device cuda`: compare the GPU kernels with the reference, print the results, and record them."""

import json as json_text
import math
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

import torch

from lengthwise.attention.fused import gpu
from lengthwise.conformance import gpu_kernels, gpu_networks
from lengthwise.conformance.gpu_kernels import BIASES, DIMS, DTYPES, FORMS, Comparison, Form, bias_names
from lengthwise.conformance.processes import Progress, no_progress, run_in_processes
from lengthwise.native import tested_gpus
from lengthwise.native.tested_gpus import Combination
from lengthwise.values import ConfigError


def main(device: str, json: bool = False, progress: Progress = no_progress) -> int:
    """Compare the kernels for every form of `FORMS`, and print a table or one JSON object.

    If all of them pass, `backend="auto"` uses the kernels on GPUs of this kind from the next process on. Return the
    exit code: 1 if any of them fails, and 0 otherwise.
    """
    from rich.console import Console

    if reason := gpu.unsupported_reason():
        raise ConfigError(reason)
    gpu_device = torch.device(device)
    combination, name = tested_gpus.combination_of(gpu_device), torch.cuda.get_device_name(gpu_device)
    with progress() as show:
        done = failed = 0

        def on_result(form: Form, comparison: Comparison) -> None:
            nonlocal done, failed
            done, failed = done + 1, failed + (comparison.failure is not None)
            show(f"{form}; {failed or 'none'} failed so far", done, len(FORMS))

        comparisons = compare(gpu_device, on_result)
    passed = not any(comparison.failure for comparison in comparisons.values())
    tested_gpus.record(combination, passed=passed)
    if json:
        print(json_text.dumps(_as_data(name, combination, comparisons), indent=1))
    else:
        _print(Console(markup=False, highlight=False), f"{name} ({combination})", comparisons)
    return 0 if passed else 1


def compare(
    device: torch.device, on_result: Callable[[Form, Comparison], None], forms: Sequence[Form] = FORMS
) -> dict[Form, Comparison]:
    """Compare these forms, with up to 16 processes, which spend most of the time on compiling."""
    try:
        comparisons = run_in_processes(partial(_compare, device), forms, on_result)
    except BrokenProcessPool as error:
        raise ConfigError(
            "a process that compared the GPU kernels ended without a result, so nothing was recorded; either a kernel "
            "crashed, and backend='auto' is right to use another backend, or the system stopped the process, and you "
            "can try again"
        ) from error
    return dict(zip(forms, comparisons, strict=True))


def _compare(device: torch.device, form: Form) -> Comparison:
    warnings.filterwarnings("ignore", "the GPU kernels of lengthwise were not tested")  # that is what happens now
    try:
        if form.biases == ("segments",) and (reason := gpu_networks.difference(device)):
            return Comparison(math.nan, reason)
        return gpu_kernels.compare(form, device)
    except Exception as error:  # of Triton's compiler, of the driver, out of memory
        lines = str(error).strip().splitlines()
        return Comparison(math.nan, f"{type(error).__name__}: {lines[0][:300] if lines else 'without a message'}")


def _as_data(name: str, combination: Combination, comparisons: dict[Form, Comparison]) -> dict[str, Any]:
    return {
        "gpu": name,
        **combination._asdict(),
        "torch": torch.__version__,
        "comparisons": [
            {
                "biases": form.biases,
                "head_dim": form.dim,
                "dtype": form.dtype,
                "error": None if math.isnan(error) else error,
                "failure": failure,
            }
            for form, (error, failure) in comparisons.items()
        ],
        "ok": not any(comparison.failure for comparison in comparisons.values()),
    }


def _print(console: Any, gpu_name: str, comparisons: dict[Form, Comparison]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title="GPU kernels compared with the reference", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("bias")
    for dtype in DTYPES:
        table.add_column(f"{dtype}, heads of {', '.join(map(str, DIMS))} dims", justify="center")
    for biases in BIASES:
        marks = [["✗" if comparisons[Form(biases, dim, dtype)].failure else "✓" for dim in DIMS] for dtype in DTYPES]
        table.add_row(bias_names(biases), *map(" ".join, marks))
    console.print(table)
    for form, (_, failure) in comparisons.items():
        if failure:
            console.print(f"  {form}: {failure}")
    if any(comparison.failure for comparison in comparisons.values()):
        console.print(f"\nThe kernels failed on {gpu_name}. backend='auto' uses another backend there.")
    else:
        console.print(f"\nAll passed on {gpu_name}. backend='auto' uses the kernels there from now on.")
