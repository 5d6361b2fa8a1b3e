"""The answers as people read them: a table of marks, then every reason in words. Or as JSON."""

import json as json_text
import multiprocessing
import os
import platform
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from lengthwise.attention import BACKENDS, cpu
from lengthwise.child_processes import ctrl_c_held_back, end_with_parent
from lengthwise.conformance import QUESTIONS, Answer, Row, Verdict, ask
from lengthwise.encodings import ENCODINGS
from lengthwise.plugins import load_plugins, loaded_plugins

MARKS = {
    Verdict.OK: ("✓", "green"),
    Verdict.REFUSED: ("r", "yellow"),
    Verdict.NOT_APPLICABLE: ("·", "dim"),
    Verdict.FAILED: ("✗", "bold red"),
}


def show(names: Sequence[str], *, json: bool) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    started = time.perf_counter()
    columns = (TextColumn("asking {task.description:<12}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(names) * len(QUESTIONS))

        def show_progress(name: str) -> None:
            progress.update(bar, advance=1, description=name)
            done = int(progress.tasks[0].completed)
            if not progress.console.is_terminal and done % len(QUESTIONS) == 0:  # a file has no bars
                seconds = time.perf_counter() - started
                print(
                    f"{name}: {done} of {progress.tasks[0].total:.0f} asked, {seconds:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )

        rows = ask_in_processes(names, show_progress)
    if json:
        print(json_text.dumps(as_data(rows), indent=1))
    else:
        _print(Console(), rows, time.perf_counter() - started)
    return int(any(row.answer.verdict is Verdict.FAILED for row in rows))


def ask_in_processes(names: Sequence[str], on_answer: Callable[[str], None]) -> list[Row]:
    """Every question to the encodings named, spread over the cores; rows come in the order of the table."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    tasks = [(name, n) for name in names for n in range(len(QUESTIONS))]
    rows: list[Row] = []
    spawn = multiprocessing.get_context("spawn")
    cpu.missing()  # compile the kernel here, so that the message is printed once and not by every worker
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(min(cores, 8), spawn, initializer=_begin, initargs=(loaded_plugins(),)) as pool:
        try:
            with ctrl_c_held_back():
                asked = [pool.submit(_ask, task) for task in tasks]
            for (name, n), answers in zip(tasks, asked, strict=True):
                rows += [Row(name, backend, QUESTIONS[n], answer) for backend, answer in answers.result()]
                on_answer(name)
        except BaseException:  # Ctrl-C, SIGTERM: leaving the pool would wait for what is being asked
            for process in multiprocessing.active_children():
                if process not in others:
                    process.kill()
            raise
    return rows


def _begin(plugins: tuple[str, ...]) -> None:
    """What a worker process does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent hears it
    end_with_parent()  # the other workers hold the pool's pipes open, so that none would notice
    torch.set_num_threads(1)
    warnings.filterwarnings(
        "ignore", "flex_attention called without torch.compile"
    )  # its results are what is asked about
    load_plugins(plugins)


def _ask(task: tuple[str, int]) -> list[tuple[str, Answer]]:
    name, n = task
    return [(row.backend, row.answer) for row in ask(ENCODINGS.find(name), QUESTIONS[n])]


def as_data(rows: Sequence[Row]) -> dict[str, Any]:
    """Every answer, and what gave it."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "questions": [{"number": q.number, "name": q.name, "text": q.text} for q in QUESTIONS],
        "answers": [
            {
                "encoding": row.encoding,
                "backend": row.backend or None,
                "question": row.question.name,
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

    found = {(row.encoding, row.backend, row.question.name): row.answer for row in rows}
    table = Table(title="Conformance: encodings × questions × backends", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("encoding", no_wrap=True)
    table.add_column("backend", no_wrap=True)
    labels = _labels()
    for question in QUESTIONS:
        table.add_column(labels[question.name], justify="center", no_wrap=True)
    for name in dict.fromkeys(row.encoding for row in rows):
        for n, backend in enumerate(BACKENDS):
            marks = []
            for question in QUESTIONS:
                answer = found.get((name, backend if question.on_backend else "", question.name))
                mark, style = MARKS[answer.verdict] if answer else ("", "")
                marks.append(Text(mark, style=style))
            table.add_row("" if n else name, backend, *marks)
    console.print(table)
    for question in QUESTIONS:
        console.print(f"  {labels[question.name]:>3}  {question.name}: {question.text}", markup=False, highlight=False)
    console.print("\n  ✓ yes   r refused, with a reason   · not applicable   ✗ no   blank: not asked", highlight=False)
    for verdict, heading in (
        (Verdict.REFUSED, "Refused"),
        (Verdict.NOT_APPLICABLE, "Not applicable"),
        (Verdict.FAILED, "Failed"),
    ):
        reasons = _reasons(rows, verdict)
        if reasons:
            console.print(f"\n{heading}", style=MARKS[verdict][1])
        for line in reasons:
            console.print(f"  {line}", markup=False, highlight=False)
    counts = {verdict: sum(row.answer.verdict is verdict for row in rows) for verdict in Verdict}
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    console.print(f"\n{len(rows)} answers in {seconds:.0f} s: {said}", highlight=False)


def _labels() -> dict[str, str]:
    """1, 2, 3, 4a, 4b, ...: questions of one number get letters."""
    labels = {}
    for question in QUESTIONS:
        alike = [q.name for q in QUESTIONS if q.number == question.number]
        labels[question.name] = str(question.number) + (chr(97 + alike.index(question.name)) if len(alike) > 1 else "")
    return labels


def _reasons(rows: Sequence[Row], verdict: Verdict) -> list[str]:
    """One line for each reason; backends that give the same one are named together."""
    said: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.answer.verdict is verdict:
            said.setdefault((row.encoding, row.question.name, row.answer.detail), []).append(row.backend)
    return [
        f"{encoding}, {name}{' on ' + ' and '.join(backends) if any(backends) else ''}: {detail}"
        for (encoding, name, detail), backends in said.items()
    ]
