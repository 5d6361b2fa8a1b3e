"""Induction heads: the attention to what followed the same x earlier."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.config import Run
from lengthwise.probes.base import Column, OnProgress, StoredAnswers
from lengthwise.probes.in_context import InContextProbe
from lengthwise.probes.induction.question import InductionQuestion

if TYPE_CHECKING:
    from lengthwise.analysis.findings import TaskFindings
    from lengthwise.probes.induction.summary import InductionSummary
    from lengthwise.probes.measuring.trained_run import TrainedRun
    from lengthwise.report.palette import Look
    from lengthwise.store.checks import Check


class Induction(InContextProbe):
    """The heads' attention to the label that followed the same input earlier in the prompt.

    Each prompt repeats its examples. The prefix score is the mean weight of a repeated input on the label of an earlier occurrence.
    The nearest-neighbour score is the weight on the labels of the most similar earlier inputs.
    """

    question = InductionQuestion
    columns = (Column("prefix score"), Column("best head"), Column("nearest-neighbour score"))

    def checks(self) -> "tuple[Check, Check]":
        from lengthwise.probes.induction.answer import QUESTION, RESULT

        return QUESTION, RESULT

    def require(self, run: Run, questions: Sequence[InductionQuestion], against: Run | None) -> None:
        from lengthwise.probes.induction.measure import require

        require(run, questions)

    def measure(
        self,
        trained: "TrainedRun",
        question: InductionQuestion,
        against: "TrainedRun | None",
        on_progress: OnProgress = None,
    ) -> dict[str, Any]:
        from lengthwise.probes.induction.measure import measure

        return measure(trained, question, on_progress)

    def cells(self, result: Mapping[str, Any]) -> Sequence[float]:
        best = max(head or 0.0 for layer in result["induction"] for head in layer)
        return [result["prefix_score"] or 0.0, best, result["nearest_score"] or 0.0]

    def summarize(self, answers: StoredAnswers) -> "Sequence[InductionSummary]":
        from lengthwise.probes.induction.summary import summarize

        return summarize(answers)

    def section(self, summary: "InductionSummary", task: "TaskFindings", looks: "Mapping[str, Look]") -> dict[str, Any]:
        from lengthwise.probes.induction.section import section

        return section(summary, task, looks)
