"""What the studies of this folder share: the tasks with their settings, and the stage that chooses learning rates.

The settings of each task were chosen with seeds 100 and 101, which the studies do not use, and with NoPE, RoPE, ALiBi
and FIRE, so that most encodings learn the task in a minute of one core. A training ends when the model has learned its
task: when its score on 128 new examples of the training length has passed `learned` three times in a row. That is more
than the 0.95 from which a task counts as learned, so chance seldom decides whether it does. The steps that each
encoding needed are stored. They also depend on the schedule: a run that ends early ends at a higher learning rate.

The first stage trains every encoding on every task with both learning rates and seed 100. The comparison uses the rate
with which the task was learned in fewer steps or, if it was learned with neither, the one with the better score
(`best_runs`).
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.config import (
    Choice,
    ConfigError,
    EvaluationConfig,
    ModelConfig,
    Run,
    StopWhenLearned,
    TrainingConfig,
    choose,
    settings_of,
)
from lengthwise.store import Store
from lengthwise.studies import Study, best_runs, grid
from lengthwise.tasks import (
    Addition,
    BucketSort,
    Conjunction,
    Copy,
    EvenPairs,
    LinearRegression,
    Parity,
    Recall,
    Reverse,
    Sorting,
    StackManipulation,
    Text,
)
from lengthwise.values import unlisted

RATE_SEED = 100  # of the stage that chooses the learning rates, and of nothing else
FACTORS = (1, 1.25, 1.5, 2, 3, 4, 8)  # evaluated lengths, in training lengths
TEXT_FACTORS = (1, 2, 4, 8)  # whose lengths divide the pieces of 512 bytes
MODEL = ModelConfig(d_model=64, num_layers=2, num_heads=4)
BASE = 10_000.0  # of all rotations
EXAMPLES = 128  # at each length
TOKENS = 65_536  # of text at each length: 128 pieces


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A task and how it is trained. `learned`: the score at `length` that ends a training; None: all steps are used.

    `stop_examples`: the examples of that score. `rates`: the learning rates among which the first stage chooses.
    """

    task: Choice
    length: int
    shortest: int
    steps: int
    learned: float | None
    batch: int = 64
    stop_examples: int = 128
    rates: tuple[float, float] = (1.5e-3, 3e-3)
    model: ModelConfig = MODEL
    factors: tuple[float, ...] = FACTORS

    def training(self, rate: float) -> TrainingConfig:
        return TrainingConfig(
            train_length=self.length,
            min_length=self.shortest,
            steps=self.steps,
            batch_size=self.batch,
            learning_rate=rate,
            stop=None if self.learned is None else StopWhenLearned(score=self.learned, examples=self.stop_examples),
        )

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(round(factor * self.length) for factor in self.factors))

    @property
    def evaluation(self) -> EvaluationConfig:
        """Return the evaluation at these lengths; of text also with the same targets at every length."""
        shifts = ({"targets": self.length},) if self.task.name == "Text" else ()
        return EvaluationConfig(lengths=self.lengths, examples=EXAMPLES, tokens=TOKENS, shifts=shifts)


PROSE = Setting(
    task=choose(Text, path="python:docstrings", chunk=512),
    length=64,
    shortest=64,
    steps=500,
    batch=16,
    learned=None,
    factors=TEXT_FACTORS,
)
SETTINGS = {
    "prose": PROSE,
    "code": dataclasses.replace(PROSE, task=choose(Text, path="python:source", chunk=512)),
    "copy": Setting(task=choose(Copy, symbols=20), length=8, shortest=1, steps=2500, learned=0.98),
    "reverse": Setting(task=choose(Reverse, symbols=20), length=8, shortest=1, steps=2500, learned=0.98),
    "recall": Setting(
        task=choose(Recall, keys=64, values=8, queries=8), length=8, shortest=2, steps=2500, learned=0.98
    ),
    "addition": Setting(
        task=choose(Addition, pad=True, reverse=True, reverse_operands=True),
        length=4,
        shortest=1,
        steps=2500,
        learned=0.98,
    ),
    "sorting": Setting(task=choose(Sorting, symbols=20), length=5, shortest=1, steps=2500, learned=0.98),
    "parity": Setting(
        task=choose(Parity, scratchpad="minimal"),
        length=8,
        shortest=1,
        steps=2000,
        batch=32,
        learned=0.98,
        factors=(1, 1.25, 1.5, 2, 3, 4),
    ),
    "regression": Setting(
        task=choose(LinearRegression, dims=2), length=10, shortest=10, steps=2500, learned=0.4, stop_examples=256
    ),
    "conjunction": Setting(
        task=choose(Conjunction, dims=4),
        length=20,
        shortest=20,
        steps=1500,
        batch=32,
        learned=0.95,
        stop_examples=256,
        rates=(1e-3, 2e-3),
    ),
    "even-pairs": Setting(task=choose(EvenPairs), length=12, shortest=1, steps=1200, learned=0.98, rates=(1e-3, 2e-3)),
    "stack": Setting(task=choose(StackManipulation), length=8, shortest=2, steps=2000, learned=0.98),
    "bucket-sort": Setting(task=choose(BucketSort), length=10, shortest=1, steps=1000, learned=0.98),
}


