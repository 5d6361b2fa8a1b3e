"""The tables of `lengthwise bench`, and of its comparison of two files."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.cli.printing import FittedTable, note_lines, one_line, title_line
from lengthwise.speed.compare import LEVEL, SMALLEST_CHANGE, Change, Comparison
from lengthwise.speed.plot import explanation, machine_line, ratio_text, time_text
from lengthwise.speed.results import BASELINE, KIND_NAMES, KINDS, Cell, Kind, Results
from lengthwise.values import join_names

if TYPE_CHECKING:
    from rich.console import RenderableType

MIB = 2**20


def result_parts(results: Results) -> Iterator["RenderableType"]:
    """Yield what the command prints: a table for each kind and one for the memory, with the reasons of empty cells."""
    reasons = Reasons()
    for kind in KINDS:
        yield title_line(f"Time of a {KIND_NAMES[kind]} relative to {BASELINE}, by tokens per sequence")
        yield _table(results, lambda cell, kind=kind: _time_text(results, cell, kind, reasons))
        yield ""
    if any(cell.memory_bytes is not None for cell in results.cells):
        yield title_line(f"Peak memory of a training step beyond the weights, in MiB (relative to {BASELINE})")
        yield _table(results, lambda cell: _memory_text(results, cell, reasons))
        yield ""
    yield from note_lines([*reasons.lines(), *map(one_line, (explanation(results), machine_line(results)))])


class Reasons:
    """The numbered reasons of cells without a number, each once with its lengths."""

    def __init__(self) -> None:
        self.lengths: dict[tuple[str, str], list[int]] = {}

    def mark(self, cell: Cell, reason: str) -> str:
        """Return `– [1]`, the text of the cell."""
        lengths = self.lengths.setdefault((cell.encoding, reason), [])
        if cell.length not in lengths:
            lengths.append(cell.length)
        return f"– [{list(self.lengths).index((cell.encoding, reason)) + 1}]"

    def lines(self) -> list[str]:
        items = enumerate(self.lengths.items(), 1)
        return [
            one_line(f"[{n}] {name} at {join_names([f'{length:,}' for length in lengths])}: {reason}")
            for n, ((name, reason), lengths) in items
        ]


def _table(results: Results, text_of: Any) -> FittedTable:
    lengths = results.lengths
    heads = [f"{length:,}" for length in lengths]
    rows = []
    for label in results.encodings:
        cells = [results.cell(label, length) for length in lengths]
        rows.append([one_line(label), *("–" if cell is None else text_of(cell) for cell in cells)])
    # The longest length says most about an encoding, so it is omitted last.
    return FittedTable(["encoding", *heads], rows, left=("encoding",), drop=tuple(heads))


def _time_text(results: Results, cell: Cell, kind: Kind, reasons: Reasons) -> str:
    text = time_text(results, cell, kind)
    return reasons.mark(cell, cell.refusal or "not measured") if text is None else text


def _memory_text(results: Results, cell: Cell, reasons: Reasons) -> str:
    if cell.memory_bytes is None:
        return reasons.mark(cell, cell.memory_refusal or cell.refusal or "not measured")
    baseline = results.cell(BASELINE, cell.length)
    size = f"{cell.memory_bytes / MIB:,.0f}"
    if cell.encoding == BASELINE or baseline is None or not baseline.memory_bytes:
        return size
    return f"{size} ({cell.memory_bytes / baseline.memory_bytes:.2f})"


# ---- comparison ---------------------------------------------------------------------------------------------------


def comparison_parts(comparison: Comparison, names: Sequence[str]) -> Iterator["RenderableType"]:
    """Yield what the command prints: the changes beyond the noise, a summary in one sentence, and notes."""
    claimed = comparison.claimed
    if claimed:
        heads = ["encoding", "length", "", "A", "B", "change", "p"]
        rows = [_change_row(change) for change in claimed]
        yield FittedTable(heads, rows, left=("encoding", ""), drop=("p", "A", "B"))
        yield ""
    yield summary(comparison)
    yield from note_lines([one_line(f"{letter}: {name}") for letter, name in zip("AB", names, strict=True)])
    notes = [*comparison.notes]
    if comparison.changes:
        notes.append(
            f"Test of Mann and Whitney on the ratios to {BASELINE} of the rounds, with Holm's correction; a change is claimed if "
            f"p is at most {LEVEL} and the median changed by at least {SMALLEST_CHANGE:.0%}."
        )
    yield from note_lines([one_line(note) for note in notes])


def summary(comparison: Comparison) -> str:
    """Return the result in a sentence: `2 of 40 ratios to NoPE changed beyond the noise: 1 slower, 1 faster.`"""
    changes, claimed = comparison.changes, comparison.claimed
    if not changes:
        return "Nothing was compared."
    if not claimed:
        return f"None of {len(changes)} ratios to {BASELINE} changed beyond the noise."
    counts = {word: sum(change.verdict == word for change in claimed) for word in ("slower", "faster")}
    parts = join_names([f"{count} {word}" for word, count in counts.items() if count])
    return f"{len(claimed)} of {len(changes)} ratios to {BASELINE} changed beyond the noise: {parts} in B."


def _change_row(change: Change) -> list[str]:
    ratios = [ratio_text(change.before), ratio_text(change.after)]
    p = f"{change.p:.2g}" if change.p >= 1e-4 else "< 0.0001"
    return [
        one_line(change.encoding),
        f"{change.length:,}",
        KIND_NAMES[change.kind],
        *ratios,
        f"{change.change:+.1%}",
        p,
    ]


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data."""
    return {
        "summary": summary(comparison),
        "notes": list(comparison.notes),
        "changes": [
            {
                "encoding": c.encoding,
                "length": c.length,
                "kind": c.kind,
                "before": vars(c.before),
                "after": vars(c.after),
                "change": c.change,
                "p": c.p,
                "verdict": c.verdict,
            }
            for c in comparison.changes
        ],
    }
