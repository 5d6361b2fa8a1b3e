"""`lengthwise compare`: a study that is defined by command-line options."""

import hashlib
import re
import shlex
import sys
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from lengthwise.cli.options import EVERY_FILE, whole_numbers
from lengthwise.config import Choice, ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.studies import Study, grid
from lengthwise.studies import task as parse_task
from lengthwise.tasks import Text


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The options of the command."""

    encodings: tuple[str, ...]
    text: str | None
    glob: str
    task: str | None
    positions: tuple[str, ...] | None
    train_length: int
    lengths: str | None
    seeds: int
    training: dict[str, Any]
    model: dict[str, Any]
    evaluation: dict[str, Any]
    name: str | None


def study_of(options: Comparison) -> Study:
    """Return the study that the options describe. Raise `ConfigError` if they are inconsistent."""
    if not options.encodings:
        raise ConfigError(
            "compare needs at least one encoding, as in: lengthwise compare rope alibi --text python "
            "--train-length 128 (`lengthwise list encodings` shows them)"
        )
    training = TrainingConfig(train_length=options.train_length, **options.training)
    lengths = _lengths(options)
    evaluation = EvaluationConfig(lengths=lengths, **options.evaluation)
    model = ModelConfig(**options.model)
    task = _task(options)
    runs = grid(options.encodings, [task], options.seeds, training=training, model=model, positions=options.positions)
    return Study(
        name=options.name or _name(options, task, runs),
        question=f"Trained at length {options.train_length}, what is right at {', '.join(map(str, lengths))}?",
        command=shlex.join(["lengthwise", *sys.argv[1:]]),
        runs=runs,
        evaluation=evaluation,
    )


def _task(options: Comparison) -> Choice:
    if (options.text is None) == (options.task is None):
        got = "neither" if options.text is None else "both"
        raise ConfigError(
            f"compare needs either --text PATH or --task NAME, got {got}; every machine has the text of --text python"
        )
    if options.text is not None:
        if options.glob != EVERY_FILE and not Path(options.text).expanduser().is_dir():
            raise ConfigError(f"--glob selects files of a folder, but {options.text} is not a folder; leave --glob out")
        return choose(Text, path=options.text, glob=options.glob)
    assert options.task is not None
    return parse_task(options.task)


def _lengths(options: Comparison) -> tuple[int, ...]:
    if options.lengths is None:
        return tuple(options.train_length * factor for factor in (1, 2, 4, 8))
    return tuple(whole_numbers(options.lengths, "--lengths", 1, "256,512,1024"))


MAX_NAME_LENGTH = 80  # characters of an automatic study name


def _name(options: Comparison, task: Choice, runs: tuple[Run, ...]) -> str:
    """Return a name built from the task, the training length, the encodings, and the settings that differ from their defaults.

    Different comparisons therefore have different names and are stored side by side. Lengths and seeds are not part of the name,
    so they can be added to the same study later.
    """
    from lengthwise.cli.study_commands import compare

    defaults = {name: option.default for name, option in signature(compare).parameters.items()}
    settings = options.training | options.model
    changed = [f"{name} {value}" for name, value in settings.items() if value != defaults[name]]
    labels = sorted({run.label for run in runs})
    task_settings = dict(task.settings)
    if "sha256" in task_settings:
        task_name = f"text {Path(task_settings['path']).name} {task_settings['sha256'][:6]}"
    else:
        task_name = task.label
    name = _slug(" ".join(["compare", task_name, str(options.train_length), *labels, *changed]))
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_LENGTH - 9]}-{digest}"


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-").lower()
