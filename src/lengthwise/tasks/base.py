"""What a task is: a pure function of (generator, batch size, length), with its own loss and its own score."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from lengthwise.config import ConfigError, near_miss

SPLITS = ("train", "test")
LONGEST = 10**9  # a length beyond any memory; much greater ones are no integers of a tensor


@dataclass(frozen=True)
class Batch:
    """Examples of one length; in training of several, where a task is a given set, or the training set is fixed.

    `targets[b, t]` is what the logits at place `t` should say; `scored` marks the places that count for loss and score.
    """

    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"]
    targets: Int[Tensor, "b t"] | Float[Tensor, "b t"]
    scored: Bool[Tensor, "b t"]

    def __len__(self) -> int:
        return self.targets.shape[0]

    @staticmethod
    def join(batches: "Sequence[Batch]") -> "Batch":
        """The examples of several batches of tokens as one; shorter ones are filled up at the end, where nothing is scored."""
        width = max(batch.targets.shape[1] for batch in batches)
        parts = [(b.inputs, b.targets, b.scored) for b in batches]
        filled = [[pad(part, (0, width - part.shape[1])) for part in parts] for parts in zip(*parts, strict=True)]
        return Batch(*(torch.cat(part) for part in filled))

    def __getitem__(self, part: slice) -> "Batch":
        """Some of the examples, as a batch."""
        return Batch(self.inputs[part], self.targets[part], self.scored[part])

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(*(part.to(device, non_blocking=True) for part in (self.inputs, self.targets, self.scored)))


@dataclass(frozen=True)
class Graded:
    """What answers that a model said are worth.

    `scores`: 1 right, 0 wrong. `details`: further numbers of each example, by name. `unreadable`: which answers are none at
    all (they are wrong). `broken`: which can be read, but not all of the steps before them.
    """

    scores: Float[Tensor, " b"]
    details: dict[str, Tensor]
    unreadable: list[int]
    broken: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A prediction that needs no model, scored on the very examples that models are scored on.

    `scores(batch, lengths)`: the score of each example at each of some lengths, [b, lengths] in the task's metric, or None where it
    says nothing about such examples. `floor`: a model that does no better at the trained length has not learned the task.
    `at_once`: how many examples `scores` is given at once, between two looks at whether to stop (None: all of them, which it has
    to be if they are not predicted one by one). `by_length`: each length costs a fit of its own, where otherwise the longest costs
    as much as all. `fitted_on`: what identifies anything that it knows besides the examples (the hash of a text).
    """

    name: str
    scores: Callable[[Batch, Sequence[int]], Float[Tensor, "b n"] | None]
    floor: bool = False
    at_once: int | None = None
    by_length: bool = False
    fitted_on: str = ""


