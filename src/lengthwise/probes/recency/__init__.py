"""Which examples of a prompt the last question attends to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.config import Run
from lengthwise.probes.base import Column, OnProgress, StoredAnswers
from lengthwise.probes.in_context import InContextProbe
from lengthwise.probes.recency.question import RecencyQuestion

if TYPE_CHECKING:
    from lengthwise.analysis.findings import TaskFindings
    from lengthwise.probes.measuring.trained_run import TrainedRun
    from lengthwise.probes.recency.summary import RecencySummary
    from lengthwise.report.palette import Look
    from lengthwise.store.checks import Check


class Recency(InContextProbe):
    """The attention weights of the last input of a prompt on earlier examples, per layer.

    Of the attention to labels, the table has the share that falls on the most recent tenth of them; it is 0.1 if all weights are
    equal. The last column is the head with the largest share.
    """

    question = RecencyQuestion
    columns = (Column("most recent tenth: first layer"), Column("last layer"), Column("best head"))

    def checks(self) -> "tuple[Check, Check]":
        from lengthwise.probes.recency.answer import QUESTION, RESULT

        return QUESTION, RESULT

    def require(self, run: Run, questions: Sequence[RecencyQuestion], against: Run | None) -> None:
        from lengthwise.probes.recency.measure import require

        require(run, questions)

    def measure(
        self,
        trained: "TrainedRun",
        question: RecencyQuestion,
        against: "TrainedRun | None",
        on_progress: OnProgress = None,
    ) -> dict[str, Any]:
        from lengthwise.probes.recency.measure import measure

        return measure(trained, question, on_progress)

    def cells(self, result: Mapping[str, Any]) -> Sequence[float]:
        from lengthwise.probes.recency.summary import recent

        layers = [[recent([weight or 0.0 for weight in head]) for head in layer] for layer in result["layers"]]
        means = [sum(layer) / len(layer) for layer in layers]
        return [means[0], means[-1], max(map(max, layers))]

    def summarize(self, answers: StoredAnswers) -> "Sequence[RecencySummary]":
        from lengthwise.probes.recency.summary import summarize

        return summarize(answers)

    def section(self, summary: "RecencySummary", task: "TaskFindings", looks: "Mapping[str, Look]") -> dict[str, Any]:
        from lengthwise.probes.recency.section import section

        return section(summary, task, looks)
