"""`lengthwise compare`: a study that is defined by command-line options."""

import dataclasses
import hashlib
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from lengthwise.cli.options import (
    EVERY_FILE,
    FLATTENED,
    Execution,
    Executors,
    Integer,
    named_as_options,
    required_names,
    split_names,
    whole_numbers,
)
from lengthwise.cli.run import run_study
from lengthwise.config import Choice, Config, ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose

if TYPE_CHECKING:
    from lengthwise.studies import Study

C = TypeVar("C", bound=Config)
MAX_NAME_LENGTH = 80  # characters of an automatic study name


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The study: its runs and their evaluation."""

    encodings: str | None = None
    """The same names, comma-separated: rope,alibi,fire."""
    text: str | None = None
    """Text to train on: a file, a folder, a corpus of `lengthwise tokenize`, or python for Python's own manual,
    docstrings and source."""
    glob: str = EVERY_FILE
    """Pattern of the files to read if --text is a folder."""
    task: str | None = None
    """Task to train on instead of a text, optionally with settings: copy or copy:symbols=10."""
    then: str | None = None
    """Encodings to put into every trained model, comma-separated: nope (DroPE), yarn:factor=4. Each is a run that
    starts from the trained one."""
    then_share: float = 0.0
    """Further training of these runs at the training length, as a share of the first training, such as 0.02. 0:
    none."""
    positions: str | None = None
    """Position schemes to compare, comma-separated, e.g. randomized:max_length=4096. [default: consecutive]"""
    lengths: str | None = None
    """Lengths to evaluate, comma-separated. [default: 1x, 2x, 4x and 8x the training length]"""
    seeds: Integer = 1
    """Models to train for each encoding. Intervals need at least 2."""
    name: str | None = None
    """Name of the study. Calls with the same name are one study, and its report shows the encodings, lengths and seeds
    of the last call; stored runs are not trained again. [default: built from the task, the training length, the
    encodings and the training and model settings that differ from their defaults]"""


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Fields of `TrainingConfig`, `ModelConfig` and `EvaluationConfig`. Two defaults are smaller than theirs."""

    train_length: Integer
    """Length of the training sequences, in the task's unit (bytes of text, symbols to copy)."""
    steps: Integer = 500
    """Number of training steps. Only a run that starts from another one may have 0."""
    batch_size: Integer = 16
    """Sequences per training step."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    min_length: Integer | None = None
    """Shortest training length; lengths are drawn uniformly between it and the training length. [default: the training
    length]"""
    train_examples: Integer | None = None
    """Train on a fixed set of this many examples for several epochs. [default: new examples at every step]"""
    mixer: str | None = None
    """What mixes the tokens in place of attention: mamba, lstm, linear_transformer, retnet, rwkv4 or hyena. [default:
    attention]"""
    d_model: Integer = 128
    """Width of the model."""
    num_layers: Integer = 4
    """Number of layers."""
    num_heads: Integer = 4
    """Attention heads per layer."""
    examples: Integer = 256
    """Test examples at each length, for tasks that are scored per example."""
    tokens: Integer = 65_536
    """Test tokens at each length, for tasks that are scored per token (text)."""

    def config(self, kind: type[C], **others: Any) -> C:
        """Return a configuration with these settings and others. Messages about a setting name its option."""
        names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        with named_as_options(kind):
            return kind(**{name: value for name, value in vars(self).items() if name in names}, **others)

    def changed(self) -> list[str]:
        """Return the settings that belong to a run's key and differ from their defaults, such as `steps 1000`."""
        in_key = [f for f in dataclasses.fields(self) if f.name not in ("train_length", "examples", "tokens")]
        return [f"{f.name} {value}" for f in in_key if (value := getattr(self, f.name)) != f.default]


def command(
    *names: Annotated[str, Parameter(name="ENCODINGS")],
    comparison: Comparison = Comparison(),
    settings: Settings,
    executors: Executors = Executors(),
    execution: Execution = Execution(),
) -> int:
    """Compare encodings on your own text or on a task: train at one length, evaluate at several.

    The same command continues after an interruption. Adding lengths later does not repeat any training.

    Example: lengthwise compare rope alibi fire --text notes/ --train-length 256 --lengths 256,512,1024 --seeds 3

    Args:
        names: Encodings to compare, optionally with settings: rope alibi fire:hidden_layers=1 fire-s (FIRE shared by
            all layers).
    """
    executor = executors.executor()
    study = study_of((*names, *split_names(comparison.encodings)), comparison, settings)
    return run_study(study, execution, executor)


