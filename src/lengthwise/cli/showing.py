"""`lengthwise show`: one run. Imports no torch."""

import dataclasses
import itertools
import json
import math
from collections import Counter
from typing import Any

from lengthwise.analysis.findings import bounds_of
from lengthwise.analysis.gather import baselines_beside
from lengthwise.analysis.kinds import Kind, kind_of_score
from lengthwise.analysis.training_set import training_set
from lengthwise.cli.printing import figure, print_json, stdout
from lengthwise.store import CurveRow, RunRow, ScoreRow, open_results

BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 60
KINDS: dict[Kind, str] = {"shorter": "shorter than trained", "trained": "trained", "longer": "new"}
KEPT = {"kept": "could not be read", "broken": "has steps that could not be read"}  # of decoded answers


def show_run(prefix: str, results: str, as_json: bool) -> int:
    with open_results(results, create=False) as store:
        run = store.run(prefix)
        scores, curve, probes = store.scores([run.key]), store.curve(run.key), store.probes([run.key])
    if as_json:
        row = dataclasses.asdict(run)
        row["scores"] = [dataclasses.asdict(score) for score in scores]
        row["curve"] = [dataclasses.asdict(point) for point in curve]
        row["probes"] = [dataclasses.asdict(probe) for probe in probes]
        print_json(row)
        return 0
    _print(run, scores, curve)
    for name, number in Counter(probe.asked["probe"] for probe in probes).items():
        lengths = sorted(
            {probe.asked["length"] for probe in probes if probe.asked["probe"] == name and "length" in probe.asked}
        )
        if name == "lengths":
            print(f"\nlengths of its examples are stored; `lengthwise lengths {run.key[:8]}` shows them")
            continue
        print(
            f"\n{name}: {number} answer{'s' if number > 1 else ''}; `lengthwise probe {name} {run.key[:8]}"
            f"{' --lengths ' + ','.join(map(str, lengths)) if lengths else ''} ...` shows them"
        )
    return 0


def _print(run: RunRow, scores: list[ScoreRow], curve: list[CurveRow]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = stdout()
    console.print(Text(f"{run.label} on {run.task}, seed {run.seed}", style="bold"))
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("key", run.key)
    facts.add_row("status", Text(f"{run.status}: {run.error}" if run.error else run.status))
    if run.finished is None and run.steps:
        facts.add_row("step", f"{run.step} of {run.steps}")
    for name in ("encoding", "task", "model", "training"):
        facts.add_row(name, Text(_settings(run.config.get(name))))
    if training := run.config.get("training"):
        facts.add_row("examples", training_set(training))
    for name, value in run.facts.items():
        facts.add_row(name, Text(_settings(value)))
    console.print(facts)
    if curve:
        losses = [point.loss for point in curve]
        print(f"\nloss {figure(losses[0])} {_bars(losses)} {figure(losses[-1])}, {curve[-1].step} steps")
    if scores:
        print()
        console.print(_scores(run, scores))
        for score, (kind, words) in itertools.product(scores, KEPT.items()):
            for answer in _details(score).get(kind, []):
                console.print()
                console.print(Text(f"{words}, length {score.length}: {answer['question']}", style="bold"))
                console.print(Text(answer["generated"] or "(nothing was generated)"))


def _scores(run: RunRow, scores: list[ScoreRow]) -> Any:
    """A line for each score; of decoded answers also the means of their further numbers; and what baselines score beside it."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    decoded = any("unreadable" in _details(score) for score in scores)
    means = list(dict.fromkeys(name for score in scores for name in _ordered(_details(score))))
    beside = [{name: value for name, value, _ in baselines_beside(score.facts)} for score in scores]
    baselines = list(dict.fromkeys(name for own in beside for name in own))
    further = [*means, *(["unreadable"] if decoded else []), *baselines]
    for name in (f"length ({run.unit})", run.metric, "standard error", "examples", *further):
        table.add_column(name, justify="right", style="dim" if name in baselines else "")
    table.add_column("")
    for score, own in zip(scores, beside, strict=True):
        details = _details(score)
        numbers = [figure(details.get("means", {}).get(name), 3) for name in means]
        unreadable = [str(details.get("unreadable", "–"))] if decoded else []
        seen = KINDS[kind_of_score(run, score)]
        row = [f"{score.length}", f"{score.mean:.4f}", figure(score.standard_error, 2), f"{score.n}"]
        untrained = [f"{own[name]:.4f}" if name in own else "–" for name in baselines]
        table.add_row(*row, *numbers, *unreadable, *untrained, seen)
    for kind in ("trained", "longer"):  # what is shorter is in neither mean
        if over := _overall([score for score in scores if kind_of_score(run, score) == kind]):
            mean, examples = over
            table.add_row(
                "all", f"{mean:.4f}", "", f"{examples}", *("" for _ in further), f"{KINDS[kind]}, all lengths"
            )
    return table


def _overall(scores: list[ScoreRow]) -> tuple[float, int] | None:
    """The mean over several lengths, and of how many examples: of shares every example counts alike, else every length, as on
    the page. None where there are fewer than two lengths, or one was asked in two ways: such scores are no one's mean."""
    lengths = {score.length for score in scores}
    if len(lengths) < 2 or len(lengths) < len(scores):
        return None
    weights = [score.n if bounds_of(score.metric) else 1 for score in scores]
    mean = math.fsum(score.mean * weight for score, weight in zip(scores, weights, strict=True)) / sum(weights)
    return mean, sum(score.n for score in scores)


def _details(score: ScoreRow) -> dict[str, Any]:
    """What is known of decoded answers, see `evaluation.Score.details`."""
    details = score.facts.get("details")
    return details if isinstance(details, dict) else {}


def _ordered(details: dict[str, Any]) -> list[str]:
    """The names of the means as the task has them; the store keeps none, and older rows say none."""
    means, order = details.get("means", {}), details.get("order", [])
    return [*(name for name in order if name in means), *(name for name in means if name not in order)]


def _settings(value: Any) -> str:
    if isinstance(value, dict):
        version = value.get("class") if "is" in value else None
        note = f" ({_settings(version).replace('=', ' ')})" if isinstance(version, dict) else ""
        name = f"{value['is']}{note} " if "is" in value else ""
        return name + ", ".join(
            f"{k}={_settings(v)}" for k, v in value.items() if "is" not in value or k not in ("is", "class")
        )
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _bars(values: list[float]) -> str:
    """The values as a row of bars, the lowest to the highest."""
    step = max(1, math.ceil(len(values) / CURVE_WIDTH))
    shown = [value for value in values[::step] if math.isfinite(value)]
    if not shown:
        return ""
    low, span = min(shown), (max(shown) - min(shown)) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in shown)
