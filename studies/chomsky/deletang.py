"""What the studies of this folder share: the tasks of each level, the compared models, and the published result.

Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy" (ICLR 2023), and Ruoss et al. 2023,
"Randomized Positional Encodings Boost Length Generalization of Transformers" (ACL 2023), which evaluates the same
tasks.

Published: trained on lengths 1 to 40, a task counts as solved if the mean accuracy over lengths 41 to 500 is at least
0.9. The abstract says that RNNs and Transformers fail to generalize on non-regular tasks, that LSTMs solve regular and
counter-language tasks, and that only networks with a stack or a tape generalize on context-free and context-sensitive
tasks. In the table, Transformers solve one of the four regular tasks (even pairs), none that is context-free, and
bucket sort, which LSTMs solve too (counting the symbols suffices). Randomized positions raise the accuracy of
Transformers by 12 points on average over the fifteen tasks. The tables' numbers were not checked again and are not
repeated here.

The rule "at least 0.9" has no meaning where the baseline without the question is above 0.9, as it is on bucket sort
under teacher forcing. Here a task counts as *solved* if the accuracy, averaged over the longer lengths, covers at least
four fifths of the way from the baseline to 1. With a baseline of 1/2, this is the published rule.

Differences from the published runs, besides the size: their Transformer is an encoder that predicts all tokens of an
answer at empty tokens after the question. Ours are decoders, and accuracy is measured under teacher forcing, so on
answers of several tokens it is higher (see `ChomskyTask`). Their score is a mean over all longer lengths, ours over
those that a study lists; where a task does not have a length, the next shorter one takes its place. With randomized
positions, they train on subsets of 2,048 positions, and their best encoding is Transformer-XL's.
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
MIXERS = ("mamba",)  # instead of attention; another one joins by its name
TASKS: dict[str, type[ChomskyTask]] = {task.__name__: task for task in ALL_TASKS if issubclass(task, ChomskyTask)}


def lengths_of(task: type[ChomskyTask], lengths: Iterable[int]) -> list[int]:
    """Return the lengths that the task has; instead of one that it does not have, the next shorter one."""
    found = {length - (length - task.shortest) % task.length_step for length in lengths if length >= task.shortest}
    return sorted(found)


def comparison(
    names: Sequence[str],
    seeds: int,
    model: ModelConfig,
    mixers: Sequence[ModelConfig],
    training: dict[str, float | int],
    max_length: int,
) -> tuple[Run, ...]:
    """Return the runs of all models on the named tasks, those of the first seed first.

    `model`, `mixers`: the models with attention and without. `max_length`: of randomized positions.
    """
    tasks = [choose(TASKS[name]) for name in names]

    def config(name: str, positions: Choice | None = None) -> TrainingConfig:
        existing = lengths_of(TASKS[name], range(1, TRAINED + 1))
        return TrainingConfig(train_length=existing[-1], min_length=existing[0], positions=positions, **training)

    randomized = choose(Randomized, max_length=max_length)
    trainings = {name: config(name) for name in names}
    runs = list(grid(ENCODINGS, tasks, seeds, model=model, training=trainings))
    with_positions = {name: config(name, randomized) for name in names}
    runs += grid(RANDOMIZED, tasks, seeds, model=model, training=with_positions)
    for mixer in mixers:
        runs += grid(["nope"], tasks, seeds, model=mixer, training=trainings)
    return tuple(sorted(runs, key=lambda run: run.seed))


def evaluations(names: Sequence[str], lengths: Iterable[int], examples: int) -> dict[str, EvaluationConfig]:
    lengths = list(lengths)
    return {
        name: EvaluationConfig(lengths=tuple(lengths_of(TASKS[name], lengths)), examples=examples) for name in names
    }
