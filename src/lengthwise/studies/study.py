"""A study: a question, the runs that answer it, and their evaluation."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.config import (
    Choice,
    ConfigError,
    EvaluationConfig,
    ModelConfig,
    Registry,
    Run,
    TrainingConfig,
    choose,
    near_miss,
)
from lengthwise.config.layers import split_layers, with_colon
from lengthwise.encodings import ENCODINGS
from lengthwise.evaluation import check_lengths, encodings_of, questions
from lengthwise.positions import POSITION_SCHEMES, position_scheme_for
from lengthwise.positions.base import require_valid_positions
from lengthwise.store import Store
from lengthwise.studies.published import require_published
from lengthwise.studies.stages import require_runs, steps_of
from lengthwise.tasks import TASKS
from lengthwise.tasks.contract import require_consistent
from lengthwise.training import check_training
from lengthwise.user_classes import defined_in

MAX_RUNS = 10_000
"""The maximal number of runs of one study, because each progress update reads all of them."""

_SUFFIXES = {None: "", True: "-S", False: "-per-layer"}  # of encodings, by whether layers share one module

_TEXTS = ("name", "question", "expectation", "cost", "command")  # fields of `Study`

ChoiceLike = str | type | Choice
"""An encoding, a task or a position scheme: `"fire:hidden_layers=1"`, `FIRE`, or `choose(FIRE, hidden_layers=1)`."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question and the runs that answer it, with the expected result and the cost, which are written before it runs.

    `evaluation`: one for all runs, or one per task name (`{"Text": ..., "Copy": ...}`). `source`: the study's file.
    `then`: a function of the store that returns the next stage, a study that `lengthwise run` executes when this one is
    complete.
    `published`: numbers of a publication that the report shows beside the measured ones, as `{"source": ..., "about":
    ..., "scores": {task: {encoding: score}}, "ranks": {encoding: rank}}` with the labels of tasks and encodings.
    `scores` are means over all lengths longer than training, and `ranks` are mean reciprocal ranks.
    """

    name: str
    question: str = ""
    expectation: str = ""
    cost: str = ""
    command: str = ""
    runs: tuple[Run, ...]
    evaluation: EvaluationConfig | Mapping[str, EvaluationConfig]
    published: Mapping[str, Any] | None = None
    source: Path | None = field(default=None, compare=False)
    then: "Callable[[Store], Study] | None" = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise ConfigError(f"the study's name must be one line of printable text, got {self.name!r}")
        object.__setattr__(self, "runs", _runs(self.name, self.runs))
        object.__setattr__(self, "evaluation", _evaluation(self.name, self.evaluation, self.runs))
        if self.then is not None and not callable(self.then):
            raise ConfigError(
                f"study {self.name!r}: `then` must be a function of the store that returns a Study, got {self.then!r}"
            )
        if self.published is not None:
            require_published(self.name, self.published, self.runs)

    def evaluation_of(self, run: Run) -> EvaluationConfig:
        """Return the evaluation of a run of this study."""
        if isinstance(self.evaluation, EvaluationConfig):
            return self.evaluation
        return self.evaluation[run.task.name]

    def following(self, store: Store) -> "Study | None":
        """Return the next stage, with the source and the command of this study, or None if there is none."""
        if self.then is None:
            return None
        study: Any = self.then(store)
        if not isinstance(study, Study):
            raise ConfigError(f"study {self.name!r}: `then` must return a Study, got {study!r}")
        return dataclasses.replace(study, source=self.source, command=study.command or self.command)

    def check(self) -> None:
        """Raise `ConfigError` for the first run that cannot be trained or evaluated, before anything trains.

        The lengths must be supported by the task (a text may be too short), by the encoding (a learned table has a
        maximal length), and by the position scheme (its range of positions may be too small).
        """
        checked = set()
        for run in self.runs:
            training, config = run.training, self.evaluation_of(run)
            lengths = (training.min_length, training.train_length, training.curriculum)
            sizes = (training.steps, training.train_examples, training.stop)
            without_seed = (run.encoding, run.task, run.model, training.positions, lengths, sizes)
            if without_seed in checked:
                continue
            checked.add(without_seed)
            try:
                check_run(run, config)
            except ConfigError as error:
                raise ConfigError(f"{run.label} on {run.task.label}: {error}") from error

    def rows(self) -> list[dict[str, Any]]:
        """Return the runs as `Store.add_study` takes them."""
        return [self._row(run) for run in self.runs]

    def _row(self, run: Run) -> dict[str, Any]:
        make: Any = run.task.cls
        metric = make.metric_of(dict(run.task.settings))
        config = self.evaluation_of(run)
        files = {choice.name: file for choice in run.choices if (file := defined_in(choice.cls)) is not None}
        return {
            "key": run.key,
            "label": run.label,
            "encoding": "+".join(dict.fromkeys(choice.name for choice in run.encoding.layers)),
            "task": run.task.label,
            "metric": metric.name,
            "better": metric.better,
            "unit": make.unit_of(dict(run.task.settings)),
            "seed": run.seed,
            "train_length": max(ancestor.training.train_length for ancestor in run.lineage),
            "config": run.to_data(),
            "parent": None if run.parent is None else run.parent.key,
            "questions": questions(run.task, config),
            "facts": ({"defined_in": files} if files else {}) | metric.facts(),
        }

    def metadata(self) -> dict[str, Any]:
        """Return the arguments of `Store.add_study` except the runs."""
        fields = {name: getattr(self, name) for name in (*_TEXTS, "published")}
        if isinstance(self.evaluation, EvaluationConfig):
            return fields | {"evaluation": self.evaluation.to_data()}
        return fields | {"evaluation": {name: config.to_data() for name, config in self.evaluation.items()}}


def _runs(study: str, runs: Any) -> tuple[Run, ...]:
    runs = require_runs(f"study {study!r}: runs", runs)
    _require_run_count(len(runs))
    if not runs:
        raise ConfigError(f"study {study!r} has no runs; give at least one")
    by_key: dict[str, Run] = {}
    for run in runs:
        if run.key in by_key:
            raise ConfigError(
                f"study {study!r} has the same run twice ({run.label} on {run.task.label}, seed {run.seed}); remove "
                "one of them"
            )
        by_key[run.key] = run
    return runs


def _require_run_count(count: int) -> None:
    if count > MAX_RUNS:
        raise ConfigError(
            f"a study must have at most {MAX_RUNS:,} runs, got {count:,}; use fewer seeds, encodings or tasks"
        )


def _evaluation(study: str, evaluation: Any, runs: tuple[Run, ...]) -> EvaluationConfig | dict[str, EvaluationConfig]:
    if isinstance(evaluation, EvaluationConfig):
        return evaluation
    tasks = list(dict.fromkeys(run.task.name for run in runs))
    return _per_task(f"study {study!r}: evaluation", evaluation, EvaluationConfig, tasks)


def _per_task(what: str, values: Any, config_class: type, tasks: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of each task. `values`: one for all, or one per task, whose names may be in any case."""
    kind = f"an {config_class.__name__}" if config_class is EvaluationConfig else f"a {config_class.__name__}"
    if isinstance(values, config_class):
        return dict.fromkeys(tasks, values)
    if not isinstance(values, Mapping):
        raise ConfigError(f"{what} must be {kind}, or one per task name, got {values!r}")
    names = {name.lower(): name for name in tasks}
    for name in values:
        if str(name).lower() not in names:
            raise ConfigError(f"{what} contains {name!r}, but no run has this task; available: {', '.join(tasks)}")
    by_task = {names[str(name).lower()]: value for name, value in values.items()}
    for name in tasks:
        if name not in by_task:
            raise ConfigError(f"{what} lacks the task {name}; add {name!r}: ...")
        if not isinstance(by_task[name], config_class):
            raise ConfigError(f"{what} of {name} must be {kind}, got {by_task[name]!r}")
    return by_task


