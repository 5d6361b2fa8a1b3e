"""How much work a run is, roughly: for shares and ETAs, never for decisions."""

from collections.abc import Iterable
from dataclasses import dataclass

from lengthwise.config import EvaluationConfig, Run
from lengthwise.tasks import Task
from lengthwise.tasks.base import PrefixTask

DECODING = 8  # what saying an answer costs, in forwards of all of it: 4 to 13 with small models on a CPU

SCAN = (
    64  # what a number of a Mamba's state costs at each token, in multiply-adds of a linear map: on a CPU, at width 256
)


@dataclass(frozen=True)
class Cost:
    """In multiples of a multiply-add of a forward pass."""

    train: float
    ask: dict[int, float]  # by length

    @property
    def total(self) -> float:
        return self.train + sum(self.ask.values())


def costs(runs: Iterable[tuple[Run, EvaluationConfig]]) -> dict[str, Cost]:
    """The cost of each run, by key."""
    built: dict[object, Task] = {}
    found = {}
    for run, asked in runs:
        if run.task not in built:
            built[run.task] = run.task.build()
        found[run.key] = cost(run, asked, built[run.task])
    return found


def cost(run: Run, asked: EvaluationConfig, task: Task) -> Cost:
    training = run.training
    middle = ((training.min_length or training.train_length) + training.train_length) // 2
    if training.train_examples is not None:  # batches of all lengths are as wide as the longest
        middle = training.train_length
    examples = training.steps * training.batch_size
    ask = {}
    prompt = asked.prompt or max(asked.lengths)
    if isinstance(task, PrefixTask) and task.one_forward():  # all lengths of a test are read at once
        ask[prompt] = (1 + len(asked.shifts)) * asked.examples * _forward(run, task, prompt)
        return Cost(3 * examples * _forward(run, task, middle), ask)
    for length in asked.lengths:
        count = -(-asked.tokens // task.tokens(length)) if task.per_token else asked.examples
        available = task.available(length, "test")
        count = count if available is None else min(count, available)
        ask[length] = (DECODING if task.decodes else 1) * count * _forward(run, task, length)
    return Cost(3 * examples * _forward(run, task, middle), ask)  # backward is twice a forward


def _forward(run: Run, task: Task, length: int) -> float:
    """Multiply-adds of one example: linear maps, attention scores and values, or the scan, logits."""
    model, places = run.model, task.tokens(length)
    if model.state_size is not None:
        channels = 2 * model.d_model
        per_layer = channels * (3 * model.d_model + (2 + SCAN) * model.state_size)
        return float(places * (model.num_layers * per_layer + model.d_model * task.output_size))
    assert model.d_ff is not None  # config fills it
    linear = 4 * model.d_model**2 + (3 if model.mlp == "swiglu" else 2) * model.d_model * model.d_ff
    per_token = model.num_layers * (linear + 2 * places * model.d_model) + model.d_model * task.output_size
    return float(places * per_token)
