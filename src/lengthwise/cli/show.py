"""`lengthwise show`: print one run. Imports no torch."""

import dataclasses
import itertools
import json as json_module
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.cli.options import Place
from lengthwise.cli.printing import column, counted, figure, plain_table, print_json, stdout
from lengthwise.measurements.base import SHOW
from lengthwise.metrics import Metric
from lengthwise.values import SCORES, TRAINING

if TYPE_CHECKING:
    from lengthwise.store import AnswerRow, RunRow, ScoreRow

BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 60
SHOWN = (SCORES, TRAINING)  # above the other answers


def command(run: str, /, *, place: Place = Place(), json: bool = False) -> int:
    """Show one run: its settings, scores and training curve, and the software and hardware that produced it.

    Example: lengthwise show 3f9a (`lengthwise list runs` shows the keys)

    Args:
        run: The run's key, or its first digits.
        json: Print JSON.
    """
    with place.open() as store:
        row = store.run(run)
        answers, option = store.answers([row.key]), store.option
    if json:
        print_json(dataclasses.asdict(row) | {"answers": list(map(dataclasses.asdict, answers))})
        return 0
    print_run(row, answers)
    _print_answers(row, [answer for answer in answers if answer.measurement not in SHOWN], option)
    return 0


def _print_answers(run: "RunRow", answers: "list[AnswerRow]", option: str) -> None:
    """Print what training and evaluation recorded as tables, and for probes the command that shows their answers."""
    from lengthwise.analysis.answers import of_answers
    from lengthwise.measurements import MEASUREMENTS
    from lengthwise.report.answer_table import answer_table

    by_name: dict[str, list[AnswerRow]] = {}
    for answer in answers:
        by_name.setdefault(answer.measurement, []).append(answer)
    for name, rows in by_name.items():
        print()
        measurement, command = MEASUREMENTS.get(name), f"lengthwise probe {name} KEY"
        lengths = [row.question["length"] for row in rows if "length" in row.question]
        if measurement is not None and measurement.command == SHOW:
            names = [f"length {length:,}" for length in lengths] or [name]
            stdout().print(
                answer_table(of_answers(measurement, names, rows, {run.key: run}), measurement.chapter.lower())
            )
            continue
        lengths_option = f" --lengths {','.join(map(str, sorted(set(lengths))))}" if lengths else ""
        command = measurement.command if measurement is not None else command
        command = command.replace("KEY", f"{run.key[:8]}{option}") + lengths_option
        print(f"{name}: {counted(len(rows), 'stored answer')}; `{command}` shows them")


def print_run(run: "RunRow", answers: "list[AnswerRow]") -> None:
    from lengthwise.analysis.protocol import training_set
    from lengthwise.measurements import Table
    from lengthwise.measurements.scores import FurtherScores
    from lengthwise.store import ScoreRow

    console = stdout()
    console.print(f"{run.label} on {run.task}, seed {run.seed}", style="bold")
    facts = plain_table(column("", style="dim", no_wrap=True), column("", overflow="fold"), show_header=False)
    facts.add_row("key", run.key)
    if run.parent is not None:
        facts.add_row("parent", f"{run.parent}, whose weights it starts from")
    facts.add_row("status", f"{run.status}: {run.error}" if run.error else run.status)
    if run.finished is None and run.steps:
        facts.add_row("step", f"{run.step} of {run.steps}")
    for name in ("encoding", "task", "model", "training"):
        facts.add_row(name, _settings(run.config.get(name)))
    if training := run.config.get("training"):
        facts.add_row("examples", training_set(training))
    for name, value in ({"metric": {}} | run.facts).items():
        text = _settings(value)
        if name == "metric":
            text = ", ".join(filter(None, [run.metric, f"{run.better} is better", text]))
        facts.add_row(name, text)
    console.print(facts)
    for answer in answers:
        if answer.measurement == TRAINING:
            curve = Table.from_data(answer.rows)
            losses, step = curve.column("loss"), curve.column("step")[-1]
            print(f"\nloss {figure(losses[0])} {_bars(losses)} {figure(losses[-1])}, {step} steps")
    if scores := [ScoreRow.of(answer) for answer in answers if answer.measurement == SCORES]:
        print()
        console.print(scores_table(run, scores))
    for answer, excerpts in itertools.product(answers, FurtherScores.excerpts):
        if answer.measurement == FurtherScores.name:
            for row in Table.from_data(answer.rows):
                if all(row.get(name) == value for name, value in excerpts.where.items()):
                    console.print()
                    length = answer.question["length"]
                    console.print(f"{excerpts.title}, length {length}: {row['question']}", style="bold")
                    console.print(row["generated"] or "(nothing was generated)")