def check_run(run: Run, config: EvaluationConfig) -> None:
    task, training = run.task.build(), run.training
    limits = [encoding.max_length for encoding in encodings_of(run, task) if encoding.max_length is not None]
    check_training(run, task, min(limits, default=None))
    check_lengths(run, config.lengths, config.shifts, config.prompt)
    for length in {training.min_length or training.train_length, training.train_length, max(config.lengths)}:
        require_consistent(task, length)
        require_valid_positions(position_scheme_for(task, training.positions), task.tokens(length))


# ---- creating runs ----------------------------------------------------------------------------------------------


def grid(
    encodings: Iterable[ChoiceLike],
    tasks: Iterable[ChoiceLike],
    seeds: int | Iterable[int] = 1,
    *,
    training: TrainingConfig | Mapping[str, TrainingConfig],
    model: ModelConfig | Mapping[str, ModelConfig] | None = None,
    positions: Iterable[ChoiceLike] | None = None,
) -> tuple[Run, ...]:
    """Return a run for every encoding on every task with every seed; `seeds=3` means 0, 1, 2.

    `training`, `model`: one for all tasks, or one per task. `positions`: position schemes to combine with every
    encoding, such as ["consecutive", "randomized:max_length=512"]; default: that of `training`. The runs of the first
    seed come first, so that an interrupted study has a complete comparison early.

    >>> grid(["rope", "fire-s"], ["copy"], seeds=3, training=TrainingConfig(train_length=16))
    """
    encoding_choices = [_encoding(value) for value in _list("encodings", encodings)]
    _require_distinct("encoding", encoding_choices, lambda one: one[0].label + _SUFFIXES[one[1]])
    task_choices = [_choice(value, TASKS) for value in _list("tasks", tasks)]
    _require_distinct("task", task_choices, lambda choice: choice.label)
    names = list(dict.fromkeys(choice.name for choice in task_choices))
    training_of = _per_task("training", training, TrainingConfig, names)
    trainings = {name: _with_positions(config, positions) for name, config in training_of.items()}
    seed_list = _seeds(seeds)
    _require_run_count(len(seed_list) * len(encoding_choices) * sum(len(trainings[task.name]) for task in task_choices))
    model_of = _per_task("model", ModelConfig() if model is None else model, ModelConfig, names)
    return tuple(
        Run(
            encoding=choice,
            task=task,
            model=model_of[task.name]
            if share is None
            else dataclasses.replace(model_of[task.name], share_encoding=share),
            training=config,
            seed=seed,
        )
        for seed in seed_list
        for task in task_choices
        for choice, share in encoding_choices
        for config in trainings[task.name]
    )


