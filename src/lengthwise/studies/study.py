"""What a study is: a question, runs, and what is asked of each trained model."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.choices import layers_of
from lengthwise.class_versions import defined_in
from lengthwise.config import Choice, ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ENCODINGS
from lengthwise.evaluation import check_lengths, encodings_of, questions
from lengthwise.positions import POSITION_SCHEMES
from lengthwise.studies.published import require_published
from lengthwise.tasks import TASKS
from lengthwise.tasks.contract import require_kept
from lengthwise.training import check_training

MOST_RUNS = 10_000
"""Of one study: every look at how many are done reads all of them."""

Word = str | type | Choice
"""An encoding, a task or a position scheme: `"fire:hidden_layers=1"`, `FIRE`, or `choose(FIRE, hidden_layers=1)`."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question and the runs that answer it; what was expected, and what it costs, is written before it runs.

    `evaluation`: one for all runs, or one per task's name (`{"Text": ..., "Copy": ...}`). `published`: numbers of a
    publication that the report puts beside the measured ones (`{"source": ..., "about": ..., "scores": {task: {encoding:
    score}}, "ranks": {encoding: rank}}`; `scores` over all lengths beyond the trained one, `ranks` mean reciprocal ranks, tasks
    and encodings by their labels). `source`: the file it is in.
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

    def __post_init__(self) -> None:
        for name in ("name", "question", "expectation", "cost", "command"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"Study.{name} is {getattr(self, name)!r}; it has to be text")
        if not self.name.strip() or not self.name.isprintable():
            raise ConfigError(f"the study's name is {self.name!r}; give it one, in one line")
        object.__setattr__(self, "runs", _runs(self.name, self.runs))
        object.__setattr__(self, "evaluation", _evaluation(self.name, self.evaluation, self.runs))
        if self.published is not None:
            require_published(self.name, self.published, self.runs)

    def evaluation_of(self, run: Run) -> EvaluationConfig:
        """What is asked of a run of this study."""
        if isinstance(self.evaluation, EvaluationConfig):
            return self.evaluation
        return self.evaluation[run.task.name]

    def check(self) -> None:
        """Raise `ConfigError` for the first run that cannot be trained or asked: before anything trains.

        Looks at the lengths: of the task (a text that is too short), of the encoding (a learned table that ends), and of
        the position scheme (a range of positions that is too short).
        """
        seen = set()
        for run in self.runs:
            training, config = run.training, self.evaluation_of(run)
            trained = (
                training.min_length,
                training.train_length,
                training.curriculum,
                training.steps,
                training.train_examples,
            )
            what = (run.encoding, run.task, run.model, training.positions, trained)
            if what in seen:  # another seed of the same
                continue
            seen.add(what)
            try:
                _check(run, config)
            except ConfigError as error:
                raise ConfigError(f"{run.label} on {run.task.label}: {error}") from error

    def rows(self) -> list[dict[str, Any]]:
        """The runs as `Store.add_study` takes them."""
        return [self._row(run) for run in self.runs]

    def _row(self, run: Run) -> dict[str, Any]:
        make: Any = run.task.make
        config = self.evaluation_of(run)
        places = {choice.name: place for choice in run.choices if (place := defined_in(choice.make)) is not None}
        return {
            "key": run.key,
            "label": run.label,
            "encoding": "+".join(dict.fromkeys(choice.name for choice in run.encoding.layers)),
            "task": run.task.label,
            "metric": make.metric,
            "better": make.better,
            "unit": make.unit,
            "seed": run.seed,
            "train_length": run.training.train_length,
            "config": run.to_data(),
            "asked": questions(make, config),
            "facts": {"defined_in": places} if places else {},
        }

    def about(self) -> dict[str, Any]:
        """What `Store.add_study` takes besides the runs."""
        texts: dict[str, Any] = {
            name: getattr(self, name) for name in ("name", "question", "expectation", "cost", "command", "published")
        }
        if isinstance(self.evaluation, EvaluationConfig):
            return texts | {"evaluation": self.evaluation.to_data()}
        return texts | {"evaluation": {name: config.to_data() for name, config in self.evaluation.items()}}


