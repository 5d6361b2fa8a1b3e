"""Scores of a model at many lengths: by one forward pass per example, or by greedy decoding if the task grades answers."""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.class_versions import wrong_return
from lengthwise.config import Choice, ConfigError, EvaluationConfig, Run, choose
from lengthwise.evaluation.decoding import answer_details, decodable, greedy_decode
from lengthwise.evaluation.score_checks import (
    EvaluationError,
    require_own_scores_finite,
    required_scores,
    within_limits,
)
from lengthwise.evaluation.untrained import baseline_details, baseline_scores, baselines_of
from lengthwise.positions import PositionScheme, position_scheme_for
from lengthwise.tasks.base import Batch, GradedAnswers, PrefixTask, Task, generator
from lengthwise.tasks.sequences import SequenceTask
from lengthwise.training.numerics import reproducible
from lengthwise.training.progress import Pace, Progress, Reporter, Stopped
from lengthwise.training.setup import original_train_length

DECODING_FACTOR = 4  # decoding processes one token per example and step, so its batches are this many times larger
GROUPS = 40  # groups of examples whose means are stored with each score of a task with prefixes


@dataclass(frozen=True)
class Score:
    """The score of a model at one length."""

    length: int  # in the task's unit
    metric: str
    better: str  # "higher" or "lower"
    n: int  # number of examples
    mean: float
    standard_error: float | None  # of the mean, over examples; None for a single example
    out_of_distribution: bool  # longer than all training examples
    seconds: float
    asked: dict[str, Any]  # identifies the evaluation, see `evaluation_question`
    # "baselines": scores on the same examples, {"name", "score", "floor"}, in the task's order. For generated answers also those
    # of `decoding.answer_details`. For tasks with prefixes also "groups": means of groups of examples.
    details: dict[str, Any] = field(default_factory=dict)


Shift = Mapping[str, Any]
"""Settings of the task in which a test differs from training. An empty mapping stands for the task as trained."""


def evaluation_question(
    task: Task | type[Task], config: EvaluationConfig, length: int, shift: Shift = MappingProxyType({})
) -> dict[str, Any]:
    """Return the settings that identify the evaluation at one length. An evaluation with a stored score is not repeated."""
    amount = {"tokens": config.tokens} if task.per_token else {"examples": config.examples}
    question: dict[str, Any] = {"length": length, **amount, "seed": config.seed}
    if issubclass(task if isinstance(task, type) else type(task), PrefixTask):
        question["prompt"] = _prompt_length(config)
    return question | ({"shift": dict(shift)} if shift else {})


def questions(task: Choice, config: EvaluationConfig) -> list[dict[str, Any]]:
    """Return all evaluations of a run (see `evaluation_question`): every length, for the task as trained and for every shift.

    `task`: that of the run. A shift is stored as all settings that it changes, for example with the hash of another text.
    """
    trained = dict(task.settings)
    shifts: list[Shift] = [{}]
    for shift in config.shifts:
        settings = dict(shifted(task, shift).settings)
        shifts.append({name: value for name, value in settings.items() if value != trained[name]})
    return [evaluation_question(task.cls, config, length, shift) for shift in shifts for length in config.lengths]


def together(questions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[EvaluationConfig, dict[str, Any]]]:
    """Yield configurations that cover these questions, each with its shift.

    Questions that one forward pass answers share a configuration; each of the others has its own.
    """
    groups: dict[str, list[int]] = {}
    for question in questions:
        key = json.dumps({k: v for k, v in question.items() if k != "length"}, sort_keys=True)
        if "prompt" not in question:
            key += f" {question['length']}"
        groups.setdefault(key, []).append(question["length"])
    for key, lengths in groups.items():
        settings, _ = json.JSONDecoder().raw_decode(key)
        shift = settings.pop("shift", {})
        yield EvaluationConfig(lengths=tuple(lengths), **settings), shift


