"""Scores of a model at many lengths: one forward per example, or, where a task grades what is said, greedy decoding."""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.config import Choice, ConfigError, EvaluationConfig, Run, choose
from lengthwise.evaluation.decoding import decodable, detailed, greedy_decode
from lengthwise.evaluation.untrained import baseline_scores, stored
from lengthwise.positions import PositionScheme, position_scheme_for
from lengthwise.tasks.base import AnsweringTask, Batch, Graded, PrefixTask, Task, generator
from lengthwise.training.numerics import reproducible
from lengthwise.training.progress import Pace, Progress, Reporter, Stopped

MORE = 4  # a step of decoding works on one place of each example only, and the more examples the less a place costs


GROUPS = 40  # of examples, whose means are kept beside the score at one length of many


class EvaluationError(ValueError):
    """A score that cannot be used. One line: at which length, why, what to do."""


@dataclass(frozen=True)
class Score:
    """What a model does at one length."""

    length: int  # in the task's unit
    metric: str
    better: str  # "higher" or "lower"
    n: int  # examples scored
    mean: float
    standard_error: float | None  # of the mean, over examples; None for a single one
    out_of_distribution: bool  # longer than anything in training
    seconds: float
    asked: dict[str, Any]  # the question, see `asked`
    # What the task's "baselines" score on the same examples: {"name", "score", "floor"}, in the task's order. Of decoded answers:
    # "means" of further numbers by name, how many were "unreadable", some of those "kept", and of others some with steps that
    # cannot be read ("broken"). Of prefixes: the means of "groups" of examples.
    details: dict[str, Any] = field(default_factory=dict)


Shift = Mapping[str, Any]
"""Settings of the task in which a test differs from what was trained; none: as it was trained."""


def asked(
    task: Task | type[Task], config: EvaluationConfig, length: int, shift: Shift = MappingProxyType({})
) -> dict[str, Any]:
    """What identifies the question at one length: a question that has its answer is not asked again."""
    amount = {"tokens": config.tokens} if task.per_token else {"examples": config.examples}
    question: dict[str, Any] = {"length": length, **amount, "seed": config.seed}
    if _has_prefixes(task):
        question["prompt"] = _prompt(config)
    return question | ({"shift": dict(shift)} if shift else {})


def questions(make: type[Task], config: EvaluationConfig) -> list[dict[str, Any]]:
    """All that is asked of a run: every length, of the task as it was trained and of every shift."""
    shifts: list[Shift] = [{}, *config.shifts]
    return [asked(make, config, length, shift) for shift in shifts for length in config.lengths]


def together(questions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[EvaluationConfig, dict[str, Any]]]:
    """The questions as evaluations, each with its shift: those that one forward answers are one, all others one by one."""
    grouped: dict[str, list[int]] = {}
    for question in questions:
        rest = json.dumps({k: v for k, v in question.items() if k != "length"}, sort_keys=True)
        if "prompt" not in question:
            rest += f" {question['length']}"
        grouped.setdefault(rest, []).append(question["length"])
    for rest, lengths in grouped.items():
        settings, _ = json.JSONDecoder().raw_decode(rest)
        shift = settings.pop("shift", {})
        yield EvaluationConfig(lengths=tuple(lengths), **settings), shift


def shifted(task: Choice, shift: Shift) -> Choice:
    """The task of a test: as it was trained, but for the settings of `shift`. `ConfigError` where there is no such task."""
    changed = choose(task.make, **{**dict(task.settings), **shift})
    if changed == task:
        raise ConfigError(f"the shift {dict(shift)} changes nothing: the task as it was trained is {task.label}")
    return changed


def check_lengths(run: Run, lengths: Iterable[int], shifts: Iterable[Shift] = (), prompt: int | None = None) -> None:
    """Raise `ConfigError` for the first length that the run's task, position scheme or encoding does not support, and for a
    shift that the task does not have. `prompt`: the length of the prompt of a task with prefixes. Builds no model."""
    task: Task = run.task.build()
    lengths = list(lengths)
    if prompt is not None and not isinstance(task, PrefixTask):
        raise ConfigError(
            f"prompt is {prompt}, and {run.task.name} has no prompts whose prefixes are its lengths; leave prompt out"
        )
    for changed in (task, *(shifted(run.task, shift).build() for shift in shifts)):
        read = [prompt] if prompt and isinstance(changed, PrefixTask) and changed.one_forward() else []
        every = dict.fromkeys([*lengths, *read])
        _check(changed, encodings_of(run, task), position_scheme_for(task, run.training.positions), every, task.decodes)
        if changed.input_width != task.input_width:
            raise ConfigError(
                f"a shift makes inputs {changed.input_width} wide, and the model reads {task.input_width}; leave the width as it is"
            )