def _runs(study: str, runs: Any) -> tuple[Run, ...]:
    if not isinstance(runs, Iterable) or isinstance(runs, (str, Mapping)):
        raise ConfigError(f"study {study!r}: runs is {runs!r}; give a list of Run, such as grid(...) makes")
    runs = tuple(runs)
    _require_few(len(runs))
    if not runs:
        raise ConfigError(f"study {study!r} has no runs; give at least one")
    seen: dict[str, Run] = {}
    for run in runs:
        if not isinstance(run, Run):
            raise ConfigError(f"study {study!r}: {run!r} is no Run")
        if run.key in seen:
            raise ConfigError(
                f"study {study!r} has the same run twice ({run.label} on {run.task.label}, seed {run.seed}); "
                "each is trained once"
            )
        seen[run.key] = run
    return runs


def _require_few(number: int) -> None:
    if number > MOST_RUNS:
        raise ConfigError(
            f"a study of {number:,} runs is too large; it has at most {MOST_RUNS:,}, so take fewer seeds, encodings or tasks"
        )


def _evaluation(study: str, given: Any, runs: tuple[Run, ...]) -> EvaluationConfig | dict[str, EvaluationConfig]:
    if isinstance(given, EvaluationConfig):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(f"study {study!r}: evaluation is {given!r}; give an EvaluationConfig, or one per task's name")
    tasks = list(dict.fromkeys(run.task.name for run in runs))
    by_task = _by_task(f"study {study!r}: evaluation", given, tasks)
    for task_name, config in by_task.items():
        if not isinstance(config, EvaluationConfig):
            raise ConfigError(f"study {study!r}: evaluation of {task_name} is {config!r}, which is no EvaluationConfig")
    return by_task