def continued(
    parents: Iterable[Run],
    encodings: Iterable[ChoiceLike] | None = None,
    *,
    steps: int | None = None,
    share: float | None = None,
    task: ChoiceLike | None = None,
    model: Mapping[str, Any] | None = None,
    **training: Any,
) -> tuple[Run, ...]:
    """Return runs that start from the trained weights of `parents`, each with every encoding; default: the parent's
    own.

    With `steps=0` the parent's weights are evaluated with another encoding and no further training. In place of
    `steps`, `share` is the size of the training as a share of the parent's: steps × sequences × length, at least 1
    step. `training`: fields of `TrainingConfig` that differ from the parent's, such as `train_length` and
    `learning_rate`. `task`: another task with the same tokens. `model`: settings of `ModelConfig` that differ,
    `dropout` or an added `qk_norm`. The parents must be among the study's runs, or trained in the same results folder.
    `min_length` and `curriculum` are not inherited. The runs have the parents' seeds.

    >>> base = grid(["rope"], ["text"], seeds=3, training=TrainingConfig(train_length=256))
    >>> extended = continued(base, ["pi:factor=4", "yarn:factor=4"], steps=100, train_length=1024, learning_rate=1e-4)
    >>> dropped = continued(base, ["nope"], share=0.02)  # DroPE
    """
    choices = None if encodings is None else [_encoding(value) for value in _list("encodings", encodings)]
    if choices is not None:
        _require_distinct("encoding", choices, lambda one: one[0].label + _SUFFIXES[one[1]])
    task_choice = None if task is None else _choice(task, TASKS)
    if model is not None and not isinstance(model, Mapping):
        raise ConfigError(f"continued(): model must be a dict such as {{'qk_norm': True}}, got {model!r}")
    if model and "share_encoding" in model:
        raise ConfigError(
            "continued() shares encodings between layers by their names; omit share_encoding, and write 'fire-s'"
        )
    for config, changes in ((TrainingConfig, training), (ModelConfig, model or {})):
        names = {f.name for f in dataclasses.fields(config)} - {"steps"}
        for name in changes:
            if name not in names:
                raise ConfigError(f"{config.__name__} has no setting {name!r}{near_miss(str(name), names)}")
    runs = []
    for parent in require_runs("continued(): parents", parents):
        settings = dataclasses.replace(
            parent.training, **{"min_length": None, "curriculum": None, **training, "steps": 0}
        )
        settings = dataclasses.replace(settings, steps=steps_of(parent.training, settings, steps, share))
        for choice, shared in choices if choices is not None else [(parent.encoding, parent.model.share_encoding)]:
            own_model = dataclasses.replace(parent.model, **{**(model or {}), "share_encoding": shared})
            run_task = task_choice or parent.task
            runs.append(
                Run(encoding=choice, task=run_task, model=own_model, training=settings, seed=parent.seed, parent=parent)
            )
    return tuple(runs)