def encodings_of(run: Run, task: Task) -> list[Any]:
    """One instance of every encoding that the run's model has."""
    context = {"num_heads": run.model.num_heads, "head_dim": run.model.head_dim, "d_model": run.model.d_model}
    train_length = task.tokens(run.training.train_length)
    return [choice.build(**context, train_length=train_length) for choice in dict.fromkeys(run.encoding.layers)]


def evaluate(
    model: nn.Module,
    task: Task,
    config: EvaluationConfig,
    *,
    lengths: Iterable[int] | None = None,
    train_length: int,
    positions: Choice | None = None,
    shift: Shift = MappingProxyType({}),
    batch_tokens: int = 16_384,
    decode: bool | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> list[Score]:
    """Score `model` at each of `lengths` (those of `config` when None), in the order given.

    The examples of a length depend on the task, the config and the length alone: not on the other lengths, nor on
    `batch_tokens` (places per forward), which changes a score by float rounding at most. Always in float32.
    `positions`: the position scheme of the run's training (`run.training.positions`); the positions that it draws for a
    length depend only on the config's seed and that length.
    `shift`: the settings in which `task` differs from what was trained; it is part of the question.
    Of a task with prefixes one forward of `config.prompt` scores all lengths.
    `decode`: whether the model says its answers token by token, greedily and with the key-value cache (of up to
    4 `batch_tokens` places), and the task grades them; None: as the task has it (`task.decodes`). For an exact match of the
    whole answer one forward says the same, much faster.

    Raises `ConfigError` before any forward for a length that the task, the position scheme or the encoding cannot do;
    `EvaluationError` for a score that is not a number; `Stopped` when `should_stop` says so, which is asked before every
    forward.
    """
    wanted = list(config.lengths if lengths is None else lengths)
    if batch_tokens < 1:
        raise ConfigError(f"batch_tokens is {batch_tokens}; it has to be at least 1")
    scheme = position_scheme_for(task, positions)
    decode = task.decodes if decode is None else decode
    at_once = wanted
    if isinstance(task, PrefixTask):
        config = dataclasses.replace(config, prompt=max(_prompt(config), *wanted))
        at_once = [_prompt(config)] if task.one_forward() else wanted
    encodings = [m for m in model.modules() if getattr(m, "kind", None) == "encoding"]
    _check(task, encodings, scheme, dict.fromkeys([*wanted, *at_once]), decode)
    device = next(model.parameters()).device
    counts = {length: _count(task, config, length) for length in at_once}
    work = _Work(task, counts, batch_tokens * (MORE if decode else 1), Reporter(on_progress), should_stop)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), reproducible(device):
            begin, found = time.perf_counter(), []
            for length in at_once:
                examples = task.examples(config.seed, work.counts[length], length, "test")
                work.found(length, len(examples))
                if decode:
                    of_length = {length: _decoded(model, decodable(task, scheme), examples, work, length, device)}
                else:
                    of_length = _read(model, task, examples, scheme, config, work, length, device, wanted)
                beside = baseline_scores(task, examples, list(of_length), partial(work.before, length))
                seconds, begin = time.perf_counter() - begin, time.perf_counter()
                for answered, (values, details) in of_length.items():
                    question, each = asked(task, config, answered, shift), seconds / len(of_length)
                    own = stored(task, beside, answered)
                    details |= {"baselines": own} if own else {}
                    found.append(_score(task, question, values, details, answered > train_length, each))
            return found
    finally:
        model.train(was_training)


def _score(
    task: Task, question: dict[str, Any], values: Tensor, details: dict[str, Any], new: bool, seconds: float
) -> Score:
    n, length = len(values), question["length"]
    if not bool(values.isfinite().all()):
        bad = int((~values.isfinite()).sum())
        raise EvaluationError(
            f"at length {length} the {task.metric} of {bad} of {n} examples is not a finite number: the "
            "model's logits overflow there; leave this length out, or look at the encoding's numbers"
        )
    return Score(
        length=length,
        metric=task.metric,
        better=task.better,
        n=n,
        mean=float(values.mean()),
        standard_error=float(values.std()) / math.sqrt(n) if n > 1 else None,
        out_of_distribution=new,
        seconds=seconds,
        asked=question,
        details=details,
    )


def _read(
    model: nn.Module,
    task: Task,
    examples: Batch,
    scheme: PositionScheme,
    config: EvaluationConfig,
    work: "_Work",
    length: int,
    device: torch.device,
    wanted: list[int],
) -> dict[int, tuple[Tensor, dict[str, Any]]]:
    """The score of each example by one forward; of a task with prefixes at every length that is wanted, with the means of
    groups of sequences, which are the same sequences at every length."""
    # Of all examples, however they are cut into forwards.
    drawn = scheme.positions(examples.inputs, None, generator(config.seed, "layout", length), training=False)
    scores = []
    for cut in work.cuts(length, len(examples)):
        positions = None if drawn is None else drawn[cut].to(device)
        scores.append(_forward(model, task, examples[cut].to(device), positions, work, length).cpu())
    values = torch.cat(scores).double()
    if not isinstance(task, PrefixTask):
        return {length: (values, {})}
    answered = wanted if task.one_forward() else [length]
    return {n: (values[:, n - 1], _grouped(values[:, n - 1])) for n in answered}