def _by_task(what: str, given: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """`given`, its keys as the tasks are called. Every task has to be there, and nothing else."""
    spelled = {name.lower(): name for name in tasks}
    for name in given:
        if str(name).lower() not in spelled:
            raise ConfigError(f"{what} names {name!r}, which no run has as its task; there are: {', '.join(tasks)}")
    found = {spelled[str(name).lower()]: value for name, value in given.items()}
    for name in tasks:
        if name not in found:
            raise ConfigError(f"{what} says nothing about {name}; add {name!r}: ...")
    return found


def _check(run: Run, config: EvaluationConfig) -> None:
    task = run.task.build()
    limits = [encoding.max_length for encoding in encodings_of(run, task) if encoding.max_length is not None]
    check_training(run, task, min(limits, default=None))
    check_lengths(run, config.lengths, config.shifts, config.prompt)
    for length in {
        run.training.min_length or run.training.train_length,
        run.training.train_length,
        max(config.lengths),
    }:
        require_kept(task, length)


# ---- making runs ------------------------------------------------------------------------------------------------


def grid(
    encodings: Iterable[Word],
    tasks: Iterable[Word],
    seeds: int | Iterable[int] = 1,
    *,
    training: TrainingConfig | Mapping[str, TrainingConfig],
    model: ModelConfig | Mapping[str, ModelConfig] | None = None,
    positions: Iterable[Word] | None = None,
) -> tuple[Run, ...]:
    """Return a run for every encoding on every task with every seed; `seeds=3` means 0, 1, 2.

    `training`, `model`: one, or one per task. `positions`: position schemes, each of them with every encoding, such as
    ["consecutive", "randomized:max_length=512"]; default: that of `training`. The runs of the first seed come first, so that a
    study that is interrupted has a whole comparison early.

    >>> grid(["rope", "fire-s"], ["copy"], seeds=3, training=TrainingConfig(train_length=16))
    """
    pairs = [_encoding(word) for word in _several("encodings", encodings)]
    chosen = [_task(word) for word in _several("tasks", tasks)]
    names = list(dict.fromkeys(choice.name for choice in chosen))
    training_of = _per_task("training", training, TrainingConfig, names)
    with_schemes = {name: _with_positions(config, positions) for name, config in training_of.items()}
    numbers = _seeds(seeds)
    _require_few(len(numbers) * len(pairs) * sum(len(with_schemes[task.name]) for task in chosen))
    model_of = _per_task("model", ModelConfig() if model is None else model, ModelConfig, names)
    return tuple(
        Run(
            encoding=choice,
            task=task,
            model=model_of[task.name] if share is None else _sharing(model_of[task.name], share),
            training=config,
            seed=seed,
        )
        for seed in numbers
        for task in chosen
        for choice, share in pairs
        for config in with_schemes[task.name]
    )


def encoding(word: str) -> tuple[Choice, bool | None]:
    """An encoding from one word, and whether its layers share one module (None: as its source has it).

    `fire:hidden_layers=1`; `fire-s` is FIRE with one module for all layers, `t5-per-layer` T5 with one for each.
    """
    name, colon, settings = word.partition(":")
    parts = layers_of(word)
    for mark, share in (("-s", True), ("-per-layer", False)):
        names = [part.partition(":")[0].partition("*")[0] for part in parts]
        if not any(n.lower().endswith(mark) and not _is_known(n) for n in names):
            continue
        if len(parts) > 1 or "*" in name:
            raise ConfigError(
                f"{word!r}: {mark} is for a single encoding; in a pattern each layer has it as its source does"
            )
        choice = ENCODINGS.parse(name[: -len(mark)] + colon + settings)
        if not _has_parameters(choice):
            raise ConfigError(
                f"{word!r}: {choice.name} has no parameters that layers could share; write {choice.name.lower()!r}"
            )
        if bool(getattr(choice.make, "shared_across_layers", False)) == share:
            how = "one for all layers" if share else "one per layer"
            raise ConfigError(f"{word!r}: {choice.name} has {how} already; write {choice.name.lower()!r}")
        return choice, share
    return ENCODINGS.parse(word), None


def task(word: str) -> Choice:
    """A task from one word: `copy:symbols=10`."""
    return TASKS.parse(word)


def _is_known(name: str) -> bool:
    try:
        ENCODINGS.find(name)
    except ConfigError:
        return False
    return True


def _has_parameters(choice: Choice) -> bool:
    built = choice.build(num_heads=4, head_dim=32, d_model=128, train_length=64)
    return any(True for _ in built.parameters())


def _encoding(word: Word) -> tuple[Choice, bool | None]:
    if isinstance(word, str):
        return encoding(word)
    return (word if isinstance(word, Choice) else choose(word)), None


def _task(word: Word) -> Choice:
    return task(word) if isinstance(word, str) else word if isinstance(word, Choice) else choose(word)


def _with_positions(training: TrainingConfig, schemes: Iterable[Word] | None) -> list[TrainingConfig]:
    """The training once for each position scheme."""
    if schemes is None:
        return [training]
    words = _several("positions", schemes)
    chosen = [
        POSITION_SCHEMES.parse(w) if isinstance(w, str) else w if isinstance(w, Choice) else choose(w) for w in words
    ]
    return [dataclasses.replace(training, positions=choice) for choice in chosen]


def _sharing(model: ModelConfig, share: bool) -> ModelConfig:
    return dataclasses.replace(model, share_encoding=share)


def _several(what: str, given: Any) -> list[Any]:
    if isinstance(given, (str, type, Choice)) or not isinstance(given, Iterable):
        raise ConfigError(f"{what} is {given!r}; give a list, also for a single one")
    given = list(given)
    if not given:
        raise ConfigError(f"{what} is an empty list; name at least one")
    return given


def _seeds(seeds: int | Iterable[int]) -> Sequence[int]:
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            raise ConfigError(f"seeds is {seeds}; give at least 1, or a list of seeds")
        return range(seeds)
    return _several("seeds", seeds)


def _per_task(what: str, given: Any, make: type, tasks: list[str]) -> dict[str, Any]:
    if isinstance(given, make):
        return dict.fromkeys(tasks, given)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what} is {given!r}; give a {make.__name__}, or one per task's name")
    by_task = _by_task(what, given, tasks)
    for name, value in by_task.items():
        if not isinstance(value, make):
            raise ConfigError(f"{what} of {name} is {value!r}; it has to be a {make.__name__}")
    return by_task