def encoding(text: str) -> tuple[Choice, bool | None]:
    """Return the encoding for a name with settings, and whether its layers share one module (None: as in its source).

    For example `fire:hidden_layers=1`. `fire-s` is FIRE with one module for all layers, `t5-per-layer` T5 with one for
    each.
    """
    layers = split_layers(text)
    text = with_colon(text) if len(layers) == 1 else text
    name, colon, settings = text.partition(":")
    for suffix, share in (("-s", True), ("-per-layer", False)):
        names = [re.split(r"[:(*]", layer)[0] for layer in layers]
        if not any(n.lower().endswith(suffix) and not ENCODINGS.has(n) for n in names):
            continue
        if len(layers) > 1 or "*" in name:
            raise ConfigError(f"{text!r}: {suffix} needs a single encoding, and cannot be used in a pattern; omit it")
        choice = ENCODINGS.parse(name[: -len(suffix)] + colon + settings)
        if not _has_parameters(choice):
            raise ConfigError(
                f"{text!r}: {choice.name} has no parameters that layers could share; write {choice.name.lower()!r}"
            )
        if choice.shared_across_layers == share:
            default = "one module for all layers" if share else "one module per layer"
            raise ConfigError(f"{text!r}: {choice.name} has {default} by default; write {choice.name.lower()!r}")
        return choice, share
    return ENCODINGS.parse(text), None


def task(text: str) -> Choice:
    """Return the task for a name with settings, such as `copy:symbols=10`."""
    return TASKS.parse(text)


def _has_parameters(choice: Choice) -> bool:
    instance = choice.build(num_heads=4, head_dim=32, d_model=128, train_length=64)
    return any(True for _ in instance.parameters())


def _encoding(value: ChoiceLike) -> tuple[Choice, bool | None]:
    return encoding(value) if isinstance(value, str) else (_choice(value, ENCODINGS), None)


def _choice(value: ChoiceLike, registry: Registry) -> Choice:
    if isinstance(value, str):
        return registry.parse(value)
    return value if isinstance(value, Choice) else choose(value)


def _with_positions(training: TrainingConfig, schemes: Iterable[ChoiceLike] | None) -> list[TrainingConfig]:
    """Return one training configuration for each position scheme."""
    if schemes is None:
        return [training]
    choices = [_choice(value, POSITION_SCHEMES) for value in _list("positions", schemes)]
    _require_distinct("position scheme", choices, lambda choice: choice.label)
    return [dataclasses.replace(training, positions=choice) for choice in choices]


def _list(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, type, Choice)) or not isinstance(values, Iterable):
        raise ConfigError(f"{name} must be a list, even of a single element, got {values!r}")
    values = list(values)
    if not values:
        raise ConfigError(f"{name} must have at least one element, got an empty list")
    return values


def _seeds(seeds: int | Iterable[int]) -> Sequence[int]:
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            raise ConfigError(f"seeds must be at least 1, or a list of seeds, got {seeds}")
        _require_run_count(seeds)
        return range(seeds)
    return _list("seeds", seeds)


def _require_distinct(what: str, choices: Iterable[Any], label: Callable[[Any], str]) -> None:
    for choice, count in Counter(choices).items():
        if count > 1:
            raise ConfigError(f"the {what} {label(choice)} is given {count} times; give it once")
