"""`lengthwise bench`: the time and memory of every encoding in a whole model, relative to NoPE, on this machine."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.answers import show_answers
from lengthwise.cli.options import FLATTENED, Threads, named_as_options, option_class, option_values, split_names
from lengthwise.cli.output_file import new_file, picture_file
from lengthwise.cli.printing import FittedTable, json_text, note_lines, one_line, stdout
from lengthwise.cli.progress import progress
from lengthwise.config import ConfigError
from lengthwise.measurements.speed import BASELINE, KINDS, Speed, sizes_for
from lengthwise.values import join_names

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lengthwise.measurements.answer_file import FileAnswer
    from lengthwise.measurements.speed import SpeedOptions
    from lengthwise.speed.compare import Change, Comparison

Options = option_class({field.name: field for field in Speed.Options.fields()}, Speed().shown_default)


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class Output:
    """What is measured besides times, and what is written."""

    encodings: str | None = None
    """The same names, comma-separated: rope,alibi,fire."""
    threads: Threads = 1
    """CPU threads. With one thread on a CPU, times are CPU times, which other processes disturb little."""
    memory: Annotated[bool, Parameter(negative="--no-memory")] = True
    """Measure the peak memory of a training step, too."""
    out: str | None = None
    """File for the times of all rounds, from which the same command continues, and which --compare reads. [default:
    nothing is saved]"""
    plot: str | None = None
    """Picture to write: a file whose name ends in .svg, .png, .pdf or .html. [default: none]"""
    compare: tuple[str, str] | None = None
    """Measure nothing, and compare two files A and B: what changed from A to B beyond the noise?"""
    json: bool = False
    """Print JSON instead of tables."""


def command(
    *names: Annotated[str, Parameter(name="ENCODINGS")],
    options: Options = Options(),  # type: ignore[valid-type]
    output: Output = Output(),
) -> int:
    """Measure the forward pass, the training step and the decoding of every encoding here, relative to NoPE.

    A training step is the forward pass, the backward pass and AdamW, in a GPT-like model. A decoded token is the mean
    over the last eight tokens of a sequence, which follow the others in a cache. In every round each encoding is
    measured once, in random order, and its time is divided by that of NoPE in the same round. The tables show medians
    with 95 % intervals. All encodings take more than half an hour on one CPU core. An interrupted measurement with
    --out continues with the same command.

    Example: lengthwise bench; lengthwise bench rope fire "rope*3+nope" --lengths 256,1024 --out a.jsonl --plot a.svg;
    lengthwise bench --compare a.jsonl b.jsonl

    The exit code is 1 if some encoding could not be measured at any length, and 2 if none could.

    Args:
        names: Encodings to measure, optionally with settings, and mixers such as mamba or retnet. NoPE is always
            measured. [default: all encodings]
    """
    encodings = (*names, *split_names(output.encodings))
    if output.compare is not None:
        return _compare(output, encodings)
    out = None if output.out is None else new_file(output.out, force=True)
    plot = None if output.plot is None else picture_file(output.plot, (".svg", ".png", ".pdf", ".html"))
    if out is not None and plot is not None and out.absolute() == plot.absolute():
        raise ConfigError(f"--out and --plot are the same file {output.out}; name two files")
    answer, interrupt = _measured(_question(encodings, asdict(options), output), out)
    has_times = any("round" in row for row in answer.rows)
    if has_times or interrupt is None:
        show_answers([answer], plot if has_times else None, output.json)
    if interrupt is not None:
        saved = f"the finished rounds are in {one_line(out)}, and the same command continues" if out else ""
        hint = saved or "the finished rounds are printed; with --out FILE, the same command continues"
        interrupt.hint = hint if has_times else "no round was finished"  # type: ignore[attr-defined]
        raise interrupt
    return _exit_code(answer)


def _question(encodings: tuple[str, ...], options: dict[str, Any], output: Output) -> "SpeedOptions":
    """Return the question with the defaults of the device. Raise `ConfigError` for a device that cannot be used."""
    import torch

    from lengthwise.studies import Compute

    chosen = option_values(Speed.Options.fields(), options)
    device = chosen.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
    Compute(device=device, backend=chosen.get("backend", "auto"), threads=output.threads).require_usable()
    more = {"encodings": encodings, "threads": output.threads, "memory": output.memory}
    with named_as_options(Speed.Options):
        return Speed.Options(**{**sizes_for(device), **chosen, **more})


def _measured(options: "SpeedOptions", out: Path | None) -> "tuple[FileAnswer, KeyboardInterrupt | None]":
    """Measure what the file does not have. Return the answer, and the interrupt that stopped it, if one did."""
    from lengthwise.measurements.answer_file import recording
    from lengthwise.speed.measure import Benchmark
    from lengthwise.training.numerics import keep_freed_memory

    keep_freed_memory()  # as in a worker that trains
    benchmark = Benchmark(options)
    with recording(out, benchmark.answer()) as record, progress() as show:
        rows_before = len(record.answer.rows)
        try:
            for rows in benchmark.rows(record.answer.rows, show):
                record.add(rows)
        except KeyboardInterrupt as interrupt:
            return record.answer, interrupt
    if rows_before == len(record.answer.rows):
        print(
            f"lengthwise: {one_line(out)} already has all rounds, so nothing was measured; to measure again, name "
            "another --out",
            file=sys.stderr,
        )
    return record.answer, None


def _exit_code(answer: "FileAnswer") -> int:
    """Return 0, or print which encodings have no times and return 1. Raise `ConfigError` if none has."""
    assert isinstance(answer.measurement, Speed)
    unmeasured = answer.measurement.unmeasured(answer.table)
    labels = {row["encoding"] for row in answer.rows} - {BASELINE} or {BASELINE}
    missing = [
        f"{label} could not be measured at any length: {why}" for label, why in unmeasured.items() if label in labels
    ]
    if len(missing) == len(labels):
        raise ConfigError(missing[0])
    for line in missing:
        print(f"lengthwise: {one_line(line)}", file=sys.stderr)
    return 1 if missing else 0


# ---- comparison ---------------------------------------------------------------------------------------------------


def _compare(output: Output, encodings: tuple[str, ...]) -> int:
    from lengthwise.measurements.answer_file import read
    from lengthwise.speed.compare import compare

    assert output.compare is not None
    incompatible = {"--out": output.out, "--plot": output.plot, "encodings": encodings or None}
    if wrong := [name for name, value in incompatible.items() if value is not None]:
        raise ConfigError(f"--compare measures nothing, so it takes no {wrong[0]}; omit it")
    comparison = compare(*(read(Path(name), Speed.name) for name in output.compare))
    if output.json:
        changes = [asdict(change) | {"verdict": change.verdict} for change in comparison.changes]
        print(json_text({"summary": _sentence(comparison), "notes": comparison.notes, "changes": changes}))
        return 0
    for renderable in _renderables(comparison, output.compare):
        stdout().print(renderable)
    return 0


def _renderables(comparison: "Comparison", names: Sequence[str]) -> Iterator["RenderableType"]:
    """Yield what is printed: the changes beyond the noise, a summary in one sentence, and notes."""
    from lengthwise.speed.compare import LEVEL, SMALLEST_CHANGE

    if claimed := comparison.claimed:
        heads = ["encoding", "length", "", "A", "B", "change", "p"]
        yield FittedTable(heads, list(map(_row, claimed)), left=("encoding", ""), drop=("p", "A", "B"))
        yield ""
    yield _sentence(comparison)
    notes = [*(f"{letter}: {name}" for letter, name in zip("AB", names, strict=True)), *comparison.notes]
    if comparison.changes:
        notes.append(
            f"Test of Mann and Whitney on the ratios to {BASELINE} of the rounds, with Holm's correction; a change is "
            f"claimed if p is at most {LEVEL} and the median changed by at least {SMALLEST_CHANGE:.0%}."
        )
    yield from note_lines(list(map(one_line, notes)))


def _sentence(comparison: "Comparison") -> str:
    """Return the result in a sentence: `2 of 40 ratios to NoPE changed beyond the noise: 1 slower, 1 faster in B.`"""
    changes, claimed = comparison.changes, comparison.claimed
    if not changes:
        return "Nothing was compared."
    if not claimed:
        return f"None of {len(changes)} ratios to {BASELINE} changed beyond the noise."
    counts = {word: sum(change.verdict == word for change in claimed) for word in ("slower", "faster")}
    directions = join_names([f"{count} {word}" for word, count in counts.items() if count])
    return f"{len(claimed)} of {len(changes)} ratios to {BASELINE} changed beyond the noise: {directions} in B."


def _row(change: "Change") -> list[str]:
    ratios = [
        f"{i.mean:.2f}" + (f" ({i.low:.2f}–{i.high:.2f})" if i.basis == "rounds" else "")
        for i in (change.before, change.after)
    ]
    p = f"{change.p:.2g}" if change.p >= 1e-4 else "< 0.0001"
    return [one_line(change.encoding), f"{change.length:,}", KINDS[change.kind], *ratios, f"{change.change:+.1%}", p]
