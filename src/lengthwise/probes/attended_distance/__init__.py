"""How far back the heads of a model attend."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.config import Run
from lengthwise.probes.attended_distance.question import AttendedDistanceQuestion
from lengthwise.probes.base import ATTENTION, Column, ModelProbe, OnProgress, StoredAnswers

if TYPE_CHECKING:
    from lengthwise.analysis.findings import TaskFindings
    from lengthwise.probes.attended_distance.summary import AttendedDistanceSummary
    from lengthwise.probes.measuring.trained_run import TrainedRun
    from lengthwise.report.palette import Look
    from lengthwise.store.checks import Check

BARS = "▁▂▃▄▅▆▇█"


class AttendedDistance(ModelProbe):
    """How far back the heads attend, from 0 (the token itself) to 1 (the first token).

    The distance of query i and key j is normalized: (i − j) / (i + 1). It is counted for the highest logit of each query that
    predicts a token of the answer, and for all attention weights of these queries.

    Source: Kazemnejad et al. 2023, section 5.2, figure 7.
    """

    question = AttendedDistanceQuestion
    chapter = ATTENTION
    columns = (
        Column("highest logit at distance 0 … 1", is_text=True, wrap=False),
        Column("share below 0.05"),
        Column("share from 0.95"),
    )
    default_lengths = "those of the run's evaluation that are longer than training"

    def lengths(self, train_length: int, evaluated: Sequence[int]) -> Sequence[int]:
        return [length for length in evaluated if length > train_length] or evaluated

    def checks(self) -> "tuple[Check, Check]":
        from lengthwise.probes.attended_distance.answer import QUESTION, RESULT

        return QUESTION, RESULT

    def require(self, run: Run, questions: Sequence[AttendedDistanceQuestion], against: Run | None) -> None:
        from lengthwise.probes.attended_distance.measure import require

        require(run, questions)

    def measure(
        self,
        trained: "TrainedRun",
        question: AttendedDistanceQuestion,
        against: "TrainedRun | None",
        on_progress: OnProgress = None,
    ) -> dict[str, Any]:
        from lengthwise.probes.attended_distance.measure import measure

        return measure(trained, question, on_progress)

    def cells(self, result: Mapping[str, Any]) -> Sequence[float | str]:
        """Return a histogram and two shares, averaged over all layers and heads."""
        heads = [head for layer in result["most"] for head in layer]
        shares = [sum(bins) / len(heads) / result["queries"] for bins in zip(*heads, strict=True)]
        highest = max(shares)
        strip = "".join(BARS[round(share / highest * (len(BARS) - 1))] for share in shares)
        return [strip, shares[0], shares[-1]]

    def summarize(self, answers: StoredAnswers) -> "Sequence[AttendedDistanceSummary]":
        from lengthwise.probes.attended_distance.summary import summarize

        return summarize(answers)

    def section(
        self, summary: "AttendedDistanceSummary", task: "TaskFindings", looks: "Mapping[str, Look]"
    ) -> dict[str, Any]:
        from lengthwise.probes.attended_distance.section import section

        return section(summary, task, looks)
