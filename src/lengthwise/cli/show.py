"""`lengthwise show`: print one run. Imports no torch."""

import dataclasses
import itertools
import json as json_module
import math
from typing import TYPE_CHECKING, Any

from lengthwise.cli.options import Place
from lengthwise.cli.printing import column, counted, figure, plain_table, print_json, stdout
from lengthwise.metrics import Metric

if TYPE_CHECKING:
    from lengthwise.analysis.kinds import Kind
    from lengthwise.store import AnswerRow, CurveRow, RunRow, ScoreRow

BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 60
LENGTH_KINDS: "dict[Kind, str]" = {
    "shorter": "shorter than training",
    "trained": "in distribution",
    "longer": "longer than training",
}
STORED_ANSWERS = {"kept": "could not be read", "broken": "has steps that could not be read"}  # lists in the details


def command(run: str, /, *, place: Place = Place(), json: bool = False) -> int:
    """Show one run: its settings, scores and training curve, and the software and hardware that produced it.

    Example: lengthwise show 3f9a (`lengthwise list runs` shows the keys)

    Args:
        run: The run's key, or its first digits.
        json: Print JSON.
    """
    with place.open() as store:
        row = store.run(run)
        scores, curve, answers = store.scores([row.key]), store.curve(row.key), store.answers([row.key])
        option = store.option
    if json:
        lists: dict[str, list[Any]] = {"scores": scores, "curve": curve, "answers": answers}
        print_json(dataclasses.asdict(row) | {key: list(map(dataclasses.asdict, rows)) for key, rows in lists.items()})
        return 0
    print_run(row, scores, curve)
    _print_answers(f"{row.key[:8]}{option}", answers)
    return 0


def _print_answers(key: str, answers: "list[AnswerRow]") -> None:
    """Print what the training recorded as a table, and for other measurements the command that shows their answers."""
    from lengthwise.analysis.answers import of_answers
    from lengthwise.measurements import MEASUREMENTS
    from lengthwise.measurements.development import Development
    from lengthwise.report.answer_table import answer_table

    by_name: dict[str, list[AnswerRow]] = {}
    for answer in answers:
        by_name.setdefault(answer.question["measurement"], []).append(answer)
    for name, rows in by_name.items():
        print()
        if name == Development.name:
            stdout().print(answer_table(of_answers(MEASUREMENTS[name], [name], rows)))
            continue
        lengths = sorted({row.question["length"] for row in rows if "length" in row.question})
        option = f" --lengths {','.join(map(str, lengths))}" if lengths else ""
        command = MEASUREMENTS[name].command if name in MEASUREMENTS else f"lengthwise probe {name} KEY"
        print(f"{name}: {counted(len(rows), 'stored answer')}; `{command.replace('KEY', key)}{option}` shows them")


def print_run(run: "RunRow", scores: "list[ScoreRow]", curve: "list[CurveRow]") -> None:
    from lengthwise.analysis.training_set import training_set

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
    if curve:
        losses = [point.loss for point in curve]
        print(f"\nloss {figure(losses[0])} {_bars(losses)} {figure(losses[-1])}, {curve[-1].step} steps")
    if scores:
        print()
        console.print(scores_table(run, scores))
        for score, (name, problem) in itertools.product(scores, STORED_ANSWERS.items()):
            for answer in _details(score).get(name, []):
                console.print()
                console.print(f"{problem}, length {score.length}: {answer['question']}", style="bold")
                console.print(answer["generated"] or "(nothing was generated)")


def scores_table(run: "RunRow", scores: "list[ScoreRow]") -> Any:
    """Return a table with one row per score: the score, further means of decoded answers, and the baselines' scores."""
    from lengthwise.analysis.gather import baselines_beside, metric_of
    from lengthwise.analysis.kinds import length_kind_of_score

    table = plain_table()
    decoded = any("unreadable" in _details(score) for score in scores)
    means = list(dict.fromkeys(name for score in scores for name in ordered_means(_details(score))))
    baseline_scores = [{name: value for name, value, _ in baselines_beside(score.facts)} for score in scores]
    baselines = list(dict.fromkeys(name for row in baseline_scores for name in row))
    extra_columns = [*means, *(["unreadable"] if decoded else []), *baselines]
    for name in (f"length ({run.unit})", run.metric, "standard error", "examples", *extra_columns):
        table.add_column(name, justify="right", style="dim" if name in baselines else "")
    table.add_column("")
    for score, of_baselines in zip(scores, baseline_scores, strict=True):
        details = _details(score)
        numbers = [figure(details.get("means", {}).get(name), 3) for name in means]
        unreadable = [str(details.get("unreadable", "–"))] if decoded else []
        length_kind = LENGTH_KINDS[length_kind_of_score(run, score)]
        row = [f"{score.length}", f"{score.mean:.4f}", figure(score.standard_error or None, 2), f"{score.n}"]
        baseline_cells = [f"{of_baselines[name]:.4f}" if name in of_baselines else "–" for name in baselines]
        table.add_row(*row, *numbers, *unreadable, *baseline_cells, length_kind)
    for kind in ("trained", "longer"):  # shorter lengths are in neither mean
        of_kind = [score for score in scores if length_kind_of_score(run, score) == kind]
        if overall := overall_score(metric_of(run), of_kind):
            mean, examples = overall
            blank = [""] * len(extra_columns)
            table.add_row("all", f"{mean:.4f}", "", f"{examples}", *blank, f"{LENGTH_KINDS[kind]}, all lengths")
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


def _details(score: "ScoreRow") -> dict[str, Any]:
    """Return the details of decoded answers, see `evaluation.Score.details`."""
    details = score.facts.get("details")
    return details if isinstance(details, dict) else {}


def ordered_means(details: dict[str, Any]) -> list[str]:
    """Return the names of the means in the task's order. Rows without a stored order keep their own."""
    means, order = details.get("means", {}), details.get("order", [])
    return [*(name for name in order if name in means), *(name for name in means if name not in order)]


def _settings(value: Any) -> str:
    if isinstance(value, dict):
        version = value.get("class") if "is" in value else None
        note = f" ({_settings(version).replace('=', ' ')})" if isinstance(version, dict) else ""
        name, hidden = (f"{value['is']}{note} ", ("is", "class")) if "is" in value else ("", ())
        return name + ", ".join(f"{k}={_settings(v)}" for k, v in value.items() if k not in hidden)
    if value is None:
        return "–"
    return value if isinstance(value, str) else json_module.dumps(value, ensure_ascii=False)


def _bars(values: list[float]) -> str:
    """Return the values as a row of block characters, scaled from the lowest to the highest value."""
    step = max(1, math.ceil(len(values) / CURVE_WIDTH))
    finite = [value for value in values[::step] if math.isfinite(value)]
    span = max(finite) - min(finite) if finite else 0.0
    return "".join(BARS[round((value - min(finite)) / span * (len(BARS) - 1)) if span else 0] for value in finite)
