"""The interface of data sets: examples of a question in text and its accepted answers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lengthwise.values import ConfigError, join_names


@dataclass(frozen=True, slots=True)
class Example:
    """An input and the texts that are accepted as its answer, of which the first one is trained on. At least one.

    `group`: a name that examples of one question share (the answers of MultiRC). Empty: the example is a group of its
    own.
    `dataset`: the data set, for examples of several.
    """

    input: str
    references: tuple[str, ...]
    group: str = ""
    dataset: str = ""


class ExampleSet(ABC):
    """The examples of a data set: those for training, and those of a test, which have all their references.

    `sha256`: identifies the files that they come from.
    """

    sha256: str

    @abstractmethod
    def count(self, split: str) -> int:
        """Return the number of examples of the split "train" or "test"."""

    @abstractmethod
    def example(self, split: str, number: int) -> Example:
        """Return an example. It is read from the file, so that data sets may be larger than memory."""


def average(benchmark: str, names: Sequence[str], scores: Mapping[str, float]) -> float:
    """Return the mean of the scores of all parts of a benchmark (data sets or lengths), each with equal weight.

    Raise `ConfigError` unless there is a score for each name, and no other: an average over fewer parts is another
    number.
    """
    if missing := [name for name in names if name not in scores]:
        raise ConfigError(f"the average of {benchmark} needs all {len(names)} scores; missing: {join_names(missing)}")
    if unknown := [name for name in scores if name not in names]:
        raise ConfigError(f"{benchmark} has no {join_names(unknown)}; its scores are those of: {', '.join(names)}")
    return sum(scores[name] for name in names) / len(names)
