"""`lengthwise check --theorems`: print every theorem in words with a table, or JSON."""

import json as json_text
import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from lengthwise.conformance.answers import Verdict
from lengthwise.conformance.processes import Progress, no_progress
from lengthwise.conformance.table import MARKS
from lengthwise.conformance.theorems import THEOREMS, run
from lengthwise.conformance.theorems.results import Result
from lengthwise.encodings import ENCODINGS


def main(json: bool = False, encodings: Iterable[str] = (), progress: Progress = no_progress) -> int:
    """Check all theorems (or those about the named encodings) and print a table or JSON.

    Return the exit code: 1 if any theorem does not hold, and 0 otherwise.
    """
    from rich.console import Console

    makes = [ENCODINGS.find(name) for name in encodings]
    with progress() as show:
        results = run(makes or None, on_start=show)
    if json:
        print(json_text.dumps(as_data(results), indent=1))
    else:
        _print(Console(highlight=False), results)
    return int(not all(result.ok for result in results))


def as_data(results: Sequence[Result]) -> dict[str, Any]:
    """Return all comparisons, the theorems, and the versions of torch and Python. Non-finite numbers are None."""
    finite = lambda x: None if isinstance(x, float) and not math.isfinite(x) else x  # noqa: E731
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "theorems": [{"name": t.name, "says": t.statement, "source": t.source} for t in THEOREMS],
        "results": [
            {name: finite(value) for name, value in asdict(result).items()} | {"ok": result.ok} for result in results
        ],
        "ok": all(result.ok for result in results),
    }


def _print(console: Any, results: Sequence[Result]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console.print("[bold]Theorems[/], built and compared in float64")
    for theorem in THEOREMS:
        rows = [result for result in results if result.theorem == theorem.name]
        if not rows:
            continue
        console.print(f"\n{theorem.name}", style="bold")
        console.print(f"{theorem.statement}\n{theorem.source}", markup=False)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for name in ("encoding", "compared", "difference", "allowed", ""):
            justify: Any = "right" if name in ("difference", "allowed") else "left"
            table.add_column(name, justify=justify, no_wrap=name != "compared")
        for result in rows:
            mark, style = MARKS[Verdict.OK if result.ok else Verdict.FAILED]
            sizes = f"{result.difference:.1e}", f"{result.allowed:.1e}"
            table.add_row(result.encoding, Text(result.compared), *sizes, Text(mark, style=style))
        console.print(table)
    failed = sum(not result.ok for result in results)
    larger = f"{failed or 'none'} with a larger difference than rounding in float64 allows"
    console.print(f"{len(results)} comparisons, {larger}")
