"""`lengthwise compare`: a study that is defined by command-line options."""

import hashlib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.derived_options import field_options, with_executor, with_options
from lengthwise.cli.options import (
    DEFAULT_EXECUTION,
    EVERY_FILE,
    Execution,
    Integer,
    NameList,
    named_as_options,
    option_class,
    split_names,
    whole_numbers,
)
from lengthwise.cli.run import LOCAL, run_study
from lengthwise.config import (
    ON,
    Choice,
    Config,
    ConfigError,
    EvaluationConfig,
    ExecutorConfig,
    ModelConfig,
    Run,
    TrainingConfig,
    choose,
)

if TYPE_CHECKING:
    from lengthwise.studies import Study

SETTINGS: dict[type[Config], tuple[str, ...]] = {  # the fields of configurations that are options
    TrainingConfig: ("train_length", "steps", "batch_size", "learning_rate", "min_length", "train_examples"),
    ModelConfig: ("mixer", "d_model", "num_layers", "num_heads"),
    EvaluationConfig: ("examples", "tokens"),
}
OWN_DEFAULTS = {"steps": 500, "batch_size": 16}  # smaller than those of the configurations
OPTIONS = [option for config, names in SETTINGS.items() for option in field_options(config, names, OWN_DEFAULTS)]


@option_class
class Comparison:
    """The options of the command, without the settings of configurations and of the execution."""

    encodings: NameList = None
    """The same names, comma-separated: rope,alibi,fire."""
    text: str | None = None
    """Text to train on: a file, a folder, a corpus of `lengthwise tokenize`, or python for Python's own manual, docstrings and
    source."""
    glob: str = EVERY_FILE
    """Pattern of the files to read if --text is a folder."""
    task: str | None = None
    """Task to train on instead of a text, optionally with settings: copy or copy:symbols=10."""
    then: NameList = None
    """Encodings to put into every trained model, comma-separated: nope (DroPE), yarn:factor=4. Each is a run that starts from the
    trained one."""
    then_share: float = 0.0
    """Further training of these runs at the training length, as a share of the first training, such as 0.02. 0: none."""
    positions: NameList = None
    """Position schemes to compare, comma-separated, e.g. randomized:max_length=4096. [default: consecutive]"""
    lengths: str | None = None
    """Lengths to evaluate, comma-separated. [default: 1x, 2x, 4x and 8x the training length]"""
    seeds: Integer = 1
    """Models to train for each encoding. Intervals need at least 2."""
    name: str | None = None
    """Name of the study. Calls with the same name are one study, and its report shows the encodings, lengths and seeds of the
    last call; stored runs are not trained again. [default: built from the task, the training length, the encodings and the
    training and model settings that differ from their defaults]"""


DEFAULTS = Comparison()


@with_executor(*ON)
@with_options(OPTIONS, before="execution")
def command(
    *names: Annotated[str, Parameter(name="ENCODINGS", show_default=False)],
    comparison: Comparison = DEFAULTS,
    execution: Execution = DEFAULT_EXECUTION,
    executor: ExecutorConfig = LOCAL,
    **settings: Any,
) -> int:
    """Compare encodings on your own text or on a task: train at one length, evaluate at several.

    The same command continues after an interruption. Adding lengths later does not repeat any training.

    Example: lengthwise compare rope alibi fire --text notes/ --train-length 256 --lengths 256,512,1024 --seeds 3

    Args:
        names: Encodings to compare, optionally with settings: rope alibi fire:hidden_layers=1 fire-s (FIRE shared by all layers).
    """
    study = study_of((*names, *split_names(comparison.encodings)), comparison, settings)
    return run_study(study, execution, executor)


def study_of(encodings: Sequence[str], options: Comparison, settings: Mapping[str, Any]) -> "Study":
    """Return the study that the options describe. Raise `ConfigError` if they are inconsistent."""
    from lengthwise.studies import Study, grid

    if options.name is not None and not options.name.strip():
        raise ConfigError("--name is empty; give the study a name, or omit the option")
    if not encodings:
        raise ConfigError(
            "compare needs at least one encoding, as in: lengthwise compare rope alibi --text python "
            "--train-length 128 (`lengthwise list encodings` shows them)"
        )
    values = {config: {name: settings[name] for name in names} for config, names in SETTINGS.items()}
    with named_as_options(*SETTINGS):
        training, model = TrainingConfig(**values[TrainingConfig]), ModelConfig(**values[ModelConfig])
    lengths = tuple(training.train_length * factor for factor in (1, 2, 4, 8))
    if options.lengths is not None:
        lengths = tuple(whole_numbers(options.lengths, "--lengths", 1, "256,512,1024"))
    with named_as_options(*SETTINGS):
        evaluation = EvaluationConfig(lengths=lengths, **values[EvaluationConfig])
    task = _task(options)
    positions = None if options.positions is None else split_names(options.positions)
    runs = grid(encodings, [task], options.seeds, training=training, model=model, positions=positions)
    runs = (*runs, *_continued(runs, options))
    return Study(
        name=options.name or _name(settings, task, runs),
        question=f"Trained at length {training.train_length}, how well does a model do at {', '.join(map(str, lengths))}?",
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
    return continued(runs, split_names(options.then), **amount)


def _command(arguments: Sequence[str]) -> str:
    """Return the command that the study states. It leaves out the database's address, which may contain a password."""
    kept = [word for word in arguments if not word.startswith("--store=")]
    if "--store" in kept:
        at = kept.index("--store")
        del kept[at : at + 2]
    return shlex.join(["lengthwise", *kept])


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
    assert options.task is not None
    return task(options.task)


MAX_NAME_LENGTH = 80  # characters of an automatic study name


def _name(settings: Mapping[str, Any], task: Choice, runs: tuple[Run, ...]) -> str:
    """Return a name built from the task, the training length, the encodings, and the settings that differ from their defaults.

    Different comparisons therefore have different names and are stored side by side. Lengths and seeds are not part of the name,
    so they can be added to the same study later.
    """
    defaults = {option.name: option.default for option in OPTIONS}
    in_key = [name for config in (TrainingConfig, ModelConfig) for name in SETTINGS[config] if name != "train_length"]
    changed = [f"{name} {settings[name]}" for name in in_key if settings[name] != defaults[name]]
    labels = sorted({run.label for run in runs})
    task_settings, task_name = dict(task.settings), task.label
    if "sha256" in task_settings:
        task_name = f"{task.label} {Path(task_settings['path']).name} {task_settings['sha256'][:6]}"
    words = " ".join(["compare", task_name, str(settings["train_length"]), *labels, *changed])
    name = re.sub(r"[^\w.]+", "-", words).strip("-").lower()
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_LENGTH - 9]}-{digest}"
