"""Stored lengths of examples to histograms."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.analysis.lengths import Histogram
from lengthwise.config import ConfigError
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow


@dataclass(frozen=True, kw_only=True)
class ExampleLengthsSummary:
    """The lengths of a run's training and test examples.

    `field`: words per question ("input"), words per answer ("target"), or the task's own length ("length"). `drawn`: the number of
    examples drawn from each split; None if all examples of a fixed set were counted.
    """

    field: str
    drawn: int | None
    train: Histogram
    test: Histogram

    @property
    def origin(self) -> str:
        """Return where the examples come from."""
        if self.drawn is None:
            return "all examples"
        return "drawn at random; equally many test examples of each length, if there are enough"

    @property
    def unit(self) -> str:
        """Return what the counted lengths count, such as "words per question"; "" for the task's own length."""
        return {"input": "words per question", "target": "words per answer"}.get(self.field, "")

    def bins(self, most: int) -> list[tuple[int, int, int, int]]:
        """First length, last length, and counts of training and test examples, of at most `most` bins that both share."""
        together = Histogram(dict(sorted((Counter(self.train.counts) + Counter(self.test.counts)).items())))
        return [
            (first, last, self.train.between(first, last), self.test.between(first, last))
            for first, last, _ in together.bins(most)
        ]


def summarize(answers: StoredAnswers) -> tuple[ExampleLengthsSummary, ...]:
    """Return the lengths of runs that share task and training: for each field, the newest."""
    rows = [row for row in answers.rows if row.result["train"] and row.result["test"]]
    newest = {row.asked["field"]: example_lengths(row) for row in sorted(rows, key=lambda row: row.created)}
    return tuple(newest[field] for field in sorted(newest))


def example_lengths(row: "ProbeRow") -> ExampleLengthsSummary:
    """Return the stored lengths of a run. Raise `ConfigError` if a split has no examples."""
    parts = {}
    for split in ("train", "test"):
        if not row.result[split]:
            raise ConfigError(f"run {row.key[:8]} has no {split} examples to count")
        parts[split] = Histogram(dict(sorted((int(length), count) for length, count in row.result[split].items())))
    return ExampleLengthsSummary(field=row.asked["field"], drawn=row.asked.get("examples"), **parts)