class Task(ABC):
    """One question to train and test a model on. Subclasses take their settings by keyword, a default for each.

    A docstring of a task says in one sentence what `length` counts and shows a sequence.
    """

    kind: ClassVar[str] = "task"
    version: ClassVar[int] = 1  # counts for a run's key; raise it in the class whenever its examples or scores change
    metric: ClassVar[str]  # "exact match" or "log perplexity"
    better: ClassVar[Literal["higher", "lower"]]
    unit: ClassVar[str]  # what `length` counts: "bytes", "symbols"
    per_token: ClassVar[bool]  # scored by token: an evaluation fills a number of tokens, not of examples
    excluded_from_key: ClassVar[tuple[str, ...]] = ()  # settings that do not count for a run's key
    without: ClassVar[dict[str, str]] = {  # settings that other tasks have, and what to say where one is given to this
        "scratchpad": "has no scratchpad; the tasks that have one are: Addition, Summation, Parity, Polynomial, Sorting, LEGO"
    }
    decodes: bool = False  # scored by what the model says token by token (`AnsweringTask`), not by one forward

    vocab_size: int | None
    output_size: int
    input_width: int | None = None
    curriculum_dims: int | None = None  # coordinates of the inputs that a curriculum may open one by one; None: none

    @abstractmethod
    def tokens(self, length: int) -> int:
        """Places in the sequences of that length; the most, where they differ in it."""

    @abstractmethod
    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        """`batch` examples; the same state of the generator gives the same batch on every machine."""

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        """The examples an evaluation asks for: a function of the arguments alone.

        At most `count`: fewer where fewer exist, whether `available` knows it or not, so that no example is counted twice as if
        it were two.
        """
        return self.sample(generator(seed, split, length), count, length, split)

    def training_batch(
        self, generator: torch.Generator, batch: int, shortest: int, longest: int, *, dims: int | None = None
    ) -> Batch:
        """A training step's examples: all of one length, drawn uniformly from `shortest ... longest`.

        A task whose examples are a given set overrides this, where the set says how frequent a length is; one with
        `curriculum_dims` is told how many of them are open.
        """
        length = shortest
        if shortest < longest:
            length = int(torch.randint(shortest, longest + 1, (), generator=generator))
        return self.sample(generator, batch, length, "train")

    def fixed_examples(self, seed: int, numbers: Sequence[int], shortest: int, longest: int) -> Batch:
        """The examples with these numbers (0, 1, 2, ...) of a fixed training set, each a function of the task, `seed` and its
        number alone: nothing is stored.

        They are drawn as fresh ones are, the lengths `shortest ... longest` in turn, so all are equally frequent. Where a length
        has few questions, some have several numbers. A task that is a given set overrides this: its own examples are numbered.
        """
        lengths = [shortest + n % (longest - shortest + 1) for n in numbers]
        return Batch.join(
            [self.sample(generator(seed, "fixed", n), 1, at) for n, at in zip(numbers, lengths, strict=True)]
        )

    def available(self, length: int, split: str = "test") -> int | None:
        """How many different examples there are; None: more than are worth counting before they are asked for."""
        return None

    def loss(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, ""]:
        """Mean nats over the scored places of the whole batch, in float32."""
        targets = batch.targets.masked_fill(~batch.scored, -100)
        return cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-100)

    @abstractmethod
    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        """One float64 per example, in the words of `metric`."""

    def answer_mask(self, batch: Batch) -> Bool[Tensor, "b t"]:
        """The scored places whose logits say the answer itself. A task whose answers show their work first leaves the work
        out."""
        return batch.scored

    def baselines(self) -> Sequence[Baseline]:
        """What is scored beside every model, in the order in which it is shown; of those that are floors the simplest first.

        `ConfigError` for one that cannot be worked out here. Called before anything is trained, so it fits nothing yet.
        """
        return ()

    @abstractmethod
    def render(self, batch: Batch) -> list[dict[str, Any]]:
        """Each example for people to read: {"input": str, "target": str, "length": int}."""

    def provenance(self) -> dict[str, str | int]:
        """What has to be known about the data, beyond the settings, to find it again."""
        return {}

    @abstractmethod
    def check_length(self, length: int, split: str = "test") -> None:
        """Raise `ConfigError` when no example of that length can exist."""

    def note(self, length: int, found: int | None = None) -> str | None:
        """A sentence that belongs beside the scores of this length, if there is one. `found`: how many examples there were, where
        they were fewer than were asked for."""
        return None

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Raise `ConfigError` for settings that cannot be; may complete them (see `config.choose`)."""
        return settings


class AnsweringTask(Task):
    """A task whose examples end in an answer that a model can say token by token, and that is graded as it was said."""

    @abstractmethod
    def answer_tokens(self, length: int) -> int:
        """The most tokens of an answer of that length, the one that ends it included."""

    @property
    @abstractmethod
    def stop(self) -> int:
        """The token that ends an answer."""

    @abstractmethod
    def answer_words(self, tokens: list[int]) -> list[str]:
        """The words of an answer that a model said, whatever its tokens are; never an error."""

    @abstractmethod
    def grade(self, generated: list[list[str]], batch: Batch) -> Graded:
        """Answers that a model said to the questions of a batch; bad ones are wrong and never an error."""


class PrefixTask(Task):
    """A task whose sequences of one length hold those of every shorter one: the model answers at every length on its way.

    `length` n is scored at the n-th answer of a sequence, and an evaluation scores many lengths by one forward of the longest.
    """

    @abstractmethod
    def curve(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b n"]:
        """The score at every length up to the batch's, float64: column n - 1 is that of length n."""

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        return self.curve(logits, batch)[:, -1]

    def one_forward(self) -> bool:
        """Whether the prefixes of a long test sequence are the test sequences of a shorter length. Where the last answer is
        asked for in another way than those before it, they are not, and every length has a forward of its own."""
        return True


def require_split(split: str) -> None:
    if split not in SPLITS:
        raise ConfigError(f"there is no split {split!r}{near_miss(str(split), SPLITS)}; there are: {', '.join(SPLITS)}")


def require_length(length: int, unit: str) -> None:
    if length < 1:
        raise ConfigError(f"a length of {length} {unit} cannot be; it has to be at least 1")
    if length > LONGEST:
        raise ConfigError(
            f"a length of {length} {unit} cannot be; it has to be at most {LONGEST:,}, and memory ends before"
        )


def mean_nats(logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
    """Log perplexity of each example: mean nats per scored token, the mean taken in float64."""
    nats = cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(), reduction="none")
    nats = nats.view(batch.targets.shape).double() * batch.scored
    return nats.sum(1) / batch.scored.sum(1)


def exact_match(logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
    """1 where every scored target is the argmax under teacher forcing, else 0.

    That equals an exact match under greedy decoding: up to the first mistake both see the same prefix. NaN where a
    scored place has a logit that is not a number: such a model says nothing, right or wrong.
    """
    best = logits.max(-1)
    right = ((best.indices == batch.targets) | ~batch.scored).all(1).double()
    return right.masked_fill((best.values.isnan() & batch.scored).any(1), torch.nan)


def generator(*parts: int | str) -> torch.Generator:
    """A CPU generator seeded by the SHA-256 of its parts: `generator(seed, "train", step)`.

    The parts keep their borders and types: (1, 23), (12, 3) and ("1", 23) are three different streams. torch's CPU
    engine takes 32 bits of a seed, so among a million streams about a hundred pairs are equal: harmless for batches,
    too few for anything that must never repeat.
    """
    for part in parts:
        if not isinstance(part, (int, str)) or isinstance(part, bool):
            raise TypeError(f"a generator's parts are ints and strings, not {part!r}")
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    made = torch.Generator()
    made.manual_seed(int.from_bytes(digest[:4], "big"))
    return made
