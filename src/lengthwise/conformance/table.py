"""`lengthwise check`: print a table of marks followed by all reasons, or JSON."""

import json as json_text
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from typing import Any

import torch

from lengthwise import native
from lengthwise.attention import BACKENDS
from lengthwise.conformance import QUESTIONS, Row, Verdict, ask
from lengthwise.conformance.processes import Progress, no_progress, run_in_processes
from lengthwise.encodings import ENCODINGS

MARKS = {
    Verdict.OK: ("✓", "green"),
    Verdict.REFUSED: ("r", "yellow"),
    Verdict.NOT_APPLICABLE: ("·", "dim"),
    Verdict.FAILED: ("✗", "bold red"),
}


def main(json: bool = False, encodings: Iterable[str] = (), progress: Progress = no_progress) -> int:
    """Run the suite on all cores for the named encodings (default: all listed), and print a table or one JSON object.

    Return the exit code: 1 if any answer is a failure, and 0 otherwise.
    """
    from rich.console import Console

    names = [ENCODINGS.find(name).__name__ for name in encodings] or ENCODINGS.names()
    started = time.perf_counter()
    answered = count(1)
    with progress() as show:
        rows = ask_in_processes(names, lambda name: show(name, next(answered), len(names) * len(QUESTIONS)))
    if json:
        print(json_text.dumps(as_data(rows), indent=1))
    else:
        _print(Console(markup=False, highlight=False), rows, time.perf_counter() - started)
    return int(any(row.answer.verdict is Verdict.FAILED for row in rows))


def ask_in_processes(names: Sequence[str], on_answer: Callable[[str], None]) -> list[Row]:
    """Return the answers to every question for the named encodings, computed on all cores, in the order of the table.

    `on_answer` is called with the encoding's name after each question.
    """
    tasks = [(name, n) for name in names for n in range(len(QUESTIONS))]
    native.unsupported_reason()  # compile the kernel here, so that the message is printed once and not by every worker
    return list(chain.from_iterable(run_in_processes(_ask, tasks, lambda task, _: on_answer(task[0]))))


def _ask(task: tuple[str, int]) -> list[Row]:
    name, n = task
    # The suite tests results, not speed.
    warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
    return ask(ENCODINGS.find(name), QUESTIONS[n])


def as_data(rows: Sequence[Row]) -> dict[str, Any]:
    """Return all answers, the questions, and the versions of torch and Python, as JSON-compatible data."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "questions": [{"number": q.number, "name": q.name, "text": q.text} for q in QUESTIONS],
        "answers": [
            {
                "encoding": row.encoding,
                "backend": row.backend or None,
                "question": row.question,
                "verdict": str(row.answer.verdict),
                "detail": row.answer.detail,
            }
            for row in rows
        ],
        "ok": all(row.answer.verdict is not Verdict.FAILED for row in rows),
    }


def _print(console: Any, rows: Sequence[Row], seconds: float) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    answers = {(row.encoding, row.backend, row.question): row.answer for row in rows}
    table = Table(title="Conformance: encodings × questions × backends", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("encoding", "backend"):
        table.add_column(heading, no_wrap=True)
    labels = _labels()
    for label in labels.values():
        table.add_column(label, justify="center", no_wrap=True)
    for name in dict.fromkeys(row.encoding for row in rows):
        for n, backend in enumerate(BACKENDS):
            marks = []
            for question in QUESTIONS:
                answer = answers.get((name, backend if question.on_backend else "", question.name))
                mark, style = MARKS[answer.verdict] if answer else ("", "")
                marks.append(Text(mark, style=style))
            table.add_row("" if n else name, backend, *marks)
    console.print(table)
    for question in QUESTIONS:
        console.print(f"  {labels[question.name]:>3}  {question.name}: {question.text}")
    console.print("\n  ✓ passed   r refused, with a reason   · not applicable   ✗ failed   blank: not tested")
    for verdict in (Verdict.REFUSED, Verdict.NOT_APPLICABLE, Verdict.FAILED):
        reasons = _reasons(rows, verdict)
        if reasons:
            console.print(f"\n{verdict.capitalize()}", style=MARKS[verdict][1])
        for line in reasons:
            console.print(f"  {line}")
    counts = {verdict: sum(row.answer.verdict is verdict for row in rows) for verdict in Verdict}
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    console.print(f"\n{len(rows)} answers in {seconds:.0f} s: {summary}")


def _labels() -> dict[str, str]:
    """Return each question's label: 1, 2, 3, 4a, 4b, ... Questions with the same number get letters."""
    labels = {}
    for question in QUESTIONS:
        group = [q.name for q in QUESTIONS if q.number == question.number]
        labels[question.name] = str(question.number) + (chr(97 + group.index(question.name)) if len(group) > 1 else "")
    return labels


def _reasons(rows: Sequence[Row], verdict: Verdict) -> list[str]:
    """Return one line for each reason, with all backends that have it."""
    backends_with: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.answer.verdict is verdict:
            backends_with.setdefault((row.encoding, row.question, row.answer.detail), []).append(row.backend)
    return [
        f"{encoding}, {name}{' on ' + ' and '.join(backends) if any(backends) else ''}: {detail}"
        for (encoding, name, detail), backends in backends_with.items()
    ]
