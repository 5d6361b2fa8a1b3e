"""`lengthwise bench`: the time and memory of every encoding in a whole model, relative to NoPE, on this machine."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from lengthwise import cache_folder
from lengthwise.cli.options import (
    FLATTENED,
    Integer,
    Threads,
    named_as_options,
    split_names,
    whole_numbers,
)
from lengthwise.cli.output_file import output_file
from lengthwise.cli.printing import json_text, one_line, stdout
from lengthwise.cli.progress import progress
from lengthwise.config import ConfigError
from lengthwise.speed.plan import Question, sizes_for
from lengthwise.values import near_miss

if TYPE_CHECKING:
    from lengthwise.speed.results import Results

PICTURES = {".svg": "SVG picture", ".png": "PNG picture", ".pdf": "PDF file", ".html": "HTML page"}


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """Fields of `Question`. None stands for the default of the device."""

    d_model: Integer | None = None
    """Width of the model. [default: 256 on a CPU, 768 on other devices]"""
    num_layers: Integer | None = None
    """Number of layers. [default: 4 on a CPU, 12 on other devices]"""
    num_heads: Integer | None = None
    """Attention heads per layer. [default: 4 on a CPU, 12 on other devices]"""
    batch_tokens: Integer | None = None
    """Tokens per batch: a batch has as many sequences as fit, and at least one. [default: 2048 on a CPU, 16384 on other
    devices]"""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Data type of matrix products and attention. Weights are float32, and bfloat16 is used by autocast. [default:
    float32 on a CPU, bfloat16 on other devices]"""
    rounds: Integer = 12
    """Measured rounds. In each, every encoding is measured once, in random order."""
    warmup: Integer = 2
    """Rounds before the measured ones, which are not stored."""
    seed: Integer = 0
    """Seed of the weights, the tokens and the order in each round."""
    backend: str = "auto"
    """Attention backend: auto (the fastest that supports the encoding), fused, blocked, sdpa, flex or reference."""


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The options of the command that are not fields of the question, or have another form there."""

    encodings: str | None = None
    """The same names, comma-separated: rope,alibi,fire."""
    lengths: str = "256,512,1024,2048"
    """Tokens per sequence, comma-separated."""
    device: str | None = None
    """Device to run on: cpu, cuda, cuda:1, ... [default: cuda if this machine has a GPU that PyTorch can use, otherwise
    cpu]"""
    threads: Threads = 1
    """CPU threads. With one thread on a CPU, times are CPU times, which other processes disturb little."""
    memory: Annotated[bool, Parameter(negative="--no-memory")] = True
    """Measure the peak memory of a training step, too."""
    output: str | None = None
    """JSON file for the times of all rounds, which --compare reads. [default: nothing is saved]"""
    plot: str | None = None
    """Picture to write: a file whose name ends in .svg, .png, .pdf or .html. [default: none]"""
    compare: tuple[str, str] | None = None
    """Measure nothing, and compare two JSON files A and B: what changed from A to B beyond the noise?"""
    json: bool = False
    """Print JSON instead of tables."""


def command(
    *names: Annotated[str, Parameter(name="ENCODINGS")],
    settings: QuestionOptions = QuestionOptions(),
    options: BenchOptions = BenchOptions(),
) -> int:
    """Measure the forward pass and the training step of every encoding on this machine, relative to NoPE.

    A training step is the forward pass, the backward pass and AdamW, in a GPT-like model. In every round each encoding
    is measured once, in random order, and its time is divided by that of NoPE in the same round. The tables show
    medians with 95 % intervals. All encodings take about half an hour on one CPU core.

    Example: lengthwise bench; lengthwise bench rope fire "rope*3+nope" --lengths 256,1024 --output a.json --plot a.svg;
    lengthwise bench --compare a.json b.json

    The exit code is 1 if some encoding could not be measured at any length, and 2 if none could.

    Args:
        names: Encodings to measure, optionally with settings, and mixers such as mamba or retnet. NoPE is always measured.
            [default: all encodings]
    """
    encodings = (*names, *split_names(options.encodings))
    if options.compare is not None:
        return _compare(options, encodings)
    output = None if options.output is None else output_file(options.output, "JSON file")
    plot = None if options.plot is None else _plot_file(options.plot)
    if output is not None and plot is not None and output.absolute() == plot.absolute():
        raise ConfigError(f"--output and --plot are the same file {options.output}; name two files")
    lengths = tuple(dict.fromkeys(whole_numbers(options.lengths, "--lengths", 1, "256,512,1024")))
    measured = _measure(_question(encodings, lengths, options, settings))
    results, interrupt = measured
    if any(cell.forward for cell in results.cells):
        _save(results, output, plot)
        _print(results, options.json)
    elif interrupt is None:
        _print(results, options.json)
    if interrupt is not None:
        finished = max((len(cell.forward) for cell in results.cells), default=0)
        saved = f" and saved in {one_line(output)}" if output is not None and finished else ""
        hint = f"the finished rounds are printed{saved}; they cannot be continued"
        interrupt.hint = hint if finished else "no round was finished"  # type: ignore[attr-defined]
        raise interrupt
    return _exit_code(results)


def _exit_code(results: "Results") -> int:
    """Return 0, or print which encodings have no times and return 1. Raise `ConfigError` if none has."""
    from lengthwise.speed.results import BASELINE

    unmeasured = results.unmeasured()
    wanted = [label for label in results.encodings if label != BASELINE] or [BASELINE]
    missing = [
        f"{label} could not be measured at any length: {unmeasured[label]}" for label in wanted if label in unmeasured
    ]
    if len(missing) == len(wanted):
        raise ConfigError(missing[0])
    for line in missing:
        print(f"lengthwise: {one_line(line)}", file=sys.stderr)
    return 1 if missing else 0


def _question(
    encodings: tuple[str, ...], lengths: tuple[int, ...], options: BenchOptions, settings: QuestionOptions
) -> Question:
    """Return the question with the defaults of the device. Raise `ConfigError` for a device that cannot be used."""
    import torch

    from lengthwise.studies import Compute

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    Compute(device=device, backend=settings.backend, threads=options.threads).require_usable()
    chosen = {name: value for name, value in vars(settings).items() if value is not None}
    with named_as_options(Question):
        return Question(
            encodings=encodings,
            lengths=lengths,
            device=device,
            threads=options.threads,
            memory=options.memory,
            **{**sizes_for(device), **chosen},
        )


def _measure(question: Question) -> tuple["Results", KeyboardInterrupt | None]:
    """Return the results, and the interrupt that stopped the measurement early, if one did."""
    from lengthwise.speed.measure import Measurement
    from lengthwise.training.numerics import keep_freed_memory

    keep_freed_memory()  # as in a worker that trains
    measurement = Measurement(question)
    try:
        with progress() as show:
            return measurement.run(show), None
    except KeyboardInterrupt as interrupt:
        return measurement.results(), interrupt


def _save(results: "Results", output: Path | None, plot: Path | None) -> None:
    """Write the files, each in one step: it is complete or absent."""
    if output is not None:
        cache_folder.write(output, results.to_json("cells").encode())
    if plot is not None:
        from lengthwise.speed.plot import file_content

        cache_folder.write(plot, file_content(results, plot.suffix.lower().removeprefix(".")))


def _print(results: "Results", as_json: bool) -> None:
    from lengthwise.cli.bench.tables import result_parts

    if as_json:
        print(results.to_json("cells"), end="")
        return
    console = stdout()
    for part in result_parts(results):
        console.print(part)


def _compare(options: BenchOptions, encodings: tuple[str, ...]) -> int:
    from lengthwise.cli.bench.tables import comparison_data, comparison_parts
    from lengthwise.speed.compare import compare
    from lengthwise.speed.results import read

    assert options.compare is not None
    given = {"--output": options.output, "--plot": options.plot, "encodings": encodings or None}
    if wrong := [name for name, value in given.items() if value is not None]:
        raise ConfigError(f"--compare measures nothing, so it takes no {wrong[0]}; omit it")
    before, after = (read(Path(name)) for name in options.compare)
    comparison = compare(before, after)
    if options.json:
        print(json_text(comparison_data(comparison)))
        return 0
    console = stdout()
    for part in comparison_parts(comparison, options.compare):
        console.print(part)
    return 0


def _plot_file(text: str) -> Path:
    suffix = Path(text).suffix.lower()
    if suffix not in PICTURES:
        near = near_miss(suffix, PICTURES) if suffix else ""
        raise ConfigError(f"--plot must end in .svg, .png, .pdf or .html, got {text[:80]!r}{near}; name such a file")
    return output_file(text, PICTURES[suffix], "--plot")