def study_of(encodings: Sequence[str], options: Comparison, settings: Settings) -> "Study":
    """Return the study that the options describe. Raise `ConfigError` if they are inconsistent."""
    from lengthwise.studies import Study, grid

    if not encodings:
        raise ConfigError(
            "compare needs at least one encoding, as in: lengthwise compare rope alibi --text python "
            "--train-length 128 (`lengthwise list encodings` shows them)"
        )
    training, model = settings.config(TrainingConfig), settings.config(ModelConfig)
    lengths = tuple(training.train_length * factor for factor in (1, 2, 4, 8))
    if options.lengths is not None:
        lengths = tuple(whole_numbers(options.lengths, "--lengths", 1, "256,512,1024"))
    evaluation = settings.config(EvaluationConfig, lengths=lengths)
    task = _task(options)
    positions = options.positions
    schemes = None if positions is None else required_names(positions, "--positions", "position schemes, or omit it")
    runs = grid(encodings, [task], options.seeds, training=training, model=model, positions=schemes)
    runs = (*runs, *_continued(runs, options))
    text = ", ".join(map(str, lengths))
    return Study(
        name=_name(settings, task, runs) if options.name is None else options.name,
        question=f"Trained at length {training.train_length}, how well does a model do at {text}?",
        command=_command(sys.argv[1:]),
        runs=runs,
        evaluation=evaluation,
    )


def _continued(runs: tuple[Run, ...], options: Comparison) -> tuple[Run, ...]:
    """Return the runs of --then, which start from the others."""
    from lengthwise.studies import continued

    if options.then is None:
        if options.then_share:
            raise ConfigError("--then-share needs --then; name encodings to continue with, or omit it")
        return ()
    amount: dict[str, Any] = {"share": options.then_share} if options.then_share else {"steps": 0}
    encodings = required_names(options.then, "--then", "encodings to continue with, or omit it")
    return continued(runs, encodings, **amount)


def _command(arguments: Sequence[str]) -> str:
    """Return the command that the study states. It leaves out the database's address, which may contain a password."""
    words = [word for word in arguments if not word.startswith("--store=")]
    if "--store" in words:
        at = words.index("--store")
        del words[at : at + 2]
    return shlex.join(["lengthwise", *words])


def _task(options: Comparison) -> Choice:
    from lengthwise.studies import task
    from lengthwise.tasks import Text

    if (options.text is None) == (options.task is None):
        neither, both = "neither; every machine has the text of --text python", "both; omit one of them"
        got = neither if options.text is None else both
        raise ConfigError(f"compare needs either --text PATH or --task NAME, got {got}")
    if options.text is not None:
        if options.glob != EVERY_FILE and not Path(options.text).expanduser().is_dir():
            raise ConfigError(f"--glob selects files of a folder, but {options.text} is not a folder; leave --glob out")
        return choose(Text, path=options.text, glob=options.glob)
    if options.glob != EVERY_FILE:
        raise ConfigError("--glob selects files of a folder of --text, but --task has no files; leave --glob out")
    assert options.task is not None
    return task(options.task)


def _name(settings: Settings, task: Choice, runs: tuple[Run, ...]) -> str:
    """Return a name built from the task, the training length, the encodings, and the settings that differ from their
    defaults.

    Different comparisons therefore have different names and are stored side by side. Lengths and seeds are not part of
    the name, so they can be added to the same study later.
    """
    labels = sorted({run.label for run in runs})
    task_settings, task_name = dict(task.settings), task.label
    if "sha256" in task_settings:
        task_name = f"{task.label} {Path(task_settings['path']).name} {task_settings['sha256'][:6]}"
    words = " ".join(["compare", task_name, str(settings.train_length), *labels, *settings.changed()])
    name = re.sub(r"[^\w.]+", "-", words).strip("-").lower()
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_LENGTH - 9]}-{digest}"
