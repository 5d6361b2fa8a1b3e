"""`lengthwise check --outside`: print tables with the reason of every difference, or JSON."""

import json as json_text
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch

from lengthwise.conformance.outside import Answer, Verdict, check, select_implementations
from lengthwise.conformance.outside.questions import QUESTIONS

ON_GPU = '"ours" is computed as on a CPU, where a bias is float32. On a GPU the sdpa backend rounds a bias to the model\'s dtype'

STYLES = {  # and the heading of the reasons
    Verdict.AGREES: ("green", ""),
    Verdict.DIFFERS: ("bold red", "Differences"),
    Verdict.NOT_APPLICABLE: ("dim", "Not applicable"),
    Verdict.OURS_RAISED: ("bold red", "Ours raised"),
}


def main(json: bool = False, encodings: Iterable[str] = ()) -> int:
    """Print the scoreboard, or one JSON object. Return 1 if ours departs from a formula or a difference has no known reason."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    implementations = select_implementations(encodings)
    columns = (TextColumn("comparing {task.description:<40}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(implementations) * len(QUESTIONS))
        advance = lambda answer: progress.update(bar, advance=1, description=answer.implementation)  # noqa: E731
        answers = check(implementations, advance)
    if json:
        print(json_text.dumps(as_data(answers), indent=1, allow_nan=False))
    else:
        _print(Console(markup=False, highlight=False), answers)
    return int(not all(answer.explained and not answer.ours_departs for answer in answers))


def as_data(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return all answers with the versions that gave them. Numbers that are not finite become null."""
    finite = lambda x: x if not isinstance(x, float) or abs(x) < float("inf") else None  # noqa: E731
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "libraries": {answer.library: answer.version for answer in answers},
        "unit": "nats: the largest error of a log-probability (of a key, or of a token)",
        "ours": f"{ON_GPU}: ours_on_gpu has such a bias",
        "questions": [{"name": q.name, "text": q.text, "tolerance": q.tolerance} for q in QUESTIONS],
        "answers": [{name: finite(value) for name, value in asdict(answer).items()} for answer in answers],
        "ours_departs": [f"{a.implementation}, {a.question}" for a in answers if a.ours_departs],
        "ours_departs_on_gpu": [f"{a.implementation}, {a.question}" for a in answers if a.ours_departs_on_gpu],
    }


def figure(value: float | None) -> str:
    """Return an error with two digits, or an empty string for None."""
    if value is None:
        return ""
    if value == 0 or value >= 100:
        return f"{value:.0f}"
    return f"{value:.1e}" if value < 0.01 else f"{value:.2g}"


def _print(console: Any, answers: Sequence[Answer]) -> None:
    for library in dict.fromkeys(answer.library for answer in answers):
        console.print(_table([answer for answer in answers if answer.library == library]))
    console.print(
        "theirs, ours: the largest error of a log-probability in nats, of a key in a row of attention weights or of a token.\n"
    )
    console.print(f"{on_gpu(answers)}.\n")
    for question in QUESTIONS:
        limit = "" if question.tolerance is None else f"; errors up to {question.tolerance:g} nats agree"
        console.print(f"  {question.name}: {question.text}{limit}")
    for verdict, (style, heading) in STYLES.items():
        lines = reasons(answers, verdict) if heading else []
        if lines:
            console.print(f"\n{heading}", style=style)
        for line in lines:
            console.print(f"  {line}")
    counts = {verdict: sum(answer.verdict is verdict for answer in answers) for verdict in Verdict}
    totals = [f"{n} {verdict}" for verdict, n in counts.items() if n or verdict is not Verdict.OURS_RAISED]
    console.print(f"\n{len(answers)} answers: {', '.join(totals)}")
    for answer in answers:
        if answer.ours_departs:
            ours = answer.reason if answer.ours is None else f"{answer.ours:g} nats"
            line = f"OURS departs from the formula: {answer.implementation}, {answer.question}: {ours}"
            console.print(line, style="bold red")


def _table(answers: Sequence[Answer]) -> Any:
    """Return a table of all answers of one library that apply. An implementation is named in its first row only."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = f"{answers[0].library} {answers[0].version} against the published formulas"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for name, justify in (("implementation", "left"), ("question", "left"), ("theirs", "right"), ("ours", "right"),
                          ("verdict", "left")):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=name in ("theirs", "ours"))  # type: ignore[arg-type]
    previous = ""
    for answer in answers:
        if answer.verdict is not Verdict.NOT_APPLICABLE:
            name = answer.implementation if answer.implementation != previous else ""
            verdict = Text(answer.verdict, STYLES[answer.verdict][0])
            table.add_row(name, answer.question, figure(answer.theirs), figure(answer.ours), verdict)
            previous = answer.implementation
    return table


def on_gpu(answers: Sequence[Answer]) -> str:
    """Return one sentence on the errors that ours would have on a GPU."""
    changed = [answer for answer in answers if answer.ours_on_gpu is not None and answer.ours_on_gpu != answer.ours]
    if not changed:
        return f"{ON_GPU}; this changes no figure here"
    worst = max(changed, key=lambda answer: answer.ours_on_gpu or 0.0)
    departing = sum(answer.ours_departs_on_gpu for answer in changed)
    return (
        f"{ON_GPU}. This changes {len(changed)} figures here, of which {departing} would no longer agree; the largest error is "
        f"{figure(worst.ours_on_gpu)} nats ({worst.implementation}, {worst.question})"
    )


def reasons(answers: Sequence[Answer], verdict: Verdict) -> list[str]:
    """Return one line for each reason of a verdict, with the implementations and questions that it explains."""
    questions: dict[tuple[str, str], dict[str, list[str]]] = {}
    for answer in answers:
        if answer.verdict is verdict:
            by_name = questions.setdefault((answer.library, answer.reason), {})
            by_name.setdefault(answer.implementation, []).append(answer.question)
    lines = []
    for (library, reason), by_name in questions.items():
        where = "; ".join(f"{name} ({', '.join(names)})" for name, names in by_name.items())
        lines.append(f"{library}: {where}: {reason}")
    return lines
