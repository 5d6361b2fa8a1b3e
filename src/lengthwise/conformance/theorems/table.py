"""Print the results: every theorem in words with a table, or JSON."""

import json as json_text
import platform
from collections.abc import Sequence
from typing import Any

import torch

from lengthwise.conformance.answers import Verdict
from lengthwise.conformance.table import MARKS
from lengthwise.conformance.theorems import THEOREMS, run
from lengthwise.conformance.theorems.results import Result
from lengthwise.encodings import PositionEncoding


def show(encodings: Sequence[type[PositionEncoding]] | None, *, json: bool) -> int:
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        results = run(encodings, on_start=status.update)
    if json:
        print(json_text.dumps(as_data(results), indent=1))
    else:
        _print(Console(), results)
    return int(not all(result.ok for result in results))


def as_data(results: Sequence[Result]) -> dict[str, Any]:
    """Return all comparisons, the theorems, and the versions of torch and Python. Non-finite numbers are None."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "theorems": [{"name": t.name, "says": t.statement, "source": t.source} for t in THEOREMS],
        "results": [
            {
                "theorem": result.theorem,
                "encoding": result.subject,
                "compared": result.compared,
                "difference": _finite(result.difference),
                "allowed": _finite(result.allowed),
                "ok": result.ok,
            }
            for result in results
        ],
        "ok": all(result.ok for result in results),
    }


def _finite(x: float) -> float | None:
    return x if abs(x) < float("inf") else None


def _print(console: Any, results: Sequence[Result]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console.print("[bold]Theorems[/], built and compared in float64", highlight=False)
    for theorem in THEOREMS:
        rows = [result for result in results if result.theorem == theorem.name]
        if not rows:
            continue
        console.print(f"\n{theorem.name}", style="bold")
        console.print(f"{theorem.statement}\n{theorem.source}", markup=False, highlight=False)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        table.add_column("encoding", no_wrap=True)
        table.add_column("compared")
        table.add_column("difference", justify="right", no_wrap=True)
        table.add_column("allowed", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for result in rows:
            mark, style = MARKS[Verdict.OK if result.ok else Verdict.FAILED]
            sizes = f"{result.difference:.1e}", f"{result.allowed:.1e}"
            table.add_row(result.subject, Text(result.compared), *sizes, Text(mark, style=style))
        console.print(table)
    failed = sum(not result.ok for result in results)
    console.print(
        f"{len(results)} comparisons, {failed or 'none'} with a larger difference than rounding in float64 allows",
        highlight=False,
    )
