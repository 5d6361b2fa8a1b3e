"""The base classes of the tasks of the Chomsky hierarchy: lengths that exist, accuracy per token, and its baseline."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.metrics import TOKEN_ACCURACY
from lengthwise.tasks.base import Baseline, Batch, GradedAnswers, exact_match, mean_over
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask, combinations

Level = Literal["regular", "context-free", "context-sensitive"]
BITS = ("0", "1")
MODULUS = 5
RESIDUES = tuple(map(str, range(MODULUS)))
PLUS, MINUS, TIMES = "+", "-", "*"


class ChomskyTask(SequenceTask):
    """A task of Delétang et al. 2023. `length` counts the symbols of the question.

    `level`: the level of the Chomsky hierarchy that the paper assigns: regular (a finite automaton solves the task),
    context-free (an automaton with a stack), or context-sensitive (one with a tape of limited length).
    `shortest`: the lengths with examples are `shortest`, `shortest + length_step`, ...

    The score is the share of answer tokens that are correct under teacher forcing: each is predicted after the correct
    tokens before it. If the length of the question does not determine that of the answer (`scores_end`), EOS counts as
    a token of the answer, as the end symbol of the paper does. Exact matches of the whole answer and EOS are stored
    beside the score.

    The baseline `most frequent token` is the floor: it predicts the token that follows the previous token of the answer
    most often in the test examples of a length. So it knows what teacher forcing gives away. The paper calls a task
    solved if the mean accuracy over lengths 41 ... 500 is at least 0.9.

    Source: Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy".
    Code: google-deepmind/neural_networks_chomsky_hierarchy, tasks.
    Differs: their models predict all tokens of an answer at once, at empty tokens after the question. So on answers of
    several tokens our accuracy is the higher one (the previous token of a sorted sequence nearly determines the next
    one). Their mean is one over all tokens, ours one over examples. They train and test on the same distribution
    without a test split. At lengths with at most 4,096 questions, ours are uniform over all of them.
    """

    metric = TOKEN_ACCURACY
    unit = "symbols"
    level: ClassVar[Level]
    shortest: ClassVar[int] = 1
    scores_end: ClassVar[bool] = False

    def longest_answer(self, length: int) -> int:
        """Return the largest number of words in an answer."""
        return 1

    def widths(self, length: int) -> tuple[int, int]:
        return length, self.longest_answer(length)

    def length_of(self, question: Sequence[str], answer: Sequence[str]) -> int:
        return len(question)

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(max(length, 1), split)
        if length < self.shortest or (length - self.shortest) % self.length_step:
            parity = "" if self.length_step == 1 else f"an {'odd' if self.shortest % 2 else 'even'} number, "
            raise ConfigError(
                f"the number of {self.unit} in a question of {type(self).__name__} must be {parity}at least "
                f"{self.shortest}, got {length}"
            )

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        best = logits.max(-1)
        share = self._share_correct(best.indices, batch)
        return share.masked_fill((best.values.isnan() & batch.scored).any(1), torch.nan)

    def further_scores(self, logits: Float[Tensor, "b t v"], batch: Batch) -> dict[str, Float[Tensor, " b"]]:
        return {"exact match": exact_match(logits, batch)}

    def grade(self, generated: list[list[str]], batch: Batch) -> GradedAnswers:
        """Grade generated answers: the share of the answer's tokens that are generated at the same place."""
        whole = super().grade(generated, batch)
        shares = []
        for words, (_, answer) in zip(generated, self.pairs(batch), strict=True):
            expected = [*answer, None] if self.scores_end else answer
            places = zip([*words, None], expected, strict=False)
            shares.append(sum(word == correct for word, correct in places) / len(expected))
        scores = torch.tensor(shares, dtype=torch.float64)
        return GradedAnswers(scores, {"exact match": whole.scores}, whole.unreadable)

    def baselines(self) -> list[Baseline]:
        if self.metric is not TOKEN_ACCURACY:  # a metric of a subclass, in which the baseline below has no score
            return []
        return [Baseline(name="most frequent token", scores=self._most_frequent_token, floor=True)]

    def _most_frequent_token(self, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b 1"]:
        mask = self._counted(batch)
        counts = torch.zeros(self.output_size, self.output_size, dtype=torch.int64)
        counts.index_put_((batch.inputs[mask], batch.targets[mask]), torch.tensor(1), accumulate=True)
        return self._share_correct(counts.argmax(1)[batch.inputs], batch)[:, None]

    def _counted(self, batch: Batch) -> Bool[Tensor, "b t"]:
        return batch.scored if self.scores_end else batch.scored & (batch.targets != self.eos)

    def _share_correct(self, predicted: Int[Tensor, "b t"], batch: Batch) -> Float[Tensor, " b"]:
        return mean_over((predicted == batch.targets).double(), self._counted(batch))


class AnsweredTask(ChomskyTask):
    """A task whose answers are computed from the word ids of the questions."""

    @abstractmethod
    def draw_questions(self, generator: torch.Generator, count: int, length: int) -> Int[Tensor, "b n"]:
        """Draw independent questions of a length."""

    @abstractmethod
    def all_questions(self, length: int) -> Int[Tensor, "m n"] | None:
        """Return all questions of a length, or None if there are too many to list."""

    @abstractmethod
    def answers(self, questions: Int[Tensor, "b n"]) -> Int[Tensor, "b a"]:
        """Return the word ids of the answers; -1 means that there is no word."""

    def draw(self, generator: torch.Generator, count: int, length: int) -> Pairs:
        questions = self.draw_questions(generator, count, length)
        return Pairs(questions, self.answers(questions))

    def all_examples(self, length: int) -> Pairs | None:
        questions = self.all_questions(length)
        return None if questions is None else Pairs(questions, self.answers(questions))


class StringTask(AnsweredTask):
    """A task on strings of uniform and independent symbols, the first `symbols` of the task's words."""

    vocabulary: ClassVar[Sequence[str]] = BITS
    symbols: ClassVar[int] = 2

    def __init__(self) -> None:
        super().__init__(self.vocabulary)

    def draw_questions(self, generator: torch.Generator, count: int, length: int) -> Int[Tensor, "b n"]:
        return torch.randint(self.symbols, (count, length), generator=generator)

    def all_questions(self, length: int) -> Int[Tensor, "m n"] | None:
        return combinations([self.symbols] * length)
