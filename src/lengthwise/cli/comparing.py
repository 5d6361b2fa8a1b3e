"""`lengthwise compare`: a study without a file."""

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
from lengthwise.studies import task as task_from_word
from lengthwise.tasks import Text


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What was written on the command line."""

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


def study_of(asked: Comparison) -> Study:
    """The study that the words describe. `ConfigError` in one line for words that describe none."""
    if not asked.encodings:
        raise ConfigError(
            "compare has nothing to compare; name encodings, as in: lengthwise compare rope alibi --text python "
            "--train-length 128 (`lengthwise list encodings` shows them)"
        )
    training = TrainingConfig(train_length=asked.train_length, **asked.training)
    lengths = _lengths(asked)
    evaluation = EvaluationConfig(lengths=lengths, **asked.evaluation)
    model = ModelConfig(**asked.model)
    task = _task(asked)
    runs = grid(asked.encodings, [task], asked.seeds, training=training, model=model, positions=asked.positions)
    return Study(
        name=asked.name or _name(asked, task, runs),
        question=f"Trained at length {asked.train_length}, what is right at {', '.join(map(str, lengths))}?",
        command=shlex.join(["lengthwise", *sys.argv[1:]]),
        runs=runs,
        evaluation=evaluation,
    )


def _task(asked: Comparison) -> Choice:
    if (asked.text is None) == (asked.task is None):
        got = "neither" if asked.text is None else "both"
        raise ConfigError(
            f"compare needs --text PATH or --task NAME, and got {got}; --text python is a text every machine has"
        )
    if asked.text is not None:
        if asked.glob != EVERY_FILE and not Path(asked.text).expanduser().is_dir():
            raise ConfigError(f"--glob chooses files of a folder, but {asked.text} is not a folder; leave --glob out")
        return choose(Text, path=asked.text, glob=asked.glob)
    assert asked.task is not None
    return task_from_word(asked.task)


def _lengths(asked: Comparison) -> tuple[int, ...]:
    if asked.lengths is None:
        return tuple(asked.train_length * times for times in (1, 2, 4, 8))
    return tuple(whole_numbers(asked.lengths, "--lengths", 1, "256,512,1024"))


LONGEST = 80  # characters of a name that is made here


def _name(asked: Comparison, task: Choice, runs: tuple[Run, ...]) -> str:
    """Name the study after all that makes its runs: the task, the trained length, what is compared, and other settings than the
    usual ones. So another comparison has another name, and both stay; lengths and seeds may be added to the same one."""
    from lengthwise.cli.verbs_of_studies import compare

    usual = {name: option.default for name, option in signature(compare).parameters.items()}
    settings = asked.training | asked.model
    changed = [f"{name} {value}" for name, value in settings.items() if value != usual[name]]
    labels = sorted({run.label for run in runs})
    text = dict(task.settings)
    which = f"text {Path(text['path']).name} {text['sha256'][:6]}" if "sha256" in text else task.label
    name = _slug(" ".join(["compare", which, str(asked.train_length), *labels, *changed]))
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST - 9]}-{digest}"


def _slug(words: str) -> str:
    return re.sub(r"[^\w.]+", "-", words).strip("-").lower()