def shifted(task: Choice, shift: Shift) -> Choice:
    """Return the task of a test, which differs from the trained task in the settings of `shift`.

    Raises `ConfigError` for invalid settings and for a shift without effect.
    """
    task_class: Any = task.cls
    changed = choose(task_class, **task_class.changed(dict(task.settings), shift))
    if changed == task:
        raise ConfigError(f"the shift {dict(shift)} must change the trained task, got the same task {task.label}")
    return changed


def check_lengths(run: Run, lengths: Iterable[int], shifts: Iterable[Shift] = (), prompt: int | None = None) -> None:
    """Raise `ConfigError` for a length that the run's task, position scheme or encoding does not support.

    Also for a shift that the task does not have. `prompt`: the prompt length of a task with prefixes. Builds no model.
    """
    task: Task = run.task.build()
    lengths = list(lengths)
    if prompt is not None and not isinstance(task, PrefixTask):
        raise ConfigError(
            f"prompt is {prompt}, but {run.task.name} is not a task whose lengths are prefixes of one prompt; leave prompt out"
        )
    for test_task in (task, *(shifted(run.task, shift).build() for shift in shifts)):
        prompts = [prompt] if prompt and isinstance(test_task, PrefixTask) and test_task.prefixes_are_examples() else []
        all_lengths = dict.fromkeys([*lengths, *prompts])
        scheme = position_scheme_for(task, run.training.positions)
        _check(test_task, encodings_of(run, task), scheme, all_lengths, task.decodes)
        for name in ("input_width", "vocab_size", "output_size"):
            if (other := getattr(test_task, name)) != (own := getattr(task, name)):
                raise ConfigError(f"a shift must keep the {name} {own} of the trained model, got {other}")


def encodings_of(run: Run, task: Task) -> list[Any]:
    """Return one instance of every encoding in the run's model."""
    context = {"num_heads": run.model.num_heads, "head_dim": run.model.head_dim, "d_model": run.model.d_model}
    train_length = original_train_length(run, task)
    return [choice.build(**context, train_length=train_length) for choice in dict.fromkeys(run.encoding.layers)]


def evaluate(
    model: nn.Module,
    task: Task,
    config: EvaluationConfig,
    *,
    train_length: int,
    positions: Choice | None = None,
    shift: Shift = MappingProxyType({}),
    batch_tokens: int = 16_384,
    decode: bool | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> list[Score]:
    """Score `model` at each of the lengths of `config`, in this order. All computation is in float32.

    The examples of a length depend only on the task, the config and the length. Other lengths do not change them.

    `train_length`: the longest length in training; longer ones are marked as out of distribution.
    `positions`: the position scheme of the run's training (`run.training.positions`). The positions that it draws for a length
    depend only on the config's seed and that length.
    `shift`: the settings in which `task` differs from the trained task; part of what identifies the evaluation.
    `batch_tokens`: token slots per forward pass. It changes scores by rounding only.
    `decode`: generate answers token by token with the key-value cache (of up to 4 `batch_tokens` token slots), and let the task
    grade them. Default: `task.decodes`. For an exact match of the whole answer, one forward pass gives the same result much
    faster.

    For a task with prefixes, one forward pass of `config.prompt` scores all lengths.

    Raises `ConfigError` before any forward pass for a length that the task, the position scheme or the encoding does not support;
    `EvaluationError` for a score that is not finite; `Stopped` if `should_stop` returns True, which is called before every forward
    pass.
    """
    if batch_tokens < 1:
        raise ConfigError(f"batch_tokens must be at least 1, got {batch_tokens}")
    scheme = position_scheme_for(task, positions)
    decode = task.decodes if decode is None else decode
    forward_lengths = lengths = config.lengths
    if isinstance(task, PrefixTask):
        config = dataclasses.replace(config, prompt=_prompt_length(config))
        forward_lengths = (_prompt_length(config),) if task.prefixes_are_examples() else lengths
    encodings = [m for m in model.modules() if getattr(m, "kind", None) == "encoding"]
    _check(task, encodings, scheme, dict.fromkeys([*lengths, *forward_lengths]), decode)
    counts = {length: _num_examples(task, config, length) for length in forward_lengths}
    batch_tokens *= DECODING_FACTOR if decode else 1
    work = _Work(model, task, counts, batch_tokens, Reporter(on_progress), should_stop)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), reproducible(work.device):
            begin, scores = time.perf_counter(), []
            for length in forward_lengths:
                examples = task.examples(config.seed, counts[length], length, "test")
                work.set_count(length, len(examples))
                results: dict[int, tuple[Tensor, dict[str, Any]]]
                if decode:
                    results = {length: work.score_answers(decodable(task, scheme), examples, length)}
                else:
                    # Drawn for all examples together, so that they do not depend on the batch size.
                    g = generator(config.seed, "layout", length)
                    values = work.score_logits(
                        examples, scheme.positions(examples.inputs, None, g, training=False), length
                    )
                    if isinstance(task, PrefixTask):
                        scored_lengths = lengths if task.prefixes_are_examples() else [length]
                        results = {n: (values[:, n - 1], _group_means(values[:, n - 1])) for n in scored_lengths}
                    else:
                        results = {length: (values, {})}
                curves = baseline_scores(task, examples, list(results), work.check_stop)
                seconds, begin = time.perf_counter() - begin, time.perf_counter()
                for scored_length, (values, details) in results.items():
                    question = evaluation_question(task, config, scored_length, shift)
                    baselines = baseline_details(task, curves, scored_length)
                    details |= {"baselines": baselines} if baselines else {}
                    is_longer = scored_length > train_length
                    scores.append(_make_score(task, question, values, details, is_longer, seconds / len(results)))
            return scores
    finally:
        model.train(was_training)


