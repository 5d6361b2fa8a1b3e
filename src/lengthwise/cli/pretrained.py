"""`lengthwise pretrained`: does a language model learn Boolean functions from the examples of its prompt?"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval, with_wilson
from lengthwise.cli.options import whole_numbers
from lengthwise.cli.printing import console, duration, json_text, print_json, shown, stdout
from lengthwise.config import ConfigError

if TYPE_CHECKING:
    from lengthwise.evaluation.pretrained import Answers, Plan, Pretrained


@dataclass(frozen=True, kw_only=True)
class PretrainedOptions:
    """What was written on the command line."""

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

    def counts(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(whole_numbers(self.examples, "--examples", 0, "0,5,10,20,40")))

    def file(self) -> Path | None:
        """Where the results are kept; asked before anything is, for the work takes a while."""
        if self.output is None:
            return None
        path = Path(self.output)
        if not self.output.strip() or path.is_dir():
            raise ConfigError(f"--output {self.output!r} is a folder; name a file in it")
        if not path.absolute().parent.is_dir():
            raise ConfigError(
                f"--output {self.output}: there is no folder {path.parent}; make it, or name another file"
            )
        if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
            raise ConfigError(f"--output {self.output} cannot be written; name another file")
        return path


def check(wanted: PretrainedOptions, json: bool) -> int:
    from lengthwise.evaluation import pretrained
    from lengthwise.studies import execution
    from lengthwise.training.numerics import use_process

    file, counts = wanted.file(), wanted.counts()
    tasks = pretrained.boolean_tasks(wanted.tasks, wanted.dims)
    settings = tuple(dict.fromkeys(part.strip() for part in wanted.settings.split(",") if part.strip()))

    def plan_with(form: str) -> "Plan":
        return pretrained.Plan(tasks, settings, counts, form, wanted.prompts, wanted.seed)

    plan = plan_with("mpt" if wanted.form == "auto" else wanted.form)  # what cannot be is said before a model is read
    execution._check(None, wanted.device, "auto", wanted.threads)
    use_process(wanted.threads)
    model = pretrained.load(wanted.folder, device=wanted.device, dtype=wanted.dtype)
    if wanted.form == "auto":
        plan = plan_with(pretrained.form_for(model.model_type))
    begin = time.perf_counter()
    with _showing() as show:
        found = pretrained.answers(model, plan, batch_size=wanted.batch_size, on_progress=show)
    seconds = time.perf_counter() - begin
    if json or file is not None:
        data = record(model, plan, found, wanted, seconds)
        if file is not None:
            file.write_text(f"{json_text(data)}\n", encoding="utf-8")
        if json:
            print_json(data, indent=None)
            return 0
    stdout().print(_table(found))
    print(
        f"\n{shown(model.folder)}: {model.architecture}, form {plan.form}, {plan.prompts} prompts each, seed {plan.seed}, "
        f"{duration(seconds)}. Intervals: Wilson, 95 %, over prompts."
    )
    if file is not None:
        print(f"Everything is in {shown(file)}.")
    return 0


def record(
    model: "Pretrained", plan: "Plan", found: "list[Answers]", wanted: PretrainedOptions, seconds: float
) -> dict[str, Any]:
    """Everything that is needed to ask the same again, and all that was answered."""
    import platform

    import torch
    import transformers

    import lengthwise
    from lengthwise.evaluation.pretrained import FORMS

    return {
        "model": model.described(),
        "asked": {
            "tasks": [choice.label for choice in plan.tasks],
            "settings": list(plan.settings),
            "examples": list(plan.examples),
            "prompts": plan.prompts,
            "seed": plan.seed,
            "form": plan.form,
            "text": FORMS[plan.form]("...\n", "..."),
            "batch_size": wanted.batch_size,
            "threads": wanted.threads,
        },
        "versions": {
            "lengthwise": lengthwise.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "seconds": round(seconds, 3),
        "answers": [_row(answers) for answers in found],
    }


def _row(answers: "Answers") -> dict[str, Any]:
    interval = _interval(answers)
    return {
        "task": answers.task,
        "setting": answers.setting,
        "examples": answers.examples,
        "n": answers.n,
        "right": answers.right,
        "accuracy": answers.accuracy,
        "low": interval.low,
        "high": interval.high,
        "constant": answers.constant,
        "mass": answers.mass,
        "tokens": answers.tokens,
        "labels": answers.labels,
        "log_probabilities": [[float(f"{value:.8g}") for value in pair] for pair in answers.log_probabilities],
    }


def _interval(answers: "Answers") -> Interval:
    share = answers.accuracy
    return with_wilson(Interval(share, share, share, 0.0, "examples"), answers.n)


def _table(found: "list[Answers]") -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("task", overflow="fold")
    table.add_column("setting")
    for name in ("examples", "accuracy", "interval", "n", "one label", "P(0 or 1)"):
        table.add_column(name, justify="right", no_wrap=True)
    last = None
    for answers in found:
        of, interval = (answers.task, answers.setting), _interval(answers)
        names = [Text(word) for word in of] if of != last else [Text(), Text()]
        last = of
        table.add_row(
            *names,
            f"{answers.examples}",
            f"{answers.accuracy:.3f}",
            f"{interval.low:.3f} … {interval.high:.3f}",
            f"{answers.n}",
            f"{answers.constant:.3f}",
            f"{answers.mass:.3f}",
        )
    return table


@contextmanager
def _showing() -> Iterator[Callable[[int, int], None]]:
    """Says on stderr how far it is: a bar on a terminal, otherwise a line now and then."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


class _Lines:
    def __init__(self) -> None:
        self.begin = self.printed = time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if now - self.printed < max(5.0, (now - self.begin) / 30):
            return
        self.printed = now
        left = (now - self.begin) * (total - done) / max(1, done)
        about = f", about {duration(left)} left" if left >= 1 else ""
        print(f"prompt {done} of {total}{about}", file=sys.stderr, flush=True)
