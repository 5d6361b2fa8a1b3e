"""Scores of a model at many lengths: by one forward pass per example, or by greedy decoding if answers are graded."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lengthwise.config import Choice, ConfigError, EvaluationConfig
from lengthwise.evaluation.decoding import answer_details, decodable, greedy_decode
from lengthwise.evaluation.questions import Shift, check_supported, evaluation_question, num_examples, prompt_length
from lengthwise.evaluation.score_checks import (
    EvaluationError,
    require_own_scores_finite,
    required_scores,
    scores_of_examples,
)
from lengthwise.evaluation.untrained import baseline_details, baseline_scores
from lengthwise.machine_memory import naming_what_needs_memory
from lengthwise.positions import PositionScheme, position_scheme_for
from lengthwise.tasks.base import AnswerTask, Batch, GradedAnswers, PooledTask, PrefixTask, Task, generator, mean_over
from lengthwise.training.numerics import reproducible
from lengthwise.training.progress import Pace, Progress, Reporter, Stopped
from lengthwise.training.ranks import ALONE, Ranks
from lengthwise.user_classes import wrong_return

DECODING_FACTOR = 4  # decoding processes one token per example and step, so its batches are this many times larger
MIN_PART = 1024  # token slots of a part of an example; shorter ones would take longer and save little memory
GROUPS = 40  # groups of examples whose means are stored with each score of a task with prefixes


@dataclass(frozen=True)
class Division:
    """How the examples are divided into forward passes, and among processes. It changes scores by rounding only.

    `batch_tokens`: token slots per forward pass. An example with more token slots is processed in parts of half this
    size (at least 1,024) with the key-value cache, if the task has `token_scores` and no encoding depends on the
    current length.
    `ranks`: the place of this process among those that share the forward passes; all of them call `evaluate` with the
    same arguments, and get the same scores. Only rank 0 uses `on_progress` and `should_stop`.
    """

    batch_tokens: int = 16_384
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        if self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least 1, got {self.batch_tokens}")


WHOLE = Division()


@dataclass(frozen=True)
class Score:
    """The score of a model at one length."""

    length: int  # in the task's unit
    metric: str
    better: str  # "higher" or "lower"
    n: int  # number of examples
    mean: float
    standard_error: float | None  # of the mean, over examples; None for a single example
    seconds: float
    question: dict[str, Any]  # identifies the evaluation, see `evaluation_question`
    # "baselines": scores on the same examples, {"name", "score", "floor"}, in the task's order. For generated answers
    # also those of `decoding.answer_details`. For tasks with `further_scores` and pooled tasks also "means", further
    # scores by name, and their "order". For tasks with prefixes also "groups": means of groups of examples. For tasks
    # with `token_scores` also "by_position": {"first", "last", "mean", "n"}, the mean score of n targets at these
    # positions.
    details: dict[str, Any] = field(default_factory=dict)


def evaluate(
    model: nn.Module,
    task: Task,
    config: EvaluationConfig,
    *,
    positions: Choice | None = None,
    shift: Shift = MappingProxyType({}),
    division: Division = WHOLE,
    decode: bool | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> list[Score]:
    """Score `model` at each of the lengths of `config`, in this order. All computation is in float32.

    The examples of a length depend only on the task, the config and the length. Other lengths do not change them.

    `positions`: the position scheme of the run's training (`run.training.positions`). The positions that it draws for a
    length depend only on the config's seed and that length.
    `shift`: the settings in which `task` differs from the trained task; part of what identifies the evaluation.
    `division`: the size of forward passes, and the processes that share them.
    `decode`: generate answers token by token with the key-value cache (of up to 4 `batch_tokens` token slots), and let
    the task grade them. Default: `task.decodes`. For an exact match of the whole answer, one forward pass gives the
    same result much faster.

    For a task with prefixes, one forward pass of `config.prompt` scores all lengths.

    Raises `ConfigError` before any forward pass for a length that the task, the position scheme or the encoding does
    not support; `EvaluationError` for a score that is not finite; `Stopped` if `should_stop` returns True, which is
    called before every forward pass.
    """
    scheme = position_scheme_for(task, positions)
    decode = task.decodes if decode is None else decode
    forward_lengths = lengths = config.lengths
    if isinstance(task, PrefixTask):
        config = dataclasses.replace(config, prompt=prompt_length(config))
        forward_lengths = (prompt_length(config),) if task.prefixes_are_examples() else lengths
    check_supported(task, _encodings(model), scheme, dict.fromkeys([*lengths, *forward_lengths]), decode)
    counts = {length: num_examples(task, config, length) for length in forward_lengths}
    if decode:
        division = dataclasses.replace(division, batch_tokens=division.batch_tokens * DECODING_FACTOR)
    passes = _ForwardPasses(model, task, counts, division, Reporter(on_progress), should_stop)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), reproducible(passes.device):
            begin, scores = time.perf_counter(), []
            for length in forward_lengths:
                with naming_what_needs_memory(f"length {length:,} {task.unit}"):
                    examples = task.examples(config.seed, counts[length], length, "test")
                    passes.set_count(length, len(examples))
                    results: dict[int, tuple[Tensor, dict[str, Any]]]
                    if decode:
                        results = {length: passes.score_answers(decodable(task, scheme), examples, length, scheme)}
                    else:
                        # Drawn for all examples together, so that they do not depend on the batch size.
                        g = generator(config.seed, "layout", length)
                        values = passes.score_logits(
                            examples, scheme.positions(examples.inputs, None, g, training=False), length
                        )
                        if isinstance(task, PrefixTask):
                            scored_lengths = lengths if task.prefixes_are_examples() else [length]
                            results = {n: (values[:, n - 1], _group_means(values[:, n - 1])) for n in scored_lengths}
                        else:
                            results = {length: (values, passes.details())}
                    curves = baseline_scores(task, examples, list(results), passes.check_stop)
                    seconds, begin = time.perf_counter() - begin, time.perf_counter()
                    for scored_length, (values, details) in results.items():
                        question = evaluation_question(task, config, scored_length, shift)
                        baselines = baseline_details(task, curves, scored_length)
                        details |= {"baselines": baselines} if baselines else {}
                        scores.append(_make_score(task, question, values, details, seconds / len(results)))
            return scores
    finally:
        model.train(was_training)


def _make_score(task: Task, question: dict[str, Any], values: Tensor, details: dict[str, Any], seconds: float) -> Score:
    n, length = len(values), question["length"]
    if not bool(values.isfinite().all()):
        bad = int((~values.isfinite().view(n, -1).all(1)).sum())
        raise EvaluationError(
            f"at length {length} the {task.metric.name} of {bad} of {n} examples is not a finite number: the "
            "model's logits overflow there; leave this length out, or check the encoding's values"
        )
    values, others = scores_of_examples(task, values, length)
    details |= {"means": others, "order": list(others)} if others else {}
    return Score(
        length=length,
        metric=task.metric.name,
        better=task.metric.better,
        n=n,
        mean=float(values.mean()),
        standard_error=float(values.std()) / math.sqrt(n) if n > 1 else None,
        seconds=seconds,
        question=question,
        details=details,
    )


def _group_means(values: Tensor) -> dict[str, list[float]]:
    """Return the means of groups of examples, for a bootstrap over examples. The group sizes differ by at most one.

    The groups of a task with prefixes consist of the same sequences at every length.
    """
    return {"groups": [float(f"{float(group.mean()):.6g}") for group in values.tensor_split(min(GROUPS, len(values)))]}


def _encodings(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if getattr(module, "kind", None) == "encoding"]


class PositionMeans:
    """Means of the scores of targets, by the number of tokens before them: 0, 1, 2 to 3, 4 to 7, 8 to 15, ..."""

    def __init__(self) -> None:
        self.sums, self.counts = torch.zeros(64, dtype=torch.float64), torch.zeros(64, dtype=torch.int64)

    def add(self, values: Float[Tensor, "b t"], scored: Bool[Tensor, "b t"]) -> None:
        before = torch.arange(values.shape[1])
        bins = torch.where(before > 0, before.double().log2().floor() + 1, 0.0).long()
        sums = torch.where(scored, values, 0.0).sum(0, dtype=torch.float64).cpu()
        self.sums.index_add_(0, bins, sums)
        self.counts.index_add_(0, bins, scored.sum(0).cpu())

    @classmethod
    def sum(cls, means: Iterable["PositionMeans"]) -> "PositionMeans":
        """Return the means over the targets of all parts."""
        total = cls()
        for addend in means:
            total.sums += addend.sums
            total.counts += addend.counts
        return total

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each range of positions with a scored target. Numbers have six digits."""
        positions = self.counts.nonzero().flatten().tolist()
        means = {n: float(self.sums[n]) / int(self.counts[n]) for n in positions}
        return [
            {"first": 2**n // 2, "last": max(0, 2**n - 1), "mean": float(f"{means[n]:.6g}"), "n": int(self.counts[n])}
            for n in positions
        ]


class _ForwardPasses:
    """The forward passes of an evaluation: their batches, the scores, progress reports, and requests to stop."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        counts: dict[int, int],
        division: Division,
        reporter: Reporter,
        should_stop: Callable[[], bool] | None,
    ):
        self.model, self.task, self.counts = model, task, counts
        self.batch_tokens, self.ranks = division.batch_tokens, division.ranks
        self.reporter, self.should_stop = reporter, should_stop
        self.device = next(model.parameters()).device
        self.token_slots = {length: task.tokens(length) for length in counts}  # per example
        self.forwards_done = self.slots_done = 0
        self.by_position = PositionMeans()
        self.further: dict[str, list[Tensor]] = {}  # `further_scores` of the last examples
        self.can_split = task.has_token_scores() and not any(e.depends_on_length() for e in _encodings(model))
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
        """Yield the examples of each forward pass of this rank, on the model's device. Reports progress after each.

        Rank 0 takes the first forward passes, rank 1 the next ones, and so on, and rank 0 never fewer than another one.
        """
        size = self.batch_size(length)
        starts = range(0, len(examples), size)
        each = -(-len(starts) // self.ranks.size)
        for start in starts[self.ranks.rank * each : (self.ranks.rank + 1) * each]:
            self.check_stop()
            rows = slice(start, start + size)
            batch = examples[rows].to(self.device)
            yield rows, batch
            total = self.total_forwards
            others = min(self.ranks.size, len(starts))  # which work at the same time
            self.forwards_done = min(self.forwards_done + others, total)
            self.slots_done = min(self.slots_done + others * len(batch) * self.token_slots[length], self.total_slots)
            if self.reporter.is_due(last=self.forwards_done == total):
                eta = self.pace.update(self.slots_done)
                rate = (total - self.forwards_done) / eta if eta else 0.0
                self.reporter.report(Progress("evaluate", self.forwards_done, total, None, rate, eta, length))

    def check_stop(self) -> None:
        if self.should_stop is not None and self.should_stop():
            raise Stopped("evaluate", self.forwards_done, self.total_forwards)

    def score_logits(self, examples: Batch, all_positions: Tensor | None, length: int) -> Tensor:
        """Return the score of each example [b]; at every length [b, n] with prefixes, or counts [b, k] if pooled."""
        task, scores = self.task, []
        self.by_position, self.further = PositionMeans(), {}
        method = "curve" if isinstance(task, PrefixTask) else "counts" if isinstance(task, PooledTask) else "score"
        method = "token_scores" if method == "score" and task.has_token_scores() else method
        for rows, batch in self.batches(examples, length):
            positions = None if all_positions is None else all_positions[rows].to(self.device)
            value_parts, from_nan = [], torch.zeros(len(batch), dtype=torch.bool, device=self.device)
            for logits, piece in self.forward_parts(batch, positions):
                values = required_scores(getattr(task, method)(logits, piece), method, task, piece.targets.shape)
                if method == "score":
                    for name, further in task.further_scores(logits, piece).items():
                        self.further.setdefault(name, []).append(further.cpu())
                if not bool(values.isfinite().all()):
                    from_nan |= ~logits.isfinite().flatten(1).all(1)
                value_parts.append(values)
            values = torch.cat(value_parts, -1) if len(value_parts) > 1 else value_parts[0]
            if method == "token_scores":
                self.by_position.add(values, batch.scored)
                values = mean_over(values.double(), batch.scored)
            if not bool(values.isfinite().all()):
                require_own_scores_finite(values, from_nan, method, task, length)
            scores.append(values.cpu())
        if self.ranks.size > 1:
            gathered = self.ranks.gather((scores, self.by_position, self.further))
            scores = [values for own, _, _ in gathered for values in own]
            self.by_position = PositionMeans.sum(means for _, means, _ in gathered)
            self.further = {
                name: [values for *_, own in gathered for values in own.get(name, ())] for name in gathered[0][2]
            }
        return torch.cat(scores).double()

    def forward_parts(self, batch: Batch, positions: Tensor | None) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the logits of the examples in one part, or of very long ones in several parts with a cache."""
        slots = batch.inputs.shape[1]
        if slots <= max(self.batch_tokens, MIN_PART) or not self.can_split:
            yield self.model(batch.inputs, **({} if positions is None else {"positions": positions})), batch
            return
        model: Any = self.model
        cache = model.new_cache(capacity=slots)
        size = max(MIN_PART, self.batch_tokens // 2)  # tables and rotations for all keys take memory, too
        for start in range(0, slots, size):
            self.check_stop()
            columns = slice(start, start + size)
            own_positions = {} if positions is None else {"positions": positions[:, columns]}
            inputs, targets, scored = (x[:, columns] for x in (batch.inputs, batch.targets, batch.scored))
            yield model(inputs, cache=cache, **own_positions), Batch(inputs, targets, scored)

    def details(self) -> dict[str, Any]:
        """Return `Score.details` of the last examples.

        These are mean scores by position if there is more than one range of positions, and the means of the task's
        further scores.
        """
        rows = self.by_position.rows()
        means = {name: float(torch.cat(batches).double().mean()) for name, batches in self.further.items()}
        by_position = {"by_position": rows} if len(rows) > 1 else {}
        return by_position | ({"means": means, "order": list(means)} if means else {})

    def score_answers(
        self, task: AnswerTask, examples: Batch, length: int, scheme: PositionScheme
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return the score of each example from the model's generated answer, and details of the answers."""
        generated, nan_masks = [], []
        for _, batch in self.batches(examples, length):
            answers, has_nan = greedy_decode(self.model, task, batch, length, self.check_stop, scheme)
            generated += answers
            nan_masks.append(has_nan.cpu())
        if self.ranks.size > 1:
            gathered = self.ranks.gather((generated, nan_masks))
            generated = [answer for own, _ in gathered for answer in own]
            nan_masks = [mask for _, own in gathered for mask in own]
        graded: Any = task.grade(generated, examples)
        if not isinstance(graded, GradedAnswers):
            raise wrong_return(task, "grade", "lengthwise.tasks.GradedAnswers", graded)
        has_nan = torch.cat(nan_masks)
        scores = required_scores(graded.scores, "grade", task, examples.targets.shape)
        require_own_scores_finite(scores, has_nan, "grade", task, length)
        return scores.masked_fill(has_nan, math.nan), answer_details(task, generated, examples, graded)