def _grouped(values: Tensor) -> dict[str, list[float]]:
    """The means of equal groups of examples (their sizes differ by one at most): what a bootstrap over examples needs."""
    return {"groups": [float(f"{float(part.mean()):.6g}") for part in values.tensor_split(min(GROUPS, len(values)))]}


def _decoded(
    model: nn.Module, task: AnsweringTask, examples: Batch, work: "_Work", length: int, device: torch.device
) -> tuple[Tensor, dict[str, Any]]:
    """The score of each example by what the model says, and what else there is to say about it."""
    said, nan = [], []
    for cut in work.cuts(length, len(examples)):
        work.before(length)
        words, bad = greedy_decode(model, task, examples[cut].to(device), length, lambda: work.before(length))
        said += words
        nan.append(bad.cpu())
        work.after(length, len(words))
    graded: Graded = task.grade(said, examples)
    return graded.scores.masked_fill(torch.cat(nan), math.nan), detailed(task, said, examples, graded)


def _forward(
    model: nn.Module, task: Task, batch: Batch, positions: Tensor | None, work: "_Work", length: int
) -> Tensor:
    work.before(length)
    logits = model(batch.inputs) if positions is None else model(batch.inputs, positions=positions)
    scores = task.curve(logits, batch) if isinstance(task, PrefixTask) else task.score(logits, batch)
    work.after(length, len(batch))
    return scores


class _Work:
    """How much there is to do, how much is done, and who wants to know."""

    def __init__(
        self,
        task: Task,
        counts: dict[int, int],
        batch_tokens: int,
        reporter: Reporter,
        should_stop: Callable[[], bool] | None,
    ):
        self.counts, self.reporter, self.should_stop = counts, reporter, should_stop
        self.places = {length: task.tokens(length) for length in counts}
        self.batch_tokens = batch_tokens
        self.forwards = {length: -(-n // self.size(length)) for length, n in counts.items()}
        self.done = self.done_places = 0
        self.pace = Pace(0, self.total_places)

    @property
    def total_places(self) -> int:
        return sum(n * self.places[length] for length, n in self.counts.items())

    def found(self, length: int, examples: int) -> None:
        """There are so many examples: fewer than the task knew (`Task.examples`), perhaps."""
        self.counts[length] = examples
        self.forwards[length] = -(-examples // self.size(length))
        self.pace.total = self.total_places

    def size(self, length: int) -> int:
        """Examples per forward."""
        return max(1, self.batch_tokens // self.places[length])

    def cuts(self, length: int, examples: int) -> list[slice]:
        """So many examples, cut into forwards."""
        size = self.size(length)
        return [slice(n, n + size) for n in range(0, examples, size)]

    def before(self, length: int) -> None:
        if self.should_stop is not None and self.should_stop():
            raise Stopped("evaluate", self.done, sum(self.forwards.values()))

    def after(self, length: int, examples: int) -> None:
        self.done += 1
        self.done_places += examples * self.places[length]
        total = sum(self.forwards.values())
        if self.reporter.due(last=self.done == total):
            eta = self.pace.update(self.done_places)
            rate = (total - self.done) / eta if eta else 0.0
            self.reporter.tell(Progress("evaluate", self.done, total, None, rate, eta, length))


def _has_prefixes(task: Task | type[Task]) -> bool:
    return issubclass(task if isinstance(task, type) else type(task), PrefixTask)


def _prompt(config: EvaluationConfig) -> int:
    """The length of the sequences whose prefixes are the lengths."""
    return config.prompt or max(config.lengths)


def _count(task: Task, config: EvaluationConfig, length: int) -> int:
    """Examples to score at one length: as many as are asked for, or as there are."""
    count = max(1, -(-config.tokens // task.tokens(length))) if task.per_token else config.examples
    available = task.available(length, "test")
    return count if available is None else min(count, available)


def _check(task: Task, encodings: Iterable[Any], scheme: PositionScheme, lengths: Iterable[int], decode: bool) -> None:
    encodings = list(encodings)
    if decode:
        decodable(task, scheme)
    task.baselines()  # one that cannot be worked out here is refused now
    for length in lengths:
        task.check_length(length, "test")
        scheme.require(task.tokens(length), training=False)
        places = scheme.num_positions(task.tokens(length), training=False)
        for encoding in encodings:
            if encoding.max_length is not None and places > encoding.max_length:
                named = "" if places == task.tokens(length) else f" with {type(scheme).__name__}"
                raise ConfigError(
                    f"length {length} {task.unit} needs {places} positions{named}, and {type(encoding).__name__} has "
                    f"{encoding.max_length}; give it a larger max_length, or leave this length out"
                )
