"""`lengthwise pretrained`: test whether a language model learns Boolean functions from the examples in its prompt."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval, with_wilson
from lengthwise.cli.options import whole_numbers
from lengthwise.cli.output_file import output_file
from lengthwise.cli.printing import console, duration, json_text, one_line, print_json, stdout

if TYPE_CHECKING:
    from lengthwise.evaluation.pretrained import LabelPredictions, Plan, Pretrained


@dataclass(frozen=True, kw_only=True)
class PretrainedOptions:
    """The options of the command."""

    folder: str
    tasks: tuple[str, ...]
    dims: int
    examples: str
    settings: str
    form: str
    prompts: int
    seed: int
    batch_size: int
    device: str
    dtype: str
    threads: int
    output: str | None

    def example_counts(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(whole_numbers(self.examples, "--examples", 0, "0,5,10,20,40")))


def check(options: PretrainedOptions, json: bool) -> int:
    from lengthwise.evaluation import pretrained
    from lengthwise.studies import execution
    from lengthwise.training.numerics import use_process

    file = None if options.output is None else output_file(options.output, "JSON file")
    counts = options.example_counts()
    tasks = pretrained.boolean_tasks(options.tasks, options.dims)
    settings = tuple(dict.fromkeys(part.strip() for part in options.settings.split(",") if part.strip()))

    def plan_with(form: str) -> "Plan":
        return pretrained.Plan(tasks, settings, counts, form, options.prompts, options.seed)

    plan = plan_with("mpt" if options.form == "auto" else options.form)  # checks the options before the model is loaded
    execution.require_usable(None, options.device, "auto", options.threads)
    use_process(options.threads)
    model = pretrained.load(options.folder, device=options.device, dtype=options.dtype)
    if options.form == "auto":
        plan = plan_with(pretrained.form_for(model.model_type))
    start = time.perf_counter()
    with _progress() as show:
        results = pretrained.predict_labels(model, plan, batch_size=options.batch_size, on_progress=show)
    seconds = time.perf_counter() - start
    if json or file is not None:
        data = record(model, plan, results, options, seconds)
        if file is not None:
            file.write_text(f"{json_text(data)}\n", encoding="utf-8")
        if json:
            print_json(data, indent=None)
            return 0
    stdout().print(_table(results))
    print(
        f"\n{one_line(model.folder)}: {model.architecture}, form {plan.form}, {plan.prompts} prompts each, seed {plan.seed}, "
        f"{duration(seconds)}. Intervals: Wilson, 95 %, over prompts."
    )
    if file is not None:
        print(f"All results: {one_line(file)}.")
    return 0


def record(
    model: "Pretrained", plan: "Plan", results: "list[LabelPredictions]", options: PretrainedOptions, seconds: float
) -> dict[str, Any]:
    """Return all results as plain data, with the settings that reproduce them."""
    import platform

    import torch
    import transformers

    import lengthwise
    from lengthwise.evaluation.pretrained import FORMS

    return {
        "model": model.description(),
        "asked": {
            "tasks": [choice.label for choice in plan.tasks],
            "settings": list(plan.settings),
            "examples": list(plan.examples),
            "prompts": plan.prompts,
            "seed": plan.seed,
            "form": plan.form,
            "text": FORMS[plan.form]("...\n", "..."),
            "batch_size": options.batch_size,
            "threads": options.threads,
        },
        "versions": {
            "lengthwise": lengthwise.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "seconds": round(seconds, 3),
        "answers": [_row(predictions) for predictions in results],
    }


def _row(predictions: "LabelPredictions") -> dict[str, Any]:
    interval = _interval(predictions)
    return {
        "task": predictions.task,
        "setting": predictions.setting,
        "examples": predictions.examples,
        "n": predictions.n,
        "right": predictions.correct,
        "accuracy": predictions.accuracy,
        "low": interval.low,
        "high": interval.high,
        "constant": predictions.constant_accuracy,
        "mass": predictions.label_mass,
        "tokens": predictions.tokens,
        "labels": predictions.labels,
        "log_probabilities": [[float(f"{value:.8g}") for value in pair] for pair in predictions.log_probabilities],
    }


def _interval(predictions: "LabelPredictions") -> Interval:
    share = predictions.accuracy
    return with_wilson(Interval(share, share, share, 0.0, "examples"), predictions.n)


def _table(results: "list[LabelPredictions]") -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("task", overflow="fold")
    table.add_column("setting")
    for name in ("examples", "accuracy", "interval", "n", "one label", "P(0 or 1)"):
        table.add_column(name, justify="right", no_wrap=True)
    previous = None
    for predictions in results:
        group, interval = (predictions.task, predictions.setting), _interval(predictions)
        names = [Text(name) for name in group] if group != previous else [Text(), Text()]
        previous = group
        table.add_row(
            *names,
            f"{predictions.examples}",
            f"{predictions.accuracy:.3f}",
            f"{interval.low:.3f} … {interval.high:.3f}",
            f"{predictions.n}",
            f"{predictions.constant_accuracy:.3f}",
            f"{predictions.label_mass:.3f}",
        )
    return table


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show progress on stderr: a bar on a terminal, otherwise occasional lines."""
    if not sys.stderr.isatty():
        yield _ProgressLines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


class _ProgressLines:
    def __init__(self) -> None:
        self.start = self.printed = time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if now - self.printed < max(5.0, (now - self.start) / 30):
            return
        self.printed = now
        left = (now - self.start) * (total - done) / max(1, done)
        remaining = f", about {duration(left)} left" if left >= 1 else ""
        print(f"prompt {done} of {total}{remaining}", file=sys.stderr, flush=True)
