"""The interface of tasks: examples as a pure function of (generator, batch size, length), a loss and a score."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from lengthwise.config import CheckedArguments, ConfigError, Registry, near_miss
from lengthwise.corpora.tokenizers import Tokenizer
from lengthwise.metrics import Metric
from lengthwise.tasks.places import Coordinates, Coupling

SPLITS = ("train", "test")
MAX_LENGTH = 10**9  # more than any memory holds; much larger lengths do not fit into a tensor's integers


@dataclass(frozen=True)
class Batch:
    """Examples as tensors: inputs, targets, and a mask of the targets that count for loss and score.

    `targets[b, t]` is the correct prediction at token slot t, and `scored[b, t]` says whether it counts. All examples
    have one length, except in training batches of a finite set of questions or of a fixed training set.
    """

    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"]
    targets: Int[Tensor, "b t"] | Float[Tensor, "b t"]
    scored: Bool[Tensor, "b t"]

    def __len__(self) -> int:
        return self.targets.shape[0]

    @staticmethod
    def join(batches: "Sequence[Batch]") -> "Batch":
        """Concatenate batches of tokens; shorter examples are padded at the end with slots that are not scored."""
        width = max(batch.targets.shape[1] for batch in batches)
        fields = zip(*[(b.inputs, b.targets, b.scored) for b in batches], strict=True)
        padded = [[pad(tensor, (0, width - tensor.shape[1])) for tensor in tensors] for tensors in fields]
        return Batch(*(torch.cat(tensors) for tensors in padded))

    def __getitem__(self, rows: slice) -> Self:
        """Return a part of the examples as a batch."""
        return self.map(lambda tensor: tensor[rows])

    def to(self, device: torch.device | str) -> Self:
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a batch with all tensors changed."""
        fields = {name: change(x) if isinstance(x, Tensor) else x for name, x in vars(self).items()}
        return type(self)(**fields)