def selected(names: str) -> dict[str, Setting]:
    """Return the tasks with these names, separated by commas; all without any."""
    chosen = [name.strip() for name in names.split(",")] if names else list(SETTINGS)
    for name in chosen:
        if name not in SETTINGS:
            raise ConfigError(f"tasks must be names of tasks of this study, got {unlisted(name, SETTINGS)}")
    return {name: SETTINGS[name] for name in chosen}


def trained_choices(setting: Setting, encodings: Iterable[type]) -> list[Choice]:
    """Return the encodings with settings for a task.

    All rotations have one base. Settings that are lengths are the training length in tokens, because defaults for long
    texts would have no effect here: the length of bands and of scaled logits, and T5's largest distance. T5 has 16
    buckets, because many of 32 would have no training distance. The scale base of xPos is half of it, as in its
    paper (512 for 1,024). Shaw's clip (16), CoPE's positions (64) and FIRE's threshold L (512) keep their defaults; the
    last was chosen by scores at longer lengths in a study of FIRE. Where there is a largest length (tables of
    positions, xPos), it is the longest that is evaluated.
    """
    task = setting.task.build()
    trained, longest = task.tokens(setting.length), task.tokens(max(setting.lengths))
    own: dict[str, Any] = dict.fromkeys(("step", "length", "band", "max_distance"), trained)
    own |= {"num_buckets": 16, "scale_base": trained / 2, "base": BASE}
    choices = []
    for encoding in encodings:
        names = settings_of(encoding)
        settings = {
            name: value
            for name, value in own.items()
            if name in names and isinstance(names[name].default, (int, float))
        }
        if "max_length" in names:
            settings["max_length"] = longest
        choices.append(choose(encoding, **settings))
    return choices


def grid_of(setting: Setting, choices: Iterable[Choice], seeds: Iterable[int], rate: float) -> tuple[Run, ...]:
    """Return the runs of encodings on a task with one learning rate."""
    return grid(choices, [setting.task], seeds, model=setting.model, training=setting.training(rate))


def two_stages(
    *,
    name: str,
    question: str,
    expectation: str,
    command: str,
    cost: str,
    settings: Mapping[str, Setting],
    encodings: Sequence[type],
    seeds: int,
    also: Callable[[Sequence[Run]], Sequence[Run]] = lambda runs: (),
) -> Study:
    """Return the stage that chooses the learning rates, whose `then` is the comparison.

    `also`: a function of the trained runs that returns more runs of the comparison.
    """
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, got {seeds}")
    rates = [
        run
        for setting in settings.values()
        for rate in setting.rates
        for run in grid_of(setting, trained_choices(setting, encodings), [RATE_SEED], rate)
    ]
    evaluations = {setting.task.name: setting.evaluation for setting in settings.values()}

    def comparison(store: Store) -> Study:
        best = best_runs(store, rates)
        # The runs of the first seed come first, so that an interrupted study has a complete comparison early.
        runs = [dataclasses.replace(run, seed=seed) for seed in range(seeds) for run in best]
        return Study(
            name=name,
            question=question,
            expectation=expectation,
            cost=cost,
            command=command,
            runs=(*runs, *also(runs)),
            evaluation=evaluations,
        )

    return Study(
        name=f"{name}, learning rates",
        question="Which of two learning rates is better for each encoding on each task?",
        expectation="The larger one, on most tasks and for most encodings, because the trainings are short.",
        cost=cost,
        command=command,
        runs=tuple(rates),
        evaluation={
            setting.task.name: EvaluationConfig(lengths=(setting.length,), examples=EXAMPLES, tokens=TOKENS)
            for setting in settings.values()
        },
        then=comparison,
    )