def _make_score(
    task: Task,
    question: dict[str, Any],
    values: Tensor,
    details: dict[str, Any],
    out_of_distribution: bool,
    seconds: float,
) -> Score:
    n, length = len(values), question["length"]
    if not bool(values.isfinite().all()):
        bad = int((~values.isfinite()).sum())
        raise EvaluationError(
            f"at length {length} the {task.metric.name} of {bad} of {n} examples is not a finite number: the "
            "model's logits overflow there; leave this length out, or check the encoding's values"
        )
    values = within_limits(values, task, length)
    return Score(
        length=length,
        metric=task.metric.name,
        better=task.metric.better,
        n=n,
        mean=float(values.mean()),
        standard_error=float(values.std()) / math.sqrt(n) if n > 1 else None,
        out_of_distribution=out_of_distribution,
        seconds=seconds,
        asked=question,
        details=details,
    )


def _group_means(values: Tensor) -> dict[str, list[float]]:
    """Return the means of groups of examples, for a bootstrap over examples. The group sizes differ by at most one.

    The groups of a task with prefixes consist of the same sequences at every length.
    """
    return {"groups": [float(f"{float(part.mean()):.6g}") for part in values.tensor_split(min(GROUPS, len(values)))]}


class _Work:
    """The forward passes of an evaluation: their batches, the scores, progress reports, and requests to stop."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        counts: dict[int, int],
        batch_tokens: int,
        reporter: Reporter,
        should_stop: Callable[[], bool] | None,
    ):
        self.model, self.task, self.counts, self.batch_tokens = model, task, counts, batch_tokens
        self.reporter, self.should_stop = reporter, should_stop
        self.device = next(model.parameters()).device
        self.token_slots = {length: task.tokens(length) for length in counts}  # per example
        self.forwards_done = self.slots_done = 0
        self.pace = Pace(0, self.total_slots)

    @property
    def total_slots(self) -> int:
        return sum(n * self.token_slots[length] for length, n in self.counts.items())

    @property
    def total_forwards(self) -> int:
        return sum(-(-n // self.batch_size(length)) for length, n in self.counts.items())

    def set_count(self, length: int, examples: int) -> None:
        """Set the number of examples, which can be smaller than the task knew in advance (see `Task.examples`)."""
        self.counts[length] = examples
        self.pace.total = self.total_slots

    def batch_size(self, length: int) -> int:
        """Return the number of examples per forward pass."""
        return max(1, self.batch_tokens // self.token_slots[length])

    def batches(self, examples: Batch, length: int) -> Iterator[tuple[slice, Batch]]:
        """Yield the examples of each forward pass, on the model's device. Reports progress after each."""
        size = self.batch_size(length)
        for start in range(0, len(examples), size):
            self.check_stop()
            rows = slice(start, start + size)
            batch = examples[rows].to(self.device)
            yield rows, batch
            self.forwards_done += 1
            self.slots_done += len(batch) * self.token_slots[length]
            total = self.total_forwards
            if self.reporter.is_due(last=self.forwards_done == total):
                eta = self.pace.update(self.slots_done)
                rate = (total - self.forwards_done) / eta if eta else 0.0
                self.reporter.report(Progress("evaluate", self.forwards_done, total, None, rate, eta, length))

    def check_stop(self) -> None:
        if self.should_stop is not None and self.should_stop():
            raise Stopped("evaluate", self.forwards_done, self.total_forwards)

    def score_logits(self, examples: Batch, all_positions: Tensor | None, length: int) -> Tensor:
        """Return the score of each example from one forward pass, for a task with prefixes at every length: [b] or [b, n]."""
        task, scores = self.task, []
        method = "curve" if isinstance(task, PrefixTask) else "score"
        for rows, batch in self.batches(examples, length):
            positions = {} if all_positions is None else {"positions": all_positions[rows].to(self.device)}
            logits = self.model(batch.inputs, **positions)
            part = required_scores(getattr(task, method)(logits, batch), method, task, len(batch))
            if not bool(part.isfinite().all()):
                from_nan = ~logits.isfinite().flatten(1).all(1)
                require_own_scores_finite(part, from_nan, method, task, length)
            scores.append(part.cpu())
        return torch.cat(scores).double()

    def score_answers(self, task: SequenceTask, examples: Batch, length: int) -> tuple[Tensor, dict[str, Any]]:
        """Return the score of each example from the model's generated answer, and details of the answers."""
        generated, nan_masks = [], []
        for _, batch in self.batches(examples, length):
            answers, has_nan = greedy_decode(self.model, task, batch, length, self.check_stop)
            generated += answers
            nan_masks.append(has_nan.cpu())
        graded: Any = task.grade(generated, examples)
        if not isinstance(graded, GradedAnswers):
            raise wrong_return(task, "grade", "lengthwise.tasks.GradedAnswers", graded)
        has_nan = torch.cat(nan_masks)
        scores = required_scores(graded.scores, "grade", task, len(examples))
        require_own_scores_finite(scores, has_nan, "grade", task, length)
        return scores.masked_fill(has_nan, math.nan), answer_details(task, generated, examples, graded)


def _prompt_length(config: EvaluationConfig) -> int:
    """Return the length of the sequences whose prefixes are scored."""
    return config.prompt or max(config.lengths)


def _num_examples(task: Task, config: EvaluationConfig, length: int) -> int:
    count = task.num_examples(config.tokens, length) if task.per_token else config.examples
    available = task.available(length, "test")
    return count if available is None else min(count, available)


def _check(task: Task, encodings: Iterable[Any], scheme: PositionScheme, lengths: Iterable[int], decode: bool) -> None:
    encodings = list(encodings)
    if decode:
        decodable(task, scheme)
    baselines_of(task)  # raises an error now for a baseline that cannot be computed
    for length in lengths:
        task.check_length(length, "test")
        scheme.require(task.tokens(length), training=False)
        num_positions = scheme.checked_num_positions(task.tokens(length), training=False)
        for encoding in encodings:
            if encoding.max_length is not None and num_positions > encoding.max_length:
                with_scheme = "" if num_positions == task.tokens(length) else f" with {type(scheme).__name__}"
                raise ConfigError(
                    f"length {length} {task.unit} needs {num_positions} positions{with_scheme}, but {type(encoding).__name__} has "
                    f"{encoding.max_length}; give it a larger max_length, or leave this length out"
                )
