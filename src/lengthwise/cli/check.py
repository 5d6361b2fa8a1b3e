"""`lengthwise check`: the conformance suite, the theorems of papers, and the comparison on a GPU."""

from typing import Annotated

from cyclopts import Parameter

from lengthwise.cli.options import split_names
from lengthwise.cli.progress import progress
from lengthwise.config import ConfigError


def command(
    *names: Annotated[str, Parameter(name="ENCODINGS")],
    encodings: str | None = None,
    theorems: bool = False,
    device: str = "cpu",
    json: bool = False,
) -> int:
    """Run the conformance suite: every encoding on every attention backend.

    Example: lengthwise check; lengthwise check rope fire; lengthwise check --theorems;
    lengthwise check --device cuda

    Args:
        names: Encodings to check, separated by spaces. [default: all]
        encodings: The same names, comma-separated: rope,fire.
        theorems: Check published theorems about the encodings numerically, instead of the conformance suite.
        device: On a GPU (cuda, cuda:1, ...), compare our GPU kernels with the reference there, instead of the
            conformance suite, which runs on the CPU. If all comparisons pass, `backend="auto"` uses the kernels on GPUs
            of this kind.
        json: Print JSON.
    """
    if device != "cpu":
        return _check_gpu_kernels(device, json, others=bool(names or encodings or theorems))
    chosen = (*names, *split_names(encodings))
    if theorems:
        from lengthwise.conformance.theorems.table import main
    else:
        from lengthwise.conformance.table import main
    return main(json=json, encodings=chosen, progress=progress)


def _check_gpu_kernels(device: str, json: bool, *, others: bool) -> int:
    if others:
        raise ConfigError(
            "--device compares the GPU kernels for all encodings; omit the other options, except for --json"
        )
    from lengthwise.studies import Compute

    Compute(device=device).require_usable()
    if not device.startswith("cuda"):
        raise ConfigError(f"--device must be cpu or cuda, got {device!r}: lengthwise has kernels for no other device")
    from lengthwise.conformance.gpu_table import main

    return main(device, json, progress)
