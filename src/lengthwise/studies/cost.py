"""A rough estimate of a run's cost, for progress display and remaining times only."""

from collections.abc import Iterable
from dataclasses import dataclass

from lengthwise.config import EvaluationConfig, Run
from lengthwise.config.mixers import MIXERS
from lengthwise.tasks import Task
from lengthwise.tasks.base import PrefixTask

DECODING = 8  # cost of decoding an answer, in forward passes over it: 4 to 13 with small models on a CPU
SCAN = 64  # cost of one element of Mamba's state per token, in multiply-adds of a linear layer: on a CPU, at width 256


@dataclass(frozen=True)
class Cost:
    """The cost of a run, in multiply-adds of a forward pass."""

    train: float
    evaluate: dict[int, float]  # by length

    @property
    def total(self) -> float:
        return self.train + sum(self.evaluate.values())


def costs(runs: Iterable[tuple[Run, EvaluationConfig]]) -> dict[str, Cost]:
    """Return the cost of each run, by key."""
    pairs = list(runs)
    tasks = {choice: choice.build() for choice in {run.task for run, _ in pairs}}
    return {run.key: cost(run, evaluation, tasks[run.task]) for run, evaluation in pairs}


def cost(run: Run, evaluation: EvaluationConfig, task: Task) -> Cost:
    training = run.training
    mean_length = ((training.min_length or training.train_length) + training.train_length) // 2
    if training.train_examples is not None:  # batches with all lengths are padded to the longest
        mean_length = training.train_length
    train = 3 * training.steps * training.batch_size * _forward(run, task, mean_length)  # backward costs two forwards
    prompt = evaluation.prompt or max(evaluation.lengths)
    if isinstance(task, PrefixTask) and task.prefixes_are_examples():  # one forward pass evaluates all lengths
        tests = 1 + len(evaluation.shifts)
        return Cost(train, {prompt: tests * evaluation.examples * _forward(run, task, prompt)})
    by_length = {}
    for length in evaluation.lengths:
        count = task.num_examples(evaluation.tokens, length) if task.per_token else evaluation.examples
        available = task.available(length, "test")
        count = count if available is None else min(count, available)
        by_length[length] = (DECODING if task.decodes else 1) * count * _forward(run, task, length)
    return Cost(train, by_length)


def _forward(run: Run, task: Task, length: int) -> float:
    """Return the multiply-adds of one example: linear layers, attention (or the mixer), and logits."""
    model, tokens = run.model, task.tokens(length)
    if model.state_size is not None:
        channels = 2 * model.d_model
        per_layer = channels * (3 * model.d_model + (2 + SCAN) * model.state_size)
        return float(tokens * (model.num_layers * per_layer + model.d_model * task.output_size))
    assert model.d_ff is not None  # set by ModelConfig
    mlp = (3 if model.mlp == "swiglu" else 2) * model.d_model * model.d_ff
    if model.mixer is not None:
        mixing = MIXERS[model.mixer].cost * model.d_model**2
    else:
        mixing = 4 * model.d_model**2 + 2 * tokens * model.d_model
    per_token = model.num_layers * (mixing + mlp) + model.d_model * task.output_size
    return float(tokens * per_token)
