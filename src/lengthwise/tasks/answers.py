"""The interface of tasks with answers that a model can generate token by token."""

from abc import abstractmethod
from collections.abc import Sequence

from lengthwise.tasks.base import Batch, GradedAnswers, Task


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