@dataclass(frozen=True)
class GradedAnswers:
    """Grades of the answers that a model generated.

    `scores`: 1 for a correct answer, 0 for a wrong one; or other numbers whose mean is the score in the task's metric.
    `details`: further numbers for each example, by name. `unreadable`: indices of examples without a readable answer
    (they score 0).
    `unreadable_steps`: indices of examples with a readable answer, but with steps before it that cannot be read.
    """

    scores: Float[Tensor, " b"]
    details: dict[str, Tensor]
    unreadable: list[int]
    unreadable_steps: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A prediction without a model, scored on the same examples as the models.

    `scores(batch, lengths)` returns the score of each example at each length, [b, lengths], in the task's metric, or
    None if the baseline makes no prediction for these examples.
    `floor`: a model that scores no better at the training length has not learned the task.
    `examples_per_call`: how many examples `scores` gets in one call; evaluation can stop between two calls. None means
    all examples at once, which is necessary if the prediction for one example depends on the others.
    `fit_per_length`: every length needs a fit of its own; otherwise the longest length costs as much as all of them.
    `fitted_on`: identifies what the baseline knows apart from the examples, such as the hash of a training text.
    """

    name: str
    scores: Callable[[Batch, Sequence[int]], Float[Tensor, "b n"] | None]
    floor: bool = False
    examples_per_call: int | None = None
    fit_per_length: bool = False
    fitted_on: str = ""


class Task(CheckedArguments):
    """A problem to train and test models on. Subclasses take their settings as keyword arguments with defaults.

    The docstring of a task says in its first sentences what `length` counts, and shows an example.
    """

    kind: ClassVar[str] = "task"
    version: ClassVar[int] = 1  # part of a run's key; raise it in the class whenever its examples or scores change
    metric: ClassVar[Metric]  # an instance may replace it (see `metric_of`)
    unit: ClassVar[str]  # what `length` counts: "bytes", "symbols"; an instance may replace it (see `unit_of`)
    per_token: ClassVar[bool]  # an evaluation takes a number of tokens, not of examples
    class_attributes: ClassVar[dict[str, type]] = {"metric": Metric, "unit": str, "per_token": bool}  # required ones
    excluded_from_key: ClassVar[tuple[str, ...]] = ()  # settings that are not part of a run's key
    omitted_defaults: ClassVar[tuple[str, ...]] = ()  # settings newer than stored runs: see `Choice.to_data`
    settings_of_others: ClassVar[tuple[str, ...]] = ("scratchpad",)  # an error message names the tasks that have them
    length_step: ClassVar[int] = 1  # the difference of consecutive lengths that have examples
    decodes: bool = False  # scored by generating answers token by token, not by one forward pass

    vocab_size: int | None
    output_size: int
    text_tokenizer: Tokenizer | None = None  # of a task on texts
    tokenizer_sha256: str = ""  # of the tokenizer that gives token IDs their meaning, if it was trained
    input_width: int | None = None
    curriculum_dims: int | None = None  # input coordinates that a curriculum can open one by one; None if it cannot

    @classmethod
    def unit_of(cls, settings: Mapping[str, Any]) -> str:
        """Return what `length` counts with these settings, without creating the task."""
        return cls.unit

    @classmethod
    def metric_of(cls, settings: Mapping[str, Any]) -> Metric:
        """Return what scores measure with these settings, without creating the task."""
        return cls.metric

    @abstractmethod
    def tokens(self, length: int) -> int:
        """Return the number of token slots of an example of this length; if examples differ, the largest number."""

    @abstractmethod
    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        """Draw `batch` examples. Equal generator states give equal batches on every machine, up to rounding."""

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        """Return the examples of an evaluation, which depend on the arguments alone.

        Returns fewer than `count` examples if fewer exist, also where `available` does not know the number. So no
        example counts twice.
        """
        return self.sample(generator(seed, split, length), count, length, split)

    def training_batch(
        self, generator: torch.Generator, batch: int, shortest: int, longest: int, *, dims: int | None = None
    ) -> Batch:
        """Draw the examples of a training step, all of one length that is uniform in `shortest ... longest`.

        A task with a finite set of examples overrides this: there the set determines how frequent each length is.
        `dims`: for tasks with `curriculum_dims`, how many coordinates are open.
        """
        lengths = range(shortest, longest + 1, self.length_step)
        n = int(torch.randint(len(lengths), (), generator=generator)) if len(lengths) > 1 else 0
        return self.sample(generator, batch, lengths[n], "train")

    def fixed_examples(self, seed: int, numbers: Sequence[int], shortest: int, longest: int) -> Batch:
        """Return the examples with these numbers (0, 1, 2, ...) of a fixed training set.

        Nothing is stored: each example depends only on the task, `seed` and its number. Examples are drawn like fresh
        ones; the lengths `shortest ... longest` alternate, so all are equally frequent. If a length has few questions,
        some questions appear under several numbers. A task with a finite set of examples overrides this and numbers its
        own examples.
        """
        lengths = range(shortest, longest + 1, self.length_step)
        return Batch.join([self.sample(generator(seed, "fixed", n), 1, lengths[n % len(lengths)]) for n in numbers])

    def num_examples(self, tokens: int, length: int) -> int:
        """Return how many examples an evaluation of about `tokens` token slots takes, for tasks `per_token`."""
        return max(1, -(-tokens // self.tokens(length)))

    def available(self, length: int, split: str = "test") -> int | None:
        """Return the number of different examples, or None if there are too many to count in advance."""
        return None

    def loss(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, ""]:
        """Return the cross-entropy in nats, the mean over all scored slots of the batch, in float32."""
        targets = batch.targets.masked_fill(~batch.scored, -100)
        return cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-100)

    @abstractmethod
    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        """Return one float64 score per example, in the task's `metric`."""

    def further_scores(self, logits: Float[Tensor, "b t v"], batch: Batch) -> dict[str, Float[Tensor, " b"]]:
        """Return further numbers of each example by name, float64. Their means are stored beside the score."""
        return {}

    def token_scores(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b t"]:
        """Return the score of every target, float64, if `score` is its mean over the scored targets.

        A task that has this method can be evaluated on examples that are too long for one forward pass, part by part,
        and its scores are also stored by position.
        """
        raise NotImplementedError(f"the score of {type(self).__name__} is not a mean over targets")

    @classmethod
    def has_token_scores(cls) -> bool:
        """Return whether the task defines `token_scores`."""
        return cls.token_scores is not Task.token_scores

    def token_words(self) -> Sequence[str] | None:
        """Return the word of each token ID, or None if a text is more than such words with spaces between them."""
        return None

    def answer_mask(self, batch: Batch) -> Bool[Tensor, "b t"]:
        """Return a mask of the scored slots that predict the answer itself, without the steps of a scratchpad."""
        return batch.scored

    def coupling(self) -> Coupling:
        """Return which tokens of an example share a position ID under the position scheme `Coupled`.

        Raises `ConfigError` if the task does not say so with these settings.
        """
        raise ConfigError(
            f"{type(self).__name__} does not say which of its tokens share a position; use another position scheme, or "
            f"one of these tasks: {_tasks_that_define('coupling')}"
        )

    def coordinates(self) -> Coordinates:
        """Return where the tokens of an example lie, for the position scheme `Grid`.

        Raises `ConfigError` if the task does not say so.
        """
        raise ConfigError(
            f"{type(self).__name__} does not give its tokens coordinates; use another position scheme, or one of these "
            f"tasks: {_tasks_that_define('coordinates')}"
        )

    def baselines(self) -> Sequence[Baseline]:
        """Return the baselines that are scored beside every model, in display order; among floors the simplest comes
        first.

        Called before training, so it does not fit anything yet. Raises `ConfigError` for a baseline that cannot be
        computed on this machine.
        """
        return ()

    @abstractmethod
    def render(self, batch: Batch) -> list[dict[str, Any]]:
        """Return each example as readable text: {"input": str, "target": str, "length": int}."""

    def provenance(self) -> dict[str, str | int]:
        """Return facts beyond the settings that identify the data."""
        return {}

    def check_length(self, length: int, split: str = "test") -> None:
        """Raise `ConfigError` if no example of this length can exist."""
        if split not in SPLITS:
            near = near_miss(str(split), SPLITS)
            raise ConfigError(f"there is no split {split!r}{near}; available: {', '.join(SPLITS)}")
        if length < 1:
            raise ConfigError(f"length must be at least 1, got {length} {self.unit}")
        if length > MAX_LENGTH:
            raise ConfigError(
                f"length must be at most {MAX_LENGTH:,}, got {length} {self.unit}; longer sequences do not fit into "
                "memory"
            )

    def note(self, length: int, num_examples: int | None = None) -> str | None:
        """Return a remark to show beside the scores of this length, or None.

        `num_examples`: the number of examples that exist, if that is fewer than were requested.
        """
        return None

    @classmethod
    def changed(cls, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a test that differs from training in `changes`."""
        return {**settings, **changes}

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Raise `ConfigError` for invalid settings. May return completed settings (see `config.choose`)."""
        return settings


def _tasks_that_define(method: str) -> str:
    """Return the names of the tasks in the list that override a method which raises an error in `Task`."""
    makes = [make for make in Registry.by_kind[Task.kind] if getattr(make, method) is not getattr(Task, method)]
    return ", ".join(make.__name__ for make in makes)


class PrefixTask(Task):
    """A task whose examples contain the examples of every shorter length as prefixes.

    The score at length n is that of the n-th answer in a sequence, so one forward pass of the longest length scores all
    lengths.
    """

    @abstractmethod
    def curve(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b n"]:
        """Return the scores at every length up to the batch's, float64: column n - 1 holds length n."""

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        return self.curve(logits, batch)[:, -1]

    def prefixes_are_examples(self) -> bool:
        """Return whether the prefixes of a long test sequence are themselves test sequences of the shorter lengths.

        They are not if the last question of a sequence differs in kind from those before it. Then every length needs a
        forward pass of its own.
        """
        return True


class AnswerTask(Task):
    """A task whose examples are a prompt and an answer. The scored targets of a batch are the answer and its end.

    An evaluation by decoding passes the prompt to the model, up to and including the slot that predicts the first token
    of the answer. It generates tokens until `eos`, or as many as `answer_tokens` allows, and lets the task grade them.
    """

    eos: int  # the token that ends an answer

    @abstractmethod
    def answer_tokens(self, length: int) -> int:
        """Return the largest number of tokens in an answer of this length, including the end token."""

    @abstractmethod
    def answer_words(self, tokens: Sequence[int]) -> list[str]:
        """Return any generated tokens up to EOS as words, which `grade` receives. A text may be a single word."""

    @abstractmethod
    def grade(self, generated: list[list[str]], batch: Batch) -> GradedAnswers:
        """Grade generated answers to the questions of a batch."""


class PooledTask(Task):
    """A task with one score for all examples of an evaluation together, such as an F1, which is no mean over them."""

    @abstractmethod
    def counts(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b k"]:
        """Return the numbers of each example that the score is computed from, float64."""

    @abstractmethod
    def pooled(self, counts: Float[Tensor, "b k"]) -> tuple[Float[Tensor, " b"], dict[str, float]]:
        """Return a number for each example, whose mean is the score, and further scores by name.

        A number is the score plus the first-order influence of its example (the delta method), so it may lie beyond the
        limits of the metric.
        """

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        return self.pooled(self.counts(logits, batch))[0]


def nats(logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b t"]:
    """Return the cross-entropy of each target in nats, float64."""
    values = cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(), reduction="none")
    return values.view(batch.targets.shape).double()


def mean_over(values: Float[Tensor, "b t"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, " b"]:
    """Return the mean over the slots of each example that are in the mask."""
    return (values * mask).sum(1) / mask.sum(1)


def mean_nats(logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
    """Return the cross-entropy of each example in nats per scored token; the mean is taken in float64."""
    return mean_over(nats(logits, batch), batch.scored)


def exact_match(logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
    """Return 1 for each example whose scored targets are all the argmax under teacher forcing, else 0.

    This equals an exact match under greedy decoding, because up to the first mistake both see the same prefix. The
    score is NaN if any scored slot has a NaN logit, since such a model predicts nothing.
    """
    best = logits.max(-1)
    correct = ((best.indices == batch.targets) | ~batch.scored).all(1).double()
    return correct.masked_fill((best.values.isnan() & batch.scored).any(1), torch.nan)


def generator(*seed: int | str) -> torch.Generator:
    """Return a CPU generator that is seeded by the SHA-256 of `seed`, as in `generator(seed, "train", step)`.

    The boundaries and types of its values count: (1, 23), (12, 3) and ("1", 23) are three different streams. torch's
    CPU engine uses 32 bits of a seed, so among a million streams about a hundred pairs are equal. That is harmless for
    batches, but not for anything that must never repeat.
    """
    for value in seed:
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            raise TypeError(f"the values of a generator's seed must be ints and strings, got {value!r}")
    digest = hashlib.sha256(json.dumps(seed).encode()).digest()
    seeded = torch.Generator()
    seeded.manual_seed(int.from_bytes(digest[:4], "big"))
    return seeded


def same_tokenizer(one: Task, other: Task) -> bool:
    """Return whether token IDs mean the same text in both tasks, as far as trained tokenizers define it."""
    return not (one.tokenizer_sha256 and other.tokenizer_sha256) or one.tokenizer_sha256 == other.tokenizer_sha256
