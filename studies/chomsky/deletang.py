"""What the studies of this folder share: the tasks of each level, the models that are compared, and the published result.

Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy" (ICLR 2023), and Ruoss et al. 2023, "Randomized Positional
Encodings Boost Length Generalization of Transformers" (ACL 2023), which evaluates the same tasks.

Published: trained on lengths 1 to 40, a task counts as solved if the mean accuracy over lengths 41 to 500 is at least 0.9. In the
abstract's words, RNNs and Transformers fail to generalize on non-regular tasks, LSTMs solve regular and counter-language tasks,
and only networks with a stack or a tape generalize on context-free and context-sensitive tasks. Randomized positions raise the
accuracy of Transformers by 12 points on average over the fifteen tasks. The numbers of single tasks in both papers' tables are not
repeated here.

Differences from the published runs, besides the size: their Transformer is an encoder that predicts all tokens of an answer at
empty tokens after the question. Ours are decoders, and accuracy is measured under teacher forcing, so on answers of several tokens
it is higher (see `ChomskyTask`; the baseline says how high it is without the question). Their score is a mean over all longer
lengths, ours over those that a study lists. Lengths that a task does not have are left out (`TASKS`).
"""

from collections.abc import Iterable, Sequence

from lengthwise.config import Choice, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.positions import Randomized
from lengthwise.studies import grid
from lengthwise.tasks import TASKS as ALL_TASKS
from lengthwise.tasks.chomsky.base import ChomskyTask

TRAINED = 40  # the longest training length
ENCODINGS = ("nope", "rope", "alibi", "kerplelog", "fire")
RANDOMIZED = ("rope", "alibi")  # with randomized positions as well
MIXERS = ("mamba",)  # instead of attention
TASKS: dict[str, type[ChomskyTask]] = {task.__name__: task for task in ALL_TASKS if issubclass(task, ChomskyTask)}
REGULAR, CONTEXT_FREE, CONTEXT_SENSITIVE = (
    tuple(name for name, task in TASKS.items() if task.level == level)
    for level in ("regular", "context-free", "context-sensitive")
)


def lengths_of(task: type[ChomskyTask], lengths: Iterable[int]) -> list[int]:
    """Return the lengths that the task has; instead of one that it does not have, the next shorter one."""
    found = {length - (length - task.shortest) % task.step for length in lengths if length >= task.shortest}
    return sorted(found)


def comparison(
    names: Sequence[str],
    seeds: int | Iterable[int],
    model: ModelConfig,
    mixer: ModelConfig,
    training: dict[str, float | int],
    longest: int,
) -> tuple[Run, ...]:
    """Return the runs of all models on the named tasks, those of the first seed first.

    `mixer`: the model without attention, whose mixer is replaced by each of MIXERS. `longest`: the longest length in evaluation;
    randomized positions cover it.
    """
    tasks = [choose(TASKS[name]) for name in names]
    seed_list = list(range(seeds)) if isinstance(seeds, int) else list(seeds)

    def config(name: str, positions: Choice | None = None) -> TrainingConfig:
        existing = lengths_of(TASKS[name], range(1, TRAINED + 1))
        return TrainingConfig(train_length=existing[-1], min_length=existing[0], positions=positions, **training)

    runs = list(grid(ENCODINGS, tasks, seed_list, model=model, training={name: config(name) for name in names}))
    for name, task in zip(names, tasks, strict=True):
        tokens = task.build().tokens(longest)
        randomized = choose(Randomized, max_length=2 * tokens)
        runs += grid(RANDOMIZED, [task], seed_list, model=model, training=config(name, randomized))
        for mixer_name in MIXERS:
            changed = ModelConfig(mixer=mixer_name, d_model=mixer.d_model, num_layers=mixer.num_layers)
            runs += grid(["nope"], [task], seed_list, model=changed, training=config(name))
    return tuple(sorted(runs, key=lambda run: seed_list.index(run.seed)))


def evaluations(names: Sequence[str], lengths: Iterable[int], examples: int) -> dict[str, EvaluationConfig]:
    lengths = list(lengths)
    return {
        name: EvaluationConfig(lengths=tuple(lengths_of(TASKS[name], lengths)), examples=examples) for name in names
    }