def scores_table(run: "RunRow", scores: "list[ScoreRow]") -> Any:
    """Return a table with one row per score, and the baselines' scores."""
    from lengthwise.analysis.gather import metric_of
    from lengthwise.analysis.kinds import KIND_WORDS, Kind, length_kind

    table = plain_table()
    of_baselines = [{one["name"]: one["score"] for one in score.baselines} for score in scores]
    baselines = list(dict.fromkeys(name for row in of_baselines for name in row))
    for name in (f"length ({run.unit})", run.metric, "standard error", "examples", *baselines):
        table.add_column(name, justify="right", style="dim" if name in baselines else "")
    table.add_column("")
    for score, beside in zip(scores, of_baselines, strict=True):
        row = [f"{score.length}", f"{score.mean:.4f}", figure(score.standard_error or None, 2), f"{score.n}"]
        cells = [f"{beside[name]:.4f}" if name in beside else "–" for name in baselines]
        table.add_row(*row, *cells, KIND_WORDS[length_kind(run, score.question)])
    kinds: tuple[Kind, ...] = ("trained", "longer")  # shorter lengths are in neither mean
    for kind in kinds:
        of_kind = [score for score in scores if length_kind(run, score.question) == kind]
        if overall := overall_score(metric_of(run), of_kind):
            mean, examples = overall
            table.add_row(
                "all", f"{mean:.4f}", "", f"{examples}", *[""] * len(baselines), f"{KIND_WORDS[kind]}, all lengths"
            )
    return table


def overall_score(metric: Metric, scores: "list[ScoreRow]") -> tuple[float, int] | None:
    """Return the mean over several lengths and its number of examples.

    Shares are weighted by examples and other metrics by lengths, as in the report. Return None for fewer than two
    lengths, and if a length has several scores (from different evaluation settings), which have no common mean.
    """
    lengths = {score.length for score in scores}
    if len(lengths) < 2 or len(lengths) < len(scores):
        return None
    weights = [score.n if metric.share else 1 for score in scores]
    mean = math.fsum(score.mean * weight for score, weight in zip(scores, weights, strict=True)) / sum(weights)
    return mean, sum(score.n for score in scores)


def _settings(value: Any) -> str:
    if isinstance(value, dict):
        version = value.get("class") if "is" in value else None
        note = f" ({_settings(version).replace('=', ' ')})" if isinstance(version, dict) else ""
        name, hidden = (f"{value['is']}{note} ", ("is", "class")) if "is" in value else ("", ())
        return name + ", ".join(f"{k}={_settings(v)}" for k, v in value.items() if k not in hidden)
    if value is None:
        return "–"
    return value if isinstance(value, str) else json_module.dumps(value, ensure_ascii=False)


def _bars(values: Sequence[float]) -> str:
    """Return the values as a row of block characters, scaled from the lowest to the highest value."""
    step = max(1, math.ceil(len(values) / CURVE_WIDTH))
    finite = [value for value in values[::step] if math.isfinite(value)]
    span = max(finite) - min(finite) if finite else 0.0
    return "".join(BARS[round((value - min(finite)) / span * (len(BARS) - 1)) if span else 0] for value in finite)
